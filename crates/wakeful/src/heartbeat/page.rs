//! The page of one worker: what is where in it, and the descriptors that belong to it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use rustix::event::{EventfdFlags, eventfd};

use super::places;
use super::protocol::ring_and_mark;
use crate::sys::limits::explain_call;
use crate::sys::shared_words::{SharedLine, SharedWords};
use crate::sys::sync::AtomicUsize;

/// No two processors write to one line: 128 bytes, as adjacent cache lines are fetched together.
pub(super) const LINE: usize = 16;

/// In the first line.
const LAYOUT: usize = 0;

/// Then the places; then a line for each loop.
const PLACES: usize = LINE;
const LOOPS: usize = PLACES + places::WORDS;

/// In a loop's line.
pub(super) const BEAT: usize = 0;
pub(super) const WATCH: usize = 1;
pub(super) const RUNNING: usize = 2;
const IS_GUEST: usize = 3;
pub(super) const WORK: usize = 4;

/// Of another program, or of another version of this one, the number is another. To be changed with
/// the layout.
const THIS_LAYOUT: usize = 0x7761_6b03;

/// The heartbeats of one worker's loops, in memory that the worker shares with the watching
/// process. [The module](super) explains them.
///
/// [`Watchdog::heartbeats_for`](super::Watchdog::heartbeats_for) makes them before the worker is
/// forked, and the worker passes them to its group with
/// [`LoopGroupBuilder::heartbeats`](crate::LoopGroupBuilder::heartbeats). A clone refers to the
/// same page.
///
/// For a worker that is started by `exec`, pass the [`descriptors`](Self::descriptors).
///
/// # Threads
/// `Send` and `Sync`.
#[derive(Debug, Clone)]
pub struct Heartbeats(Arc<Page>);

#[derive(Debug)]
struct Page {
    words: Arc<SharedWords>,
    loops: usize,
    /// Of the watchdog, for all its pages.
    ring: Arc<OwnedFd>,
    /// Of each loop that has a guest. See [`Line::watch_questions`].
    questions: Box<[OwnedFd]>,
}

impl Heartbeats {
    /// `guests` of the loops, the first so many, can be asked whether they take turns.
    pub(super) fn new(loops: usize, guests: usize, ring: Arc<OwnedFd>) -> io::Result<Self> {
        let lines = loops.checked_mul(LINE).and_then(|lines| lines.checked_add(LOOPS));
        let words = lines.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        let words = Arc::new(SharedWords::new(words)?);
        words[LAYOUT].store(THIS_LAYOUT, Relaxed);
        let questions = (0..guests).map(|_| new_eventfd()).collect::<io::Result<_>>()?;
        Ok(Self(Arc::new(Page { words, loops, ring, questions })))
    }

    /// Returns the descriptors that a worker started by `exec` needs, in the order in which
    /// [`from_descriptors`](Self::from_descriptors) takes them: the page, the watchdog's bell, and
    /// one for each loop that has Tokio as its guest. All are close-on-exec.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let page = &*self.0;
        [page.words.as_fd(), page.ring.as_fd()]
            .into_iter()
            .chain(page.questions.iter().map(AsFd::as_fd))
    }

    /// Restores the heartbeats in a worker started by `exec`, from their
    /// [`descriptors`](Self::descriptors).
    ///
    /// # Errors
    /// The descriptors do not belong to a page, or belong to a page of another version of this
    /// library: the worker's program file differs from that of the watching process. In this case,
    /// run the worker without heartbeats.
    pub fn from_descriptors(descriptors: Vec<OwnedFd>) -> io::Result<Self> {
        let other = || {
            let text = "these are not the descriptors of heartbeats, or those of another version of wakeful";
            io::Error::new(io::ErrorKind::InvalidInput, text)
        };
        let mut descriptors = descriptors.into_iter();
        let (page, ring) = descriptors.next().zip(descriptors.next()).ok_or_else(other)?;
        let words = Arc::new(SharedWords::of(page).map_err(|_| other())?);
        let loops = words.len().checked_sub(LOOPS).ok_or_else(other)? / LINE;
        if words[LAYOUT].load(Relaxed) != THIS_LAYOUT {
            return Err(other());
        }
        let (ring, questions) = (Arc::new(ring), descriptors.collect());
        Ok(Self(Arc::new(Page { words, loops, ring, questions })))
    }

    /// Returns how many loops have a line.
    #[must_use]
    pub fn loops(&self) -> usize {
        self.0.loops
    }

    /// Is it a page for so many loops, of which so many have a guest?
    pub(crate) fn fits(&self, loops: usize, guests: usize) -> io::Result<()> {
        let text = if loops > self.loops() {
            format!(
                "these heartbeats are those of {} loops, and the group has {loops}: make them for this group",
                self.loops()
            )
        } else if guests > self.0.questions.len() {
            "these heartbeats are those of loops without a guest, and the group has Tokio as one: make them for \
             this group"
                .to_owned()
        } else {
            return Ok(());
        };
        Err(io::Error::new(io::ErrorKind::InvalidInput, text))
    }

    /// What the loop of this number writes to.
    pub(crate) fn line(&self, number: usize) -> Line {
        Line { page: self.clone(), number }
    }

    pub(super) fn watches(&self) -> impl Iterator<Item = &AtomicUsize> {
        (0..self.loops()).map(|number| self.word(number, WATCH))
    }

    pub(super) fn beat(&self, number: usize) -> &AtomicUsize {
        self.word(number, BEAT)
    }

    pub(super) fn beats(&self) -> impl Iterator<Item = &AtomicUsize> {
        (0..self.loops()).map(|number| self.beat(number))
    }

    pub(super) fn running(&self, number: usize) -> &AtomicUsize {
        self.word(number, RUNNING)
    }

    /// What the loop works on: see [`work`](super::work).
    pub(super) fn work(&self, number: usize) -> &[AtomicUsize] {
        let line = LOOPS + number * LINE;
        &self.0.words[line + WORK..line + LINE]
    }

    pub(super) fn places(&self) -> &[AtomicUsize] {
        &self.0.words[PLACES..LOOPS]
    }

    fn word(&self, number: usize, word: usize) -> &AtomicUsize {
        &self.0.words[LOOPS + number * LINE + word]
    }

    /// Nobody watches: rings the watchdog. A full counter is a bell that rings already.
    #[cold]
    pub(super) fn call_watchdog(&self) {
        let ring = || _ = rustix::io::write(&self.0.ring, &1_u64.to_ne_bytes());
        ring_and_mark(ring, self.watches());
    }

    /// Has a loop that has a guest take a turn, if the guest lets it.
    pub(super) fn ask(&self, number: usize) {
        if self.word(number, IS_GUEST).load(Relaxed) == 0 {
            return;
        }
        if let Some(question) = self.0.questions.get(number) {
            let _ = rustix::io::write(question, &1_u64.to_ne_bytes());
        }
    }

    /// As it was made: its worker is gone.
    pub(super) fn clear(&self) {
        self.0.words[PLACES..].iter().for_each(|word| word.store(0, Relaxed));
    }
}

impl PartialEq for Heartbeats {
    /// Returns whether both refer to the same page.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Heartbeats {}

/// The line of one loop.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    page: Heartbeats,
    number: usize,
}

impl Line {
    pub(super) fn page(&self) -> &Heartbeats {
        &self.page
    }

    pub(super) fn words(&self) -> SharedLine<LINE> {
        SharedLine::new(&self.page.0.words, LOOPS + self.number * LINE)
    }

    /// Becomes readable, as an edge, when the watchdog asks this loop for a turn. A loop that has
    /// Tokio as its guest takes none while Tokio has much to do of its own, and is not stuck.
    ///
    /// `None`: the page was made for loops without a guest.
    #[cfg(any(feature = "tokio", test))]
    pub(crate) fn watch_questions(&self) -> Option<BorrowedFd<'_>> {
        let question = self.page.0.questions.get(self.number)?;
        self.page.word(self.number, IS_GUEST).store(1, Relaxed);
        Some(question.as_fd())
    }
}

pub(super) fn new_eventfd() -> io::Result<OwnedFd> {
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
    eventfd(0, flags).map_err(explain_call("eventfd2"))
}
