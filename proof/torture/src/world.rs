//! What everybody in a round shares, and the two ways to make a connection: within a loop, and the
//! accept side of it.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc;
use std::time::Duration;

use wakeful::LoopHandle;
use wakeful::accept::{Listener, is_shortage};
use wakeful::net::{DetachedStream, Stream, TcpStream, UnixStream};

use crate::bytes::HEADER;
use crate::end::{End, take};
use crate::ledger::{Account, Ledger, Side};

/// A round's loops and where they listen.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) loops: Vec<LoopHandle>,
    pub(crate) port: u16,
    pub(crate) socket: PathBuf,
    /// Streams on their way by way of a thread.
    pub(crate) couriers: mpsc::Sender<(End, DetachedStream)>,
    /// Of 256 ends, how many do not live to see their stream's end.
    pub(crate) share_of_early_deaths: u8,
    /// What is under way is cut off: it need not end in order.
    pub(crate) is_cut: Arc<AtomicBool>,
    seeds: AtomicU64,
}

/// What kind of connection.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    Tcp,
    Unix,
    /// Two ends that are made at once, and part.
    Pair,
}

impl World {
    pub(crate) fn new(
        ledger: Arc<Ledger>,
        loops: Vec<LoopHandle>,
        (port, socket): (u16, PathBuf),
        couriers: mpsc::Sender<(End, DetachedStream)>,
        seed: u64,
    ) -> Self {
        // Of every eighth end down to none.
        let share_of_early_deaths = (seed % 33) as u8;
        let seeds = AtomicU64::new(seed);
        Self {
            ledger,
            loops,
            port,
            socket,
            couriers,
            share_of_early_deaths,
            is_cut: Arc::default(),
            seeds,
        }
    }

    /// A seed for one more random number generator.
    pub(crate) fn seed(&self) -> u64 {
        self.seeds.fetch_add(0x9e37_79b9_7f4a_7c15, Relaxed)
    }

    /// An account for a connection of this kind.
    pub(crate) fn open(&self, kind: Kind) -> Arc<Account> {
        let totals = &self.ledger.totals;
        match kind {
            Kind::Tcp => self.ledger.open("tcp", &totals.tcp),
            Kind::Unix => self.ledger.open("unix", &totals.unix),
            Kind::Pair => self.ledger.open("pair", &totals.pairs),
        }
    }

    /// One of the addresses of this machine at which the loops listen: there are many, so that the
    /// ports suffice.
    pub(crate) fn address(&self) -> SocketAddr {
        let number = self.seeds.load(Relaxed).to_be_bytes();
        (Ipv4Addr::new(127, 0, number[0] & 7, 1 + number[1] % 250), self.port).into()
    }
}

/// Was this socket reset by an injected fault?
#[cfg(feature = "faults")]
pub(crate) fn was_reset(stream: &Stream) -> bool {
    wakeful::faults::was_reset(stream)
}

/// There are no injected faults in this build.
#[cfg(not(feature = "faults"))]
pub(crate) fn was_reset(_: &Stream) -> bool {
    false
}

/// The client's life of one connection. Of a pair, the server's end goes elsewhere.
pub(crate) async fn connect(world: Arc<World>, account: Arc<Account>, kind: Kind) {
    let mine = End::new(account.clone(), Side::Client, world.clone(), world.seed());
    let stream = match kind {
        Kind::Tcp => TcpStream::connect(world.address()).await.map(Stream::from),
        Kind::Unix => UnixStream::connect(&world.socket).await.map(Stream::from),
        Kind::Pair => UnixStream::pair().map(|(stream, other)| {
            let theirs = End::new(account, Side::Server, world.clone(), world.seed());
            let target = usize::try_from(world.seed() >> 33).unwrap_or(0) % world.loops.len();
            theirs.arrive(other.detach(), target);
            stream.into()
        }),
    };
    match stream {
        Ok(stream) => mine.run(stream).await,
        Err(error) => mine.failed("connect", &error),
    }
}

/// Takes connections until it is aborted.
pub(crate) async fn accept(world: Arc<World>, listener: Listener) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => wakeful::spawn(serve(world.clone(), stream)).detach(),
            Err(error) => {
                if !is_shortage(&error) {
                    world.ledger.fault(format!("accept: {error}"));
                }
                wakeful::time::sleep(Duration::from_millis(1)).await;
            }
        }
    }
}

/// Finds out which connection it is, and lives the server's end of it.
async fn serve(world: Arc<World>, mut stream: Stream) {
    let mut header = [0; HEADER];
    let mut known = 0;
    while known < HEADER {
        match stream.read(&mut header[known..]).await {
            Ok(count @ 1..) => known += count,
            // Given up before it was said whose it is: an end that is missing is judged when the
            // round is over.
            Ok(_) | Err(_) => {
                if was_reset(&stream) {
                    world.ledger.broke_unknown();
                }
                return;
            }
        }
    }
    let id = u64::from_be_bytes(header);
    let Some(account) = world.ledger.find(id) else {
        return world
            .ledger
            .fault(format!("somebody says to be connection {id}, which is not open"));
    };
    let mine = End::new(account.clone(), Side::Server, world.clone(), world.seed());
    if let Err(error) = take(&account, Side::Server, &world, &header) {
        return mine.failed("the header", &error);
    }
    mine.run(stream).await;
}

/// A client without a loop: it sends all, and then reads all, blocking its thread.
pub(crate) fn blocking(world: &Arc<World>, random: &mut fastrand::Rng) {
    world.ledger.totals.blocking.fetch_add(1, Relaxed);
    let account = world.open(Kind::Tcp);
    let mine = End::new(account, Side::Client, world.clone(), world.seed());
    // A loop that lost its wake must not stop this thread, too.
    let patience = Some(Duration::from_secs(60));
    let connected = std::net::TcpStream::connect(world.address()).and_then(|stream| {
        stream.set_read_timeout(patience)?;
        stream.set_write_timeout(patience)?;
        Ok(stream)
    });
    match connected {
        Ok(stream) => mine.run_blocking(&stream, random),
        Err(error) => mine.failed("connect", &error),
    }
}
