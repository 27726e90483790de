//! What a loop says of itself: that it sleeps, or which beat it is in.

use std::cell::Cell;
use std::io;

use super::page::{Heartbeats, Line};
use super::protocol::{ASLEEP, begin_beat, fall_asleep};
use crate::sys::fork_check::Process;
use crate::sys::shared_words::SharedWord;

/// One loop's heartbeat, on its thread.
#[derive(Debug)]
pub(crate) struct Heartbeat {
    beat: SharedWord,
    watch: SharedWord,
    page: Heartbeats,
    number: Cell<usize>,
    process: Process,
}

impl Heartbeat {
    pub(crate) fn new(line: &Line) -> io::Result<Self> {
        Ok(Self {
            beat: line.beat(),
            watch: line.watch(),
            page: line.page().clone(),
            number: Cell::new(ASLEEP),
            process: Process::current()?,
        })
    }

    /// The loop is awake: a new beat.
    #[inline]
    pub(crate) fn wakes(&self) {
        let number = next(self.number.get());
        self.number.set(number);
        begin_beat(&self.beat, number, &self.watch, || self.page.ring());
    }

    /// The loop sleeps next.
    #[inline]
    pub(crate) fn sleeps(&self) {
        fall_asleep(&self.beat);
    }

    /// The loop has come to the end of a turn: a new beat. A child that was forked in that turn is
    /// not the loop.
    pub(crate) fn goes_on(&self) {
        if !self.process.is_forked() {
            self.wakes();
        }
    }

    /// The loop has ended. As [`goes_on`](Self::goes_on), not in a forked child.
    pub(crate) fn ends(&self) {
        if !self.process.is_forked() {
            self.sleeps();
        }
    }
}

fn next(number: usize) -> usize {
    match number.wrapping_add(1) {
        ASLEEP => ASLEEP + 1,
        next => next,
    }
}

#[cfg(all(test, not(wakeful_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_beat_is_never_taken_for_sleep_when_the_numbers_begin_anew() {
        assert_eq!([next(ASLEEP), next(7), next(usize::MAX)], [1, 8, 1]);
    }
}
