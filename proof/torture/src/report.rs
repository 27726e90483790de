//! What was done, as text and as JSON.

use std::fmt;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use serde::Serialize;

use crate::hostile::{log, panics};
use crate::ledger::{Ledger, Totals};

/// The result of a whole run.
#[derive(Debug, Serialize)]
pub(crate) struct Summary<'a> {
    seed: u64,
    seconds: f64,
    rounds: u64,
    did: &'a Totals,
    injected: Injected,
    faults: Vec<String>,
}

/// Faults by kind. Those below the sockets are zero in a program that was built without them.
#[derive(Debug, Serialize)]
struct Injected {
    short_transfers: u64,
    would_block: u64,
    interrupted: u64,
    interrupted_waits: u64,
    resets: u64,
    /// Panics on purpose, and lines of the log that met a hostile subscriber.
    panics: u64,
    log_lines: u64,
}

impl Injected {
    fn so_far() -> Self {
        #[cfg(feature = "faults")]
        let counts = wakeful::faults::counts();
        #[cfg(feature = "faults")]
        return Self {
            short_transfers: counts.short,
            would_block: counts.would_block,
            interrupted: counts.interrupted,
            interrupted_waits: counts.interrupted_waits,
            resets: counts.reset,
            panics: panics::ordered(),
            log_lines: log::lines(),
        };
        #[cfg(not(feature = "faults"))]
        Self {
            short_transfers: 0,
            would_block: 0,
            interrupted: 0,
            interrupted_waits: 0,
            resets: 0,
            panics: panics::ordered(),
            log_lines: log::lines(),
        }
    }
}

impl<'a> Summary<'a> {
    pub(crate) fn new(seed: u64, took: Duration, rounds: u64, ledger: &'a Ledger) -> Self {
        Self {
            seed,
            seconds: took.as_secs_f64(),
            rounds,
            did: &ledger.totals,
            injected: Injected::so_far(),
            faults: ledger.faults(),
        }
    }

    pub(crate) fn json(&self) -> String {
        serde_json::to_string(self).expect("numbers and texts")
    }
}

impl fmt::Display for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Relaxed);
        let (did, injected) = (self.did, &self.injected);
        let Self { seed, seconds, rounds, .. } = self;
        writeln!(f, "seed {seed}: {rounds} rounds in {seconds:.0} s")?;
        writeln!(
            f,
            "connections  {} TCP ({} of them from a thread that blocks), {} Unix, {} pairs",
            count(&did.tcp),
            count(&did.blocking),
            count(&did.unix),
            count(&did.pairs)
        )?;
        writeln!(
            f,
            "they ended   {} in order, with every byte; {} broken on purpose, with the beginning of what was sent",
            count(&did.finished),
            count(&did.broken)
        )?;
        writeln!(
            f,
            "bytes        {} sent, {} received",
            count(&did.bytes_sent),
            count(&did.bytes_received)
        )?;
        writeln!(
            f,
            "done to them {} moves ({} by way of a thread), {} times in halves, {} half closes, {} resets, {} shutdowns, {} aborts, {} peeks, {} single attempts, {} changes of priority",
            count(&did.moves),
            count(&did.detached_on_a_thread),
            count(&did.halves),
            count(&did.half_closes),
            count(&did.resets),
            count(&did.shutdowns),
            count(&did.aborts),
            count(&did.peeks),
            count(&did.attempts),
            count(&did.priorities)
        )?;
        writeln!(
            f,
            "injected     {} short transfers, {} EAGAIN, {} EINTR, {} interrupted waits, {} resets",
            injected.short_transfers,
            injected.would_block,
            injected.interrupted,
            injected.interrupted_waits,
            injected.resets
        )?;
        writeln!(
            f,
            "around them  {} panics, {} wakers, {} acts, {} visits, {} lines to a hostile log, {} times few descriptors, {} times no threads, {} stops",
            injected.panics,
            count(&did.wakers),
            count(&did.acts),
            count(&did.visits),
            injected.log_lines,
            count(&did.short_of_descriptors),
            count(&did.short_of_threads),
            count(&did.stops)
        )?;
        writeln!(f, "{} faults", self.faults.len())
    }
}

/// The line after each round.
pub(crate) fn progress(ledger: &Ledger, elapsed: Duration, rounds: u64) -> String {
    let totals = &ledger.totals;
    let connections =
        [&totals.tcp, &totals.unix, &totals.pairs].iter().map(|n| n.load(Relaxed)).sum::<u64>();
    format!(
        "{:4} s, round {rounds}: {connections} connections, {} MB, {} moves, {} faults",
        elapsed.as_secs(),
        totals.bytes_received.load(Relaxed) / 1_000_000,
        totals.moves.load(Relaxed),
        ledger.faults().len()
    )
}
