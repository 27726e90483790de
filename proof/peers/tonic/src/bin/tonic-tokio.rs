//! The gRPC service, over HTTP/2, with tonic on tokio, as its documentation shows it: on the
//! multi-thread runtime, or on a current-thread runtime.

use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use peer_common::{Args, Service, Socket, cli, version};
use tokio::net::{TcpListener, UnixListener};
use tokio::runtime::{Builder, Runtime};
use tokio_stream::wrappers::{TcpListenerStream, UnixListenerStream};
use tonic::transport::Server;

const NAME: &str = "tonic-tokio";

#[derive(Clone, Copy)]
enum Flavor {
    MultiThread,
    CurrentThread,
}

const VARIANTS: &[(&str, Flavor)] =
    &[("default", Flavor::MultiThread), ("current-thread", Flavor::CurrentThread)];

fn main() -> ExitCode {
    let (args, flavor) = cli::parse(NAME, version::TONIC, &[Service::Http], VARIANTS);
    cli::exit_code(NAME, run(&args, flavor))
}

fn run(args: &Args, flavor: Flavor) -> Result<()> {
    let runtime = runtime(args.workers, flavor)?;
    let (addr, socket) = args.listen.bind()?;
    runtime.block_on(async {
        // This is a task, so that the workers accept, and not this thread, which is not a worker.
        tokio::spawn(async move {
            let router = Server::builder().tcp_nodelay(true).add_service(peer_tonic::service());
            match socket {
                Socket::Tcp(listener) => {
                    let listener = TcpListener::from_std(listener)?;
                    cli::announce(&addr);
                    router.serve_with_incoming(TcpListenerStream::new(listener)).await?;
                }
                Socket::Unix(listener) => {
                    let listener = UnixListener::from_std(listener)?;
                    cli::announce(&addr);
                    router.serve_with_incoming(UnixListenerStream::new(listener)).await?;
                }
            }
            Ok(())
        })
        .await?
    })
}

fn runtime(workers: usize, flavor: Flavor) -> Result<Runtime> {
    let mut builder = match flavor {
        Flavor::MultiThread => Builder::new_multi_thread(),
        Flavor::CurrentThread => Builder::new_current_thread(),
    };
    match flavor {
        Flavor::MultiThread => _ = builder.worker_threads(workers),
        Flavor::CurrentThread => ensure!(workers == 1, "current-thread is one worker"),
    }
    builder.enable_all().build().context("cannot build the runtime")
}
