//! Which loops of a group are awake, asleep, or stuck in a turn, and which loops stand in for stuck
//! ones.
//!
//! Each loop writes on its line when it last reported, or that it sleeps. An active loop that is
//! awake postpones the alarm ([`Alarm`]). The loop that the alarm wakes checks which loops are
//! stuck, and activates one more loop if all are.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Board, Member};
use crate::balance::alarm::{Alarm, PATIENCE};
use crate::driver::epoll::Timer;
use crate::event_loop::{SleepObserver, Spent};
use crate::sys::panics;

impl Member {
    fn sleeps(&self) -> bool {
        self.heard.load(Ordering::SeqCst) == 0
    }

    /// It does not come back from a turn.
    fn is_stuck(&self, alarm: &Alarm, now: u64) -> bool {
        let heard = self.heard.load(Ordering::SeqCst);
        heard != 0 && alarm.is_over(heard, now)
    }
}

impl Board {
    /// A loop is awake, and takes turns.
    pub(crate) fn hear(&self, number: usize) {
        let Some(alarm) = &self.alarm else { return };
        let now = alarm.now();
        self.members[number].heard.store(now, Ordering::SeqCst);
        let active = self.active();
        if alarm.has_rung(now) {
            self.stand_in(alarm, number, now);
        } else if number < active {
            alarm.push(now);
        }
    }

    /// A loop has slept.
    fn is_back(&self, number: usize) {
        let Some(alarm) = &self.alarm else { return };
        let (now, active) = (alarm.now(), self.active());
        self.members[number].heard.store(now, Ordering::SeqCst);
        if alarm.has_rung(now) {
            self.stand_in(alarm, number, now);
        } else if number < active && !alarm.is_set(now) {
            alarm.push(now);
        }
    }

    /// A loop sleeps next. `often`: it has done so before since it said something last.
    fn leave(&self, number: usize, often: bool) {
        let Some(alarm) = &self.alarm else { return };
        self.members[number].heard.store(0, Ordering::SeqCst);
        if often || number >= self.active() {
            return;
        }
        self.stop_if_none_is_awake(alarm);
    }

    /// Stops the alarm, unless an active loop is awake, or stuck: what sleeps is woken by what
    /// comes.
    fn stop_if_none_is_awake(&self, alarm: &Alarm) {
        if self.any_active(|member| !member.sleeps()) {
            return;
        }
        alarm.stop();
        // One who came back meanwhile may have seen it set.
        if self.any_active(|member| !member.sleeps()) {
            alarm.push(alarm.now());
        }
    }

    fn any_active(&self, is: impl Fn(&Member) -> bool) -> bool {
        self.members[..self.active()].iter().any(|member| is(member))
    }

    /// Which loops do not come back from their turns?
    pub(crate) fn stuck(&self) -> impl Fn(usize) -> bool + Copy + '_ {
        let alarm = self.alarm.as_ref().map(|alarm| (alarm, alarm.now()));
        move |number| alarm.is_some_and(|(alarm, now)| self.members[number].is_stuck(alarm, now))
    }

    /// The alarm has rung, and loop `me` looks who is to blame.
    #[cold]
    fn stand_in(&self, alarm: &Alarm, me: usize, now: u64) {
        alarm.push(now);
        if me >= self.active() {
            self.stop_if_none_is_awake(alarm);
        }
        let is_stuck = |member: &Member| member.is_stuck(alarm, now);
        if !self.any_active(is_stuck) {
            return;
        }
        if !self.any_active(|member| !is_stuck(member)) {
            let Some(mut reviews) = panics::try_lock(&self.reviews) else { return };
            let Some(activity) = &mut reviews.activity else { return };
            self.active.store(activity.one_more(), Ordering::Release);
            let active = activity.active();
            drop(reviews);
            panics::log!(
                info,
                active,
                "user code has blocked every active loop for {PATIENCE:?}: one more loop takes new connections"
            );
        }
        self.tell();
    }
}

/// A loop's line on the board.
#[derive(Debug)]
pub(crate) struct Seat {
    board: Arc<Board>,
    number: usize,
    /// It has slept since it said something last.
    slept: Cell<bool>,
}

impl Seat {
    pub(crate) fn new(board: Arc<Board>, number: usize) -> Self {
        Self { board, number, slept: Cell::new(false) }
    }

    pub(crate) fn say(&self, spent: Spent) {
        self.slept.set(false);
        self.board.say(self.number, spent);
    }

    /// What wakes the loop when it has to stand in for others, if it ever has.
    pub(crate) fn alarm(&self) -> Option<&Timer> {
        self.board.alarm.as_ref().map(Alarm::timer)
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
