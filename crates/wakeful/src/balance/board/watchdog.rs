//! The loops of a group watch each other, and so do the workers of a master: see `balance::watch`.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Board;
use crate::balance::alarm::{Alarm, PATIENCE};
use crate::balance::siblings::{OurTurn, Taken};
use crate::balance::watch::Crowd;
use crate::driver::epoll::Timer;
use crate::event_loop::{SleepObserver, Spent};
use crate::sys::panics;

/// The loops of a group that has several.
#[derive(Clone, Copy)]
struct Loops<'a> {
    board: &'a Board,
    alarm: &'a Alarm,
}

impl Crowd for Loops<'_> {
    fn alarm(&self) -> &Alarm {
        self.alarm
    }

    fn heard(&self, number: usize) -> u64 {
        self.board.members[number].heard.load(Ordering::SeqCst)
    }

    fn set_heard(&self, number: usize, at: u64) {
        self.board.members[number].heard.store(at, Ordering::SeqCst);
    }

    fn is_active(&self, number: usize) -> bool {
        number < self.board.active()
    }

    fn active_members(&self) -> impl Iterator<Item = usize> {
        0..self.board.active()
    }

    fn activate_one_more(&self) -> Option<usize> {
        let mut reviews = panics::try_lock(&self.board.reviews)?;
        let activity = reviews.activity.as_mut()?;
        self.board.active.store(activity.one_more(), Ordering::Release);
        Some(activity.active())
    }

    fn log_one_more(&self, active: usize) {
        panics::log!(
            info,
            active,
            "user code has blocked every active loop for {PATIENCE:?}: one more loop takes new connections"
        );
    }

    fn tell_of_stuck(&self) {
        self.board.tell();
    }
}

impl Board {
    fn crowd(&self) -> Option<Loops<'_>> {
        self.alarm.as_ref().map(|alarm| Loops { board: self, alarm })
    }

    /// Loop `number` is awake and runs its turns.
    pub(super) fn hear(&self, number: usize) {
        if let Some(loops) = self.crowd() {
            loops.hear(number);
        }
        if let Some(turn) = &self.turn {
            turn.hear();
        }
    }

    /// Loop `number` has woken up.
    fn is_back(&self, number: usize) {
        if let Some(loops) = self.crowd() {
            loops.is_back(number);
        }
        if let Some(turn) = &self.turn {
            turn.is_back();
        }
    }

    /// Loop `number` is about to sleep. `often`: it has slept before since its last report.
    fn leave(&self, number: usize, often: bool) {
        if let Some(loops) = self.crowd() {
            loops.leave(number, often);
        }
        // A worker sleeps when its last loop does. (A single loop does not write to the board.)
        let Some(turn) = &self.turn else { return };
        let all_sleep =
            || self.members.iter().all(|member| member.heard.load(Ordering::SeqCst) == 0);
        if all_sleep() {
            turn.leave(often);
            // Another loop may have woken up meanwhile.
            if !all_sleep() {
                turn.is_back();
            }
        }
    }

    /// Returns a function that says whether a loop is stuck in its turn.
    pub(crate) fn stuck(&self) -> impl Fn(usize) -> bool + Copy + '_ {
        let loops = self.crowd().map(|loops| (loops, loops.alarm.now()));
        move |number| loops.is_some_and(|(loops, now)| loops.is_stuck(number, now))
    }
}

/// A loop's line on the board.
#[derive(Debug)]
pub(crate) struct Seat {
    board: Arc<Board>,
    number: usize,
    /// The loop has slept since its last report.
    slept: Cell<bool>,
    _sibling: Option<Arc<Taken>>,
}

impl Seat {
    /// `sibling` keeps the group's place among its siblings, if it has one.
    pub(crate) fn new(board: Arc<Board>, number: usize, sibling: Option<Arc<Taken>>) -> Self {
        Self { board, number, slept: Cell::new(false), _sibling: sibling }
    }

    pub(crate) fn say(&self, spent: Spent) {
        self.slept.set(false);
        self.board.say(self.number, spent);
    }

    /// The timers that wake the loop when it has to stand in for others.
    pub(crate) fn alarms(&self) -> impl Iterator<Item = &Timer> {
        let of_workers = self.board.turn.as_ref().map(OurTurn::timer);
        self.board.alarm.as_ref().map(Alarm::timer).into_iter().chain(of_workers)
    }
}

impl SleepObserver for Rc<Seat> {
    fn before_sleep(&self) {
        self.board.leave(self.number, self.slept.replace(true));
    }

    fn after_sleep(&self) {
        self.board.is_back(self.number);
    }
}
