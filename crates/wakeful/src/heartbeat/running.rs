//! Which task a loop runs, for whoever finds the loop stuck in it.

use std::cell::Cell;
use std::panic::Location;
use std::sync::atomic::Ordering::Release;

use super::page::{Heartbeats, LINE, Line, RUNNING};
use super::places;
use super::work::{self, WorkText};
use crate::sys::shared_words::SharedLine;

/// What the loop remembers of the places that it has written into the table. A power of two.
const KNOWN: usize = 64;

const NONE: usize = 0;

/// Says which task runs, on the thread of the loop. Between two tasks from one place it writes
/// nothing.
#[derive(Debug)]
pub(crate) struct Running {
    words: SharedLine<LINE>,
    page: Heartbeats,
    last: Cell<usize>,
    /// What the poll has said that it works on.
    work: Cell<Option<u64>>,
    known: [Cell<usize>; KNOWN],
}

impl Running {
    pub(crate) fn new(line: &Line) -> Self {
        let known = [const { Cell::new(NONE) }; KNOWN];
        Self {
            words: line.words(),
            page: line.page().clone(),
            last: Cell::new(NONE),
            work: Cell::new(None),
            known,
        }
    }

    /// A task from there runs next, or a closure that was sent from there.
    #[inline]
    pub(crate) fn runs(&self, place: &'static Location<'static>) {
        self.ends_work();
        let number = places::number(place);
        if self.last.get() != number {
            self.changes(number, place);
        }
    }

    #[inline(never)]
    fn changes(&self, number: usize, place: &'static Location<'static>) {
        self.last.set(number);
        let known = &self.known[places::hash(number) % KNOWN];
        if known.replace(number) != number {
            places::add(self.page.places(), place);
        }
        self.words[RUNNING].store(number, Release);
    }

    /// Is it something else than what this poll has said last?
    #[inline]
    pub(crate) fn is_other_work(&self, id: u64) -> bool {
        self.work.get() != Some(id)
    }

    /// The poll works on this, until it says otherwise, or something else runs.
    #[inline]
    pub(crate) fn works_on(&self, id: u64, text: &WorkText) {
        self.work.set(Some(id));
        work::write(&self.words, text);
    }

    #[inline]
    fn ends_work(&self) {
        if self.work.get().is_some() {
            self.work.set(None);
            work::clear(&self.words);
        }
    }

    /// What runs next is no task: a callback, a hook, or a guest's.
    pub(crate) fn runs_none(&self) {
        self.ends_work();
        self.last.set(NONE);
        self.words[RUNNING].store(NONE, Release);
    }
}
