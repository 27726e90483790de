//! The services on monoio: a thread for each worker, each with its own runtime, listening socket
//! and connections.

use std::future::Future;
use std::io;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use monoio::buf::{IoBuf, IoBufMut};
use monoio::io::{AsyncReadRent, AsyncWriteRent, AsyncWriteRentExt};
use monoio::net::{TcpListener, UnixListener};
use monoio::{IoUringDriver, LegacyDriver, RuntimeBuilder};
use peer_common::frame::INITIAL_CAPACITY;
use peer_common::{Args, Service, Socket, answer, cli, version};

const NAME: &str = "monoio";

#[derive(Clone, Copy, PartialEq, Eq)]
enum Variant {
    /// epoll, which monoio calls its legacy driver.
    Epoll,
    /// `io_uring`, with monoio's defaults.
    Uring,
    /// `io_uring` with `COOP_TASKRUN`: completions do not interrupt the thread.
    Coop,
}

const VARIANTS: &[(&str, Variant)] =
    &[("uring", Variant::Uring), ("epoll", Variant::Epoll), ("coop", Variant::Coop)];

fn main() -> ExitCode {
    let (args, variant) = cli::parse(NAME, version::MONOIO, Service::ALL, VARIANTS);
    cli::exit_code(NAME, run(&args, variant))
}

fn run(args: &Args, variant: Variant) -> Result<()> {
    let service = args.service;
    cli::run_workers(args, move |socket, ready| match variant {
        Variant::Epoll => RuntimeBuilder::<LegacyDriver>::new()
            .enable_timer()
            .build()
            .context("cannot build the runtime")?
            .block_on(serve(socket, service, ready)),
        Variant::Uring | Variant::Coop => {
            let mut ring = io_uring::IoUring::builder();
            if variant == Variant::Coop {
                ring.setup_coop_taskrun();
            }
            RuntimeBuilder::<IoUringDriver>::new()
                .uring_builder(ring)
                .enable_timer()
                .build()
                .context("cannot build the runtime: is io_uring allowed?")?
                .block_on(serve(socket.blocking()?, service, ready))
        }
    })
}

async fn serve(socket: Socket, service: Service, ready: &dyn Fn()) -> Result<()> {
    match socket {
        Socket::Tcp(listener) => {
            let listener = TcpListener::from_std(listener)?;
            ready();
            accept(service, async || listener.accept().await.map(|(stream, _)| stream)).await
        }
        Socket::Unix(listener) => {
            let listener = UnixListener::from_std(listener)?;
            ready();
            accept(service, async || listener.accept().await.map(|(stream, _)| stream)).await
        }
    }
}

async fn accept<S, F>(service: Service, next: impl Fn() -> F) -> Result<()>
where
    S: AsyncReadRent + AsyncWriteRent + 'static,
    F: Future<Output = io::Result<S>>,
{
    loop {
        match next().await {
            Ok(stream) => {
                // If a connection fails, this affects only its client.
                monoio::spawn(async move { talk(stream, service).await.ok() });
            }
            // No descriptor may be left.
            Err(_) => monoio::time::sleep(Duration::from_millis(5)).await,
        }
    }
}

async fn talk(mut stream: impl AsyncReadRent + AsyncWriteRent, service: Service) -> io::Result<()> {
    let mut buffer: Vec<u8> = Vec::with_capacity(INITIAL_CAPACITY);
    let mut out = Vec::new();
    loop {
        if buffer.len() == buffer.capacity() {
            buffer.reserve(buffer.len());
        }
        let received = buffer.len();
        let (count, slice) = stream.read(buffer.slice_mut(received..)).await;
        buffer = slice.into_inner();
        if count? == 0 {
            return Ok(());
        }
        let answer = answer(service, &buffer, &mut out);
        if service == Service::Echo && answer.end > 0 {
            let (outcome, slice) = stream.write_all(buffer.slice(..answer.end)).await;
            outcome?;
            buffer = slice.into_inner();
        } else if !out.is_empty() {
            let outcome;
            (outcome, out) = stream.write_all(out).await;
            outcome?;
            out.clear();
        }
        buffer.drain(..answer.end);
        if answer.close {
            return Ok(());
        }
    }
}
