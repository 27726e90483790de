//! The HTTP service with axum on tokio, as its documentation shows it: on the
//! multi-thread runtime, or on current-thread runtimes, one for each worker.

use std::process::ExitCode;
use std::thread;

use anyhow::{Context, Result};
use peer_common::{Args, Service, Socket, cli, version};
use tokio::net::{TcpListener, UnixListener};
use tokio::runtime::Builder;

const NAME: &str = "axum-tokio";

#[derive(Clone, Copy)]
enum Flavor {
    MultiThread,
    CurrentThread,
}

const VARIANTS: &[(&str, Flavor)] =
    &[("default", Flavor::MultiThread), ("current-thread", Flavor::CurrentThread)];

fn main() -> ExitCode {
    let (args, flavor) = cli::parse(NAME, version::AXUM, &[Service::Http], VARIANTS);
    cli::exit_code(NAME, run(&args, flavor))
}

fn run(args: &Args, flavor: Flavor) -> Result<()> {
    let (addr, socket) = args.listen.bind()?;
    match flavor {
        Flavor::MultiThread => {
            let runtime =
                Builder::new_multi_thread().worker_threads(args.workers).enable_all().build();
            let runtime = runtime.context("cannot build the runtime")?;
            // This is a task, so that the workers accept, and not this thread, which is not a
            // worker.
            runtime.block_on(async {
                tokio::spawn(serve(socket, move || cli::announce(&addr))).await?
            })
        }
        Flavor::CurrentThread => thread::scope(|scope| {
            // Each worker has its own runtime. The first one runs on this thread.
            for _ in 1..args.workers {
                let socket = clone(&socket)?;
                scope.spawn(|| on_this_thread(serve(socket, || {})));
            }
            on_this_thread(serve(socket, || cli::announce(&addr)))
        }),
    }
}

fn on_this_thread(served: impl Future<Output = Result<()>>) -> Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.context("cannot build the runtime")?.block_on(served)
}

fn clone(socket: &Socket) -> Result<Socket> {
    Ok(match socket {
        Socket::Tcp(listener) => Socket::Tcp(listener.try_clone()?),
        Socket::Unix(listener) => Socket::Unix(listener.try_clone()?),
    })
}

async fn serve(socket: Socket, listens: impl FnOnce()) -> Result<()> {
    let app = peer_axum::router();
    match socket {
        Socket::Tcp(listener) => {
            let listener = TcpListener::from_std(listener)?;
            listens();
            axum::serve(listener, app).await?;
        }
        Socket::Unix(listener) => {
            let listener = UnixListener::from_std(listener)?;
            listens();
            axum::serve(listener, app).await?;
        }
    }
    Ok(())
}
