//! What a loop with Tokio as its guest remembers of its idle periods, for `as_guest::idle`.

use std::cell::Cell;
use std::io;
use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// How the last idle period went, and what is known since.
#[derive(Debug, Default)]
pub(crate) struct GuestIdle {
    /// A duplicate of Tokio's epoll.
    pub(super) epoll: Option<OwnedFd>,
    pub(super) last: Cell<Last>,
    /// When Tokio's last wait ended, on the loop's clock.
    pub(super) back: Cell<u64>,
    pub(super) counts: Cell<Counts>,
    /// When the timer in the epoll fires, on the loop's clock.
    pub(super) armed: Cell<Option<u64>>,
    /// Whether the next poll of the root future is a round of a spin.
    pub(super) is_round: Cell<bool>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Last {
    /// There was no idle period, or it is accounted for.
    #[default]
    Nothing,
    /// The loop spun. The spin continues after Tokio has checked its timers.
    Spun,
    Slept,
    /// The loop slept with CPUs held. With an adaptive policy this replaces a spin.
    Held,
}

/// The loop's counters at a moment.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Counts {
    pub(super) waits: u64,
    pub(super) brought: u64,
    pub(super) timers: u64,
}

impl GuestIdle {
    /// `epoll` is Tokio's, if it is known.
    pub(crate) fn with(epoll: Option<OwnedFd>) -> Self {
        Self { epoll, ..Self::default() }
    }

    /// Begins a run. What was before the end of the last run does not count.
    pub(super) fn begins(&self) {
        self.last.take();
        self.is_round.take();
    }

    /// Are there events for Tokio, or for the loop?
    pub(super) fn has_something(&self) -> io::Result<bool> {
        let Some(epoll) = &self.epoll else { return Ok(false) };
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        match poll(&mut [PollFd::new(epoll, PollFlags::IN)], Some(&zero)) {
            Err(rustix::io::Errno::INTR) => Ok(false),
            found => Ok(found? > 0),
        }
    }

    /// Is this poll of the root future a round of a spin? If so, no task of the loop has anything
    /// to do.
    #[inline]
    pub(super) fn takes_round(&self) -> bool {
        self.is_round.take()
    }
}
