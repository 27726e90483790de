//! The page of one worker: the layout of its memory, and the descriptors that belong to it.

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

/// The words of a line. A line has 128 bytes, because processors fetch adjacent cache lines
/// together, and no two processors should write to one line.
pub(super) const LINE: usize = 16;

/// The word of the first line that identifies the layout.
const LAYOUT: usize = 0;

/// The word of the first line that is not 0 while the worker's server runs its set-ups.
const SET_UP: usize = 1;

/// After the first line come the places, and then a line for each loop.
const PLACES: usize = LINE;
const LOOPS: usize = PLACES + places::WORDS;

/// The words of a loop's line.
pub(super) const BEAT: usize = 0;
pub(super) const WATCH: usize = 1;
pub(super) const RUNNING: usize = 2;
const IS_GUEST: usize = 3;
pub(super) const WORK: usize = 4;

/// Another program, or another version of this one, has another number here. Change it with the
/// layout.
const THIS_LAYOUT: usize = 0x7761_6b04;

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
    /// The watchdog's bell, common to all its pages.
    ring: Arc<OwnedFd>,
    /// One for each loop that has a guest. See [`Line::watch_questions`].
    questions: Box<[OwnedFd]>,
}

impl Heartbeats {
    /// The first `guests` loops have a guest. The watchdog can ask them for a turn.
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

    /// Does the page fit `loops` loops, of which `guests` have a guest?
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

    /// Notes that the worker's server runs its set-ups, and accepts nobody yet. If they fail, this
    /// stays so.
    pub(crate) fn begin_set_up(&self) {
        self.0.words[SET_UP].store(1, Relaxed);
    }

    pub(crate) fn end_set_up(&self) {
        self.0.words[SET_UP].store(0, Relaxed);
    }

    /// Does the worker's server run its
    /// [set-ups](crate::accept::ConnectionServer::on_each_loop), or have they failed? Then no task
    /// of its loops has served a client.
    #[doc(hidden)]
    #[must_use]
    pub fn are_in_set_up(&self) -> bool {
        self.0.words[SET_UP].load(Relaxed) != 0
    }

    /// The line to which the loop of this number writes.
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

    /// The words that say what the loop works on: see [`work`](super::work).
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

    /// Rings the watchdog, because it does not watch. If the counter is full, the bell rings
    /// already.
    #[cold]
    pub(super) fn call_watchdog(&self) {
        let ring = || _ = rustix::io::write(&self.0.ring, &1_u64.to_ne_bytes());
        ring_and_mark(ring, self.watches());
    }

    /// Asks a loop that has a guest for a turn. The loop takes it if the guest lets it.
    pub(super) fn ask(&self, number: usize) {
        if self.word(number, IS_GUEST).load(Relaxed) == 0 {
            return;
        }
        if let Some(question) = self.0.questions.get(number) {
            let _ = rustix::io::write(question, &1_u64.to_ne_bytes());
        }
    }

    /// Clears the page when its worker is gone, so that it is as new.
    pub(super) fn clear(&self) {
        self.end_set_up();
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

    /// A descriptor that becomes readable, as an edge, when the watchdog asks this loop for a turn.
    /// While Tokio has much to do of its own, a loop that has Tokio as its guest takes no turns,
    /// but it is not stuck.
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
