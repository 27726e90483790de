//! One loop's part of a server's balance: what it has accepted, and its doors to the listeners.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use crate::driver::door::Door;
use crate::event_loop::spawn;
use crate::time::sleep;

/// What a loop has accepted counts half after so long, in nanoseconds.
pub(super) const HALF_LIFE: u64 = 250_000_000;

/// How often a loop tries to get back its place at a listener.
const MEND_EVERY: Duration = Duration::from_millis(10);

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Share {
    pub(super) accepted: AtomicU64,
    /// Accepts, of which old ones count less, as the bits of an `f32` above the millisecond of the last one.
    pub(super) recent: AtomicU64,
    pub(super) inside: AtomicBool,
    /// A task of the loop tries to have one of its doors mended.
    mends: Arc<AtomicBool>,
    /// So many of its connections should go on to other loops.
    pub(super) gives: AtomicUsize,
    /// Its doors to all listeners. They close with the loop's listeners.
    pub(super) doors: OnceLock<Box<[Weak<Door>]>>,
}

impl Share {
    /// Does anybody on this loop accept at all?
    pub(super) fn accepts(&self) -> bool {
        self.doors.get().is_some_and(|doors| doors.iter().any(|door| door.strong_count() > 0))
    }

    pub(super) fn doors(&self) -> impl Iterator<Item = Arc<Door>> + '_ {
        self.doors.get().into_iter().flatten().filter_map(Weak::upgrade)
    }

    pub(super) fn set_inside(&self, inside: bool) {
        if self.inside.swap(inside, Ordering::SeqCst) == inside {
            return;
        }
        // Another loop may change it meanwhile. The doors follow the last word, whoever was slower.
        let mut done = !inside;
        while done != self.inside.load(Ordering::SeqCst) {
            done = !done;
            self.doors().for_each(|door| door.set_open(done));
        }
    }

    /// Of the kernel's lists. Called on the share's loop.
    pub(super) fn go_to_the_end(&self) {
        for door in self.doors() {
            if let Err(error) = door.knock() {
                self.mend_in_time(&error);
            }
        }
    }

    /// The kernel had no room for another watch just now (`max_user_watches`), and nobody else may look after the door.
    #[cold]
    fn mend_in_time(&self, error: &io::Error) {
        if self.mends.swap(true, Ordering::Relaxed) {
            return;
        }
        tracing::warn!(%error, "a loop gets no connections until it can watch its listener again");
        let (doors, mends) = (self.doors.get().cloned().unwrap_or_default(), self.mends.clone());
        spawn(async move {
            // It ends with the listeners.
            while !doors.iter().filter_map(Weak::upgrade).all(|door| door.mend()) {
                sleep(MEND_EVERY).await;
            }
            mends.store(false, Ordering::Relaxed);
        })
        .detach();
    }

    /// Tries again where the kernel did not let it watch a listener.
    pub(super) fn mend(&self) {
        for door in self.doors() {
            door.mend();
        }
    }

    pub(super) fn is_inside(&self) -> bool {
        self.accepts() && self.inside.load(Ordering::SeqCst)
    }

    pub(super) fn recent(&self, now: u64) -> f64 {
        let packed = self.recent.load(Ordering::Relaxed);
        let (count, at) = (f32::from_bits((packed >> 32) as u32), packed as u32);
        // Of two moments in milliseconds, modulo 49 days; another loop's may be later.
        let passed = ((now / 1_000_000) as u32).wrapping_sub(at).cast_signed().max(0);
        f64::from(count) * 0.5_f64.powf(f64::from(passed) * 1e6 / HALF_LIFE as f64)
    }

    pub(super) fn note(&self, now: u64) {
        self.accepted.fetch_add(1, Ordering::Relaxed);
        let recent = (self.recent(now) + 1.0) as f32;
        let packed = (u64::from(recent.to_bits()) << 32) | u64::from((now / 1_000_000) as u32);
        self.recent.store(packed, Ordering::Relaxed);
    }
}
