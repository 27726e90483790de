//! The echo service on tokio's current-thread runtime: one task for each
//! connection, on a runtime without work stealing and without timers.

use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, LocalOptions};
use wakeful_benches::cli;
use wakeful_benches::frame::FrameBuffer;

/// The echo service on tokio's current-thread runtime.
#[derive(Parser)]
struct Args {
    /// The address to listen on.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:7001")]
    listen: SocketAddr,
}

fn main() -> ExitCode {
    cli::exit_code("echo-tokio", run(&Args::parse()))
}

fn run(args: &Args) -> Result<()> {
    let runtime = Builder::new_current_thread()
        .enable_io()
        .build_local(LocalOptions::default())
        .context("cannot build the runtime")?;
    runtime.block_on(serve(args.listen))
}

async fn serve(addr: SocketAddr) -> Result<()> {
    let listener =
        TcpListener::bind(addr).await.with_context(|| format!("cannot listen on {addr}"))?;
    eprintln!("listening on {}", listener.local_addr()?);
    loop {
        let (stream, _) = listener.accept().await.context("cannot accept")?;
        // A connection that fails concerns nobody but its client.
        tokio::task::spawn_local(async move { echo(stream).await.ok() });
    }
}

/// Answers every frame of one connection until the client closes it or
/// announces a frame that is too large.
async fn echo(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = FrameBuffer::default();
    loop {
        let count = stream.read(buffer.space()).await?;
        if count == 0 {
            return Ok(());
        }
        buffer.add_received(count);
        let frames = buffer.frames();
        stream.write_all(&buffer.received()[..frames.end]).await?;
        if frames.oversized {
            return Ok(());
        }
        buffer.discard(frames.end);
    }
}
