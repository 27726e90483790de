//! What a loop says of itself: that it sleeps, or that it is awake, and in a new beat.

use std::io;

use super::page::{BEAT, Heartbeats, LINE, Line, WATCH};
use super::protocol::{fall_asleep, go_on, wake};
use crate::sys::fork_check::Process;
use crate::sys::shared_words::SharedLine;

/// One loop's heartbeat, on its thread.
#[derive(Debug)]
pub(crate) struct Heartbeat {
    words: SharedLine<LINE>,
    page: Heartbeats,
    process: Process,
}

impl Heartbeat {
    pub(crate) fn new(line: &Line) -> io::Result<Self> {
        Ok(Self { words: line.words(), page: line.page().clone(), process: Process::current()? })
    }

    /// The loop is awake: a new beat.
    #[inline(always)]
    pub(crate) fn wakes(&self) {
        wake(&self.words[BEAT], &self.words[WATCH], || self.page.call_watchdog());
    }

    /// The loop sleeps next.
    #[inline(always)]
    pub(crate) fn sleeps(&self) {
        fall_asleep(&self.words[BEAT]);
    }

    /// The loop has come to the end of a turn: a new beat. A child that was forked in that turn is
    /// not the loop.
    pub(crate) fn goes_on(&self) {
        if !self.process.is_forked() {
            go_on(&self.words[BEAT], &self.words[WATCH], || self.page.call_watchdog());
        }
    }
}

/// To be dropped when the loop has ended, and all that it had: it sleeps, then.
#[derive(Debug)]
pub(crate) struct EndOfBeats(Heartbeat);

impl EndOfBeats {
    pub(crate) fn new(line: &Line) -> io::Result<Self> {
        Heartbeat::new(line).map(Self)
    }
}

impl Drop for EndOfBeats {
    fn drop(&mut self) {
        // As there, a child that was forked in a turn is not the loop.
        if !self.0.process.is_forked() {
            self.0.sleeps();
        }
    }
}
