//! Faults that are not below the sockets: user code that panics or calls back into the loop, and a
//! process that is short of something.
//!
//! The seed of a round decides which of them it has. They may cost exactly what the panicking code
//! owned. Each module says what else it checks. None of them needs the feature `faults`.

pub(crate) mod acts;
pub(crate) mod limits;
pub(crate) mod log;
pub(crate) mod panics;
pub(crate) mod server;
pub(crate) mod stop;
pub(crate) mod wakers;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use clap::ValueEnum;
use fastrand::Rng;

use crate::ledger::Ledger;

/// A kind of fault that can be left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// Handlers of connections that panic before they return their future, or while it runs.
    Handlers,
    /// Tasks, closures and what they own that panic when they run or when they are dropped.
    Panics,
    /// Foreign wakers that panic or call back into the loop when they are woken or dropped.
    Wakers,
    /// A tracing subscriber that panics or stalls.
    Log,
    /// No more threads, by `pids.max` of a cgroup. Left out if there is none.
    Threads,
    /// No more descriptors, by RLIMIT_NOFILE.
    Descriptors,
    /// SIGSTOP and SIGCONT.
    Stop,
    /// Tasks, wakers, closures, hooks and values that act on the runtime wherever they are called.
    Acts,
}

/// The kinds that a round has.
#[derive(Debug)]
pub(crate) struct Chosen(Vec<Kind>);

impl Chosen {
    /// Each kind that is not left out is in every second round.
    pub(crate) fn new(without: &[Kind], random: &mut Rng) -> Self {
        // Every kind is drawn, so that one that is left out does not change the rest of the round.
        let mut drawn: Vec<_> =
            Kind::value_variants().iter().copied().filter(|_| random.bool()).collect();
        drawn.retain(|kind| !without.contains(kind));
        Self(drawn)
    }

    pub(crate) fn has(&self, kind: Kind) -> bool {
        self.0.contains(&kind)
    }
}

/// Something that must end normally, unless its round is cut short. It counts as an end of a
/// connection, so a round waits for it.
#[derive(Debug)]
pub(crate) struct Duty {
    ledger: Arc<Ledger>,
    is_cut: Arc<AtomicBool>,
    what: &'static str,
    is_done: bool,
}

impl Duty {
    pub(crate) fn new(ledger: &Arc<Ledger>, is_cut: &Arc<AtomicBool>, what: &'static str) -> Self {
        ledger.begin();
        Self { ledger: ledger.clone(), is_cut: is_cut.clone(), what, is_done: false }
    }

    pub(crate) fn done(mut self) {
        self.is_done = true;
    }

    /// Allows any kind of end. It still has to end.
    pub(crate) fn may_fail(mut self) -> Self {
        self.is_done = true;
        self
    }
}

impl Drop for Duty {
    fn drop(&mut self) {
        if !self.is_done && !self.is_cut.load(SeqCst) {
            self.ledger.fault(format!("{} ended without its result", self.what));
        }
        self.ledger.release();
    }
}
