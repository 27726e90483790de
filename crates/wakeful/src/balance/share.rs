//! One loop's part of a server's balance: what it has accepted, and its memberships in the
//! listeners' lists.
//!
//! Whether it is the loop's turn is kept for each listener. A loop that takes no part in one
//! listener any more may be the only one at another.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use super::recent;
use crate::driver::membership::{Membership, Turn};
use crate::event_loop::spawn;
use crate::supervise::supervise;
use crate::sys::panics;
use crate::time::sleep;

/// How often a loop tries to get back its place at a listener.
const MEND_EVERY: Duration = Duration::from_millis(10);

/// One loop's part of the balance. See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Share {
    pub(super) accepted: AtomicU64,
    /// Recent accepts: see [`recent`].
    pub(super) recent: AtomicU64,
    /// Whether a task of the loop is trying to repair one of its memberships.
    mends: Arc<AtomicBool>,
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

    pub(super) fn set_inside(&self, listener: usize, inside: bool) {
        if self.entries().get(listener).is_some_and(|entry| entry.turn.is_open() != inside)
            && let Some(membership) = self.membership(listener)
        {
            membership.set_open(inside);
        }
    }

    /// Goes to the end of the kernel's list of loops that wait for this listener. Must be called on
    /// the share's loop.
    pub(super) fn go_to_the_end(&self, listener: usize) {
        if let Some(membership) = self.membership(listener)
            && let Err(error) = membership.requeue()
        {
            self.mend_in_time(&error);
        }
    }

    /// Repairs a membership later. The kernel had no room for another watch just now
    /// (`max_user_watches`), and perhaps no other loop looks after the membership.
    #[cold]
    fn mend_in_time(&self, error: &io::Error) {
        if self.mends.swap(true, Ordering::Relaxed) {
            return;
        }
        let (entries, mends) = (self.entries().to_vec(), self.mends.clone());
        let mend = move || {
            let (entries, mends) = (entries.clone(), mends.clone());
            async move {
                // This `while` ends with the listeners, because then no membership can be
                // upgraded.
                while !entries
                    .iter()
                    .filter_map(|e| e.membership.upgrade())
                    .all(|membership| membership.mend())
                {
                    sleep(MEND_EVERY).await;
                }
                mends.store(false, Ordering::Relaxed);
            }
        };
        spawn(supervise("watching a listener again", mend)).detach();
        panics::log!(warn, %error, "a loop gets no connections until it can watch its listener again");
    }

    /// From now on the kernel wakes this share's loop for every connection.
    pub(super) fn wake_for_all(&self) {
        for membership in self.memberships() {
            if let Err(error) = membership.wake_for_all() {
                // The code that looks after the memberships tries again.
                panics::log!(debug, %error, "a loop cannot watch a listener");
            }
        }
    }

    /// Does the kernel refuse to let this loop watch a listener that it should watch?
    pub(super) fn is_shut_out(&self) -> bool {
        self.memberships().any(|membership| membership.is_shut_out())
    }

    /// Tries again to watch the listeners that the kernel did not let this loop watch.
    pub(super) fn mend(&self) {
        for membership in self.memberships() {
            membership.mend();
        }
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
