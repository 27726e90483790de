//! The page: what is where in it, and the bells.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use rustix::event::{EventfdFlags, eventfd};

use super::list::{List, State};
use crate::driver::epoll::Timer;
use crate::sys::clock;
use crate::sys::limits::explain_call;
use crate::sys::shared_words::{SharedLine, SharedWords};
use crate::sys::sync::AtomicUsize;

/// The words of a line. A line has 128 bytes, because processors fetch adjacent cache lines
/// together, and no two processors should write to one line.
const LINE: usize = 16;

/// The first line is common to all workers. Each further line belongs to one worker.
const ACTIVE: usize = 0;
const LAYOUT: usize = 1;
const CPUS: usize = 2;
const UNCLAIMED: usize = 3;
const DUE: usize = LINE / 2;

const STATE: usize = 0;
const BUSY: usize = 1;
const HEARD: usize = 2;
const RECENT: usize = 3;

/// Another program, or another version of this one, has another number here. Change it with the
/// layout.
const THIS_LAYOUT: usize = 0x7761_6b54;

#[derive(Debug)]
pub(super) struct Page {
    words: Arc<SharedWords>,
    bells: Box<[OwnedFd]>,
    timer: Arc<Timer>,
    /// How many workers can run at the same time.
    cpus: usize,
}

impl Page {
    pub(super) fn new(places: usize, cpus: usize) -> io::Result<Self> {
        let words = Arc::new(SharedWords::new((places + 1) * LINE)?);
        words[ACTIVE].store(1, Relaxed);
        words[LAYOUT].store(THIS_LAYOUT, Relaxed);
        words[CPUS].store(cpus, Relaxed);
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let bell = |_| eventfd(0, flags).map_err(explain_call("eventfd2"));
        let bells = (0..places).map(bell).collect::<io::Result<_>>()?;
        Ok(Self { words, bells, timer: Arc::new(Timer::new()?), cpus })
    }

    /// The descriptors, in the order that [`from_descriptors`](Self::from_descriptors) expects.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        [self.words.as_fd(), self.timer.as_fd()]
            .into_iter()
            .chain(self.bells.iter().map(AsFd::as_fd))
    }

    /// The page that another process made. `None`: these are not the descriptors of a page, or the
    /// page has another layout.
    pub(super) fn from_descriptors(descriptors: impl Iterator<Item = OwnedFd>) -> Option<Self> {
        let mut descriptors = descriptors;
        let words = Arc::new(SharedWords::of(descriptors.next()?).ok()?);
        let timer = Arc::new(Timer::from(descriptors.next()?));
        let bells: Box<[_]> = descriptors.collect();
        let is_whole = words.len() == (bells.len() + 1) * LINE;
        if !is_whole || words[LAYOUT].load(Relaxed) != THIS_LAYOUT {
            return None;
        }
        let cpus = words[CPUS].load(Relaxed);
        Some(Self { words, bells, timer, cpus })
    }

    /// The time in nanoseconds, on one clock for all workers.
    pub(super) fn now(&self) -> u64 {
        clock::monotonic()
    }

    pub(super) fn cpus(&self) -> usize {
        self.cpus
    }

    fn word(&self, place: usize, word: usize) -> &AtomicUsize {
        &self.words[(place + 1) * LINE + word]
    }

    pub(super) fn busy(&self, place: usize) -> u64 {
        self.word(place, BUSY).load(Relaxed) as u64
    }

    pub(super) fn set_busy(&self, place: usize, nanoseconds: u64) {
        self.word(place, BUSY).store(nanoseconds as usize, Relaxed);
    }

    pub(super) fn heard(&self, place: usize) -> u64 {
        self.word(place, HEARD).load(SeqCst) as u64
    }

    pub(super) fn set_heard(&self, place: usize, ticks: u64) {
        self.word(place, HEARD).store(ticks as usize, SeqCst);
    }

    /// How many connections the worker has accepted lately: see `balance::recent`.
    pub(super) fn recent(&self, place: usize) -> u64 {
        self.word(place, RECENT).load(Relaxed) as u64
    }

    pub(super) fn set_recent(&self, place: usize, recent: u64) {
        self.word(place, RECENT).store(recent as usize, Relaxed);
    }

    pub(super) fn timer(&self) -> &Arc<Timer> {
        &self.timer
    }

    /// The word that says when the alarm rings.
    pub(super) fn due(&self) -> SharedLine<1> {
        SharedLine::new(&self.words, DUE)
    }

    pub(super) fn bell(&self, place: usize) -> BorrowedFd<'_> {
        self.bells[place].as_fd()
    }

    /// Takes a free place. Only the master calls this, because it alone gives places and takes them
    /// back.
    pub(super) fn join(&self) -> Option<usize> {
        let place = (0..self.places()).find(|place| self.state(*place) == State::FREE)?;
        self.set_state(place, State::JOINED);
        Some(place)
    }

    /// Takes a place back, because its worker is dead.
    pub(super) fn free(&self, place: usize) {
        self.set_heard(place, 0);
        self.set_busy(place, 0);
        self.set_recent(place, 0);
        self.leaves(place, State::FREE);
    }
}

impl List for Page {
    fn places(&self) -> usize {
        self.bells.len()
    }

    fn state_word(&self, place: usize) -> &AtomicUsize {
        self.word(place, STATE)
    }

    fn active_word(&self) -> &AtomicUsize {
        &self.words[ACTIVE]
    }

    fn unclaimed_word(&self) -> &AtomicUsize {
        &self.words[UNCLAIMED]
    }

    /// The write fails if the counter is full, and then the bell rings already.
    fn ring(&self, place: usize) {
        let _ = rustix::io::write(&self.bells[place], &1_u64.to_ne_bytes());
    }
}
