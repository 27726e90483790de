//! The generator: one thread that never sleeps, one clock, one schedule.
//!
//! Requests are sent when they are due, late rather than never, and their times count from when they were due. What the
//! server does cannot move the schedule: a connection takes several requests at a time where its protocol can, and a
//! request for which there is no connection waits in the backlog with its own time.
//!
//! After each event that was handled the schedule is asked again, so that answers never hold up a request for
//! longer than one of them takes.

mod connection;
mod plan;

use std::collections::VecDeque;
use std::io;
use std::iter::Peekable;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::fd::OwnedFd;
use rustix::io::{Errno, retry_on_intr};
use thiserror::Error;

use crate::protocol::{Answer, Outcome};
use crate::recorder::{Recording, Request, nanoseconds};
use crate::schedule::{Arrivals, Schedule};
use connection::{Connection, Reading};

pub use plan::{ConnectionUse, Plan, default_in_flight};

/// How many events are taken at a time.
const EVENTS: usize = 64;

/// How often the watch is asked whether to go on.
const CHECK_EVERY: Duration = Duration::from_millis(50);

/// Behind a look at the server's counters, load goes on for this long before anything is measured.
const SETTLE: Duration = Duration::from_millis(1);

/// Behind the measured time, load goes on for at most this long, so that its last requests are answered under the same load.
const COOL_DOWN: Duration = Duration::from_millis(20);

/// After this many refused connections in a row the server counts as gone.
const REFUSALS: u32 = 20;

/// By so much, in nanoseconds, no turn of ours takes longer than the one before.
const STANDSTILL: u64 = 10_000_000;

/// At most this many requests are sent between two looks at the answers.
const SENT_AT_ONCE: usize = 1024;

/// Later than any run lasts, in nanoseconds; a trace of years still fits behind it.
const NEVER: u64 = u64::MAX / 2;

const INTEREST: EventFlags =
    EventFlags::IN.union(EventFlags::OUT).union(EventFlags::RDHUP).union(EventFlags::ET);
const READABLE: EventFlags = EventFlags::IN.union(ENDED);
const ENDED: EventFlags = EventFlags::RDHUP.union(EventFlags::HUP).union(EventFlags::ERR);

/// Looks on while a run goes on, from the generator's own thread.
pub trait Watch {
    /// The measured time is about to begin: read the counters. What is due meanwhile is late, and settles within a millisecond if this
    /// took a tenth of that.
    fn window_begins(&mut self) {}
    /// The measured time is over: read the counters again. Answers that come meanwhile are taken late.
    fn window_ended(&mut self) {}
    /// Asked every 50 ms; it must not take long.
    fn check(&mut self) -> Check {
        Check::GoOn
    }
}

/// Whether to go on.
#[derive(Debug)]
pub enum Check {
    /// Yes.
    GoOn,
    /// The user wants it to end: keep what was measured.
    Interrupted,
    /// The server has died, with what is known of it.
    ServerDied(String),
}

/// A [`Watch`] that looks away.
impl Watch for () {}

/// Why there is no measurement.
#[derive(Debug, Error)]
pub enum LoadError {
    /// No connection at the beginning.
    #[error("cannot connect to {target}: {source}")]
    Connect {
        /// The server.
        target: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// The server went away.
    #[error("the server died {after:.1} s into the {phase}, after {answered} answers: {why}")]
    ServerDied {
        /// Seconds since that phase began.
        after: f64,
        /// `warm-up` or `measured time`.
        phase: &'static str,
        /// Answers until then.
        answered: u64,
        /// What is known.
        why: String,
    },
    /// The user ended it before anything was measured.
    #[error("interrupted before anything was measured")]
    Interrupted,
    /// The server accepts requests, but nothing has come back.
    #[error("no answer to any of {0} requests: is it the right protocol?")]
    Silent(u64),
    /// The kernel refused something.
    #[error("{0}")]
    Kernel(#[from] io::Error),
}

/// What a run measured.
#[derive(Debug, Clone)]
pub struct Measurement {
    /// Distributions and counts.
    pub recording: Recording,
    /// Seconds measured.
    pub seconds: f64,
    /// Requests that had piled up at the end of the measured time, beyond the most that were unanswered in its first half: what
    /// the server did not keep up with.
    pub piled_up: u64,
    /// Connections that broke and were opened again.
    pub reconnected: u64,
    /// The first failure's cause, for the user.
    pub first_failure: Option<String>,
    /// Whether the user ended it early.
    pub interrupted: bool,
    /// Seconds for which the generator's thread was ready to run and was not let.
    pub robbed: f64,
}

impl Measurement {
    /// Adds another block of the same plan.
    pub fn add(&mut self, other: &Self) {
        self.recording.merge(&other.recording);
        self.seconds += other.seconds;
        self.piled_up += other.piled_up;
        self.reconnected += other.reconnected;
        self.interrupted |= other.interrupted;
        self.robbed += other.robbed;
        if self.first_failure.is_none() {
            self.first_failure.clone_from(&other.first_failure);
        }
    }
}

/// Loads the server as planned, on this thread, which should be pinned to a CPU that nothing else uses.
///
/// # Errors
/// The server cannot be reached, dies or never answers; or the kernel refuses something.
pub fn run(plan: &Plan, watch: &mut dyn Watch) -> Result<Measurement, LoadError> {
    Generator::connect(plan)?.run(watch)
}

struct Generator<'p> {
    plan: &'p Plan,
    epoll: OwnedFd,
    connections: Vec<Connection>,
    /// Connections that may send, the one that has rested longest in front.
    free: VecDeque<usize>,
    /// When those requests were due for which there was no connection.
    backlog: VecDeque<u64>,
    arrivals: Peekable<Arrivals>,
    begin: Instant,
    recording: Recording,
    answers: Vec<Answer>,
    /// Requests due so far, and how many of them have come to an end.
    due: u64,
    ended: u64,
    answered: u64,
    /// The same of the measured time only.
    measured_ended: u64,
    most_unanswered: u64,
    reconnected: u64,
    refused_in_a_row: u32,
    first_failure: Option<String>,
    /// Connections of which more has arrived than was read in one go.
    more: Vec<u64>,
    /// Nanoseconds for which this thread stood still, by its own clock: stopped, or its whole machine.
    stood_still: u64,
    /// No more requests: the run is waiting for its last answers.
    is_draining: bool,
    gone: Option<String>,
}

impl<'p> Generator<'p> {
    fn connect(plan: &'p Plan) -> Result<Self, LoadError> {
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(io::Error::from)?;
        let mut generator = Self {
            plan,
            epoll,
            connections: Vec::with_capacity(plan.connections),
            free: VecDeque::with_capacity(plan.connections),
            backlog: VecDeque::with_capacity(1 << 16),
            // A trace begins with the measured time.
            arrivals: plan.schedule.arrivals(plan.seed).trace_begins_at(NEVER).peekable(),
            begin: Instant::now(),
            recording: Recording::new(0..1),
            answers: Vec::with_capacity(1024),
            due: 0,
            ended: 0,
            answered: 0,
            measured_ended: 0,
            most_unanswered: 0,
            reconnected: 0,
            refused_in_a_row: 0,
            first_failure: None,
            more: Vec::new(),
            stood_still: 0,
            is_draining: false,
            gone: None,
        };
        for index in 0..plan.connections {
            generator.connections.push(Connection::new(plan.request.conversation()));
            if plan.use_of_connections == ConnectionUse::Kept {
                let fd = plan.target.connect().map_err(|source| LoadError::Connect {
                    target: plan.target.to_string(),
                    source,
                })?;
                generator.install(index, fd)?;
                generator.connections[index].flush()?;
            } else if index == 0 {
                // So that a server that is not there is a plain error.
                drop(plan.target.connect().map_err(|source| LoadError::Connect {
                    target: plan.target.to_string(),
                    source,
                })?);
            }
            generator.offer(index);
        }
        Ok(generator)
    }

    fn install(&mut self, index: usize, fd: OwnedFd) -> io::Result<()> {
        let connection = &mut self.connections[index];
        connection.open(fd, self.plan.request.conversation());
        let data = token(index, connection.generation);
        if let Some(fd) = connection.fd() {
            epoll::add(&self.epoll, fd, EventData::new_u64(data), INTEREST)?;
        }
        Ok(())
    }

    fn now(&self) -> u64 {
        nanoseconds(self.begin.elapsed())
    }

    fn is_closed_loop(&self) -> bool {
        matches!(self.plan.schedule, Schedule::Closed)
    }

    fn run(mut self, watch: &mut dyn Watch) -> Result<Measurement, LoadError> {
        let mut events: Vec<Event> = Vec::with_capacity(EVENTS);
        let warm_up = nanoseconds(self.plan.warm_up);
        let duration = nanoseconds(self.plan.duration);
        // Allocated now, used once the window begins.
        self.recording = Recording::new(u64::MAX - duration..u64::MAX);
        self.begin = Instant::now();
        let outcome = self.load_until(warm_up, &mut events, watch, 0, "warm-up")?;
        if outcome == Ended::Interrupted {
            return Err(LoadError::Interrupted);
        }
        watch.window_begins();
        let robbed_before = waited_for_cpu();
        self.stood_still = 0;
        let start = self.now() + nanoseconds(SETTLE);
        self.recording = Recording::new(start..start + duration);
        if matches!(self.plan.schedule, Schedule::Trace(_)) {
            self.arrivals =
                self.plan.schedule.arrivals(self.plan.seed).trace_begins_at(start).peekable();
        }
        self.load_until(start, &mut events, watch, 0, "warm-up")?;

        self.most_unanswered = 0;
        let half =
            self.load_until(start + duration / 2, &mut events, watch, start, "measured time")?;
        let most_unanswered = self.most_unanswered.max(self.due - self.ended);
        let whole = match half {
            Ended::InTime => {
                self.load_until(start + duration, &mut events, watch, start, "measured time")?
            }
            other => other,
        };
        let mut interrupted = whole == Ended::Interrupted;
        let stopped = if whole == Ended::InTime { start + duration } else { self.now() };
        // What was not due by then is not part of it.
        self.recording.end_at(stopped);
        let piled_up = (self.due - self.ended).saturating_sub(most_unanswered);
        if !interrupted {
            self.cool_down(&mut events, watch)?;
        }
        let stood_still = Duration::from_nanos(self.stood_still).as_secs_f64();
        let robbed = (waited_for_cpu() - robbed_before).max(stood_still);
        watch.window_ended();
        interrupted |= self.drain(&mut events, watch)? == Ended::Interrupted;
        if self.answered == 0 && self.due > 0 {
            return Err(match self.first_failure.take() {
                Some(why) => LoadError::Kernel(io::Error::other(why)),
                None => LoadError::Silent(self.due),
            });
        }
        Ok(Measurement {
            recording: self.recording,
            seconds: Duration::from_nanos(stopped.saturating_sub(start)).as_secs_f64(),
            piled_up,
            reconnected: self.reconnected,
            first_failure: self.first_failure,
            interrupted,
            robbed,
        })
    }

    /// Loads the server until a time.
    fn load_until(
        &mut self,
        end: u64,
        events: &mut Vec<Event>,
        watch: &mut dyn Watch,
        phase_began: u64,
        phase: &'static str,
    ) -> Result<Ended, LoadError> {
        let mut next_check = 0;
        let mut last = self.now();
        loop {
            let now = self.now();
            if now - last > STANDSTILL {
                self.stood_still += now - last;
            }
            last = now;
            if now >= end {
                return Ok(Ended::InTime);
            }
            if now >= next_check {
                next_check = now + nanoseconds(CHECK_EVERY);
                let died = match watch.check() {
                    Check::GoOn => self.gone.take(),
                    Check::Interrupted => return Ok(Ended::Interrupted),
                    Check::ServerDied(why) => Some(why),
                };
                if let Some(why) = died {
                    return Err(LoadError::ServerDied {
                        after: Duration::from_nanos(now - phase_began).as_secs_f64(),
                        phase,
                        answered: self.answered,
                        why,
                    });
                }
                if self.arrivals.peek().is_none()
                    && self.ended == self.due
                    && !self.is_closed_loop()
                {
                    return Ok(Ended::TraceOver);
                }
                self.most_unanswered = self.most_unanswered.max(self.due - self.ended);
                self.revive();
            }
            self.turn(now, events)?;
        }
    }

    /// Sends what is due, then handles what has happened.
    fn turn(&mut self, now: u64, events: &mut Vec<Event>) -> io::Result<()> {
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

    /// Goes on under the same load until the requests of the measured time have been answered, for a short time.
    fn cool_down(
        &mut self,
        events: &mut Vec<Event>,
        watch: &mut dyn Watch,
    ) -> Result<(), LoadError> {
        let began = self.now();
        let end = began + nanoseconds(COOL_DOWN);
        while self.is_unfinished() && self.now() < end {
            let slice = (self.now() + 500_000).min(end);
            let phase = "wait for the last answers";
            if self.load_until(slice, events, watch, began, phase)? == Ended::Interrupted {
                break;
            }
        }
        Ok(())
    }

    /// Sends nothing more, and waits for the answers of the measured time.
    fn drain(
        &mut self,
        events: &mut Vec<Event>,
        watch: &mut dyn Watch,
    ) -> Result<Ended, LoadError> {
        self.is_draining = true;
        let began = self.now();
        let end = began + nanoseconds(self.plan.patience);
        let mut outcome = Ended::InTime;
        while self.is_unfinished() && self.now() < end {
            let slice = (self.now() + 1_000_000).min(end);
            let phase = "wait for the last answers";
            outcome = self.load_until(slice, events, watch, began, phase)?;
            if outcome == Ended::Interrupted {
                break;
            }
        }
        let now = self.now();
        while let Some(intended) = self.arrivals.next_if(|due| self.recording.covers(*due)) {
            self.count_due(intended);
            self.backlog.push_back(intended);
        }
        let mut left: Vec<u64> = self.backlog.drain(..).collect();
        for connection in &self.connections {
            left.extend(connection.in_flight().map(|request| request.intended));
        }
        for intended in left {
            if self.recording.covers(intended) {
                self.recording.gave_up(intended, now);
                self.first_failure.get_or_insert_with(|| "no answer in time".to_owned());
            }
        }
        Ok(outcome)
    }

    /// Whether requests of the measured time are still to be sent or answered.
    fn is_unfinished(&mut self) -> bool {
        self.measured_ended < self.recording.offered
            || self.arrivals.peek().is_some_and(|due| self.recording.covers(*due))
    }

    fn send_due(&mut self, now: u64) {
        if self.is_closed_loop() {
            while let Some(index) = self.next_free() {
                let now = self.now();
                self.count_due(now);
                self.start(index, now, now);
            }
            return;
        }
        while let Some(index) = if self.backlog.is_empty() { None } else { self.next_free() } {
            if let Some(intended) = self.backlog.pop_front() {
                let possible = self.now();
                self.start(index, intended, possible);
            }
        }
        let mut now = now;
        // Bounded, so that no rate keeps this thread from the answers.
        for _ in 0..SENT_AT_ONCE {
            // Whatever was due in the measured time is sent, even if this thread was kept from it until now.
            let is_wanted =
                |due: &u64| *due <= now && (!self.is_draining || self.recording.covers(*due));
            let Some(intended) = self.arrivals.next_if(is_wanted) else { return };
            self.count_due(intended);
            match self.next_free() {
                Some(index) => {
                    self.start(index, intended, intended);
                    now = self.now();
                }
                None => self.backlog.push_back(intended),
            }
        }
    }

    fn count_due(&mut self, intended: u64) {
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
            ConnectionUse::Kept => connection.may_request(self.plan.in_flight),
            ConnectionUse::PerRequest => connection.fd().is_none(),
        }
    }

    /// Puts a connection in the list of those that may send, if it may.
    fn offer(&mut self, index: usize) {
        if !self.connections[index].is_listed && self.may_request(index) {
            self.connections[index].is_listed = true;
            self.free.push_back(index);
        }
    }

    fn start(&mut self, index: usize, intended: u64, possible: u64) {
        let request = Request { intended, possible, sent: self.now() };
        if self.recording.covers(intended) {
            self.recording.sent(request);
        }
        if self.plan.use_of_connections == ConnectionUse::PerRequest
            && let Err(error) =
                self.plan.target.begin_connect().and_then(|fd| self.install(index, fd))
        {
            // Offered again at the next check: not in a storm.
            self.failed(request, || format!("cannot connect: {error}"));
            return;
        }
        self.connections[index].request(request);
        match self.connections[index].flush() {
            Ok(()) => self.offer(index),
            Err(error) => self.broken(index, &error),
        }
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
                    // What was announced as ended gives no further edge.
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
                // No edge will tell of what is left.
                Ok(Reading::More) => self.more.push(data),
            }
            // The protocol may have replied by itself.
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
            if self.recording.covers(request.intended) {
                self.measured_ended += 1;
                self.recording.answered(request, done);
            }
        } else {
            self.answered += 1;
            self.failed(request, || "the server answered with an error".to_owned());
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
        }
        if self.first_failure.is_none() {
            self.first_failure = Some(why());
        }
    }

    /// What was in flight has failed; the connection begins anew.
    fn broken(&mut self, index: usize, error: &io::Error) {
        let lost: Vec<Request> = self.connections[index].close().collect();
        let was_idle = lost.is_empty();
        for request in lost {
            self.failed(request, || error.to_string());
        }
        let refused = error.raw_os_error() == Some(Errno::CONNREFUSED.raw_os_error());
        if refused {
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
        // A refused one is tried again at the next check, not in a storm; an idle one that was closed, at once.
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
                self.refused_in_a_row += 1;
                if self.refused_in_a_row >= REFUSALS {
                    self.gone = Some(format!("cannot connect any more: {error}"));
                }
                self.first_failure.get_or_insert_with(|| format!("cannot connect: {error}"));
            }
        }
    }

    /// Tries the connections again that could not be opened.
    fn revive(&mut self) {
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

/// Why a stretch of load ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    InTime,
    TraceOver,
    Interrupted,
}

fn token(index: usize, generation: u32) -> u64 {
    u64::from(generation) << 32 | index as u64
}

#[allow(clippy::cast_possible_truncation)]
fn split(data: u64) -> (usize, u32) {
    ((data & u64::from(u32::MAX)) as usize, (data >> 32) as u32)
}

/// Seconds for which this thread was ready to run and another one had its CPU; 0 where the kernel does not count it.
#[allow(clippy::cast_precision_loss)]
fn waited_for_cpu() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let waited = text.split_whitespace().nth(1).and_then(|field| field.parse::<u64>().ok());
    waited.map_or(0.0, |nanoseconds| nanoseconds as f64 / 1e9)
}
