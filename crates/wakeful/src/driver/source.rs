//! A registered descriptor: what the kernel last reported of it, and the tasks that wait for it.
//!
//! Descriptors are watched edge-triggered, once for all directions. The readiness that an edge
//! reported is remembered here until an operation shows that it has passed: by EAGAIN, or by a
//! short transfer ([`Registered::ended`](super::registered::Registered::ended)), which saves the
//! second system call. A short transfer does not clear an end of stream or an error, because the
//! kernel reported it once and will not do so again. Code that makes its own system calls may clear
//! the readiness ([`super::seen`]).

use std::cell::{Cell, OnceCell};
use std::os::fd::{BorrowedFd, RawFd};

use rustix::event::epoll::EventFlags;

use super::joined::Joined;
use super::mode::Mode;
use super::readiness::Readiness;
use super::waiters::Waiters;
use crate::priority::Priority;

/// The direction of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Read,
    Write,
}

/// A registered descriptor and its state. It is used on the loop's thread only.
pub(crate) struct Source {
    /// [`Registered`] keeps the descriptor open as long as the source is registered.
    fd: RawFd,
    pub(super) mode: Mode,
    priority: Cell<Priority>,
    pub(super) read_ready: Readiness,
    pub(super) write_ready: Readiness,
    /// Something exceptional was reported, or the end of the stream.
    pub(super) priority_ready: Readiness,
    /// The peer's end of stream, or an error, was reported, so reads are ready for ever.
    pub(super) read_closed: Cell<bool>,
    pub(super) write_closed: Cell<bool>,
    /// Urgent data was reported. A read stops in front of it, so a short read no longer proves that
    /// nothing is left.
    pub(super) urgent: Cell<bool>,
    /// For a listener: other processes may have it, too.
    pub(super) is_lent: Cell<bool>,
    /// For a listener that several loops watch. It is in a box, because most descriptors are not
    /// such listeners.
    pub(super) joined: OnceCell<Box<Joined>>,
    /// How many more connections this loop takes before it asks the kernel again. Zero: not
    /// decided.
    pub(super) to_take: Cell<u8>,
    readers: Waiters,
    writers: Waiters,
}

impl Source {
    pub(super) fn new(fd: RawFd, mode: Mode) -> Self {
        Self {
            fd,
            mode,
            priority: Cell::default(),
            // Directions start as ready, so that the first operation is tried before a wait. On a
            // shared listener they do not, because it may be another loop's turn.
            read_ready: Readiness::new(mode != Mode::Exclusive),
            write_ready: Readiness::new(true),
            priority_ready: Readiness::new(false),
            read_closed: Cell::new(false),
            write_closed: Cell::new(false),
            urgent: Cell::new(false),
            is_lent: Cell::new(false),
            joined: OnceCell::new(),
            to_take: Cell::new(0),
            readers: Waiters::default(),
            writers: Waiters::default(),
        }
    }

    pub(super) fn waiters(&self, direction: Direction) -> &Waiters {
        match direction {
            Direction::Read => &self.readers,
            Direction::Write => &self.writers,
        }
    }

    pub(super) fn ready(&self, direction: Direction) -> &Readiness {
        match direction {
            Direction::Read => &self.read_ready,
            Direction::Write => &self.write_ready,
        }
    }

    /// Was the direction's end, or an error, reported?
    #[inline]
    pub(super) fn closed(&self, direction: Direction) -> &Cell<bool> {
        match direction {
            Direction::Read => &self.read_closed,
            Direction::Write => &self.write_closed,
        }
    }

    pub(super) fn on_event(&self, flags: EventFlags) {
        if self.read_ready.get() && self.step_back_if_idle() {
            // The listener is level-triggered, so without the step back the kernel would report it
            // in every turn.
            return;
        }
        let broken = flags.intersects(EventFlags::ERR | EventFlags::HUP);
        if flags.contains(EventFlags::PRI) {
            self.urgent.set(true);
        }
        if flags.intersects(EventFlags::PRI | EventFlags::RDHUP | EventFlags::HUP) {
            self.priority_ready.told();
        }
        if broken || flags.contains(EventFlags::RDHUP) {
            self.read_closed.set(true);
        }
        if broken {
            self.write_closed.set(true);
        }
        if broken || flags.intersects(EventFlags::IN | EventFlags::RDHUP | EventFlags::PRI) {
            self.read_ready.told();
            self.readers.wake();
        }
        if broken || flags.contains(EventFlags::OUT) {
            self.write_ready.told();
            self.writers.wake();
        }
    }

    /// Wakes all waiters, because the loop has ended. Their next operation that would wait is an
    /// error.
    pub(super) fn end(&self) {
        self.readers.wake();
        self.writers.wake();
        self.forget_wakers();
    }

    pub(super) fn forget_wakers(&self) {
        self.readers.forget();
        self.writers.forget();
    }

    /// See [`Waiters::leak`].
    pub(super) fn leak_wakers(&self) {
        self.readers.leak();
        self.writers.leak();
    }

    /// Takes a shared listener on which no task accepts out of the epoll until one does.
    pub(super) fn step_back_if_idle(&self) -> bool {
        let Some(joined) = self.joined.get() else { return false };
        let idle = !self.readers.any();
        if idle {
            joined.leave(self.read_ready.get());
        }
        idle
    }

    pub(super) fn set_joined(&self, joined: Joined) {
        let before = self.joined.set(Box::new(joined));
        debug_assert!(before.is_ok(), "a source is registered once");
    }

    pub(super) fn mode(&self) -> Mode {
        self.mode
    }

    pub(super) fn priority(&self) -> Priority {
        self.priority.get()
    }

    /// Sets the priority, and returns the old one.
    pub(super) fn set_priority(&self, priority: Priority) -> Priority {
        self.priority.replace(priority)
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is open while its source is registered, and is used only then:
        // `Registered` owns both, and drops the registration first.
        unsafe { BorrowedFd::borrow_raw(self.fd) }
    }
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Source")
            .field("fd", &self.fd)
            .field("read_ready", &self.read_ready.get())
            .field("write_ready", &self.write_ready.get())
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(wakeful_loom)))]
mod tests {
    use super::*;

    /// The size matters because each connection has one.
    #[test]
    fn a_registered_descriptor_takes_96_bytes() {
        assert_eq!(size_of::<Source>(), 96);
    }
}
