//! Which task a loop runs, for the watchdog that finds the loop stuck in it.

use std::cell::Cell;
use std::panic::Location;
use std::sync::atomic::Ordering::Release;

use super::page::{Heartbeats, LINE, Line, RUNNING};
use super::places;
use super::work::{self, WorkText};
use crate::sys::shared_words::SharedLine;

/// How many places the loop remembers having written into the table. A power of two.
const KNOWN: usize = 64;

const NONE: usize = 0;

/// Reports which task runs, on the thread of the loop. It writes nothing between two tasks from the
/// same place.
#[derive(Debug)]
pub(crate) struct Running {
    words: SharedLine<LINE>,
    page: Heartbeats,
    last: Cell<usize>,
    /// The work that the poll has reported.
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

    /// A task or a closure from this place runs next.
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

    /// Is `id` other work than the poll has last reported?
    #[inline]
    pub(crate) fn is_other_work(&self, id: u64) -> bool {
        self.work.get() != Some(id)
    }

    /// The poll works on this, until it reports other work, or another task runs.
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

    /// What runs next is no task, but a callback, a hook, or a guest.
    pub(crate) fn runs_none(&self) {
        self.ends_work();
        self.last.set(NONE);
        self.words[RUNNING].store(NONE, Release);
    }
}
