//! The services on compio: a thread for each worker, each with its own runtime, listening socket
//! and connections.

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use compio::BufResult;
use compio::buf::{IntoInner, IoBuf};
use compio::driver::ProactorBuilder;
use compio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use compio::net::{TcpListener, UnixListener};
use compio::runtime::RuntimeBuilder;
use peer_common::frame::INITIAL_CAPACITY;
use peer_common::{Args, Service, Socket, answer, cli, version};

const NAME: &str = "compio";

#[derive(Clone, Copy, PartialEq, Eq)]
enum Variant {
    /// compio's defaults.
    Default,
    /// With `COOP_TASKRUN` and `TASKRUN_FLAG`: completions do not interrupt the
    /// thread.
    Coop,
    /// With `SINGLE_ISSUER` and `DEFER_TASKRUN`: completions wait for the
    /// thread to ask for them.
    Defer,
}

const VARIANTS: &[(&str, Variant)] =
    &[("default", Variant::Default), ("coop", Variant::Coop), ("defer", Variant::Defer)];

fn main() -> ExitCode {
    let (args, variant) = cli::parse(NAME, version::COMPIO, Service::ALL, VARIANTS);
    cli::exit_code(NAME, run(&args, variant))
}

fn run(args: &Args, variant: Variant) -> Result<()> {
    let service = args.service;
    cli::run_workers(args, move |socket, ready| {
        let mut proactor = ProactorBuilder::new();
        match variant {
            Variant::Default => &mut proactor,
            Variant::Coop => proactor.coop_taskrun(true).taskrun_flag(true),
            Variant::Defer => proactor.single_issuer(true).defer_taskrun(true),
        };
        RuntimeBuilder::new()
            .with_proactor(proactor)
            .build()
            .context("cannot build the runtime")?
            .block_on(serve(socket.blocking()?, service, ready))
    })
}

async fn serve(socket: Socket, service: Service, ready: &dyn Fn()) -> Result<()> {
    match socket {
        Socket::Tcp(listener) => {
            let listener = TcpListener::from_std(listener)?;
            ready();
            loop {
                match listener.accept().await {
                    Ok((stream, _)) => spawn(stream, service),
                    Err(_) => pause(),
                }
            }
        }
        Socket::Unix(listener) => {
            let listener = UnixListener::from_std(listener)?;
            ready();
            loop {
                match listener.accept().await {
                    Ok((stream, _)) => spawn(stream, service),
                    Err(_) => pause(),
                }
            }
        }
    }
}

/// Waits a little after a failed accept, because no descriptor may be left.
fn pause() {
    std::thread::sleep(Duration::from_millis(5));
}

fn spawn(stream: impl AsyncRead + AsyncWrite + 'static, service: Service) {
    // If a connection fails, this affects only its client.
    compio::runtime::spawn(async move { talk(stream, service).await.ok() }).detach();
}

async fn talk(mut stream: impl AsyncRead + AsyncWrite, service: Service) -> io::Result<()> {
    let mut buffer: Vec<u8> = Vec::with_capacity(INITIAL_CAPACITY);
    let mut out = Vec::new();
    loop {
        if buffer.len() == buffer.capacity() {
            buffer.reserve(buffer.len());
        }
        let count;
        BufResult(count, buffer) = stream.append(buffer).await;
        if count? == 0 {
            return Ok(());
        }
        let answer = answer(service, &buffer, &mut out);
        if service == Service::Echo && answer.end > 0 {
            let BufResult(outcome, slice) = stream.write_all(buffer.slice(..answer.end)).await;
            outcome?;
            buffer = slice.into_inner();
        } else if !out.is_empty() {
            let outcome;
            BufResult(outcome, out) = stream.write_all(out).await;
            outcome?;
            out.clear();
        }
        buffer.drain(..answer.end);
        if answer.close {
            return Ok(());
        }
    }
}
