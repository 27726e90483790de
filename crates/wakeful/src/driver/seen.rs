//! The readiness of a descriptor for code that makes its own system calls.

use std::io;
use std::os::fd::AsFd;
use std::task::{Context, Poll};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::sockopt::socket_type;

use super::interest::{Interest, Ready};
use super::readiness::Sight;
use super::registered::Registered;
use super::source::Direction;
use super::waiters::{Place, Waiters};

/// What was ready at a moment, and the events that had come by then.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Seen {
    pub(crate) ready: Ready,
    read: Option<Sight>,
    write: Option<Sight>,
    priority: Option<Sight>,
}

/// The places of one waiter, which may wait for both directions.
#[derive(Debug, Default)]
pub(crate) struct Places {
    read: Option<Place>,
    write: Option<Place>,
}

impl<T: AsFd> Registered<T> {
    /// What of `interest` is ready, as far as events have reported it.
    pub(crate) fn seen(&self, interest: Interest) -> Seen {
        let source = self.source();
        let read = interest.is_readable().then(|| source.read_ready.see()).flatten();
        let write = interest.is_writable().then(|| source.write_ready.see()).flatten();
        let priority = interest.is_priority().then(|| source.priority_ready.see()).flatten();
        let ready = Ready {
            readable: read.is_some(),
            writable: write.is_some(),
            priority: priority.is_some(),
            read_closed: read.is_some() && self.now(Direction::Read).is_closed,
            write_closed: write.is_some() && self.now(Direction::Write).is_closed,
        };
        Seen { ready, read, write, priority }
    }

    /// Like [`seen`](Self::seen), but waits until something is ready. Many tasks may wait at the
    /// same time. The caller gives `places` back with [`leave`](Self::leave).
    pub(crate) fn poll_seen(
        &self,
        interest: Interest,
        places: &mut Places,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<Seen>> {
        self.seen_or_wait(interest, |waiters, direction| {
            let place = match direction {
                Direction::Read => &mut places.read,
                Direction::Write => &mut places.write,
            };
            waiters.wait(place, cx.waker());
        })
    }

    /// Like [`poll_seen`](Self::poll_seen), for one task in each direction: a second task's waker
    /// replaces the first one's.
    pub(crate) fn poll_seen_alone(
        &self,
        interest: Interest,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<Seen>> {
        self.seen_or_wait(interest, |waiters, _| {
            waiters.set_first(cx.waker());
        })
    }

    fn seen_or_wait(
        &self,
        interest: Interest,
        mut wait: impl FnMut(&Waiters, Direction),
    ) -> Poll<io::Result<Seen>> {
        let seen = self.seen(interest);
        if !seen.ready.is_empty() {
            return Poll::Ready(Ok(seen));
        }
        self.may_wait()?;
        for direction in directions(interest) {
            wait(self.source().waiters(direction), direction);
        }
        // A waker's clone is user code, and may have taken a turn of the loop.
        let seen = self.seen(interest);
        if seen.ready.is_empty() { Poll::Pending } else { Poll::Ready(Ok(seen)) }
    }

    /// Stops waiting.
    pub(crate) fn leave(&self, places: &mut Places) {
        let Places { read, write } = std::mem::take(places);
        for (direction, place) in [(Direction::Read, read), (Direction::Write, write)] {
            if let Some(place) = place {
                self.source().waiters(direction).stop_waiting(place);
            }
        }
    }

    /// Notes that what was seen of `interest` is not ready any more, unless an event has come
    /// since.
    ///
    /// A direction that is closed stays ready: the kernel would not say so again.
    pub(crate) fn clear(&self, seen: &Seen, interest: Interest) {
        let Seen { read, write, priority, .. } = *seen;
        let source = self.source();
        if let Some(sight) = read.filter(|_| interest.is_readable())
            && !self.stays(Direction::Read, |now| now.is_ready)
        {
            source.read_ready.clear_seen(sight);
        }
        if let Some(sight) = write.filter(|_| interest.is_writable())
            && !self.stays(Direction::Write, |now| now.is_ready)
        {
            source.write_ready.clear_seen(sight);
        }
        if let Some(sight) = priority.filter(|_| interest.is_priority())
            && !self.stays(Direction::Read, |now| now.has_ended)
        {
            source.priority_ready.clear_seen(sight);
        }
    }

    /// Asks the kernel whether a direction that an event has reported closed or broken is so now.
    /// Some errors pass, and only the kernel knows.
    fn now(&self, direction: Direction) -> Now {
        let told = self.source().closed(direction);
        let asked = match direction {
            Direction::Read => PollFlags::IN | PollFlags::RDHUP,
            Direction::Write => PollFlags::OUT,
        };
        if !told.get() {
            return Now::default();
        }
        let mut fds = [PollFd::new(self.io(), asked)];
        if rustix::event::poll(&mut fds, Some(&Timespec::default())).is_err() {
            return Now { is_closed: true, has_ended: true, is_ready: true, is_unknown: true };
        }
        let found = fds[0].revents();
        let has_ended = found.intersects(PollFlags::HUP | PollFlags::RDHUP);
        let is_error_alone = found == PollFlags::ERR;
        let lasts = || socket_type(self.io()).is_err();
        // A pipe that has no reader and is not full is also writable.
        let is_broken = direction == Direction::Write && found.contains(PollFlags::ERR) && lasts();
        let is_closed = has_ended || is_error_alone || is_broken;
        told.set(is_closed);
        // An error without other readiness lasts on a descriptor that has no way to take the error,
        // such as a pipe without a reader. On a socket it passes. It can also mean that the socket
        // has an error queue that nobody reads, and then operations block all the same.
        let is_ready = has_ended || found.intersects(asked) || (is_error_alone && lasts());
        Now { is_closed, has_ended, is_ready, is_unknown: false }
    }

    /// Does a direction stay ready after an operation that would block, according to `is_so`? If
    /// the kernel does not tell the present state (poll(2) is refused, or RLIMIT_NOFILE is 0), the
    /// direction counts as not ready until an event reports it again. Otherwise it might count as
    /// ready for ever.
    fn stays(&self, direction: Direction, is_so: fn(&Now) -> bool) -> bool {
        let now = self.now(direction);
        if now.is_unknown && self.is_told_anew() {
            self.source().closed(direction).set(false);
            return false;
        }
        is_so(&now)
    }

    /// Like [`attempt`](Self::attempt), for an operation of user code.
    pub(crate) fn try_io<R>(
        &self,
        interest: Interest,
        operation: impl FnOnce() -> io::Result<R>,
    ) -> io::Result<R> {
        let source = self.source();
        let (read, write) = (interest.is_readable(), interest.is_writable());
        let may_be_ready = (read && source.read_ready.get())
            || (write && source.write_ready.get())
            || (interest.is_priority() && source.priority_ready.get());
        if !may_be_ready {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let result = operation();
        if matches!(&result, Err(error) if error.kind() == io::ErrorKind::WouldBlock) {
            if read && !self.stays(Direction::Read, |now| now.is_ready) {
                source.read_ready.clear();
            }
            if write && !self.stays(Direction::Write, |now| now.is_ready) {
                source.write_ready.clear();
            }
            if interest.is_priority() && !self.stays(Direction::Read, |now| now.has_ended) {
                source.priority_ready.clear();
            }
        }
        result
    }

    /// Makes one attempt, if the direction may be ready. `WouldBlock` says that it is not.
    pub(crate) fn attempt<R>(
        &self,
        direction: Direction,
        mut operation: impl FnMut(&T) -> Result<R, Errno>,
    ) -> io::Result<R> {
        let ready = self.source().ready(direction);
        while ready.get() {
            #[cfg(not(feature = "faults"))]
            let done = operation(self.io());
            #[cfg(feature = "faults")]
            let done = self.disturb(&mut operation);
            match done {
                Err(Errno::AGAIN) => ready.clear(),
                Err(Errno::INTR) => {}
                result => return result.map_err(crate::sys::limits::explain),
            }
        }
        Err(io::ErrorKind::WouldBlock.into())
    }
}

/// The present state of a direction. See [`Registered::now`].
#[derive(Clone, Copy, Default)]
struct Now {
    /// The direction has ended, or there is an error.
    is_closed: bool,
    has_ended: bool,
    /// An operation would return at once, even after another one that would block.
    is_ready: bool,
    /// The kernel does not tell the state.
    is_unknown: bool,
}

impl Seen {
    /// The interests that were ready.
    pub(crate) fn interest(&self) -> Interest {
        Interest::of(self.read.is_some(), self.write.is_some(), self.priority.is_some())
    }
}

/// The directions whose waiters an event of this interest wakes.
fn directions(interest: Interest) -> impl Iterator<Item = Direction> {
    let read = interest.is_readable() || interest.is_priority();
    let read = read.then_some(Direction::Read);
    read.into_iter().chain(interest.is_writable().then_some(Direction::Write))
}
