//! The HTTP service with axum on tokio's multi-thread runtime, as its
//! documentation shows it.

use std::process::ExitCode;

use anyhow::{Context, Result};
use axum::Router;
use axum::routing::get;
use peer_common::{Args, Service, Socket, cli, version};
use tokio::net::{TcpListener, UnixListener};
use tokio::runtime::Builder;

const NAME: &str = "axum-tokio";

fn main() -> ExitCode {
    let (args, ()) = cli::parse(NAME, version::AXUM, &[Service::Http], cli::ONE_VARIANT);
    cli::exit_code(NAME, run(&args))
}

fn run(args: &Args) -> Result<()> {
    let runtime = Builder::new_multi_thread()
        .enable_all()
        .worker_threads(args.workers)
        .build()
        .context("cannot build the runtime")?;
    let (addr, socket) = args.listen.bind()?;
    runtime.block_on(async {
        // As a task, so that it is the workers that accept and not this thread,
        // which is none of them.
        tokio::spawn(async move {
            let app = Router::new().route("/", get(async || "hello\n"));
            match socket {
                Socket::Tcp(listener) => {
                    let listener = TcpListener::from_std(listener)?;
                    cli::announce(&addr);
                    axum::serve(listener, app).await?;
                }
                Socket::Unix(listener) => {
                    let listener = UnixListener::from_std(listener)?;
                    cli::announce(&addr);
                    axum::serve(listener, app).await?;
                }
            }
            Ok(())
        })
        .await?
    })
}
