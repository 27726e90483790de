//! What a loop writes on its line: that it sleeps, or that it is awake and in a new beat.

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

    /// The loop wakes, and begins a new beat.
    #[inline(always)]
    pub(crate) fn wakes(&self) {
        wake(&self.words[BEAT], &self.words[WATCH], || self.page.call_watchdog());
    }

    /// The loop is about to sleep.
    #[inline(always)]
    pub(crate) fn sleeps(&self) {
        fall_asleep(&self.words[BEAT]);
    }

    /// The loop is at the end of a turn, and begins a new beat. A child that was forked in that
    /// turn is not the loop, and writes nothing.
    pub(crate) fn goes_on(&self) {
        if !self.process.is_forked() {
            go_on(&self.words[BEAT], &self.words[WATCH], || self.page.call_watchdog());
        }
    }
}

/// Reports that the loop sleeps when this is dropped, which must be after the loop and all that it
/// owned.
#[derive(Debug)]
pub(crate) struct EndOfBeats(Heartbeat);

impl EndOfBeats {
    pub(crate) fn new(line: &Line) -> io::Result<Self> {
        Heartbeat::new(line).map(Self)
    }
}

impl Drop for EndOfBeats {
    fn drop(&mut self) {
        // A child that was forked in a turn is not the loop.
        if !self.0.process.is_forked() {
            self.0.sleeps();
        }
    }
}
