//! A loop's membership in the kernel's list of loops that wait for a listener's connections. Other
//! loops may add and remove it, without waking it.
//!
//! The kernel wakes one of the loops whose epoll watches a shared listener (EPOLLEXCLUSIVE), nearly
//! always the same one. So loops step back when they have more than their share, and another loop,
//! which is awake, lets them in again later. That is one `epoll_ctl` on the other loop's epoll,
//! which the kernel allows from any thread; a message would wake the loop for nothing.
//!
//! Invariant: the registration follows from two wishes, the loop's own (a task accepts there) and
//! that of the other loops (it is its turn). The thread that changes a wish also updates the
//! registration, or hands it to the thread that is already updating it, which checks again. No
//! thread waits for another.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use super::epoll::Epoll;
use super::exclusive;
use super::mode::Mode;
use crate::sys::failures;
use crate::sys::fork_check::Process;
use crate::sys::panics;
use crate::sys::unsent::is_backlog_empty;

/// A loop's membership in the kernel's list of one listener. See the [module](self).
#[derive(Debug)]
pub(crate) struct Membership {
    epoll: Arc<Epoll>,
    listener: Arc<OwnedFd>,
    token: u64,
    process: Process,
    /// Whether the kernel wakes one loop for a connection, and not all: see `exclusive`.
    is_exclusive: AtomicBool,
    /// Whether a task on its loop accepts.
    wanted: AtomicBool,
    turn: Arc<Turn>,
    /// Whether the kernel should check again for a connection, and wake the loop if there is one.
    requeue: AtomicBool,
    registered: AtomicBool,
    /// The number of changes that the registration does not reflect yet.
    changes: AtomicUsize,
    /// Not set if nobody looks after the membership.
    mender: OnceLock<Box<dyn Mender>>,
}

/// When a loop joins the kernel's list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Joining {
    AtOnce,
    /// When a task on the loop first waits for a connection.
    AtFirstWait,
}

/// Looks after a membership.
pub(crate) trait Mender: fmt::Debug + Send + Sync {
    /// Called with the error of a change. The membership has to be [mended](Membership::mend).
    fn refused(&self, error: &io::Error);

    /// Called when the kernel has woken the loop for a connection, and no loop of this process
    /// takes it.
    fn nobody_takes_one(&self);
}

/// Whether it is a loop's turn to take a listener's connections. It can be read without the
/// membership.
#[derive(Debug)]
pub(crate) struct Turn {
    open: AtomicBool,
    /// Whether the loop will never accept from the listener again.
    closed: AtomicBool,
}

impl Turn {
    /// May the loop take the listener's connections, as far as the other loops know?
    ///
    /// A loop that ends its turn asks this of the others *after* that. A membership that closes
    /// opens others *after* `closed` is set. Both sides use SeqCst, so one of them sees the other's
    /// change, and a listener never loses its last loop.
    pub(crate) fn is_inside(&self) -> bool {
        self.open.load(Ordering::SeqCst) && !self.is_closed()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    pub(crate) fn is_open(&self) -> bool {
        self.open.load(Ordering::SeqCst)
    }

    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }
}

impl Membership {
    /// Makes a membership of a loop on which no task accepts yet.
    pub(super) fn new(
        epoll: Arc<Epoll>,
        listener: Arc<OwnedFd>,
        token: u64,
        process: Process,
        is_exclusive: bool,
    ) -> Self {
        Self {
            epoll,
            listener,
            token,
            process,
            is_exclusive: AtomicBool::new(is_exclusive),
            wanted: AtomicBool::new(false),
            turn: Arc::new(Turn { open: AtomicBool::new(true), closed: AtomicBool::new(false) }),
            requeue: AtomicBool::new(false),
            registered: AtomicBool::new(false),
            changes: AtomicUsize::new(0),
            mender: OnceLock::new(),
        }
    }

    /// Asks the kernel whether the loop can watch the listener. For that the loop is in the list
    /// for a moment, but not exclusively: so the kernel still wakes another one for a connection.
    ///
    /// # Errors
    /// Kernel errors: `max_user_watches` is reached.
    pub(super) fn is_possible(&self) -> io::Result<()> {
        let (listener, flags) = (self.listener.as_fd(), Mode::Exclusive.flags());
        failures::at(failures::Call::Watch)
            .and_then(|()| exclusive::add_without(&self.epoll, listener, flags, self.token))
            .map_err(crate::sys::limits::explain_call("epoll_ctl"))?;
        self.epoll.remove(listener);
        Ok(())
    }

    /// Sets the loop's own wish: whether a task accepts there.
    ///
    /// # Errors
    /// Kernel errors: `max_user_watches` is reached. Then the wish stays `false`.
    pub(super) fn want(&self, wanted: bool) -> io::Result<()> {
        if self.wanted.swap(wanted, Ordering::AcqRel) == wanted {
            return Ok(());
        }
        self.see_to_it().inspect_err(|_| {
            self.wanted.store(false, Ordering::Release);
            // Another thread may have let the loop in meanwhile.
            let _ = self.see_to_it();
        })
    }

    #[inline]
    pub(super) fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Acquire)
    }

    pub(crate) fn turn(&self) -> &Arc<Turn> {
        &self.turn
    }

    /// Sets the other loops' wish: whether it is this loop's turn.
    ///
    /// # Errors
    /// Kernel errors: `max_user_watches` is reached. The wish stays, and the membership has to be
    /// [mended](Self::mend).
    pub(crate) fn set_open(&self, open: bool) -> io::Result<()> {
        if self.turn.open.swap(open, Ordering::SeqCst) == open {
            return Ok(());
        }
        self.see_to_it()
    }

    /// Is the loop in the kernel's list now?
    pub(crate) fn is_registered(&self) -> bool {
        self.registered.load(Ordering::Relaxed)
    }

    /// Should the kernel give connections to this loop, but cannot, because it refused to let the
    /// loop watch the listener?
    pub(crate) fn is_shut_out(&self) -> bool {
        self.is_waiting() && !self.is_registered()
    }

    /// Tries again to watch the listener. Returns whether the loop now watches it, or need not.
    pub(crate) fn mend(&self) -> bool {
        !self.is_shut_out()
            || (self.see_to_it().is_ok() && (!self.is_shut_out() || self.is_changing()))
    }

    /// Is another thread following the wishes? If it fails, it has the membership mended.
    fn is_changing(&self) -> bool {
        self.changes.load(Ordering::Acquire) > 0
    }

    /// Sets who looks after the membership.
    pub(crate) fn is_mended_by(&self, mender: Box<dyn Mender>) {
        let _ = self.mender.set(mender);
    }

    /// Does anybody look after it?
    pub(super) fn has_mender(&self) -> bool {
        self.mender.get().is_some()
    }

    /// Has the membership mended if a change by another loop failed.
    pub(super) fn mend_after(&self, changed: io::Result<()>) {
        let Err(error) = changed else { return };
        match self.mender.get() {
            Some(mender) => mender.refused(&error),
            None => panics::log!(debug, %error, "a loop cannot watch a listener"),
        }
    }

    pub(super) fn is_taken_by_nobody(&self) {
        if let Some(mender) = self.mender.get() {
            mender.nobody_takes_one();
        }
    }

    /// Should the kernel give connections to this loop?
    pub(super) fn is_waiting(&self) -> bool {
        self.is_wanted() && self.turn.is_open()
    }

    pub(super) fn is_backlog_empty(&self) -> bool {
        is_backlog_empty(self.listener.as_fd())
    }

    pub(super) fn is_forked(&self) -> bool {
        self.process.is_forked()
    }

    /// Goes to the end of the kernel's list. If there is a connection, the kernel tells the loop of
    /// it again.
    ///
    /// # Errors
    /// Kernel errors: the place in the list is lost, and has to be [mended](Self::mend).
    pub(crate) fn requeue(&self) -> io::Result<()> {
        self.requeue.store(true, Ordering::Release);
        self.see_to_it()
    }

    /// From now on the kernel wakes this loop for every connection, even if it wakes other loops
    /// too.
    ///
    /// # Errors
    /// The same as for `requeue`.
    pub(crate) fn wake_for_all(&self) -> io::Result<()> {
        self.is_exclusive.store(false, Ordering::Release);
        self.requeue()
    }

    /// Makes the registration follow the wishes. If several threads make changes at the same time,
    /// one thread follows all of them. An error is that of the last change, even if another thread
    /// made it.
    fn see_to_it(&self) -> io::Result<()> {
        if self.changes.fetch_add(1, Ordering::AcqRel) > 0 {
            // The thread that is already following the wishes checks again.
            return Ok(());
        }
        let mut seen = 1;
        loop {
            let result = self.follow();
            match self.changes.compare_exchange(seen, 0, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return result,
                Err(more) => seen = more,
            }
        }
    }

    /// Only one thread at a time may call this.
    fn follow(&self) -> io::Result<()> {
        // A forked child shares the parent's epoll, and must not change it.
        if self.is_forked() {
            return Ok(());
        }
        let requeue = self.requeue.swap(false, Ordering::AcqRel);
        let (wanted, was) = (self.is_waiting(), self.is_registered());
        if was && (!wanted || requeue) {
            self.epoll.remove(self.listener.as_fd());
            self.registered.store(false, Ordering::Relaxed);
        }
        if wanted && (!was || requeue) {
            let (listener, flags) = (self.listener.as_fd(), Mode::Exclusive.flags());
            let add = match self.is_exclusive.load(Ordering::Acquire) {
                true => exclusive::add,
                false => exclusive::add_without,
            };
            failures::at(failures::Call::Watch)
                .and_then(|()| add(&self.epoll, listener, flags, self.token))
                .map_err(crate::sys::limits::explain_call("epoll_ctl"))?;
            self.registered.store(true, Ordering::Relaxed);
        }
        Ok(())
    }
}
