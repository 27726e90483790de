//! The key-value service on loops that own their sockets: the loop that accepted a connection also
//! reads, answers, writes and closes it. The keys are shared, behind the same locks as in
//! `shared-poller`, so only the network layer differs.

use std::io;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result};
use clap::Parser;
use peer_common::{Listen, cli};
use shared_poller::Arguments;
use shared_poller::buffers::Buffers;
use shared_poller::store::Store;
use wakeful::LoopGroup;
use wakeful::accept::{ConnectionServer, SharedListener};
use wakeful::net::Stream;

const NAME: &str = "owned-sockets";

fn main() -> ExitCode {
    cli::exit_code(NAME, run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> Result<()> {
    let listener = SharedListener::bind(&arguments.listen.to_string().parse()?)?;
    let addr = listener.socket_addr().context("it listens on IP:PORT only")?;
    let store = Arc::new(Store::default());
    let loops = LoopGroup::builder().loops(arguments.workers.into());
    let serving = ConnectionServer::new(vec![listener]).group(loops).start(move || {
        let store = Arc::clone(&store);
        move |mut connection| {
            let store = Arc::clone(&store);
            async move {
                // A client that leaves in the middle is not an error.
                serve(&mut connection.stream, &store).await.ok();
            }
        }
    })?;
    cli::announce(&Listen::Tcp(addr));
    loop {
        // Sleeps until a signal ends the process, and all loops with it.
        std::thread::park();
        assert!(!serving.handles().is_empty());
    }
}

async fn serve(stream: &mut Stream, store: &Store) -> io::Result<()> {
    if let Stream::Tcp(stream) = stream {
        stream.set_nodelay(true)?;
    }
    let mut buffers = Buffers::default();
    loop {
        let outcome = buffers.answer(store);
        if !buffers.output.is_empty() {
            stream.write_all(&buffers.output).await?;
            buffers.output.clear();
        } else if outcome.is_ok() {
            match stream.read(buffers.space()).await? {
                0 => return Ok(()),
                count => buffers.received(count),
            }
        }
        if outcome.is_err() {
            return Ok(());
        }
    }
}
