//! End to end: a service whose replies come from 32 worker threads. Each request of 64 bytes goes
//! to a worker, which adds one to every byte, and posts the reply back to the loop that owns the
//! connection. Each client has one request in flight.
//!
//! The same service runs on three loops. On wakeful, replies come by `LoopHandle::post`. On a
//! hand-written epoll loop, any of the lists carries the replies, so that only the list differs. On
//! Tokio, replies come by its channel. [`client`] loads all of them.

mod client;
mod epoll;
mod tokio;
mod wakeful;
mod workers;

use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::list::{Job, Name, ReadyList};
use crate::scheduling;

/// Bytes of a request, and of a reply.
const BYTES: usize = 64;

type Message = [u8; BYTES];

/// What the loop is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Server {
    /// wakeful; replies by `LoopHandle::post`.
    Wakeful,
    /// A hand-written epoll loop; replies by `--contender`.
    Epoll,
    /// Tokio's current-thread runtime; replies by an unbounded channel for each connection.
    Tokio,
}

#[derive(Debug, Clone, Copy, clap::Args)]
pub struct Arguments {
    /// What the loop is.
    #[arg(long, value_enum, default_value = "epoll")]
    server: Server,
    /// Connections, each with one request in flight.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=1024))]
    connections: u16,
    /// Worker threads.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: u16,
    /// How long to measure, in seconds.
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
}

#[derive(Debug, Serialize)]
pub struct Report {
    mode: &'static str,
    server: String,
    contender: Option<String>,
    connections: u16,
    workers: u16,
    seconds: f64,
    requests_per_second: f64,
    /// How often the loop's bell is rung for each request, with `epoll`.
    rings_per_request: Option<f64>,
}

impl Arguments {
    /// Returns whether the choice of a contender has an effect.
    pub fn has_contenders(&self) -> bool {
        self.server == Server::Epoll
    }
}

pub fn run(contender: Name, arguments: Arguments) -> Result<Report> {
    let duration = Duration::from_secs_f64(arguments.seconds.clamp(0.05, 3600.0));
    let cpus = scheduling::cpus()?;
    let (first, last) = (cpus[0], cpus[cpus.len() - 1]);
    let (mut clients, mut servers) = (Vec::new(), Vec::new());
    for _ in 0..arguments.connections {
        let (client, server) = std::os::unix::net::UnixStream::pair()?;
        client.set_nonblocking(true)?;
        server.set_nonblocking(true)?;
        clients.push(client);
        servers.push(server);
    }
    let load = thread::spawn(move || {
        scheduling::pin(last)?;
        client::load(clients, duration)
    });
    let workers = usize::from(arguments.workers);
    let serving = thread::spawn(move || {
        // Workers start here, and then unpin themselves, so they run anywhere.
        scheduling::pin(first)?;
        match arguments.server {
            Server::Wakeful => wakeful::serve(servers, workers).map(|()| None),
            Server::Tokio => tokio::serve(servers, workers).map(|()| None),
            Server::Epoll => contender.with(Serve { servers, workers }).map(Some),
        }
    });
    let loaded = load.join().expect("the clients do not panic");
    let rings = serving.join().expect("the server does not panic").context("the server")?;
    let loaded = loaded.context("the clients")?;
    Ok(Report {
        mode: "service",
        server: format!("{:?}", arguments.server).to_lowercase(),
        contender: arguments.has_contenders().then(|| contender.to_string()),
        connections: arguments.connections,
        workers: arguments.workers,
        seconds: loaded.seconds,
        requests_per_second: loaded.replies as f64 / loaded.seconds,
        rings_per_request: rings.map(|rings| rings as f64 / loaded.replies as f64),
    })
}

struct Serve {
    servers: Vec<std::os::unix::net::UnixStream>,
    workers: usize,
}

impl Job for Serve {
    type Output = Result<u64>;

    fn run<L: ReadyList>(self) -> Result<u64> {
        epoll::serve::<L>(&self.servers, self.workers)
    }
}
