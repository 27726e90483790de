//! The counters of a server, for each of its loops. Any thread can read them without stopping a
//! loop.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crossbeam_utils::CachePadded;

/// The counters of a [`ConnectionServer`](crate::accept::ConnectionServer).
///
/// # Threads
/// `Send` and `Sync`. Each number is exact, but two numbers are not read at the same instant.
#[derive(Debug, Default)]
pub struct Counts {
    loops: Box<[CachePadded<LoopCounts>]>,
    left: AtomicUsize,
    /// For each listener, the connections that could not be accepted.
    not_accepted: Mutex<Vec<(RawFd, u32)>>,
    is_over: AtomicBool,
}

impl Counts {
    /// Makes counters for this number of loops, all zero.
    #[must_use]
    pub fn new(loops: usize) -> Self {
        let loops = (0..loops).map(|_| CachePadded::default()).collect();
        Self { loops, ..Self::default() }
    }

    /// Returns the counters of each loop, in the order of the loops' numbers.
    pub fn loops(&self) -> impl ExactSizeIterator<Item = &LoopCounts> {
        self.loops.iter().map(|counts| &**counts)
    }

    /// Returns how many connections are open now.
    #[must_use]
    pub fn open(&self) -> usize {
        self.loops().map(LoopCounts::open).sum()
    }

    /// Returns how many connections were accepted since the start.
    #[must_use]
    pub fn accepted(&self) -> u64 {
        self.loops().map(LoopCounts::accepted).sum()
    }

    /// Returns how many accepts failed since the start, for example because no descriptors or
    /// memory were left.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.loops().map(LoopCounts::failed).sum()
    }

    /// Returns how many times a loop was woken for a connection and found none.
    #[must_use]
    pub fn wakes_in_vain(&self) -> u64 {
        self.loops().map(LoopCounts::wakes_in_vain).sum()
    }

    /// Returns how many times a loop could not take a connection that was given to it. The
    /// connection then went to another loop.
    #[must_use]
    pub fn passed_on(&self) -> u64 {
        self.loops().map(LoopCounts::passed_on).sum()
    }

    /// Returns how many connections were closed without being served.
    #[must_use]
    pub fn turned_away(&self) -> u64 {
        self.loops().map(LoopCounts::turned_away).sum()
    }

    /// Returns how many connections moved from one loop to another.
    #[must_use]
    pub fn moved(&self) -> u64 {
        self.loops().map(LoopCounts::moved).sum()
    }

    /// How many connections were still in a backlog when the grace period of a drain was over.
    pub(crate) fn left(&self) -> usize {
        self.left.load(Ordering::Relaxed)
    }

    /// Counts the connections that a loop leaves in a listener's backlog when it ends. It has
    /// closed `closed` of them, and `waiting` are still there.
    pub(crate) fn add_left(&self, listener: RawFd, closed: u32, waiting: u32) {
        let mut not_accepted = self.not_accepted.lock().unwrap_or_else(PoisonError::into_inner);
        let place = not_accepted.iter().position(|(known, _)| *known == listener);
        let place = place.unwrap_or_else(|| {
            not_accepted.push((listener, 0));
            not_accepted.len() - 1
        });
        // Several loops have the same listener, and the previous one may have counted these
        // connections already.
        let seen = std::mem::replace(&mut not_accepted[place].1, waiting);
        let new = (u64::from(closed) + u64::from(waiting)).saturating_sub(seen.into());
        self.left.fetch_add(usize::try_from(new).unwrap_or(usize::MAX), Ordering::Relaxed);
    }

    /// Notes that the grace period of a drain is over: no more connections are taken from the
    /// backlogs.
    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    pub(crate) fn of(&self, number: usize) -> &LoopCounts {
        &self.loops[number]
    }
}

/// The counters of one loop of a server.
#[derive(Debug, Default)]
pub struct LoopCounts {
    open: AtomicUsize,
    accepted: AtomicU64,
    failed: AtomicU64,
    wakes_in_vain: AtomicU64,
    passed_on: AtomicU64,
    turned_away: AtomicU64,
    moved: AtomicU64,
}

impl LoopCounts {
    /// Returns how many connections are open now, including those on their way to this loop.
    #[must_use]
    pub fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Returns how many connections this loop has begun to serve, including those that other loops
    /// accepted.
    #[must_use]
    pub fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }

    /// Returns how many accepts failed on this loop: no descriptors or memory were left, or the
    /// listener was broken.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    /// Returns how many times this loop was woken for a connection and found none, because another
    /// loop was faster.
    #[must_use]
    pub fn wakes_in_vain(&self) -> u64 {
        self.wakes_in_vain.load(Ordering::Relaxed)
    }

    /// Returns how many connections were given to this loop and went to another one, because this
    /// loop had ended or could not watch them.
    #[must_use]
    pub fn passed_on(&self) -> u64 {
        self.passed_on.load(Ordering::Relaxed)
    }

    /// Returns how many connections this loop accepted and closed without serving them: descriptors
    /// were short for too long, no loop could watch them, or the server ended while they were on
    /// their way or in the backlog.
    #[must_use]
    pub fn turned_away(&self) -> u64 {
        self.turned_away.load(Ordering::Relaxed)
    }

    /// Returns how many connections moved from this loop to another one. See
    /// [`Moving`](crate::accept::Moving).
    #[must_use]
    pub fn moved(&self) -> u64 {
        self.moved.load(Ordering::Relaxed)
    }

    pub(crate) fn count_moved(&self) {
        self.moved.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn one_more_open(&self) {
        self.open.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn one_less_open(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn count_accepted(&self) {
        self.accepted.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_failed(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_wake_in_vain(&self) {
        self.wakes_in_vain.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_passed_on(&self) {
        self.passed_on.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_turned_away(&self) {
        self.turned_away.fetch_add(1, Ordering::Relaxed);
    }
}
