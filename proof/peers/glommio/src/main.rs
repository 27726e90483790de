//! The services on glommio: a thread for each worker, each with its own executor, listening socket
//! and connections.

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use futures_lite::{AsyncReadExt, AsyncWriteExt};
use glommio::net::{TcpListener, TcpStream};
use glommio::{LocalExecutorBuilder, Placement};
use peer_common::{Args, Listen, Service, Session, cli, version};

const NAME: &str = "glommio";

/// How long `--variant spin` spins before it parks.
const SPIN: Duration = Duration::from_millis(10);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Variant {
    /// glommio's defaults.
    Default,
    /// `spin_before_park` of 10 ms.
    Spin,
}

const VARIANTS: &[(&str, Variant)] = &[("default", Variant::Default), ("spin", Variant::Spin)];

fn main() -> ExitCode {
    let (args, variant) = cli::parse(NAME, version::GLOMMIO, Service::ALL, VARIANTS);
    cli::exit_code(NAME, run(&args, variant))
}

fn run(args: &Args, variant: Variant) -> Result<()> {
    if matches!(args.listen, Listen::Unix(_)) {
        // glommio's own Unix listener accepts neither a path that is in use nor a second worker.
        bail!("cannot listen on {}: this peer takes IP:PORT only", args.listen);
    }
    let service = args.service;
    cli::run_workers(args, move |socket, ready| {
        let mut builder = LocalExecutorBuilder::new(Placement::Unbound);
        if variant == Variant::Spin {
            builder = builder.spin_before_park(SPIN);
        }
        let executor = builder.make().map_err(|e| anyhow!("cannot build the executor: {e}"))?;
        // glommio takes existing sockets only by `unsafe`. This socket has made sure that no other
        // process listens there.
        let addr = socket.local_addr()?.context("not an IP address")?;
        drop(socket);
        executor.run(async {
            let listener = TcpListener::bind(addr)
                .map_err(|error| anyhow!("cannot listen on {addr}: {error}"))?;
            ready();
            loop {
                match listener.accept().await {
                    Ok(stream) => {
                        stream.set_nodelay(true).ok();
                        // If a connection fails, this affects only its client.
                        glommio::spawn_local(talk(stream, service)).detach();
                    }
                    // No descriptor may be left.
                    Err(_) => glommio::timer::sleep(Duration::from_millis(5)).await,
                }
            }
        })
    })
}

async fn talk(mut stream: TcpStream, service: Service) -> io::Result<()> {
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
