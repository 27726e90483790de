//! Whether the machine's CPUs should not be held at present: on battery, and while the hypervisor
//! takes time from them. The machine's keeper and `wakeful awake` use the same check ([`BackOff`]).
//!
//! The check reads files of the kernel, which may take long (firmware asks the battery), so no loop
//! does it. A thread of the process does it once a second, while a loop holds the device or would
//! hold it. The thread sleeps when no loop has asked for a second, so without traffic nothing runs.
//! A loop reads one word before each sleep with CPUs held.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::thread::futex;
use wakeful_awake::{BackOff, Reluctance};

use crate::metrics::HoldState;

const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Set if a loop has asked since the last check.
const ASKED: u32 = 1;
/// Set while the thread sleeps until a loop asks.
const SLEEPS: u32 = 2;
const ON_BATTERY: u32 = 4;
const STOLEN: u32 = 8;
const RELUCTANT: u32 = ON_BATTERY | STOLEN;

/// The result of the thread's last check. It is one word, so that no thread waits for another.
#[derive(Debug)]
pub(super) struct Machine(AtomicU32);

/// The one that all loops of this process use.
pub(super) static MACHINE: Machine = Machine::new();

impl Machine {
    pub(super) const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Why CPUs should not be held now, as far as the last check found out. Also asks for the next
    /// check.
    #[inline]
    pub(super) fn why_not(&self) -> Option<HoldState> {
        match self.0.load(Ordering::Relaxed) {
            ASKED => None,
            _ => self.ask(),
        }
    }

    #[cold]
    fn ask(&self) -> Option<HoldState> {
        let before = self.0.fetch_or(ASKED, Ordering::Relaxed);
        if before & SLEEPS != 0 {
            // If no thread waits, this does nothing.
            let _ = futex::wake(&self.0, futex::Flags::PRIVATE, 1);
        }
        match before & RELUCTANT {
            0 => None,
            ON_BATTERY => Some(HoldState::OnBattery),
            _ => Some(HoldState::Stolen),
        }
    }

    /// Checks for ever. It first resets the word, because in a forked child the word is the
    /// parent's.
    pub(super) fn watch(&self, mut back_off: BackOff) -> ! {
        self.0.store(ASKED, Ordering::Relaxed);
        loop {
            self.found(back_off.look(Instant::now()));
            sleep(LOOK_EVERY);
            self.wait_for_a_question();
        }
    }

    pub(super) fn found(&self, found: Option<Reluctance>) {
        let found = match found {
            None => 0,
            Some(Reluctance::OnBattery) => ON_BATTERY,
            // Any other reason is treated like this one.
            Some(_) => STOLEN,
        };
        let with = |word| Some(word & !RELUCTANT | found);
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, with);
    }

    /// Returns when a loop asks.
    pub(super) fn wait_for_a_new_question(&self) {
        self.0.fetch_and(!ASKED, Ordering::Relaxed);
        self.wait_for_a_question();
    }

    /// Returns when a loop has asked since the last call.
    fn wait_for_a_question(&self) {
        loop {
            let before = self.0.fetch_and(!(ASKED | SLEEPS), Ordering::Relaxed);
            if before & ASKED != 0 {
                return;
            }
            let (idle, asleep) = (before & RELUCTANT, before & RELUCTANT | SLEEPS);
            let relaxed = Ordering::Relaxed;
            if self.0.compare_exchange(idle, asleep, relaxed, relaxed).is_ok() {
                // The call was interrupted, or the word has changed. Either way the loop looks at
                // the word again.
                let _ = futex::wait(&self.0, futex::Flags::PRIVATE, asleep, None);
            }
        }
    }
}

#[cfg(all(test, not(wakeful_loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_is_said_to_whoever_asks() {
        let machine = Machine::new();
        assert_eq!(machine.why_not(), None);
        for (found, why_not) in [
            (Some(Reluctance::OnBattery), Some(HoldState::OnBattery)),
            (Some(Reluctance::Stolen(11)), Some(HoldState::Stolen)),
            (None, None),
        ] {
            machine.found(found);
            assert_eq!([machine.why_not(), machine.why_not()], [why_not; 2]);
        }
    }

    #[test]
    fn the_thread_sleeps_while_nobody_asks_and_is_woken_by_a_question() {
        static MACHINE: Machine = Machine::new();
        let word = || MACHINE.0.load(Ordering::Relaxed);
        let waits = || {
            let waits = std::thread::spawn(|| MACHINE.wait_for_a_question());
            while word() & SLEEPS == 0 {
                assert!(!waits.is_finished());
                std::thread::yield_now();
            }
            waits
        };
        let thread = waits();
        assert_eq!(MACHINE.why_not(), None);
        thread.join().unwrap();
        assert_eq!(word(), 0);
        // A question from before the call counts, except in `wait_for_a_new_question`.
        MACHINE.why_not();
        MACHINE.wait_for_a_question();
        MACHINE.why_not();
        let thread = std::thread::spawn(|| MACHINE.wait_for_a_new_question());
        while word() & SLEEPS == 0 {
            assert!(!thread.is_finished());
            std::thread::yield_now();
        }
        MACHINE.why_not();
        thread.join().unwrap();
        // The last result stays while the thread sleeps.
        MACHINE.found(Some(Reluctance::OnBattery));
        let thread = waits();
        assert_eq!(MACHINE.why_not(), Some(HoldState::OnBattery));
        thread.join().unwrap();
    }
}
