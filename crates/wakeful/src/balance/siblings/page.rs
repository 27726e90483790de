//! The page: what is where in it, and the bells.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use rustix::event::{EventfdFlags, eventfd};

use crate::driver::epoll::Timer;
use crate::sys::limits::explain_call;
use crate::sys::shared_words::{SharedLine, SharedWords};
use crate::sys::sync::AtomicUsize;

/// No two processors write to one line: 128 bytes, as adjacent cache lines are fetched together.
const LINE: usize = 16;

/// The first line is everybody's, and each further one a worker's.
const ACTIVE: usize = 0;
const DUE: usize = LINE / 2;

const STATE: usize = 0;
const BUSY: usize = 1;
const HEARD: usize = 2;

/// What a worker is. Those from [`OUT`] to [`IN`] accept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct State(usize);

impl State {
    const FREE: Self = Self(0);
    /// It starts.
    const JOINED: Self = Self(1);
    /// It accepts, and is not in the kernel's list.
    pub(super) const OUT: Self = Self(2);
    pub(super) const IN: Self = Self(3);
    /// It accepts no more.
    pub(super) const LEAVES: Self = Self(4);

    fn accepts(self) -> bool {
        self == Self::OUT || self == Self::IN
    }
}

#[derive(Debug)]
pub(super) struct Page {
    words: Arc<SharedWords>,
    bells: Box<[OwnedFd]>,
    timer: Arc<Timer>,
}

impl Page {
    pub(super) fn new(places: usize) -> io::Result<Self> {
        let words = Arc::new(SharedWords::new((places + 1) * LINE)?);
        words[ACTIVE].store(1, Relaxed);
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let bell = |_| eventfd(0, flags).map_err(explain_call("eventfd2"));
        let bells = (0..places).map(bell).collect::<io::Result<_>>()?;
        Ok(Self { words, bells, timer: Arc::new(Timer::new()?) })
    }

    pub(super) fn places(&self) -> usize {
        self.bells.len()
    }

    fn word(&self, place: usize, word: usize) -> &AtomicUsize {
        &self.words[(place + 1) * LINE + word]
    }

    pub(super) fn state(&self, place: usize) -> State {
        State(self.word(place, STATE).load(SeqCst))
    }

    pub(super) fn set_state(&self, place: usize, state: State) {
        self.word(place, STATE).store(state.0, SeqCst);
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

    pub(super) fn timer(&self) -> &Arc<Timer> {
        &self.timer
    }

    /// When the alarm rings.
    pub(super) fn due(&self) -> SharedLine<1> {
        SharedLine::new(&self.words, DUE)
    }

    pub(super) fn bell(&self, place: usize) -> BorrowedFd<'_> {
        self.bells[place].as_fd()
    }

    /// A full counter is a bell that rings already.
    pub(super) fn ring(&self, place: usize) {
        let _ = rustix::io::write(&self.bells[place], &1_u64.to_ne_bytes());
    }

    /// For the master, which alone gives places and takes them back.
    pub(super) fn join(&self) -> Option<usize> {
        let place = (0..self.places()).find(|place| self.state(*place) == State::FREE)?;
        self.set_state(place, State::JOINED);
        Some(place)
    }

    pub(super) fn free(&self, place: usize) {
        self.set_heard(place, 0);
        self.set_busy(place, 0);
        self.set_state(place, State::FREE);
        self.ring_whose_turn_it_is();
    }

    /// Those that accept, in their order.
    pub(super) fn accepting(&self) -> impl Iterator<Item = usize> {
        (0..self.places()).filter(|place| self.state(*place).accepts())
    }

    pub(super) fn are_in(&self) -> impl Iterator<Item = usize> {
        (0..self.places()).filter(|place| self.state(*place) == State::IN)
    }

    /// How many are to be in the list.
    pub(super) fn active(&self) -> usize {
        self.words[ACTIVE].load(SeqCst)
    }

    /// Does nothing if somebody else has changed it meanwhile. Returns whether it did.
    pub(super) fn change_active(&self, from: usize, to: usize) -> bool {
        let changed = self.words[ACTIVE].compare_exchange(from, to, SeqCst, SeqCst).is_ok();
        if changed && to > from {
            self.ring_whose_turn_it_is();
        }
        changed
    }

    /// Is it the turn of this one?
    pub(super) fn is_turn_of(&self, place: usize) -> bool {
        self.accepting().take(self.active()).any(|one| one == place)
    }

    /// Of those that are not in the list.
    pub(super) fn ring_whose_turn_it_is(&self) {
        let turns = self.accepting().take(self.active());
        turns.filter(|place| self.state(*place) == State::OUT).for_each(|place| self.ring(place));
    }
}
