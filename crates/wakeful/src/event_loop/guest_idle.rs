//! What a loop with Tokio as its guest keeps of its idle periods, for `as_guest::idle`.

use std::cell::Cell;
use std::io;
use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// What became of the last time that nothing was to do, and what is known since.
#[derive(Debug, Default)]
pub(crate) struct GuestIdle {
    /// Tokio's.
    pub(super) epoll: Option<OwnedFd>,
    pub(super) last: Cell<Last>,
    /// When Tokio came back from its wait, on the loop's clock.
    pub(super) back: Cell<u64>,
    pub(super) counts: Cell<Counts>,
    /// When the timer in the epoll fires, on the loop's clock.
    pub(super) armed: Cell<Option<u64>>,
    /// The next poll of the root future is a round of a spin.
    pub(super) is_round: Cell<bool>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Last {
    /// There was none, or it is accounted for.
    #[default]
    Nothing,
    /// A spin goes on when Tokio's timers were looked at.
    Spun,
    Slept,
    /// With CPUs held; in the place of a spin, if the policy is to adapt.
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
    /// With Tokio's epoll, if that is known.
    pub(crate) fn with(epoll: Option<OwnedFd>) -> Self {
        Self { epoll, ..Self::default() }
    }

    /// A run begins: what was before the last one's end says nothing.
    pub(super) fn begins(&self) {
        self.last.take();
        self.is_round.take();
    }

    /// Is there anything for Tokio, or for the loop?
    pub(super) fn has_something(&self) -> io::Result<bool> {
        let Some(epoll) = &self.epoll else { return Ok(false) };
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        match poll(&mut [PollFd::new(epoll, PollFlags::IN)], Some(&zero)) {
            Err(rustix::io::Errno::INTR) => Ok(false),
            found => Ok(found? > 0),
        }
    }

    /// Is the poll of the root future a round of a spin? Nothing is owed to anybody then.
    #[inline]
    pub(super) fn takes_round(&self) -> bool {
        self.is_round.take()
    }
}
