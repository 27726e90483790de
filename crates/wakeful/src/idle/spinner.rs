//! Applies the governor to this machine: asks the governor how long to spin, and reports the result
//! of each spin to it. A spin ends early if another thread needs the CPU. A thread with a real-time
//! policy does not spin: `sched_yield` would not give its CPU to others, and nothing that this file
//! measures would show that.

#[cfg(feature = "internals")]
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use super::cpus::Place;
use super::governor::{Governor, GovernorLimits};
use super::holder::Holder;
use super::policy::Adaptive;
use super::quota::LOOK_EVERY;
use super::survey::{self, survey};
use crate::metrics::HoldState;
use crate::sys::fork_check::Process;
use crate::sys::panics;
use crate::sys::thread::{RunQueue, Taken, is_real_time};

/// Two polls of a spin are one or two system calls apart. If the gap is longer than this, in
/// nanoseconds, the thread did not run. A shorter run of another thread also counts as this much: a
/// database that runs for 12 µs at a time needs this CPU as well, and the kernel may leave other
/// threads waiting for a tick of the scheduler, however often the spin yields.
const GAP: u64 = 50_000;

/// How much time a spin may lose to other threads in a burst, in nanoseconds. A busy neighbour
/// takes a slice of the scheduler, which is longer.
const LOST: u64 = 500_000;

/// How much a loop may lose instead if it was left alone before, and has lost nothing for
/// [`ALONE_FOR`]. It is more than a momentary piece of work takes, which is over when the loop
/// notices it.
const LOST_ALONE: u64 = 5_000_000;
const ALONE_FOR: u64 = 100_000_000;

/// In addition, one part in this many of the time may always be lost, because kernel threads and
/// interrupts are no neighbours.
const LOST_SHARE: u64 = 20;

/// The run queue's counts are never older than this, in nanoseconds, so that time that the
/// hypervisor takes is not blamed on an earlier run of another thread.
const FRESH: u64 = 1_000_000;

/// Counts over a longer time than this say little about the present.
const STALE: u64 = 10 * FRESH;

/// The survey starts after this many idle periods, because a program that hardly uses its loop does
/// not need it.
const FEW: u32 = 16;

/// The share of a CPU that a loop may use before the quota is known.
const UNKNOWN_QUOTA: f64 = 0.1;

/// The governor on this machine, for one thread. Times are nanoseconds on one clock of its loop.
#[derive(Debug)]
pub struct Spinner {
    governor: Governor,
    settings: Adaptive,
    place: Place,
    /// Where the machine's keeper consents, sleeps with the CPU held replace spins.
    holder: Option<Holder>,
    /// When the idle period began, and when the last poll of the spin was.
    began: u64,
    looked: u64,
    window: u64,
    /// How often other threads have run on this thread's CPU, and when that was last read.
    run_queue: RunQueue,
    counted: u64,
    /// How much time other threads have taken lately, and when they last did.
    lost: u64,
    lost_at: u64,
    periods: u32,
    surveyed: bool,
    /// Whether it serves a wait of a program that does not know of it, perhaps in a signal handler.
    /// Then it must not allocate, so it starts no thread and logs nothing.
    is_guest: bool,
    wants_survey: bool,
    /// The time spun since the last check of the quota, and the time of the next check.
    spun: u64,
    quota_at: u64,
    /// When the thread's scheduling policy is checked next.
    policy_at: u64,
}

/// What a loop without work does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// The spin begins, or continues.
    Spin,
    /// A sleep with the CPU held replaces the spin, for as long as the spin would have lasted, or
    /// for a tick. This is possible only at the beginning of a spin.
    Hold,
    /// The spin ends, or does not begin.
    Sleep,
}

impl Spinner {
    pub(crate) fn new(settings: Adaptive, process: Process) -> Self {
        let holder = (!settings.never_holds).then(|| Holder::by_keeper(process)).flatten();
        Self { holder, ..Self::with(settings, process, RunQueue::of_this_thread()) }
    }

    fn with(settings: Adaptive, process: Process, run_queue: RunQueue) -> Self {
        let max_window = settings.max_window.unwrap_or(survey::UNKNOWN);
        let limits = GovernorLimits {
            hit_rate: settings.hit_rate,
            max_window: u64::try_from(max_window.as_nanos()).unwrap_or(u64::MAX),
            max_cpu: settings.max_cpu.min(UNKNOWN_QUOTA),
        };
        Self {
            governor: Governor::new(limits),
            settings,
            place: Place::new(process),
            holder: None,
            began: 0,
            looked: 0,
            window: 0,
            run_queue,
            counted: 0,
            lost: 0,
            lost_at: 0,
            periods: 0,
            surveyed: false,
            is_guest: false,
            wants_survey: false,
            spun: 0,
            quota_at: 0,
            policy_at: 0,
        }
    }

    /// Makes a spinner for this thread of a program that does not know about it. It keeps no
    /// descriptor, because such a program may close descriptors that it did not open. It need not
    /// be dropped after a call of [`sleeps`](Self::sleeps).
    ///
    /// # Errors
    /// The handlers that notice a fork cannot be registered.
    #[cfg(feature = "internals")]
    pub fn of_this_thread(settings: Adaptive) -> io::Result<Self> {
        let spinner = Self::with(settings, Process::current()?, RunQueue::without_descriptor());
        Ok(Self { is_guest: true, ..spinner })
    }

    /// Returns whether it has seen traffic, but does not know what a sleep costs on this machine.
    /// Then call [`begin_survey`](Self::begin_survey) at a place where memory may be allocated.
    #[cfg(feature = "internals")]
    #[inline]
    pub fn wants_survey(&mut self) -> bool {
        std::mem::take(&mut self.wants_survey)
    }

    /// Starts threads that measure what a sleep costs. A second call in a process does nothing.
    #[cfg(feature = "internals")]
    pub fn begin_survey() {
        if let Ok(process) = Process::current() {
            survey(process.stamp());
        }
    }

    /// Returns whether it was made in this process, and not in one that this process is a fork of.
    /// Costs one load.
    #[cfg(feature = "internals")]
    #[inline]
    pub fn is_of_this_process(&self) -> bool {
        Process::is_own_stamp(self.place.stamp())
    }

    /// Returns whether the kernel should be asked once before the clock is read. That is not
    /// worthwhile before a sleep.
    #[inline]
    pub fn expects_soon(&self) -> bool {
        self.governor.expects_soon() && !self.holder.as_ref().is_some_and(Holder::is_held)
    }

    /// Begins an idle period, because nothing is runnable. Returns what the thread does next.
    #[inline]
    pub fn begin(&mut self, now: u64) -> Next {
        (self.began, self.looked) = (now, now);
        self.window = self.governor.begin(now);
        if self.window == 0 {
            // A quota that left nothing must be checked again, because otherwise it would leave
            // nothing for ever.
            if self.surveyed && now >= self.quota_at && self.governor.expects_soon() {
                self.survey(now);
            }
            return Next::Sleep;
        }
        if self.surveyed
            && let Some(holder) = &mut self.holder
            && holder.replaces_spin(now, self.window)
        {
            if now >= self.quota_at {
                self.survey(now);
            }
            self.place.give_up();
            return Next::Hold;
        }
        if (now >= self.policy_at && self.is_real_time(now)) || !self.place.take() {
            self.governor.disturbed(now, 0);
            return Next::Sleep;
        }
        if !self.surveyed || now >= self.quota_at {
            self.survey(now);
        }
        Next::Spin
    }

    /// Would a spin keep every ordinary thread from this CPU? A loop that spins asks once a second.
    /// A loop that may not spin asks when its governor wants to spin, which becomes rarer, down to
    /// every 0.13 s.
    #[cold]
    fn is_real_time(&mut self, now: u64) -> bool {
        if !is_real_time() {
            self.policy_at = now + LOOK_EVERY;
            return false;
        }
        static TOLD: AtomicBool = AtomicBool::new(false);
        if !self.is_guest && !TOLD.swap(true, Ordering::Relaxed) {
            panics::log!(
                info,
                "an adaptive loop does not spin on this thread, which has a real-time scheduling policy: no ordinary thread could use the CPU meanwhile"
            );
        }
        true
    }

    /// Checks after each poll, whatever it found, whether another thread has used this CPU. Returns
    /// whether the spin continues.
    #[inline]
    pub fn look(&mut self, now: u64) -> Next {
        let gap = now.saturating_sub(self.looked);
        self.looked = now;
        if gap > GAP || now.saturating_sub(self.counted) > FRESH {
            return self.count(now, gap);
        }
        Next::Spin
    }

    /// Counts how long another thread had the CPU lately, if it did.
    #[cold]
    fn count(&mut self, now: u64, gap: u64) -> Next {
        let is_stale = now.saturating_sub(std::mem::replace(&mut self.counted, now)) > STALE;
        let Taken { waited, times } = self.run_queue.look();
        let long = if gap > GAP { waited.unwrap_or(times.min(1) * gap).min(gap) } else { 0 };
        let short = if is_stale { 0 } else { times * GAP };
        let lost = long.max(short);
        if lost == 0 {
            return Next::Spin;
        }
        let since = now.saturating_sub(self.lost_at);
        let was_alone = since > ALONE_FOR && self.governor.is_left_alone(now);
        let bearable = if was_alone { LOST_ALONE } else { LOST };
        (self.lost, self.lost_at) = (self.lost.saturating_sub(since / LOST_SHARE) + lost, now);
        if self.lost <= bearable {
            return Next::Spin;
        }
        self.lost = 0;
        let spun = self.spent(now);
        self.governor.disturbed(now, spun);
        Next::Sleep
    }

    /// Returns whether the spin continues after a poll that found nothing.
    #[inline]
    pub fn found_nothing(&mut self, now: u64) -> Next {
        let spun = now - self.began;
        if spun < self.window {
            return Next::Spin;
        }
        self.spent(now);
        self.governor.miss(now, spun);
        Next::Sleep
    }

    /// Notes that an event ended the spin.
    #[inline]
    pub fn hit(&mut self, now: u64) {
        let spun = self.spent(now);
        self.governor.hit(now, spun);
    }

    /// Notes that a deadline ended the spin.
    pub fn cut_short(&mut self, now: u64) {
        let spun = self.spent(now);
        self.governor.cut_short(now, spun);
    }

    /// Ends the spin, and returns how long it was.
    #[inline]
    fn spent(&mut self, now: u64) -> u64 {
        let spun = now - self.began;
        self.spun += spun;
        spun
    }

    /// Whether the loop holds CPUs, and if not, why.
    #[inline]
    pub(crate) fn hold_state(&self) -> HoldState {
        self.holder.as_ref().map_or(HoldState::NotAsked, Holder::shown)
    }

    /// The holder, for a sleep that replaces a spin.
    pub(crate) fn holder(&mut self) -> Option<&mut Holder> {
        self.holder.as_mut()
    }

    /// Notes that an event ended a sleep that replaced a spin, within the window or after it.
    pub(crate) fn woken_instead(&mut self, now: u64) {
        let idle = now - self.began;
        if idle < self.window {
            self.governor.hit(now, idle);
        } else {
            self.governor.miss(now, self.window);
            self.governor.parked(idle);
        }
    }

    /// Notes that a deadline ended a sleep that replaced a spin.
    pub(crate) fn cut_short_instead(&mut self, now: u64) {
        let idle = now - self.began;
        if idle < self.window {
            self.governor.cut_short(now, idle);
        } else {
            self.governor.miss(now, self.window);
        }
    }

    /// Notes that the loop is about to sleep, here or in a wait of another library, or that nobody
    /// runs it.
    #[inline]
    pub fn sleeps(&mut self) {
        self.place.give_up();
        if let Some(holder) = &mut self.holder
            && holder.is_held()
        {
            holder.release();
        }
    }

    /// Lets another loop spin on this CPU, until this one spins again.
    #[inline]
    pub(crate) fn gives_up_cpu(&mut self) {
        self.place.give_up();
    }

    /// Notes that an event ended the sleep.
    #[inline]
    pub fn woken(&mut self, now: u64) {
        self.governor.parked(now - self.began);
    }

    #[cold]
    fn survey(&mut self, now: u64) {
        self.periods += 1;
        if self.periods < FEW {
            return;
        }
        let found = if self.is_guest { survey::known() } else { survey(self.place.stamp()) };
        let Some(found) = found else {
            self.wants_survey = self.is_guest;
            return;
        };
        if !self.surveyed {
            self.surveyed = true;
            if self.settings.max_window.is_none() {
                self.governor.set_max_window(found.max_window.as_nanos() as u64);
            }
        }
        let quota = found.quota.look(std::mem::take(&mut self.spun));
        self.quota_at = now + LOOK_EVERY;
        self.governor.set_max_cpu(now, self.settings.max_cpu.min(quota));
    }
}

#[cfg(all(test, not(wakeful_loom)))]
mod tests {
    use super::*;

    const SECOND: u64 = LOOK_EVERY;

    /// A spinner that has spun, and has found a quota that leaves `share`.
    fn under_a_quota(now: u64, share: f64) -> Spinner {
        let process = Process::current().unwrap();
        while survey(process.stamp()).is_none() {
            std::thread::yield_now();
        }
        let mut spinner = Spinner::new(Adaptive::new(), process);
        (spinner.periods, spinner.surveyed) = (FEW, true);
        spinner.quota_at = now + SECOND;
        spinner.governor.set_max_cpu(now, share);
        spinner
    }

    #[test]
    fn a_quota_that_left_nothing_is_looked_at_again() {
        let mut spinner = under_a_quota(SECOND, 0.0);
        assert_eq!(spinner.begin(SECOND + 1), Next::Sleep);
        assert!(spinner.quota_at == 2 * SECOND, "one look a second");
        assert_eq!(spinner.begin(2 * SECOND), Next::Sleep);
        assert!(spinner.quota_at == 3 * SECOND, "it has looked");
    }
}
