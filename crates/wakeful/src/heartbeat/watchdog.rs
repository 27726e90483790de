//! The watchdog: it decides which loops are stuck, and when to look next. Its callers pass the
//! time.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::Acquire;
use std::time::{Duration, Instant};

use super::page::{Heartbeats, new_eventfd};
use super::protocol::{all_sleep, beat_of, watch_no_more, watch_on};
use super::{places, work};

/// The longest time between two beats of a loop that takes turns. A loop checks at the end of a
/// turn whether 10 ms have passed, and spins for 16.7 ms at most between two checks.
const LONGEST_BEAT: Duration = Duration::from_millis(30);

/// How many times per timeout the watchdog looks. So it finds a stuck loop no later than a quarter
/// after the timeout.
const LOOKS: u32 = 4;

/// Watches the loops of a process's workers. [The module](super) explains how.
///
/// It has no thread and no clock. Wait until its descriptor ([`AsFd`]) is readable, or until
/// [`Look::next`], and then call [`look`](Self::look). An earlier call does no harm.
///
/// Only the process that made it may use it. A forked child should drop it, which has no effect on
/// the parent.
///
/// # Threads
/// `Send`.
#[derive(Debug)]
pub struct Watchdog {
    timeout: Duration,
    ring: Arc<OwnedFd>,
    pages: Vec<Watched>,
    last: Option<LastLook>,
}

#[derive(Debug, Clone, Copy)]
struct LastLook {
    at: Instant,
    /// When to look next. `None`: all loops slept.
    next: Option<Instant>,
}

/// The result of [`Watchdog::look`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Look {
    /// The loops that have been in one turn for longer than the timeout. Each look reports such a
    /// loop again, until its turn ends or its page is [reset](Watchdog::reset) or
    /// [removed](Watchdog::remove).
    pub stuck: Vec<StuckLoop>,
    /// When to call [`Watchdog::look`] next. `None` if all loops sleep: the first one that wakes
    /// makes the watchdog readable. (Also `None` if no clock can represent the time.)
    pub next: Option<Instant>,
}

/// A loop that has been in one turn for longer than the timeout.
#[derive(Debug)]
#[non_exhaustive]
pub struct StuckLoop {
    /// The heartbeats of the loop's worker. Compare them with `==` to find the worker.
    pub heartbeats: Heartbeats,
    /// The number of the loop in its group.
    pub number: usize,
    /// How long the loop has been in this turn, at least. Only time in which the watchdog ran
    /// counts.
    pub at_least: Duration,
    /// The place where the running task was spawned, and the task's name if it has one:
    /// `src/file.rs:12 (name)`. `None` if the loop runs something else (a callback, or a guest's
    /// work), or if the worker has more than 128 such places. The worker writes this text. It is a
    /// line without control characters, of a few hundred bytes at most.
    pub running: Option<String>,
    /// What the task works on, if it has called [`working_on`](super::working_on): with
    /// wakeful-http, the method and the path of a request. The worker keeps the first 88 bytes of
    /// the description (44 on 32-bit machines). Here, bytes that are neither graphic ASCII nor
    /// spaces are percent-encoded, so this text may be three times as long.
    pub work: Option<String>,
}

/// What a loop is doing, as far as the watchdog knows. Use it to show a list of workers.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum LoopState {
    /// The loop waits for work, or it does not run.
    Asleep,
    /// The loop takes turns.
    #[non_exhaustive]
    Awake {
        /// How long the loop has been in the current turn, at least. This is zero unless the
        /// watchdog has seen the loop in this turn twice.
        at_least: Duration,
        /// The running task, as in [`StuckLoop::running`].
        running: Option<String>,
        /// What the task works on, as in [`StuckLoop::work`].
        work: Option<String>,
    },
}

#[derive(Debug)]
struct Watched {
    page: Heartbeats,
    loops: Box<[Seen]>,
}

/// What the last look found of a loop.
#[derive(Debug, Default, Clone, Copy)]
struct Seen {
    beat: Option<usize>,
    /// How long the loop has been in that beat, at least.
    at_least: Duration,
    /// Whether the loop has a guest, and was asked for a turn in this beat.
    asked: bool,
}

impl Watchdog {
    /// Makes a watchdog. A loop counts as stuck if it has been in a turn for longer than `timeout`.
    /// The watchdog detects this at most a quarter of `timeout` later. With a timeout below a
    /// second, a busy machine may look like a stuck loop.
    ///
    /// # Errors
    /// No descriptor is left: the watchdog needs one.
    pub fn new(timeout: Duration) -> io::Result<Self> {
        Ok(Self { timeout, ring: Arc::new(new_eventfd()?), pages: Vec::new(), last: None })
    }

    /// Sets another timeout, which also applies to turns that have begun. Call [`look`](Self::look)
    /// afterwards, because the next look is due at another time.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// Makes a page for this many loops. The first `guests` of them have a guest.
    ///
    /// # Errors
    /// No descriptor is left (it needs one, and one for each guest), or no memory; or
    /// memfd_create(2) is refused.
    pub(crate) fn page(&mut self, loops: usize, guests: usize) -> io::Result<Heartbeats> {
        let page = Heartbeats::new(loops, guests, self.ring.clone())?;
        let loops = vec![Seen::default(); loops].into();
        self.pages.push(Watched { page: page.clone(), loops });
        Ok(page)
    }

    /// Clears this page for another worker. All processes of the old worker must have ended.
    pub fn reset(&mut self, heartbeats: &Heartbeats) {
        heartbeats.clear();
        if let Some(watched) = self.pages.iter_mut().find(|watched| watched.page == *heartbeats) {
            watched.loops.fill(Seen::default());
        }
    }

    /// Stops watching this page, for example because its worker has ended.
    pub fn remove(&mut self, heartbeats: &Heartbeats) {
        self.pages.retain(|watched| watched.page != *heartbeats);
    }

    /// Checks all loops, and returns those that are stuck.
    ///
    /// `now` is `Instant::now()`, or a time that a test chooses. Makes one system call.
    pub fn look(&mut self, now: Instant) -> Look {
        // This read comes first, so that the next wait sees each ring from here on.
        let _ = rustix::io::read(&self.ring, &mut [0; 8]);
        let (passed, limit) = (self.time_that_counts(now), self.limit());
        let mut is_any_awake = false;
        for watched in &mut self.pages {
            is_any_awake |= watched.look(passed, limit);
        }
        if !is_any_awake && !self.rest() {
            is_any_awake = true;
            // These loops have just woken.
            self.pages.iter_mut().for_each(|watched| _ = watched.look(Duration::ZERO, limit));
        }
        let stuck = self.pages.iter().flat_map(|watched| watched.stuck(limit)).collect();
        let distance = limit / LOOKS + Duration::from_nanos(1);
        let next = is_any_awake.then(|| now.checked_add(distance)).flatten();
        self.last = Some(LastLook { at: now, next });
        Look { stuck, next }
    }

    /// Returns what each loop of this page is doing, in the order of their numbers, without a
    /// system call. The result is empty if the page is not watched.
    #[must_use]
    pub fn loops(&self, heartbeats: &Heartbeats) -> Vec<LoopState> {
        let watched = self.pages.iter().find(|watched| watched.page == *heartbeats);
        watched.into_iter().flat_map(Watched::states).collect()
    }

    /// How much of the time since the last look counts, because the watchdog was certainly running.
    fn time_that_counts(&self, now: Instant) -> Duration {
        let Some(LastLook { at, next: Some(next) }) = self.last else { return Duration::ZERO };
        let planned = next.saturating_duration_since(at);
        let passed = now.saturating_duration_since(at);
        if passed > planned + planned / 2 { Duration::ZERO } else { passed.min(planned) }
    }

    /// How long a loop may be in one beat before it counts as stuck.
    fn limit(&self) -> Duration {
        self.timeout.saturating_add(LONGEST_BEAT)
    }

    /// Stops watching, because all loops sleep. They ring from now on. `false`: a loop is awake,
    /// and may not have rung.
    fn rest(&self) -> bool {
        let pages = || self.pages.iter().map(|watched| &watched.page);
        pages().flat_map(Heartbeats::watches).for_each(watch_no_more);
        all_sleep(pages().flat_map(Heartbeats::beats))
    }
}

impl Watched {
    /// Is any loop awake? `passed` is the time since the last look that counts.
    fn look(&mut self, passed: Duration, limit: Duration) -> bool {
        self.page.watches().for_each(watch_on);
        let mut is_any_awake = false;
        for (number, seen) in self.loops.iter_mut().enumerate() {
            let beat = beat_of(self.page.beat(number));
            is_any_awake |= beat.is_some();
            if beat.is_none() || beat != seen.beat {
                *seen = Seen { beat, ..Seen::default() };
                continue;
            }
            seen.at_least += passed;
            // This leaves the loop half of the time for an answer.
            if seen.at_least >= limit / 2 && !seen.asked {
                seen.asked = true;
                self.page.ask(number);
            }
        }
        is_any_awake
    }

    fn stuck(&self, limit: Duration) -> impl Iterator<Item = StuckLoop> {
        let all = self.loops.iter().enumerate();
        let over = all.filter(move |(_, seen)| seen.beat.is_some() && seen.at_least >= limit);
        over.map(|(number, seen)| StuckLoop {
            heartbeats: self.page.clone(),
            number,
            at_least: seen.at_least,
            running: self.running(number),
            work: self.work(number),
        })
    }

    fn states(&self) -> impl Iterator<Item = LoopState> {
        self.loops.iter().enumerate().map(|(number, seen)| {
            let Some(beat) = beat_of(self.page.beat(number)) else { return LoopState::Asleep };
            let is_same = seen.beat == Some(beat);
            let at_least = if is_same { seen.at_least } else { Duration::ZERO };
            LoopState::Awake { at_least, running: self.running(number), work: self.work(number) }
        })
    }

    fn running(&self, number: usize) -> Option<String> {
        places::text(self.page.places(), self.page.running(number).load(Acquire))
    }

    fn work(&self, number: usize) -> Option<String> {
        work::read(self.page.work(number))
    }
}

impl AsFd for Watchdog {
    /// Returns a descriptor that becomes readable when a loop wakes after all loops slept. Use it
    /// only to wait.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ring.as_fd()
    }
}

#[cfg(all(test, not(miri), not(wakeful_loom)))]
mod tests;
