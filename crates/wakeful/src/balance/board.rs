//! What the loops of a group know of one another: how busy each is, and how many are active.
//! `watchdog` knows which of them are awake, asleep or stuck.

mod watchdog;
mod watchers;

use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;

pub(crate) use self::watchdog::Seat;
use self::watchers::{Watcher, Watchers};
use super::activity::{Activity, Targets};
use super::alarm::Alarm;
use super::siblings::OurTurn;
use crate::event_loop::Spent;
use crate::sys::panics;

/// How often a running loop reports how busy it was, and how often some loop reviews the reports.
pub(crate) const SAY_EVERY: Duration = Duration::from_millis(10);
const REVIEW_EVERY: u64 = 50_000_000;

/// The weight of the newest report in the mean.
const NEWEST: f64 = 0.5;

/// A loop that has not reported for this long, in nanoseconds, sleeps.
const SILENT: u64 = 1_000_000_000;

/// What the loops know of one another. Each loop writes its own line. The loop that reviews reads
/// all lines, at most once in 50 ms. See the [module](self).
pub(crate) struct Board {
    members: Box<[CachePadded<Member>]>,
    active: AtomicUsize,
    /// The utilisation that a loop should not exceed while another one is below.
    target: f64,
    epoch: Instant,
    next_review: AtomicU64,
    reviews: Mutex<Reviews>,
    watchers: Watchers<Self>,
    /// `None` in a group of one loop.
    alarm: Option<Alarm>,
    /// `Some` in a worker that has siblings.
    turn: Option<OurTurn>,
}

#[derive(Debug, Default)]
struct Member {
    /// The time that the loop has been busy since the beginning, in nanoseconds.
    busy: AtomicU64,
    /// The utilisation that the last review found, in millionths.
    utilisation: AtomicU32,
    /// When the loop reported last, in ticks; 0: it sleeps.
    heard: AtomicU64,
}

#[derive(Debug)]
struct Reviews {
    /// `None`: all loops are always active.
    activity: Option<Activity>,
    /// How busy each loop had been at the last review.
    busy: Box<[u64]>,
    at: u64,
}

impl Board {
    pub(crate) fn new(
        loops: usize,
        activity: Option<Activity>,
        turn: Option<OurTurn>,
    ) -> io::Result<Self> {
        let alarm = (loops > 1).then(Alarm::new).transpose()?;
        let active = activity.as_ref().map_or(loops, Activity::active);
        let targets = activity.as_ref().map_or_else(Targets::default, Activity::targets);
        Ok(Self {
            members: (0..loops).map(|_| CachePadded::default()).collect(),
            active: AtomicUsize::new(active),
            target: targets.utilisation,
            epoch: Instant::now(),
            next_review: AtomicU64::new(REVIEW_EVERY),
            reviews: Mutex::new(Reviews { activity, busy: vec![0; loops].into(), at: 0 }),
            watchers: Watchers::new(),
            alarm,
            turn,
        })
    }

    pub(crate) fn loops(&self) -> usize {
        self.members.len()
    }

    /// How many loops are active. Loops with lower numbers are active.
    #[inline]
    pub(crate) fn active(&self) -> usize {
        self.active.load(Ordering::Acquire)
    }

    pub(crate) fn turn(&self) -> Option<&OurTurn> {
        self.turn.as_ref()
    }

    /// How long each loop has worked since the beginning, on average, in nanoseconds.
    pub(crate) fn busy(&self) -> u64 {
        let busy = self.members.iter().map(|member| member.busy.load(Ordering::Relaxed));
        busy.fold(0, u64::wrapping_add) / self.members.len() as u64
    }

    /// The utilisation that a loop should not exceed while another active one is below.
    pub(crate) fn target(&self) -> f64 {
        self.target
    }

    /// The share of its time that a loop works, as the last review found it. It is nearly 0 if
    /// there was no review for a second, because then all loops sleep.
    pub(crate) fn utilisation(&self, number: usize) -> f64 {
        let reviewed = self.next_review.load(Ordering::Relaxed);
        if self.now() > reviewed + SILENT {
            return 0.0;
        }
        f64::from(self.members[number].utilisation.load(Ordering::Relaxed)) / 1e6
    }

    /// Calls `watcher` now, and after each review.
    pub(crate) fn watch(&self, watcher: Watcher<Self>) {
        if watcher(self) {
            self.watchers.add(watcher);
        }
    }

    /// Reports how loop `number` spent its time since its last report.
    pub(crate) fn say(&self, number: usize, spent: Spent) {
        let busy = u64::try_from(spent.busy.as_nanos()).unwrap_or(u64::MAX);
        let member = &self.members[number];
        // Only the loop itself writes this field.
        let sum = member.busy.load(Ordering::Relaxed).wrapping_add(busy);
        member.busy.store(sum, Ordering::Relaxed);
        let now = self.now();
        self.hear(number);
        if now >= self.next_review.load(Ordering::Relaxed) {
            self.review(now);
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    #[cold]
    fn review(&self, now: u64) {
        // Another loop is already reviewing.
        let Some(mut reviews) = panics::try_lock(&self.reviews) else { return };
        if now < self.next_review.load(Ordering::Relaxed) {
            return;
        }
        self.next_review.store(now + REVIEW_EVERY, Ordering::Relaxed);
        let Reviews { activity, busy: before, at } = &mut *reviews;
        let passed = now.saturating_sub(std::mem::replace(at, now)).max(1) as f64;
        let mut together = 0.0;
        let is_stuck = self.stuck();
        for (number, (member, before)) in self.members.iter().zip(before).enumerate() {
            let busy = member.busy.load(Ordering::Relaxed);
            // This may be more than all of the time, if a long turn began earlier.
            let said = busy.wrapping_sub(std::mem::replace(before, busy)) as f64 / passed;
            // A loop that is stuck reports nothing.
            let share = if is_stuck(number) { 1.0 } else { said.min(1.2) };
            // After a long silence the old value means nothing.
            let weight = if passed > SILENT as f64 { 1.0 } else { NEWEST };
            let old = f64::from(member.utilisation.load(Ordering::Relaxed)) / 1e6;
            let utilisation = old + (share - old) * weight;
            member.utilisation.store((utilisation * 1e6) as u32, Ordering::Relaxed);
            together += share;
        }
        let mut changed = None;
        if let Some(activity) = activity {
            let (was, active) = (activity.active(), activity.review(now, together));
            self.active.store(active, Ordering::Release);
            changed = (active != was).then_some((was, active));
        }
        drop(reviews);
        self.tell();
        if let Some((was, active)) = changed {
            panics::log!(debug, was, active, utilisation = together, "active loops");
        }
    }

    /// Tells the watchers.
    fn tell(&self) {
        self.watchers.tell(self);
    }
}

impl std::fmt::Debug for Board {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Board")
            .field("loops", &self.loops())
            .field("active", &self.active())
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(wakeful_loom)))]
mod tests {
    use std::sync::{Arc, mpsc};

    use super::*;
    use crate::sys::held_log::HeldLog;

    /// Lets time pass in which loop `number` is busy for the share `busy`.
    fn pass(board: &Board, number: usize, busy: f64) {
        board.say(
            number,
            Spent { busy: SAY_EVERY.mul_f64(busy), idle: SAY_EVERY.mul_f64(1.0 - busy) },
        );
        std::thread::sleep(SAY_EVERY);
    }

    #[test]
    fn a_busy_loop_has_another_one_woken_and_the_watchers_are_told() {
        let board = Board::new(4, Some(Activity::new(4, Targets::default())), None).unwrap();
        let told = Arc::new(AtomicUsize::new(0));
        let seen = told.clone();
        board.watch(Box::new(move |board| {
            seen.store(board.active(), Ordering::Relaxed);
            true
        }));
        assert_eq!((board.active(), told.load(Ordering::Relaxed)), (1, 1));
        while board.active() == 1 {
            pass(&board, 0, 1.0);
        }
        assert_eq!(told.load(Ordering::Relaxed), board.active());
        assert!(board.utilisation(0) > 0.0 && board.utilisation(1) == 0.0);
    }

    #[test]
    fn a_watcher_that_panics_is_called_again_and_those_after_it_too() {
        let board = Board::new(2, None, None).unwrap();
        let (panics, told) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (panicked, seen) = (panics.clone(), told.clone());
        board.watch(Box::new(move |_| {
            // Registering the watcher calls it once.
            assert_eq!(panicked.fetch_add(1, Ordering::Relaxed), 0, "on purpose");
            true
        }));
        board.watch(Box::new(move |_| {
            seen.fetch_add(1, Ordering::Relaxed);
            true
        }));
        while panics.load(Ordering::Relaxed) < 3 {
            pass(&board, 0, 0.5);
        }
        assert_eq!(told.load(Ordering::Relaxed), 3);
    }

    #[test]
    fn a_watcher_that_blocks_keeps_no_other_thread_from_telling_them() {
        let board = Board::new(2, None, None).unwrap();
        let (first, told) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (blocks, is_blocked) = mpsc::sync_channel(0);
        let (release, released) = mpsc::channel::<()>();
        let (released, seen) = (Mutex::new(released), told.clone());
        board.watch(Box::new(move |_| {
            // Registering the watcher calls it once.
            if first.fetch_add(1, Ordering::Relaxed) == 1 {
                blocks.send(()).unwrap();
                let _ = released.lock().unwrap().recv();
            }
            true
        }));
        board.watch(Box::new(move |_| {
            seen.fetch_add(1, Ordering::Relaxed);
            true
        }));
        std::thread::scope(|scope| {
            scope.spawn(|| board.tell());
            is_blocked.recv().unwrap();
            let before = told.load(Ordering::Relaxed);
            board.tell();
            let after = told.load(Ordering::Relaxed);
            drop(release);
            assert_eq!(after, before + 1, "the other watcher is told");
        });
        assert_eq!(told.load(Ordering::Relaxed), 3);
    }

    /// A loop that stands in may call a third one, whatever its own log line does.
    #[test]
    fn the_watchers_are_told_before_it_is_logged_that_one_more_loop_is_active() {
        let board = Board::new(3, Some(Activity::new(3, Targets::default())), None).unwrap();
        let told = Arc::new(AtomicUsize::new(0));
        let seen = told.clone();
        board.watch(Box::new(move |_| {
            seen.fetch_add(1, Ordering::Relaxed);
            true
        }));
        let log = HeldLog::at("user code has blocked every active loop");
        board.hear(0);
        let alarm = board.alarm.as_ref().unwrap();
        while !(alarm.has_rung(alarm.now()) && board.stuck()(0)) {
            std::thread::yield_now();
        }
        std::thread::scope(|scope| {
            let subscribe = log.subscribe();
            scope.spawn(|| {
                subscribe();
                board.hear(1);
            });
            log.wait();
            let told = told.load(Ordering::Relaxed);
            drop(log);
            assert_eq!((board.active(), told), (2, 2));
        });
    }

    #[test]
    fn what_panicked_under_a_lock_keeps_nobody_out() {
        let board = Board::new(2, Some(Activity::new(2, Targets::default())), None).unwrap();
        let locks_and_panics = || {
            let _held = board.reviews.lock();
            panic!("on purpose");
        };
        assert!(!panics::contain(locks_and_panics));
        assert!(board.reviews.is_poisoned());
        let told = Arc::new(AtomicUsize::new(0));
        let seen = told.clone();
        board.watch(Box::new(move |_| {
            seen.fetch_add(1, Ordering::Relaxed);
            true
        }));
        for _ in 0..500 {
            if board.active() > 1 && told.load(Ordering::Relaxed) > 1 {
                return;
            }
            pass(&board, 0, 1.0);
        }
        panic!("{} active loops, told {told:?} times", board.active());
    }

    #[test]
    fn without_an_aim_all_are_active_and_their_utilisation_is_known() {
        let board = Board::new(2, None, None).unwrap();
        assert_eq!(board.active(), 2);
        while board.utilisation(1) == 0.0 {
            pass(&board, 1, 0.5);
        }
    }
}
