//! One loop's part of a server's balance: what it has accepted, and its memberships in the
//! listeners' lists.
//!
//! Whether it is the loop's turn is kept for each listener. A loop that takes no part in one
//! listener any more may be the only one at another.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use super::recent;
use crate::driver::membership::{Membership, Turn};

/// One loop's part of the balance. See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Share {
    pub(super) accepted: AtomicU64,
    /// Recent accepts: see [`recent`].
    pub(super) recent: AtomicU64,
    /// Whether a task of the loop is trying to repair one of its memberships: see `mends`.
    mends: AtomicBool,
    /// How many of its connections should move to other loops.
    pub(super) gives: AtomicUsize,
    /// Its memberships, by the listeners' places in the server. Empty if it shares no listener with
    /// other loops or other processes.
    entries: OnceLock<Box<[Entry]>>,
}

/// A loop's access to one listener. The membership itself closes with the loop's listener.
#[derive(Debug, Clone)]
struct Entry {
    turn: Arc<Turn>,
    membership: Weak<Membership>,
}

impl Share {
    /// Notes the memberships of a loop that begins to accept.
    pub(super) fn enter(&self, memberships: impl Iterator<Item = Arc<Membership>>) {
        let entry = |membership: Arc<Membership>| Entry {
            turn: membership.turn().clone(),
            membership: Arc::downgrade(&membership),
        };
        let fresh = self.entries.set(memberships.map(entry).collect()).is_ok();
        debug_assert!(fresh, "a loop enters once");
    }

    fn entries(&self) -> &[Entry] {
        self.entries.get().map_or(&[], |entries| entries)
    }

    /// The places of the listeners that it shares with other loops.
    pub(super) fn listeners(&self) -> std::ops::Range<usize> {
        0..self.entries().len()
    }

    /// Does any task on this loop accept?
    pub(super) fn accepts(&self) -> bool {
        self.entries().iter().any(|entry| !entry.turn.is_closed())
    }

    /// Does any task on this loop accept from this listener?
    pub(super) fn accepts_from(&self, listener: usize) -> bool {
        self.entries().get(listener).is_some_and(|entry| !entry.turn.is_closed())
    }

    /// Its membership in a listener's list, as long as the membership exists.
    pub(super) fn membership(&self, listener: usize) -> Option<Arc<Membership>> {
        self.entries().get(listener)?.membership.upgrade()
    }

    fn memberships(&self) -> impl Iterator<Item = Arc<Membership>> + '_ {
        self.entries().iter().filter_map(|entry| entry.membership.upgrade())
    }

    /// Is the loop one of those that take this listener's connections?
    pub(super) fn is_inside(&self, listener: usize) -> bool {
        self.entries().get(listener).is_some_and(|entry| entry.turn.is_inside())
    }

    /// Is the loop in the kernel's list of this listener? The kernel may have refused a loop that
    /// is [inside](Self::is_inside), or no task of that loop accepts for now.
    pub(super) fn is_in_list(&self, listener: usize) -> bool {
        self.is_inside(listener) && self.membership(listener).is_some_and(|it| it.is_registered())
    }

    /// Lets the loop into a listener's list, or takes it out.
    ///
    /// # Errors
    /// The kernel has no room for another watch (`max_user_watches`).
    pub(super) fn set_inside(&self, listener: usize, inside: bool) -> io::Result<()> {
        if self.entries().get(listener).is_some_and(|entry| entry.turn.is_open() != inside)
            && let Some(membership) = self.membership(listener)
        {
            return membership.set_open(inside);
        }
        Ok(())
    }

    /// Goes to the end of the kernel's list of loops that wait for this listener.
    ///
    /// # Errors
    /// The same as for [`set_inside`](Self::set_inside).
    pub(super) fn go_to_the_end(&self, listener: usize) -> io::Result<()> {
        self.membership(listener).map_or(Ok(()), |membership| membership.requeue())
    }

    /// From now on the kernel wakes this share's loop for every connection.
    ///
    /// # Errors
    /// The same as for [`set_inside`](Self::set_inside).
    pub(super) fn wake_for_all(&self) -> io::Result<()> {
        let all = self.memberships().map(|membership| membership.wake_for_all());
        // A membership that fails keeps no other one from its change.
        all.fold(Ok(()), io::Result::and)
    }

    /// Notes that a task of the loop should repair its memberships. `false`: there is one.
    pub(super) fn begin_mending(&self) -> bool {
        !self.mends.swap(true, Ordering::AcqRel)
    }

    /// Called by the task that repairs the memberships. Returns whether the task may end.
    pub(super) fn end_mending(&self) -> bool {
        if !self.mend() {
            return false;
        }
        self.mends.swap(false, Ordering::AcqRel);
        // A membership that failed before that line has no task yet.
        !self.is_shut_out() || !self.begin_mending()
    }

    /// Does the kernel refuse to let this loop watch a listener that it should watch?
    pub(super) fn is_shut_out(&self) -> bool {
        self.memberships().any(|membership| membership.is_shut_out())
    }

    /// Tries again to watch the listeners that the kernel did not let this loop watch.
    /// Returns whether it now watches all that it should.
    pub(super) fn mend(&self) -> bool {
        let mut all = true;
        for membership in self.memberships() {
            all &= membership.mend();
        }
        all
    }

    /// How many connections the loop has accepted lately: see [`recent`].
    pub(super) fn recent(&self, now: u64) -> f64 {
        recent::count(self.recent.load(Ordering::Relaxed), milliseconds(now))
    }

    pub(super) fn note(&self, now: u64) {
        self.accepted.fetch_add(1, Ordering::Relaxed);
        let recent = recent::with_one_more(self.recent.load(Ordering::Relaxed), milliseconds(now));
        self.recent.store(recent, Ordering::Relaxed);
    }
}

fn milliseconds(nanoseconds: u64) -> u32 {
    (nanoseconds / 1_000_000) as u32
}
