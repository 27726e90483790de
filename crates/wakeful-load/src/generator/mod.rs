//! The generator: one thread that never sleeps, with one clock and one schedule.
//!
//! A request is sent when it is due, late rather than never, and its time counts from when it was
//! due. The server cannot move the schedule: a connection carries several requests at a time if its
//! protocol can, and a request without a free connection waits in the backlog with its own time.
//!
//! This file has the phases of a run: warm-up, measured time, cool-down, and the wait for the last
//! answers. `engine.rs` has the turns, `last_answers.rs` the end, `connection.rs` one connection,
//! `backlog.rs` the requests without one, and `outcome.rs` the result of a run.

mod backlog;
mod connection;
mod engine;
mod last_answers;
mod outcome;
mod plan;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::iter::Peekable;
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, CreateFlags, Event};
use rustix::fd::OwnedFd;

use crate::protocol::{Answer, Drawing};
use crate::recorder::{Recording, nanoseconds};
use crate::schedule::{Arrivals, Schedule};
use crate::target::CONNECT_LIMIT;
use backlog::Backlog;
use connection::Connection;

pub use outcome::{Check, LoadError, Measurement, Watch};
pub use plan::{ConnectionUse, Plan};

/// How many events are taken from the kernel at a time.
const EVENTS: usize = 64;

/// How often the watch is asked whether to continue.
const CHECK_EVERY: Duration = Duration::from_millis(50);

/// How long the load continues between the reading of the server's counters and the beginning of
/// the measured time.
const UNTIL_MEASURED: Duration = Duration::from_millis(1);

/// If more nanoseconds than this pass between two turns, this thread stood still.
const STANDSTILL: u64 = 10_000_000;

/// A time, in nanoseconds, that is later than the end of any run. Adding the length of a trace of
/// many years to it does not overflow.
const NEVER: u64 = u64::MAX / 2;

impl Plan {
    /// Loads the server as planned, on this thread, and returns what was measured when the run is
    /// over. The thread spins: give it a CPU that nothing else uses, not even the server.
    ///
    /// # Errors
    ///
    /// The server cannot be reached, dies or never answers; or a system call fails.
    pub fn run(&self) -> Result<Measurement, LoadError> {
        self.run_watched(&mut ())
    }

    /// Loads the server as [`run`](Self::run) does, and lets `watch` observe the run and end it.
    ///
    /// # Errors
    ///
    /// The same as for [`run`](Self::run); or `watch` reports that the server has died, or ends the
    /// run before anything was measured.
    pub fn run_watched(&self, watch: &mut dyn Watch) -> Result<Measurement, LoadError> {
        Generator::connect(self, watch)?.run(watch)
    }
}

struct Generator<'p> {
    plan: &'p Plan,
    epoll: OwnedFd,
    connections: Vec<Connection>,
    /// Connections that may send. The one that has been idle for the longest time is first.
    free: VecDeque<usize>,
    backlog: Backlog,
    arrivals: Peekable<Arrivals>,
    drawing: Drawing,
    begin: Instant,
    recording: Recording,
    answers: Vec<Answer>,
    /// How many requests were due so far, and how many of them have ended.
    due: u64,
    ended: u64,
    answered: u64,
    /// How many requests of the measured time have ended.
    measured_ended: u64,
    most_unanswered: u64,
    reconnected: u64,
    refused: u64,
    refused_in_a_row: u32,
    first_failure: Option<String>,
    /// How many requests of the measured time failed, by reason.
    failures: BTreeMap<String, u64>,
    /// How often the server broke the protocol since the measured time began, by error.
    protocol_errors: BTreeMap<String, u64>,
    /// Connections on which more bytes have arrived than one turn reads.
    more: Vec<u64>,
    /// For how many nanoseconds this thread stood still, because it or its whole machine was
    /// stopped.
    stood_still: u64,
    /// Whether the run sends no more requests, and waits only for its last answers.
    is_draining: bool,
    gone: Option<String>,
}

/// How long is measured. Times after it can still be added.
fn measured_time(plan: &Plan) -> u64 {
    nanoseconds(plan.duration).min(NEVER / 2)
}

impl<'p> Generator<'p> {
    fn connect(plan: &'p Plan, watch: &mut dyn Watch) -> Result<Self, LoadError> {
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(io::Error::from)?;
        let duration = measured_time(plan);
        // A trace begins with the measured time.
        let arrivals = plan.schedule.arrivals(plan.seed).trace_begins_at(NEVER).peekable();
        let mut generator = Self {
            plan,
            epoll,
            connections: Vec::with_capacity(plan.connections),
            free: VecDeque::with_capacity(plan.connections),
            backlog: Backlog::new(&arrivals),
            arrivals,
            drawing: Drawing::new(plan.requests.kinds(), plan.keys, plan.seed),
            begin: Instant::now(),
            // Made now, when nothing is due, because touching its 17 MB takes milliseconds. The
            // recording covers nothing until the measured time begins.
            recording: Recording::new(u64::MAX - duration..u64::MAX, plan.requests.kinds().len()),
            answers: Vec::with_capacity(1024),
            due: 0,
            ended: 0,
            answered: 0,
            measured_ended: 0,
            most_unanswered: 0,
            reconnected: 0,
            refused: 0,
            refused_in_a_row: 0,
            first_failure: None,
            failures: BTreeMap::new(),
            protocol_errors: BTreeMap::new(),
            more: Vec::new(),
            stood_still: 0,
            is_draining: false,
            gone: None,
        };
        let began = Instant::now();
        let (mut next_check, mut ended) = (began + CHECK_EVERY, Check::GoOn);
        let opened = generator.open_all(&mut || {
            if Instant::now() >= next_check {
                ended = watch.check();
                next_check = Instant::now() + CHECK_EVERY;
            }
            matches!(ended, Check::GoOn)
        });
        match ended {
            Check::GoOn => opened.map(|()| generator),
            Check::Interrupted => Err(LoadError::Interrupted),
            Check::ServerDied(why) => Err(LoadError::ServerDied {
                after: began.elapsed().as_secs_f64(),
                phase: "opening of the connections",
                answered: 0,
                why,
            }),
        }
    }

    /// Opens the connections. `go_on` says whether to continue.
    fn open_all(&mut self, go_on: &mut dyn FnMut() -> bool) -> Result<(), LoadError> {
        let target = &self.plan.target;
        let mut connect = || {
            target
                .connect(CONNECT_LIMIT, go_on)
                .map_err(|source| LoadError::Connect { target: target.to_string(), source })
        };
        for index in 0..self.plan.connections {
            self.connections.push(Connection::new(self.plan.requests.conversation()));
            if self.plan.use_of_connections == ConnectionUse::Kept {
                let fd = connect()?;
                self.install(index, fd)?;
                self.connections[index].flush()?;
            } else if index == 0 {
                // Connects once first, so that a missing server gives a plain error.
                drop(connect()?);
            }
            self.offer(index);
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
        let duration = measured_time(self.plan);
        self.begin = Instant::now();
        let outcome = self.load_until(warm_up, &mut events, watch, 0, "warm-up")?;
        if outcome == Ended::Interrupted {
            return Err(LoadError::Interrupted);
        }
        watch.window_begins();
        let robbed_before = waited_for_cpu();
        self.stood_still = 0;
        let start = self.now() + nanoseconds(UNTIL_MEASURED);
        self.recording.begin_at(start);
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
        // Requests that were not due by then do not belong to the measured time.
        self.recording.end_at(stopped);
        let piled_up = (self.due - self.ended).saturating_sub(most_unanswered);
        if !interrupted {
            self.cool_down(&mut events, watch)?;
        }
        let stood_still = Duration::from_nanos(self.stood_still).as_secs_f64();
        let robbed = (waited_for_cpu() - robbed_before).max(stood_still);
        watch.window_ended();
        interrupted |= self.drain(&mut events, watch)? == Ended::Interrupted;
        // In a closed loop, no request is due before a connection may send.
        if self.answered == 0 && (self.due > 0 || self.is_closed_loop()) {
            return Err(match self.first_failure.take() {
                Some(why) => LoadError::Kernel(io::Error::other(format!(
                    "the server answered no request, and may speak another protocol: {why}"
                ))),
                None if self.due == 0 => LoadError::Unready,
                None => LoadError::Silent(self.due),
            });
        }
        self.give_up();
        Ok(Measurement {
            plan: self.plan.clone(),
            recording: self.recording,
            seconds: Duration::from_nanos(stopped.saturating_sub(start)).as_secs_f64(),
            piled_up,
            reconnected: self.reconnected,
            refused: self.refused,
            first_failure: self.first_failure,
            failures: self.failures,
            protocol_errors: self.protocol_errors,
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
}

/// The reason why a stretch of load ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    InTime,
    TraceOver,
    Interrupted,
}

/// For how many seconds this thread was ready to run while another thread had its CPU. 0 if the
/// kernel does not count it.
fn waited_for_cpu() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let waited = text.split_whitespace().nth(1).and_then(|field| field.parse::<u64>().ok());
    waited.map_or(0.0, |nanoseconds| nanoseconds as f64 / 1e9)
}
