//! What everything in a round shares.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc;

use wakeful::LoopHandle;
use wakeful::net::Stream;

use crate::ledger::{Account, Ledger};

/// An end and its stream, while a thread carries them. Called with the index of a loop, they go on
/// there.
pub(crate) type Delivery = Box<dyn FnOnce(usize) + Send>;

/// The loops of a round, and where they listen.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) loops: Vec<LoopHandle>,
    pub(crate) port: u16,
    pub(crate) socket: PathBuf,
    /// Streams that a thread is carrying.
    pub(crate) couriers: mpsc::Sender<Delivery>,
    /// How many of 256 ends do not live until the end of their stream.
    pub(crate) share_of_early_deaths: u8,
    /// Whatever is running is cut off, and need not end normally.
    pub(crate) is_cut: Arc<AtomicBool>,
    seeds: AtomicU64,
}

/// The kind of a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    Tcp,
    Unix,
    /// Two ends that are made together, and then part.
    Pair,
}

impl World {
    pub(crate) fn new(
        ledger: Arc<Ledger>,
        loops: Vec<LoopHandle>,
        (port, socket): (u16, PathBuf),
        couriers: mpsc::Sender<Delivery>,
        seed: u64,
    ) -> Self {
        // From every eighth end down to none.
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

    /// Returns a seed for another random number generator.
    pub(crate) fn seed(&self) -> u64 {
        self.seeds.fetch_add(0x9e37_79b9_7f4a_7c15, Relaxed)
    }

    /// Opens an account for a connection of this kind.
    pub(crate) fn open(&self, kind: Kind) -> Arc<Account> {
        let totals = &self.ledger.totals;
        match kind {
            Kind::Tcp => self.ledger.open("tcp", &totals.tcp),
            Kind::Unix => self.ledger.open("unix", &totals.unix),
            Kind::Pair => self.ledger.open("pair", &totals.pairs),
        }
    }

    /// Returns one of the addresses of this machine at which the loops listen. There are many, so
    /// that the ports suffice.
    pub(crate) fn address(&self) -> SocketAddr {
        let number = self.seeds.load(Relaxed).to_be_bytes();
        (Ipv4Addr::new(127, 0, number[0] & 7, 1 + number[1] % 250), self.port).into()
    }
}

/// Returns whether an injected fault has reset this socket.
#[cfg(feature = "faults")]
pub(crate) fn was_reset(stream: &Stream) -> bool {
    wakeful::faults::was_reset(stream)
}

/// This build has no injected faults.
#[cfg(not(feature = "faults"))]
pub(crate) fn was_reset(_: &Stream) -> bool {
    false
}
