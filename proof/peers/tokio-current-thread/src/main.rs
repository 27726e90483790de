//! The services on tokio's current-thread runtime: a thread for each worker,
//! each with a runtime, a listening socket and connections of its own.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::process::ExitCode;
use std::task::Poll;
use std::time::Duration;

use anyhow::{Context, Result};
use peer_common::frame::FrameBuffer;
use peer_common::{Args, Service, Session, Socket, cli, version};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::runtime::{Builder, LocalOptions};

const NAME: &str = "tokio-current-thread";

#[derive(Clone, Copy, PartialEq, Eq)]
enum Variant {
    /// As tokio comes.
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
    let (args, variant) = cli::parse_with_backend(NAME, version::TOKIO, Service::ALL, VARIANTS);
    cli::exit_code(NAME, run(&args, variant))
}

fn run(args: &Args, variant: Variant) -> Result<()> {
    let work = Work { service: args.service, backend: args.backend };
    cli::run_workers(args, move |socket, ready| {
        let mut builder = Builder::new_current_thread();
        builder.enable_all();
        match variant {
            Variant::Default => &mut builder,
            Variant::Burn => builder.max_io_events_per_tick(4).event_interval(61),
            Variant::Interval7 => builder.max_io_events_per_tick(1024).event_interval(7),
            Variant::Interval1 => builder.max_io_events_per_tick(1024).event_interval(1),
        };
        let runtime =
            builder.build_local(LocalOptions::default()).context("cannot build the runtime")?;
        runtime.block_on(async {
            if variant == Variant::Burn {
                tokio::task::spawn_local(burn());
            }
            serve(socket, work, ready).await
        })
    })
}

/// Keeps the runtime from ever going to sleep.
async fn burn() {
    loop {
        tokio::task::yield_now().await;
    }
}

/// What is done for a connection.
#[derive(Clone, Copy)]
struct Work {
    service: Service,
    /// Who answers, if it is not this service.
    backend: Option<SocketAddr>,
}

async fn serve(socket: Socket, work: Work, ready: &dyn Fn()) -> Result<()> {
    match socket {
        Socket::Tcp(listener) => {
            let listener = TcpListener::from_std(listener)?;
            ready();
            loop {
                match listener.accept().await {
                    Ok((stream, _)) => {
                        // A connection that fails concerns nobody but its client.
                        tokio::task::spawn_local(async move {
                            match work.backend {
                                None => talk(stream, work.service).await.ok(),
                                Some(backend) => {
                                    let (from, to) = stream.into_split();
                                    relay(from, to, backend).await.ok()
                                }
                            }
                        });
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
                        tokio::task::spawn_local(async move {
                            match work.backend {
                                None => talk(stream, work.service).await.ok(),
                                Some(backend) => {
                                    let (from, to) = stream.into_split();
                                    relay(from, to, backend).await.ok()
                                }
                            }
                        });
                    }
                    Err(_) => pause().await,
                }
            }
        }
    }
}

/// Waits a little after a failed accept: there may be no descriptor left.
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

/// A frontend's connection: whole frames to a connection of its own to the
/// backend, and back.
async fn relay(
    from_client: impl AsyncRead + Unpin,
    to_client: impl AsyncWrite + Unpin,
    backend: SocketAddr,
) -> io::Result<()> {
    let backend = TcpStream::connect(backend).await?;
    backend.set_nodelay(true)?;
    let (from_backend, to_backend) = backend.into_split();
    let mut requests = pin!(pass_on(from_client, to_backend));
    let mut answers = pin!(pass_on(from_backend, to_client));
    let mut asks = true;
    // Once the client asks no more, the backend answers what is left and closes.
    std::future::poll_fn(|cx| {
        if asks && let Poll::Ready(outcome) = requests.as_mut().poll(cx) {
            outcome?;
            asks = false;
        }
        answers.as_mut().poll(cx)
    })
    .await
}

async fn pass_on(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
) -> io::Result<()> {
    let mut buffer = FrameBuffer::default();
    loop {
        let count = from.read(buffer.space()).await?;
        if count == 0 {
            return to.shutdown().await;
        }
        buffer.add_received(count);
        let frames = buffer.frames();
        to.write_all(&buffer.received()[..frames.end]).await?;
        buffer.discard(frames.end);
        if frames.oversized {
            return Err(io::ErrorKind::InvalidData.into());
        }
    }
}
