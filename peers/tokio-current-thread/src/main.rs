//! The services on tokio's current-thread runtime: a thread for each worker,
//! each with a runtime, a listening socket and connections of its own.

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use peer_common::{Args, Service, Session, Socket, cli, version};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, UnixListener};
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
}

const VARIANTS: &[(&str, Variant)] =
    &[("default", Variant::Default), ("burn", Variant::Burn), ("interval7", Variant::Interval7)];

fn main() -> ExitCode {
    let (args, variant) = cli::parse(NAME, version::TOKIO, Service::ALL, VARIANTS);
    cli::exit_code(NAME, run(&args, variant))
}

fn run(args: &Args, variant: Variant) -> Result<()> {
    let service = args.service;
    cli::run_workers(args, move |socket, ready| {
        let mut builder = Builder::new_current_thread();
        builder.enable_all();
        match variant {
            Variant::Default => &mut builder,
            Variant::Burn => builder.max_io_events_per_tick(4).event_interval(61),
            Variant::Interval7 => builder.max_io_events_per_tick(1024).event_interval(7),
        };
        let runtime =
            builder.build_local(LocalOptions::default()).context("cannot build the runtime")?;
        runtime.block_on(async {
            if variant == Variant::Burn {
                tokio::task::spawn_local(burn());
            }
            serve(socket, service, ready).await
        })
    })
}

/// Keeps the runtime from ever going to sleep.
async fn burn() {
    loop {
        tokio::task::yield_now().await;
    }
}

async fn serve(socket: Socket, service: Service, ready: &dyn Fn()) -> Result<()> {
    match socket {
        Socket::Tcp(listener) => {
            let listener = TcpListener::from_std(listener)?;
            ready();
            loop {
                match listener.accept().await {
                    Ok((stream, _)) => {
                        // A connection that fails concerns nobody but its client.
                        tokio::task::spawn_local(async move { talk(stream, service).await.ok() });
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
                        tokio::task::spawn_local(async move { talk(stream, service).await.ok() });
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
