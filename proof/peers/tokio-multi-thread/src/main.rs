//! The services on tokio's multi-thread runtime: one runtime, one listening
//! socket, and a task for each connection, on whichever worker is free.

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use peer_common::{Args, Service, Session, Socket, cli, version};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, UnixListener};
use tokio::runtime::Builder;

const NAME: &str = "tokio-multi-thread";

#[derive(Clone, Copy, PartialEq, Eq)]
enum Variant {
    /// tokio's defaults.
    Default,
    /// `max_io_events_per_tick` 4, `event_interval` 61 and a task for each
    /// worker that always yields: the runtime never sleeps.
    Burn,
    /// `event_interval` 7, `max_io_events_per_tick` 1024.
    Interval7,
    /// `event_interval` 1, `max_io_events_per_tick` 1024.
    Interval1,
}

const VARIANTS: &[(&str, Variant)] = &[
    ("default", Variant::Default),
    ("burn", Variant::Burn),
    ("interval7", Variant::Interval7),
    ("interval1", Variant::Interval1),
];

fn main() -> ExitCode {
    let (args, variant) = cli::parse(NAME, version::TOKIO, Service::ALL, VARIANTS);
    cli::exit_code(NAME, run(&args, variant))
}

fn run(args: &Args, variant: Variant) -> Result<()> {
    let service = args.service;
    let workers = args.workers;
    let mut builder = Builder::new_multi_thread();
    builder.enable_all().worker_threads(workers);
    match variant {
        Variant::Default => &mut builder,
        Variant::Burn => builder.max_io_events_per_tick(4).event_interval(61),
        Variant::Interval7 => builder.max_io_events_per_tick(1024).event_interval(7),
        Variant::Interval1 => builder.max_io_events_per_tick(1024).event_interval(1),
    };
    let runtime = builder.build().context("cannot build the runtime")?;
    let (addr, socket) = args.listen.bind()?;
    runtime.block_on(async {
        if variant == Variant::Burn {
            for _ in 0..workers {
                tokio::spawn(burn());
            }
        }
        // This is a task, so that the workers accept, and not this thread, which is not a worker.
        tokio::spawn(serve(socket, service, move || cli::announce(&addr))).await?
    })
}

/// Keeps the runtime from ever going to sleep.
async fn burn() {
    loop {
        tokio::task::yield_now().await;
    }
}

async fn serve(socket: Socket, service: Service, ready: impl FnOnce()) -> Result<()> {
    match socket {
        Socket::Tcp(listener) => {
            let listener = TcpListener::from_std(listener)?;
            ready();
            loop {
                match listener.accept().await {
                    Ok((stream, _)) => {
                        // If a connection fails, this affects only its client.
                        tokio::spawn(async move { talk(stream, service).await.ok() });
                    }
                    Err(_) => pause().await,
                }
            }
        }
        Socket::Unix(listener) => {
            let listener = UnixListener::from_std(listener)?;
            ready();
            loop {
                match listener.accept().await {
                    Ok((stream, _)) => {
                        tokio::spawn(async move { talk(stream, service).await.ok() });
                    }
                    Err(_) => pause().await,
                }
            }
        }
    }
}

/// Waits a little after a failed accept, because no descriptor may be left.
async fn pause() {
    tokio::time::sleep(Duration::from_millis(5)).await;
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
