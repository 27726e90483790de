//! One turn of the generator: it sends requests, takes answers, and opens broken connections again.
//!
//! After each event the generator looks at the schedule again. So a request never waits longer than
//! it takes to handle one answer.

use std::io;

use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, Event, EventData, EventFlags};
use rustix::fd::OwnedFd;
use rustix::io::{Errno, retry_on_intr};

use super::connection::Reading;
use super::{ConnectionUse, Generator};
use crate::protocol::{Answer, Outcome, ProtocolError};
use crate::recorder::Request;
use crate::shortage;

/// After this many refused connections in a row the server counts as gone.
const REFUSALS: u32 = 20;

/// At most this many requests are sent between two looks at the answers.
const SENT_AT_ONCE: usize = 1024;

const INTEREST: EventFlags =
    EventFlags::IN.union(EventFlags::OUT).union(EventFlags::RDHUP).union(EventFlags::ET);
const READABLE: EventFlags = EventFlags::IN.union(ENDED);
const ENDED: EventFlags = EventFlags::RDHUP.union(EventFlags::HUP).union(EventFlags::ERR);

impl Generator<'_> {
    /// Sends what is due, then handles what has happened.
    pub(super) fn turn(&mut self, now: u64, events: &mut Vec<Event>) -> io::Result<()> {
        self.send_due(now);
        let at_once = Timespec::default();
        retry_on_intr(|| epoll::wait(&self.epoll, spare_capacity(events), Some(&at_once)))?;
        for event in events.drain(..) {
            self.on_event(event.data.u64(), event.flags);
            self.send_due(self.now());
        }
        for token in std::mem::take(&mut self.more) {
            self.on_event(token, EventFlags::IN);
            self.send_due(self.now());
        }
        Ok(())
    }

    pub(super) fn install(&mut self, index: usize, fd: OwnedFd) -> io::Result<()> {
        let connection = &mut self.connections[index];
        connection.open(fd, self.plan.requests.conversation());
        let data = token(index, connection.generation);
        if let Some(fd) = connection.fd() {
            let added = epoll::add(&self.epoll, fd, EventData::new_u64(data), INTEREST);
            if let Err(error) = added {
                // Without events it would never be read.
                connection.close().for_each(drop);
                return Err(error.into());
            }
        }
        Ok(())
    }

    fn send_due(&mut self, now: u64) {
        let mut now = now;
        // The number is bounded, so that this thread receives answers in between even at a high
        // rate, or if each connection breaks at once and is opened again.
        for _ in 0..SENT_AT_ONCE {
            if self.is_closed_loop() {
                let Some(index) = self.next_free() else { return };
                let now = self.now();
                self.count_due(now);
                self.start_now(index, now);
                continue;
            }
            if !self.backlog.is_empty()
                && let Some(index) = self.next_free()
            {
                if let Some(intended) = self.backlog.next() {
                    self.start(index, intended);
                }
                continue;
            }
            // Whatever was due in the measured time is sent, even if this thread could not run
            // until now.
            let is_wanted =
                |due: &u64| *due <= now && (!self.is_draining || self.recording.covers(*due));
            let Some(intended) = self.arrivals.next_if(is_wanted) else { return };
            self.count_due(intended);
            match self.next_free() {
                Some(index) => {
                    debug_assert!(self.backlog.is_empty());
                    self.start_now(index, intended);
                    now = self.now();
                }
                None => {
                    if self.recording.covers(intended) {
                        self.recording.waits(intended, now);
                    }
                    self.backlog.add(intended, &self.arrivals);
                }
            }
        }
    }

    pub(super) fn count_due(&mut self, intended: u64) {
        self.due += 1;
        self.recording.offered += u64::from(self.recording.covers(intended));
    }

    fn next_free(&mut self) -> Option<usize> {
        if self.is_draining && self.is_closed_loop() {
            return None;
        }
        loop {
            let index = self.free.pop_front()?;
            self.connections[index].is_listed = false;
            if self.may_request(index) {
                return Some(index);
            }
        }
    }

    fn may_request(&self, index: usize) -> bool {
        let connection = &self.connections[index];
        match self.plan.use_of_connections {
            ConnectionUse::Kept => connection.may_request(self.plan.limit_in_flight()),
            ConnectionUse::PerRequest => connection.fd().is_none(),
        }
    }

    /// Puts a connection into the list of connections that may send, if it may send.
    pub(super) fn offer(&mut self, index: usize) {
        if !self.connections[index].is_listed && self.may_request(index) {
            self.connections[index].is_listed = true;
            self.free.push_back(index);
        }
    }

    /// Sends a request that has not waited for a connection.
    fn start_now(&mut self, index: usize, intended: u64) {
        let sent = self.start(index, intended);
        if self.recording.covers(intended) {
            self.recording.sent_at_once(intended, sent);
        }
    }

    /// Sends a request, and returns when it did.
    fn start(&mut self, index: usize, intended: u64) -> u64 {
        let draw = self.drawing.next();
        let sent = self.now();
        let request = Request { intended, sent, kind: draw.kind };
        if self.plan.use_of_connections == ConnectionUse::PerRequest
            && let Err(error) =
                self.plan.target.begin_connect().and_then(|fd| self.install(index, fd))
        {
            // The connection is offered again at the next check, because reconnecting at once could
            // become a storm.
            self.refused += u64::from(error.kind() == io::ErrorKind::ConnectionRefused);
            self.failed(request, || format!("cannot connect: {}", shortage::explain(error)));
            return sent;
        }
        self.connections[index].request(request, draw);
        match self.connections[index].flush() {
            Ok(()) => self.offer(index),
            Err(error) => self.broken(index, &error),
        }
        sent
    }

    fn on_event(&mut self, data: u64, flags: EventFlags) {
        let (index, generation) = split(data);
        if self.connections[index].generation != generation
            || self.connections[index].fd().is_none()
        {
            return;
        }
        if flags.contains(EventFlags::OUT)
            && let Err(error) = self.connections[index].flush()
        {
            return self.broken(index, &error);
        }
        if flags.intersects(ENDED) {
            self.connections[index].ends();
        }
        if flags.intersects(READABLE) {
            let mut answers = std::mem::take(&mut self.answers);
            let reading = self.connections[index].read(&mut answers);
            let done = self.now();
            for answer in answers.drain(..) {
                self.finish(index, answer, done);
            }
            self.answers = answers;
            match reading {
                Err(error) => return self.broken(index, &error),
                Ok(Reading::Closed) => {
                    return self
                        .broken(index, &io::Error::other("the server closed the connection"));
                }
                Ok(Reading::Drained) if flags.intersects(ENDED) => {
                    // The kernel has already announced the end of this connection, and sends no
                    // further event for it.
                    if flags.intersects(EventFlags::ERR.union(EventFlags::HUP)) {
                        let error =
                            self.connections[index].fd().map(rustix::net::sockopt::socket_error);
                        let error = match error {
                            Some(Ok(Err(errno))) => errno.into(),
                            _ => io::Error::other("the server closed the connection"),
                        };
                        return self.broken(index, &error);
                    }
                }
                Ok(Reading::Drained) => {}
                // The kernel sends no further event for the bytes that are left, because it reports
                // only new ones.
                Ok(Reading::More) => self.more.push(data),
            }
            // The protocol may have added a reply to the output.
            if let Err(error) = self.connections[index].flush() {
                return self.broken(index, &error);
            }
        }
        if self.connections[index].fd().is_some() && self.connections[index].is_spent() {
            return self.reopen(index);
        }
        self.offer(index);
    }

    fn finish(&mut self, index: usize, answer: Answer, done: u64) {
        let Some(request) = self.connections[index].finish(answer.key) else { return };
        self.refused_in_a_row = 0;
        if answer.outcome == Outcome::Success {
            self.answered += 1;
            self.ended += 1;
            self.recording.answer_came(done);
            if self.recording.covers(request.intended) {
                self.measured_ended += 1;
                self.recording.answered(request, done);
            }
        } else {
            self.answered += 1;
            self.failed(request, || match answer.outcome {
                Outcome::Status(status) => format!("the server answered with status {status}"),
                _ => "the server answered with an error: a RESP error, a gRPC status, a reset \
                      stream, or another payload"
                    .to_owned(),
            });
        }
        if self.plan.use_of_connections == ConnectionUse::PerRequest {
            self.connections[index].close().for_each(drop);
        }
    }

    fn failed(&mut self, request: Request, why: impl FnOnce() -> String) {
        self.ended += 1;
        if self.recording.covers(request.intended) {
            self.measured_ended += 1;
            self.recording.failed += 1;
            self.failed_because(why());
        } else if self.first_failure.is_none() {
            self.first_failure = Some(why());
        }
    }

    /// Counts a failed request of the measured time by its reason.
    pub(super) fn failed_because(&mut self, why: String) {
        if self.first_failure.is_none() {
            self.first_failure = Some(why.clone());
        }
        *self.failures.entry(why).or_default() += 1;
    }

    /// Counts the requests in flight as failed, and opens the connection again if the plan needs
    /// it.
    fn broken(&mut self, index: usize, error: &io::Error) {
        let lost: Vec<Request> = self.connections[index].close().collect();
        let was_idle = lost.is_empty();
        if is_of_protocol(error) && self.recording.has_begun(self.now()) {
            *self.protocol_errors.entry(error.to_string()).or_default() += 1;
            // If a request was lost with the connection, the failure is counted with that request.
            if !lost.iter().any(|request| self.recording.covers(request.intended)) {
                self.recording.failed += 1;
                self.failed_because(error.to_string());
            }
        }
        for request in lost {
            self.failed(request, || error.to_string());
        }
        let refused = error.raw_os_error() == Some(Errno::CONNREFUSED.raw_os_error());
        if refused {
            self.refused += 1;
            self.refused_in_a_row += 1;
            if self.refused_in_a_row >= REFUSALS {
                self.gone = Some(error.to_string());
            }
        }
        self.first_failure.get_or_insert_with(|| error.to_string());
        if self.plan.use_of_connections == ConnectionUse::PerRequest {
            if !refused {
                self.offer(index);
            }
            return;
        }
        // A refused connection is tried again at the next check, because trying at once could
        // become a storm. An idle connection that the server closed is opened again at once.
        if !refused || was_idle && self.refused_in_a_row == 0 {
            self.reopen(index);
        }
    }

    fn reopen(&mut self, index: usize) {
        self.connections[index].close().for_each(drop);
        match self.plan.target.begin_connect().and_then(|fd| self.install(index, fd)) {
            Ok(()) => {
                self.reconnected += 1;
                if let Err(error) = self.connections[index].flush() {
                    self.first_failure.get_or_insert_with(|| error.to_string());
                    self.connections[index].close().for_each(drop);
                }
                self.offer(index);
            }
            Err(error) => {
                self.refused += u64::from(error.kind() == io::ErrorKind::ConnectionRefused);
                // A lack that passes does not count, because the server still listens. `revive`
                // tries again.
                let is_temporary = shortage::is_temporary(&error);
                let error = shortage::explain(error);
                if !is_temporary {
                    self.refused_in_a_row += 1;
                    if self.refused_in_a_row >= REFUSALS {
                        self.gone = Some(format!("cannot connect any more: {error}"));
                    }
                }
                self.first_failure.get_or_insert_with(|| format!("cannot connect: {error}"));
            }
        }
    }

    /// Tries again to open the connections that could not be opened.
    pub(super) fn revive(&mut self) {
        if self.first_failure.is_none() {
            return;
        }
        for index in 0..self.connections.len() {
            if self.gone.is_some() || self.connections[index].fd().is_some() {
                continue;
            }
            match self.plan.use_of_connections {
                ConnectionUse::Kept => self.reopen(index),
                ConnectionUse::PerRequest => self.offer(index),
            }
        }
    }
}

/// Whether the error is that the server broke the protocol, and not only that it closed the
/// connection.
fn is_of_protocol(error: &io::Error) -> bool {
    matches!(error.get_ref(), Some(inner) if inner.is::<ProtocolError>())
}

fn token(index: usize, generation: u32) -> u64 {
    u64::from(generation) << 32 | index as u64
}

fn split(data: u64) -> (usize, u32) {
    ((data & u64::from(u32::MAX)) as usize, (data >> 32) as u32)
}
