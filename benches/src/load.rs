//! A closed-loop saturation client: each connection has exactly one request in
//! flight and sends the next as soon as the answer has arrived.
//!
//! One thread drives all connections and never sleeps: a client that parks would
//! add its own wake-up to every answer and leave the server waiting for it.

use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use hdrhistogram::Histogram;
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::fd::OwnedFd;
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::frame::{HEADER, MAX_PAYLOAD};

/// After this long without any answer the server counts as stuck.
const STALL: Duration = Duration::from_secs(10);

/// How many bytes at either end of a payload change with every request.
const STAMP: usize = 8;

/// How thoroughly each answer is compared with its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Check {
    /// The length, the header and both ends of the payload, where each request
    /// carries its number. It keeps the client cheaper than the server.
    Ends,
    /// Every byte.
    Full,
}

/// What load to apply, and to which server.
#[derive(Debug, Clone, Copy)]
pub struct LoadOptions {
    /// The server's address.
    pub addr: SocketAddr,
    /// How many connections, each with one request in flight.
    pub connections: usize,
    /// Bytes of payload in each request.
    pub size: usize,
    /// How each answer is checked.
    pub check: Check,
}

/// What one run of the load measured.
#[derive(Debug)]
pub struct LoadReport {
    /// Requests answered.
    pub requests: u64,
    /// From the start of the run to its end.
    pub elapsed: Duration,
    /// Nanoseconds from a request to its answer. In a closed loop a slow
    /// answer also holds back the requests behind it, so these are no estimate
    /// of the latency under a given rate of arrivals.
    latency: Histogram<u64>,
}

impl LoadReport {
    /// Requests answered in a second.
    #[must_use]
    #[allow(clippy::cast_precision_loss)]
    pub fn requests_per_second(&self) -> f64 {
        self.requests as f64 / self.elapsed.as_secs_f64()
    }

    /// The closed-loop latency at a quantile from 0 to 1, in microseconds.
    #[must_use]
    #[allow(clippy::cast_precision_loss)]
    pub fn latency_us(&self, quantile: f64) -> f64 {
        self.latency.value_at_quantile(quantile) as f64 / 1000.0
    }
}

/// Open connections to one server.
#[derive(Debug)]
pub struct Load {
    epoll: OwnedFd,
    connections: Vec<Connection>,
    check: Check,
}

impl Load {
    /// Opens the connections; no request is sent yet.
    pub fn connect(options: &LoadOptions) -> Result<Self> {
        ensure!(options.connections > 0, "at least one connection is needed");
        ensure!(
            options.size <= MAX_PAYLOAD,
            "a payload of {} bytes is over the protocol's limit of {MAX_PAYLOAD}",
            options.size
        );
        let epoll = epoll::create(CreateFlags::CLOEXEC).context("cannot create an epoll set")?;
        let connections = (0..options.connections)
            .map(|index| {
                let connection = Connection::open(options.addr, options.size)
                    .with_context(|| format!("cannot connect to {}", options.addr))?;
                epoll::add(
                    &epoll,
                    &connection.stream,
                    EventData::new_u64(index as u64),
                    EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET,
                )?;
                Ok(connection)
            })
            .collect::<Result<_>>()?;
        Ok(Self { epoll, connections, check: options.check })
    }

    /// Applies the load for a time. Requests are left in flight at the end, and
    /// a run that follows goes on with them. Fails once `interrupted` is set.
    pub fn run_for(&mut self, duration: Duration, interrupted: &AtomicBool) -> Result<LoadReport> {
        self.run(u64::MAX, Some(duration), interrupted)
    }

    /// Sends exactly `requests` requests and waits for all their answers.
    pub fn run_requests(&mut self, requests: u64) -> Result<LoadReport> {
        self.run(requests, None, &AtomicBool::new(false))
    }

    fn run(
        &mut self,
        quota: u64,
        duration: Option<Duration>,
        interrupted: &AtomicBool,
    ) -> Result<LoadReport> {
        let mut latency = Histogram::new(3)?;
        let mut events: Vec<Event> = Vec::with_capacity(self.connections.len());
        let mut issued = 0;
        let mut answered = 0;
        let start = Instant::now();
        let mut last_answer = start;

        for connection in self.connections.iter_mut().filter(|c| !c.in_flight) {
            if issued == quota {
                break;
            }
            issued += 1;
            connection.request()?;
        }
        while answered < quota {
            let now = Instant::now();
            if duration.is_some_and(|duration| now - start >= duration) {
                break;
            }
            ensure!(!interrupted.load(Ordering::Relaxed), "interrupted");
            ensure!(
                now.saturating_duration_since(last_answer) < STALL,
                "no answer for {} seconds, after {answered} requests",
                STALL.as_secs()
            );
            retry_on_intr(|| {
                let at_once = Timespec::default();
                epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&at_once))
            })
            .context("cannot wait for answers")?;
            for event in events.drain(..) {
                let connection = &mut self.connections[usize::try_from(event.data.u64())?];
                if !connection.is_answered(self.check)? {
                    continue;
                }
                last_answer = Instant::now();
                latency.record((last_answer - connection.sent_at).as_nanos().try_into()?)?;
                answered += 1;
                if issued < quota {
                    issued += 1;
                    connection.request_at(last_answer)?;
                }
            }
        }
        ensure!(answered > 0, "no answer in the time measured");
        Ok(LoadReport { requests: answered, elapsed: start.elapsed(), latency })
    }
}

#[derive(Debug)]
struct Connection {
    stream: TcpStream,
    request: Vec<u8>,
    /// One byte longer than an answer, so that a byte too many is noticed.
    answer: Vec<u8>,
    sent: usize,
    received: usize,
    in_flight: bool,
    sent_at: Instant,
    number: u64,
}

impl Connection {
    fn open(addr: SocketAddr, size: usize) -> Result<Self> {
        let stream = TcpStream::connect(addr)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        // Different at every offset modulo 251, so that shifted bytes differ.
        let payload = (0..=250).cycle().take(size);
        let header = u32::try_from(size)?.to_be_bytes();
        let request: Vec<u8> = header.into_iter().chain(payload).collect();
        Ok(Self {
            stream,
            answer: vec![0; request.len() + 1],
            // Nothing is left to send until a request begins.
            sent: request.len(),
            request,
            received: 0,
            in_flight: false,
            sent_at: Instant::now(),
            number: 0,
        })
    }

    fn request(&mut self) -> Result<()> {
        self.request_at(Instant::now())
    }

    /// Sends the next request. `now` is also the time at which the answer before
    /// it was taken, so that one reading of the clock serves both.
    fn request_at(&mut self, now: Instant) -> Result<()> {
        self.number += 1;
        let stamp = self.number.to_le_bytes();
        let payload = &mut self.request[HEADER..];
        let length = STAMP.min(payload.len());
        let end = payload.len() - length;
        payload[..length].copy_from_slice(&stamp[..length]);
        payload[end..].copy_from_slice(&stamp[..length]);
        self.sent = 0;
        self.received = 0;
        self.in_flight = true;
        self.sent_at = now;
        self.send_rest()
    }

    /// Sends as much of the request as the socket takes.
    fn send_rest(&mut self) -> Result<()> {
        while self.sent < self.request.len() {
            match send(&self.stream, &self.request[self.sent..], SendFlags::NOSIGNAL) {
                Ok(count) => self.sent += count,
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error).context("cannot send a request"),
            }
        }
        Ok(())
    }

    /// Goes on sending and receiving; true once the whole answer has arrived and
    /// agrees with the request.
    fn is_answered(&mut self, check: Check) -> Result<bool> {
        self.send_rest()?;
        // No server may answer a request that it does not have yet.
        while self.sent == self.request.len() {
            match recv(&self.stream, &mut self.answer[self.received..], RecvFlags::empty()) {
                Ok((_, 0)) => bail!("the server closed a connection"),
                Ok((_, count)) => self.received += count,
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error).context("cannot receive an answer"),
            }
            ensure!(
                self.in_flight && self.received <= self.request.len(),
                "the server sent more than was asked for"
            );
            if self.received == self.request.len() {
                self.in_flight = false;
                ensure!(self.answer_agrees(check), "an answer differs from its request");
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn answer_agrees(&self, check: Check) -> bool {
        let length = self.request.len();
        let ends = HEADER + STAMP;
        match check {
            Check::Ends if length > 2 * ends => {
                let tail = length - STAMP..length;
                self.answer[..ends] == self.request[..ends]
                    && self.answer[tail.clone()] == self.request[tail]
            }
            Check::Ends | Check::Full => self.answer[..length] == self.request[..],
        }
    }
}
