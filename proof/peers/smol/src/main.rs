//! The services on smol: one executor that all workers run, one listening
//! socket, and a task for each connection.

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use peer_common::{Args, Service, Session, Socket, cli, version};
use smol::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use smol::{Async, Executor, Timer, future};

const NAME: &str = "smol";

fn main() -> ExitCode {
    let (args, ()) = cli::parse(NAME, version::SMOL, Service::ALL, cli::ONE_VARIANT);
    cli::exit_code(NAME, run(&args))
}

fn run(args: &Args) -> Result<()> {
    let executor: &'static Executor<'static> = Box::leak(Box::new(Executor::new()));
    let (addr, socket) = args.listen.bind()?;
    for index in 1..args.workers {
        std::thread::Builder::new()
            .name(format!("worker-{index}"))
            .spawn(|| smol::block_on(executor.run(future::pending::<()>())))?;
    }
    let serving = executor.spawn(serve(executor, socket, args.service, move || {
        cli::announce(&addr);
    }));
    smol::block_on(executor.run(serving))
}

async fn serve(
    executor: &'static Executor<'static>,
    socket: Socket,
    service: Service,
    ready: impl FnOnce(),
) -> Result<()> {
    match socket {
        Socket::Tcp(listener) => {
            let listener = Async::new(listener)?;
            ready();
            loop {
                match listener.accept().await {
                    // If a connection fails, this affects only its client.
                    Ok((stream, _)) => executor.spawn(talk(stream, service)).detach(),
                    Err(_) => pause().await,
                }
            }
        }
        Socket::Unix(listener) => {
            let listener = Async::new(listener)?;
            ready();
            loop {
                match listener.accept().await {
                    Ok((stream, _)) => executor.spawn(talk(stream, service)).detach(),
                    Err(_) => pause().await,
                }
            }
        }
    }
}

/// Waits a little after a failed accept, because no descriptor may be left.
async fn pause() {
    Timer::after(Duration::from_millis(5)).await;
}

async fn talk(mut stream: impl AsyncRead + AsyncWrite + Unpin, service: Service) -> io::Result<()> {
    let mut session = Session::new(service);
    loop {
        let count = stream.read(session.space()).await?;
        if count == 0 {
            return Ok(());
        }
        session.received(count);
        stream.write_all(session.output()).await?;
        if !session.written() {
            return Ok(());
        }
    }
}
