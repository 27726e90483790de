//! Which task a loop runs, for whoever finds the loop stuck in it.

use std::cell::Cell;
use std::panic::Location;
use std::sync::atomic::Ordering::Release;

use super::page::{Heartbeats, LINE, Line, RUNNING};
use super::{places, work};
use crate::sys::shared_words::SharedLine;

/// What the loop remembers of the places that it has written into the table. A power of two.
const KNOWN: usize = 64;

const NONE: usize = 0;

/// Says which task runs, on the thread of the loop. Between two tasks from one place it does
/// nothing.
#[derive(Debug)]
pub(crate) struct Running {
    words: SharedLine<LINE>,
    page: Heartbeats,
    last: Cell<usize>,
    known: [Cell<usize>; KNOWN],
}

impl Running {
    pub(crate) fn new(line: &Line) -> Self {
        let known = [const { Cell::new(NONE) }; KNOWN];
        Self { words: line.words(), page: line.page().clone(), last: Cell::new(NONE), known }
    }

    /// A task from there runs next, or a closure that was sent from there.
    #[inline]
    pub(crate) fn runs(&self, place: &'static Location<'static>) {
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

    /// The poll works on what these parts name, until [`works_on_nothing`](Self::works_on_nothing).
    #[inline]
    pub(crate) fn works_on(&self, parts: &[&[u8]]) {
        work::write(&self.words, parts);
    }

    #[inline]
    pub(crate) fn works_on_nothing(&self) {
        work::clear(&self.words);
    }

    /// What runs next is no task: a callback, a hook, or a guest's.
    pub(crate) fn runs_none(&self) {
        self.last.set(NONE);
        self.words[RUNNING].store(NONE, Release);
    }
}
