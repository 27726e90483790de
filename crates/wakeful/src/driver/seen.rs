//! The readiness of a descriptor for those who make the system calls themselves.

use std::io;
use std::os::fd::AsFd;
use std::task::{Context, Poll};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;

use super::interest::{Interest, Ready};
use super::readiness::Sight;
use super::registered::Registered;
use super::source::{Direction, Source};
use super::waiters::Place;

/// What was ready at a moment, and which events had come by then.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Seen {
    pub(crate) ready: Ready,
    read: Option<Sight>,
    write: Option<Sight>,
    priority: Option<Sight>,
}

/// The places of one who waits, perhaps for both directions.
#[derive(Debug, Default)]
pub(crate) struct Places {
    read: Option<Place>,
    write: Option<Place>,
}

impl<T: AsFd> Registered<T> {
    /// What of `interest` is ready, as far as events have said.
    pub(crate) fn seen(&self, interest: Interest) -> Seen {
        Seen::of(self.source(), interest)
    }

    /// As [`seen`](Self::seen), but waits until there is something, as one of possibly many.
    /// `places` are given back with [`leave`](Self::leave).
    pub(crate) fn poll_seen(
        &self,
        interest: Interest,
        places: &mut Places,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<Seen>> {
        let seen = self.seen(interest);
        if !seen.ready.is_empty() {
            return Poll::Ready(Ok(seen));
        }
        self.may_wait()?;
        for direction in directions(interest) {
            let place = match direction {
                Direction::Read => &mut places.read,
                Direction::Write => &mut places.write,
            };
            self.source().waiters(direction).wait(place, cx.waker());
        }
        Poll::Pending
    }

    /// Waits no more.
    pub(crate) fn leave(&self, places: &mut Places) {
        let Places { read, write } = std::mem::take(places);
        for (direction, place) in [(Direction::Read, read), (Direction::Write, write)] {
            if let Some(place) = place {
                self.source().waiters(direction).stop_waiting(place);
            }
        }
    }

    /// As [`poll_seen`](Self::poll_seen), for one task in each direction: a second one's wake
    /// replaces the first's.
    pub(crate) fn poll_seen_alone(
        &self,
        interest: Interest,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<Seen>> {
        let seen = self.seen(interest);
        if !seen.ready.is_empty() {
            return Poll::Ready(Ok(seen));
        }
        self.may_wait()?;
        for direction in directions(interest) {
            self.source().waiters(direction).set_first(cx.waker());
        }
        Poll::Pending
    }

    /// What was seen is not ready any more. An event that has come since counts.
    ///
    /// A direction that is closed stays ready: the kernel would not say so again.
    pub(crate) fn clear(&self, seen: &Seen) {
        let source = self.source();
        let read = seen.read.filter(|_| !self.is_closed(Direction::Read));
        let write = seen.write.filter(|_| !self.is_closed(Direction::Write));
        read.inspect(|&sight| source.read_ready.clear_seen(sight));
        write.inspect(|&sight| source.write_ready.clear_seen(sight));
        seen.priority.inspect(|&sight| source.priority_ready.clear_seen(sight));
    }

    /// Is the direction closed for ever? An error may also have been one that passes, as in a file
    /// of sysfs, whose every change is one: only the kernel knows.
    fn is_closed(&self, direction: Direction) -> bool {
        let (told, asked) = match direction {
            Direction::Read => (&self.source().read_closed, PollFlags::IN | PollFlags::RDHUP),
            Direction::Write => (&self.source().write_closed, PollFlags::OUT),
        };
        if !told.get() {
            return false;
        }
        let mut fds = [PollFd::new(self.io(), asked)];
        let closed = match rustix::event::poll(&mut fds, Some(&Timespec::default())) {
            Ok(_) => fds[0].revents().intersects(asked | PollFlags::HUP),
            Err(_) => true,
        };
        told.set(closed);
        closed
    }

    /// As [`attempt`](Self::attempt), for an operation of the user's, on one direction or on both.
    pub(crate) fn try_io<R>(
        &self,
        interest: Interest,
        operation: impl FnOnce() -> io::Result<R>,
    ) -> io::Result<R> {
        let source = self.source();
        let may_be_ready = directions(interest).any(|direction| source.ready(direction).get());
        let result = if may_be_ready { operation() } else { Err(io::ErrorKind::WouldBlock.into()) };
        if matches!(&result, Err(error) if error.kind() == io::ErrorKind::WouldBlock) {
            directions(interest)
                .filter(|&direction| !self.is_closed(direction))
                .for_each(|direction| source.ready(direction).clear());
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

impl Seen {
    fn of(source: &Source, interest: Interest) -> Self {
        let read = interest.is_readable().then(|| source.read_ready.see()).flatten();
        let write = interest.is_writable().then(|| source.write_ready.see()).flatten();
        let priority = interest.is_priority().then(|| source.priority_ready.see()).flatten();
        let ready = Ready {
            readable: read.is_some(),
            writable: write.is_some(),
            priority: priority.is_some(),
            read_closed: read.is_some() && source.read_closed.get(),
            write_closed: write.is_some() && source.write_closed.get(),
        };
        Self { ready, read, write, priority }
    }
}

/// Whose waiters an event of this interest wakes.
fn directions(interest: Interest) -> impl Iterator<Item = Direction> {
    let read = interest.is_readable() || interest.is_priority();
    let read = read.then_some(Direction::Read);
    read.into_iter().chain(interest.is_writable().then_some(Direction::Write))
}
