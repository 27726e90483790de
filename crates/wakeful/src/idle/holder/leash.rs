//! Ends a hold whose loop takes no turns any more. A loop that runs by itself ends its holds: the
//! silence is a timeout of its sleep. If another library's loop drives it by `turn`, the next turn
//! may come late or never, without notice.
//!
//! So such a turn leaves a deadline in a word, and a thread checks when the deadline has passed.
//! The one that swaps the deadline for another value owns the hold: the next turn, which continues
//! it, or the thread, which ends it. Neither waits for the other: a turn that finds the thread
//! ending the hold begins a new hold when the thread has finished.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread::{JoinHandle, park, park_timeout};
use std::time::{Duration, Instant};

use crate::sys::thread::{start_thread, without_signals};

/// No hold lasts beyond a turn. The thread sleeps until it is woken.
const IDLE: u64 = 0;
/// The thread is ending the hold.
const ENDING: u64 = 1;
/// The thread has ended the hold.
const ENDED: u64 = 2;
/// The loop is gone, so the thread ends, too.
const OVER: u64 = 3;
/// The loop is in a turn. All values between `OVER` and this one are deadlines, in nanoseconds.
const IN_TURN: u64 = u64::MAX;

/// How often the thread checks while turns follow each other.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// How the thread ends a hold.
pub(super) trait Release: Send + Sync {
    fn release(&self);
}

#[derive(Debug)]
struct Word {
    now: AtomicU64,
    epoch: Instant,
}

/// Ends a hold if no turn comes. See the [module](self).
#[derive(Debug)]
pub(super) struct Leash {
    word: Arc<Word>,
    thread: JoinHandle<()>,
    /// The address of what the thread releases. The thread's reference keeps that address from
    /// being used again.
    held_at: usize,
}

impl Leash {
    /// # Errors
    /// No thread can be started.
    pub(super) fn new(held: &Arc<impl Release + 'static>) -> io::Result<Self> {
        let word = Arc::new(Word { now: AtomicU64::new(IN_TURN), epoch: Instant::now() });
        let held_at = address(held);
        let (seen, held) = (Arc::clone(&word), Arc::downgrade(held));
        let watch = move || watch(&seen, &held);
        let thread = without_signals(|| start_thread("wakeful-leash", watch))?;
        Ok(Self { word, thread, held_at })
    }

    /// Does the thread release `held`? The loop may have another connection by now.
    pub(super) fn is_of(&self, held: &Arc<impl Release>) -> bool {
        self.held_at == address(held)
    }

    /// Called at the end of a turn after which the hold lasts: until `deadline`, if no other turn
    /// comes.
    pub(super) fn leave_turn(&self, deadline: Instant) {
        let deadline = nanoseconds(deadline.saturating_duration_since(self.word.epoch));
        let before = self.word.now.swap(deadline.clamp(OVER + 1, IN_TURN - 1), Ordering::Relaxed);
        if before != IN_TURN {
            self.thread.thread().unpark();
        }
    }

    /// Called at the beginning of a turn. Returns whether the hold still lasts.
    pub(super) fn enter_turn(&self) -> bool {
        let to_turn = |word| (word > OVER).then_some(IN_TURN);
        let relaxed = Ordering::Relaxed;
        self.word.now.fetch_update(Ordering::Acquire, relaxed, to_turn).is_ok()
    }

    /// May another hold begin? Not while the thread is ending the previous one.
    pub(super) fn is_through(&self) -> bool {
        self.word.now.load(Ordering::Acquire) != ENDING
    }

    /// Notes that the loop itself has ended the hold, in a turn.
    pub(super) fn ended(&self) {
        let to_idle = |word| (word == IN_TURN).then_some(IDLE);
        let _ = self.word.now.fetch_update(Ordering::Relaxed, Ordering::Relaxed, to_idle);
    }
}

impl Drop for Leash {
    fn drop(&mut self) {
        self.word.now.store(OVER, Ordering::Relaxed);
        self.thread.thread().unpark();
    }
}

fn address(held: &Arc<impl Release>) -> usize {
    Arc::as_ptr(held).addr()
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn watch(word: &Word, held: &Weak<impl Release>) {
    loop {
        let seen = word.now.load(Ordering::Relaxed);
        match seen {
            OVER => return,
            IDLE | ENDED | ENDING => park(),
            IN_TURN => park_timeout(LOOK_EVERY),
            deadline => {
                let now = nanoseconds(word.epoch.elapsed());
                if now < deadline {
                    park_timeout(Duration::from_nanos(deadline - now));
                    continue;
                }
                let (acquire, relaxed) = (Ordering::Acquire, Ordering::Relaxed);
                if word.now.compare_exchange(deadline, ENDING, acquire, relaxed).is_ok() {
                    if let Some(held) = held.upgrade() {
                        held.release();
                    }
                    let _ = word.now.compare_exchange(ENDING, ENDED, Ordering::Release, relaxed);
                }
            }
        }
    }
}

#[cfg(all(test, not(wakeful_loom)))]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::thread::yield_now;

    use super::*;

    struct Held(Sender<()>);

    impl Release for Held {
        fn release(&self) {
            self.0.send(()).unwrap();
        }
    }

    fn leash() -> (Leash, Arc<Held>, Receiver<()>) {
        let (send, released) = channel();
        let held = Arc::new(Held(send));
        (Leash::new(&held).unwrap(), held, released)
    }

    fn long() -> Instant {
        Instant::now() + Duration::from_secs(3600)
    }

    #[test]
    fn a_hold_ends_when_no_turn_comes_and_not_before() {
        let (leash, _held, released) = leash();
        leash.leave_turn(long());
        assert!(leash.enter_turn(), "it is the next turn's");
        leash.leave_turn(Instant::now());
        released.recv().unwrap();
        while !leash.is_through() {
            yield_now();
        }
        assert!(!leash.enter_turn());
        // The next one.
        leash.leave_turn(Instant::now());
        released.recv().unwrap();
        assert!(released.try_recv().is_err());
    }

    #[test]
    fn what_the_loop_has_ended_is_not_ended_again() {
        let (leash, _held, released) = leash();
        leash.ended();
        assert!(leash.is_through() && !leash.enter_turn());
        leash.leave_turn(long());
        assert!(leash.enter_turn());
        drop(leash);
        assert!(released.try_recv().is_err());
    }

    #[test]
    fn the_thread_ends_with_the_loop() {
        let (leash, held, _released) = leash();
        let word = Arc::downgrade(&leash.word);
        leash.leave_turn(long());
        drop((leash, held));
        while word.upgrade().is_some() {
            yield_now();
        }
    }
}
