//! The end of a run: the cool-down, the wait for the last answers, and the report of those that did
//! not come.
//!
//! The generator itself may stand still meanwhile, because others have its CPU or the whole machine
//! is paused. The server is not to blame for such time: it is not counted as waiting, and it does
//! not end the wait before the bytes that have arrived are read.

use std::time::Duration;
use std::{fmt, io};

use rustix::event::epoll::Event;

use super::{EVENTS, Ended, Generator, LoadError, Watch};
use crate::recorder::nanoseconds;

/// After the measured time, load continues for at most this long, so that its last requests are
/// answered under the same load.
const COOL_DOWN: Duration = Duration::from_millis(20);

/// Why an unanswered request has failed.
const NO_ANSWER: &str = "no answer in time";

const PHASE: &str = "wait for the last answers";

impl Generator<'_> {
    /// Continues the same load for a short time, until the requests of the measured time have been
    /// answered.
    pub(super) fn cool_down(
        &mut self,
        events: &mut Vec<Event>,
        watch: &mut dyn Watch,
    ) -> Result<(), LoadError> {
        let began = self.now();
        let end = began + nanoseconds(COOL_DOWN);
        while self.is_unfinished() && self.now() < end {
            let slice = (self.now() + 500_000).min(end);
            if self.load_until(slice, events, watch, began, PHASE)? == Ended::Interrupted {
                break;
            }
        }
        Ok(())
    }

    /// Sends nothing more, and waits for the answers of the measured time.
    pub(super) fn drain(
        &mut self,
        events: &mut Vec<Event>,
        watch: &mut dyn Watch,
    ) -> Result<Ended, LoadError> {
        self.is_draining = true;
        let (began, stood_still) = (self.now(), self.stood_still);
        let patience = nanoseconds(self.plan.patience);
        while self.is_unfinished() {
            // The time is bounded, because this thread may hardly ever run.
            let paused = (self.stood_still - stood_still).min(patience);
            let left = patience.saturating_sub((self.now() - began).saturating_sub(paused));
            if left == 0 {
                break;
            }
            let slice = self.now() + left.min(1_000_000);
            let outcome = self.load_until(slice, events, watch, began, PHASE)?;
            if outcome == Ended::Interrupted {
                return Ok(outcome);
            }
        }
        self.look_once_more(events)?;
        Ok(Ended::InTime)
    }

    /// Reads what has arrived by now: every connection of which the kernel has something to tell,
    /// and further as long as that brings answers.
    fn look_once_more(&mut self, events: &mut Vec<Event>) -> io::Result<()> {
        let round = self.connections.len() / EVENTS + 1;
        let mut left = round;
        while self.is_unfinished() && left > 0 {
            let ended = self.measured_ended;
            let now = self.now();
            self.turn(now, events)?;
            left = if self.measured_ended > ended { round } else { left - 1 };
        }
        Ok(())
    }

    /// Counts the requests that are still unanswered as failed.
    pub(super) fn give_up(&mut self) {
        let now = self.now();
        let mut stuck = self.stuck();
        for connection in &self.connections {
            for request in connection.in_flight() {
                if self.recording.covers(request.intended) {
                    self.recording.gave_up(request.intended, Some(request.kind), now);
                }
            }
        }
        // A request that was never sent has no kind yet. They are taken one by one, because there
        // may be more of them than memory has room for.
        while let Some(intended) = self.next_unsent() {
            if self.recording.covers(intended) {
                self.recording.gave_up(intended, None, now);
                stuck.waiting += 1;
            }
        }
        let unanswered = stuck.sent + stuck.waiting;
        if unanswered > 0 {
            self.first_failure.get_or_insert_with(|| format!("{NO_ANSWER}: {stuck}"));
            *self.failures.entry(NO_ANSWER.to_owned()).or_default() += unanswered as u64;
        }
    }

    /// Returns the next request that no connection has taken: first from the backlog, then from the
    /// rest of the measured time.
    fn next_unsent(&mut self) -> Option<u64> {
        if let Some(intended) = self.backlog.next() {
            return Some(intended);
        }
        let intended = self.arrivals.next_if(|due| self.recording.covers(*due))?;
        self.count_due(intended);
        Some(intended)
    }

    /// Counts where the unanswered requests of the measured time are, as far as this side knows.
    fn stuck(&self) -> Stuck {
        let is_counted = |intended: &u64| self.recording.covers(*intended);
        let mut stuck = Stuck {
            of: self.connections.len(),
            stood_still: Duration::from_nanos(self.stood_still),
            ..Stuck::default()
        };
        for connection in &self.connections {
            let sent = connection.in_flight().filter(|it| is_counted(&it.intended)).count();
            stuck.not_open += usize::from(!connection.is_open());
            if sent > 0 {
                stuck.sent += sent;
                stuck.connections += 1;
                stuck.unsent += connection.unsent();
                stuck.unread += connection.unread();
            }
        }
        stuck
    }

    /// Whether requests of the measured time are still to be sent or answered.
    fn is_unfinished(&mut self) -> bool {
        self.measured_ended < self.recording.offered
            || self.arrivals.peek().is_some_and(|due| self.recording.covers(*due))
    }
}

/// Where the unanswered requests are.
#[derive(Debug, Default)]
struct Stuck {
    /// The requests that were sent, the number of connections with such requests, and the number of
    /// all connections.
    sent: usize,
    connections: usize,
    of: usize,
    /// Bytes on the connections with such requests: bytes to send that our kernel has not taken,
    /// and bytes from the server that do not make up a whole answer.
    unsent: usize,
    unread: u64,
    /// Requests that no connection could take.
    waiting: usize,
    /// Connections that are closed, or whose server has not yet said how many requests it takes.
    not_open: usize,
    /// For how long this thread stood still since the measured time began.
    stood_still: Duration,
}

impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sent, connections, of, unsent, unread, waiting, not_open, stood_still } = self;
        write!(
            f,
            "{sent} requests were sent, on {connections} of {of} connections (there, {unsent} bytes \
             are not sent yet, and {unread} bytes of unfinished answers have arrived); {waiting} \
             requests found no free connection ({not_open} connections were not open); the \
             generator stood still for {:.1} s since the measured time began",
            stood_still.as_secs_f64()
        )
    }
}
