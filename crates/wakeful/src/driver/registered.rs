//! A descriptor that its owner uses through its registration with a loop.

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustix::io::Errno;

use super::joined::Joined;
use super::listener_members::ListenerMembers;
use super::membership::{Joining, Membership};
use super::mode::Mode;
use super::source::{Direction, Source};
use super::token::Token;
use super::waiters::Place;
use super::{Driver, ended};
use crate::priority::Priority;
use crate::sys::one_loop::OfOneLoop;

/// The most connections of a shared listener that a busy loop takes before it asks the kernel
/// again.
const MOST_AT_ONCE: u8 = 16;

/// A descriptor and its place in a loop's driver. Dropping it deregisters, then closes; events that
/// the kernel had already reported are dropped.
#[derive(Debug)]
pub(crate) struct Registered<T> {
    _of_one_loop: OfOneLoop,
    // The order matters: fields are dropped from the top.
    registration: Registration,
    io: T,
}

#[derive(Debug)]
struct Registration {
    driver: Rc<Driver>,
    source: Rc<Source>,
    token: Token,
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.disarm();
        self.driver.forget(self.token);
        self.source.forget_wakers();
    }
}

impl Registered<Arc<OwnedFd>> {
    /// Watches a listener that other loops watch, too. `memberships` are those of all loops.
    ///
    /// # Errors
    /// The same as for [`new`](Self::new).
    pub(crate) fn shared(
        driver: &Rc<Driver>,
        listener: Arc<OwnedFd>,
        memberships: &Arc<ListenerMembers>,
        joining: Joining,
    ) -> io::Result<Self> {
        let source = Rc::new(Source::new(listener.as_raw_fd(), Mode::Exclusive));
        source.is_lent.set(memberships.is_lent());
        let token = driver.register(&source, Some((&listener, memberships, joining)))?;
        let driver = driver.clone();
        let registration = Registration { driver, source, token };
        Ok(Self { _of_one_loop: PhantomData, registration, io: listener })
    }

    /// May other processes have the listener?
    pub(crate) fn is_lent(&self) -> bool {
        self.registration.source.is_lent.get()
    }

    pub(crate) fn set_lent(&self, is_lent: bool) {
        self.registration.source.is_lent.set(is_lent);
    }

    /// This loop's place among those that wait for the listener, if it is shared.
    pub(crate) fn membership(&self) -> Option<&Arc<Membership>> {
        self.registration.source.joined.get().map(|joined| joined.membership())
    }

    /// The memberships of all loops in the listener's list, if it is shared.
    pub(crate) fn memberships(&self) -> Option<&Arc<ListenerMembers>> {
        self.registration.source.joined.get().map(|joined| joined.memberships())
    }
}

impl<T: AsFd> Registered<T> {
    /// Watches `io` from now on. Its descriptor must stay the same.
    ///
    /// # Errors
    /// Kernel errors; one that a limit caused names the limit.
    pub(crate) fn new(driver: &Rc<Driver>, io: T) -> io::Result<Self> {
        Self::attach(driver, io).map_err(|(_, error)| error)
    }

    /// Like [`new`](Self::new), but returns `io` with an error.
    ///
    /// # Errors
    /// The same as for `new`.
    pub(crate) fn attach(driver: &Rc<Driver>, io: T) -> Result<Self, (T, io::Error)> {
        Self::in_mode(driver, io, Mode::Edge)
    }

    /// Like [`new`](Self::new), for a descriptor that other code may own.
    ///
    /// # Errors
    /// The same as for `new`.
    pub(crate) fn watched(driver: &Rc<Driver>, io: T) -> io::Result<Self> {
        Self::in_mode(driver, io, Mode::Watched).map_err(|(_, error)| error)
    }

    fn in_mode(driver: &Rc<Driver>, io: T, mode: Mode) -> Result<Self, (T, io::Error)> {
        let source = Rc::new(Source::new(io.as_fd().as_raw_fd(), mode));
        match driver.register(&source, None) {
            Ok(token) => {
                let registration = Registration { driver: driver.clone(), source, token };
                Ok(Self { _of_one_loop: PhantomData, registration, io })
            }
            Err(error) => Err((io, error)),
        }
    }

    pub(super) fn source(&self) -> &Source {
        &self.registration.source
    }

    pub(super) fn may_wait(&self) -> io::Result<()> {
        self.registration.may_wait()
    }

    pub(crate) fn io(&self) -> &T {
        &self.io
    }

    /// Ends the registration and gives the descriptor back.
    pub(crate) fn into_inner(self) -> T {
        self.io
    }

    pub(crate) fn priority(&self) -> Priority {
        self.registration.source.priority()
    }

    /// See [`TcpStream::set_priority`](crate::net::TcpStream::set_priority).
    ///
    /// # Errors
    /// Kernel errors; one that a limit caused names the limit. The listener is shared with other
    /// loops.
    pub(crate) fn set_priority(&self, priority: Priority) -> io::Result<()> {
        let Registration { driver, source, token } = &self.registration;
        if source.mode == Mode::Exclusive {
            // In a nested epoll the kernel cannot tell whether a loop sleeps, and would wake all of
            // them.
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a listener that several loops share has no priority: give one loop a listener of its own",
            ));
        }
        driver.set_priority(source, *token, priority)
    }

    /// Runs an operation after the faults that a test has asked for, if any.
    #[cfg(feature = "faults")]
    pub(crate) fn disturb<R>(
        &self,
        operation: &mut impl FnMut(&T) -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        let edge_again = || {
            // A listener that several loops share is level-triggered, and may not be changed
            // (epoll_ctl(2)).
            if self.source().mode != Mode::Exclusive {
                self.registration
                    .edge_again()
                    .expect("a registered descriptor can be registered anew");
            }
        };
        crate::sys::faults::disturb(|| operation(&self.io), edge_again)
    }

    /// Tries `operation` if the descriptor may be ready, and arranges a wake if it is not.
    ///
    /// Only one task per direction can wait: a second task's waker replaces the first one's. Where
    /// several tasks may wait, use [`poll_ready_shared`](Self::poll_ready_shared).
    #[inline]
    pub(crate) fn poll_io<R>(
        &self,
        direction: Direction,
        cx: &mut Context<'_>,
        mut operation: impl FnMut(&T) -> Result<R, Errno>,
    ) -> Poll<io::Result<R>> {
        let source = &*self.registration.source;
        let ready = source.ready(direction);
        loop {
            if !ready.get() {
                self.registration.may_wait()?;
                // The waker's clone is user code, and may take a turn of the loop. (Then the task
                // does not wait, and the next event wakes it once for nothing.)
                if source.waiters(direction).set_first(cx.waker()) || !ready.get() {
                    return Poll::Pending;
                }
            }
            #[cfg(not(feature = "faults"))]
            let done = operation(&self.io);
            #[cfg(feature = "faults")]
            let done = self.disturb(&mut operation);
            match done {
                Ok(value) => return Poll::Ready(Ok(value)),
                Err(Errno::AGAIN) => ready.clear(),
                Err(Errno::INTR) => {}
                Err(error) => return Poll::Ready(Err(crate::sys::limits::explain(error))),
            }
        }
    }

    /// Waits until `direction` may be ready. Many tasks may wait at the same time. `place`
    /// identifies this waiter, which must give it back with [`stop_waiting`](Self::stop_waiting).
    pub(crate) fn poll_ready_shared(
        &self,
        direction: Direction,
        place: &mut Option<Place>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let source = &*self.registration.source;
        if source.ready(direction).get() {
            return Poll::Ready(Ok(()));
        }
        self.registration.may_wait()?;
        source.waiters(direction).wait(place, cx.waker());
        if source.ready(direction).get() {
            // The waker's clone is user code, and has taken a turn of the loop.
            self.stop_waiting(direction, place);
            return Poll::Ready(Ok(()));
        }
        Poll::Pending
    }

    /// See [`poll_ready_shared`](Self::poll_ready_shared).
    pub(crate) fn stop_waiting(&self, direction: Direction, place: &mut Option<Place>) {
        if let Some(place) = place.take() {
            let Registration { driver, source, .. } = &self.registration;
            if source.mode == Mode::Exclusive {
                driver.look_at_shared();
            }
            source.waiters(direction).stop_waiting(place);
        }
    }

    /// Notes that a transfer was shorter than its buffer, so that the descriptor is not ready any
    /// more. Must not be called for a descriptor that preserves message boundaries.
    #[inline]
    pub(crate) fn ended(&self, direction: Direction) {
        let source = &*self.registration.source;
        let for_ever =
            source.closed(direction).get() || (direction == Direction::Read && source.urgent.get());
        if !for_ever {
            source.ready(direction).clear();
        }
    }

    /// Has the kernel reported an error, or that both sides have ended? This makes no system call,
    /// and no task has to wait for the report.
    #[inline]
    pub(crate) fn is_broken(&self) -> bool {
        self.registration.source.write_closed.get()
    }

    /// Called after one connection of a shared listener was taken, while `ready` tasks of this loop
    /// waited to run.
    ///
    /// A loop with nothing else to do takes no second connection. Usually there is none, and if
    /// there is one, the kernel tells another, sleeping loop. A busy loop comes back to its
    /// listener late, so it takes a quarter as many as it has ready tasks, up to [`MOST_AT_ONCE`].
    pub(crate) fn one_taken(&self, ready: usize) {
        let source = &*self.registration.source;
        if source.mode != Mode::Exclusive {
            return;
        }
        let allowed = match source.to_take.get() {
            0 => u8::try_from(ready / 4).unwrap_or(u8::MAX).clamp(1, MOST_AT_ONCE),
            decided => decided,
        };
        source.to_take.set(allowed - 1);
        if allowed <= 1 {
            source.read_ready.clear();
        }
    }

    /// Has the next operation ask the kernel, whatever was reported before.
    pub(crate) fn assume_ready(&self, direction: Direction) {
        self.registration.source.ready(direction).assume();
    }

    /// Has the kernel report again, by an event, what is ready. `false`: it does not.
    pub(super) fn is_told_anew(&self) -> bool {
        !self.is_forked() && self.registration.edge_again().is_ok()
    }

    /// Is this a forked child's copy of a descriptor that its parent uses?
    pub(crate) fn is_forked(&self) -> bool {
        self.registration.driver.process.is_forked()
    }

    /// Notes that an operation returned EAGAIN.
    pub(crate) fn would_block(&self, direction: Direction) {
        self.registration.source.to_take.set(0);
        self.registration.source.ready(direction).clear();
    }
}

impl Registration {
    /// Leaves the epoll. Closing the descriptor is not enough: a duplicate of it, here or in a
    /// child, would keep the registration, and the kernel would report its events for ever.
    fn disarm(&self) {
        match self.source.joined.get() {
            Some(joined) => joined.close(self.source.read_ready.get()),
            None if self.driver.process.is_forked() => {}
            None => self.driver.epoll_of(&self.source).remove(self.source.fd()),
        }
    }

    #[inline(always)]
    fn may_wait(&self) -> io::Result<()> {
        if self.driver.ended.get() {
            return Err(ended());
        }
        self.source.joined.get().map_or(Ok(()), |joined| self.may_wait_with_others(joined))
    }

    #[inline(never)]
    fn may_wait_with_others(&self, joined: &Joined) -> io::Result<()> {
        if joined.membership().is_wanted() {
            return Ok(());
        }
        // The waiter is not registered yet, and the clone of its waker may panic.
        self.driver.look_at_shared();
        joined.membership().want(true)
    }

    /// Has the kernel report again, by an event, what is ready.
    fn edge_again(&self) -> rustix::io::Result<()> {
        let (epoll, source) = (self.driver.epoll_of(&self.source), &*self.source);
        epoll.edge_again(source.fd(), source.mode.flags(), self.token.0)
    }
}
