//! A server that spins and only answers frames. The response times against it are those of the
//! generator and the kernel.
//!
//! For tests of the generator it can be slow in a known way: it delays each answer by a seeded
//! distribution, without holding up others, or stalls as a whole at fixed intervals.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::fd::OwnedFd;
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::affinity;
use crate::shortage::explain;
use crate::target::Target;

/// How slow the server is.
#[derive(Debug, Clone, Copy, Default)]
pub struct Slowness {
    /// The mean delay of an answer. Zero means no delay.
    pub delay: Duration,
    /// The distribution of the delays.
    pub spread: Spread,
    /// The seed of the delays, which makes them repeatable.
    pub seed: u64,
    /// The length of a stall, in which the server does nothing at all.
    pub stall: Duration,
    /// How often the server stalls. Zero means never.
    pub stall_every: Duration,
}

/// The distribution of the delays.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Spread {
    /// All delays are the same.
    #[default]
    Constant,
    /// Exponential: the quantile `q` is `-mean * ln(1 - q)`.
    Exponential,
}

/// The event data of the listener.
const LISTENER: u64 = u64::MAX;

/// A payload that is longer than this ends its connection.
const LARGEST: usize = 16 << 20;

/// A connection is not read while more bytes than this wait to be sent. So a client that sends
/// faster than it reads takes little memory.
const MOST_UNSENT: usize = 1 << 20;

/// Serves until `stopped` returns `true`. It is called once per turn of the loop.
///
/// # Errors
/// The kernel refuses an epoll set, or accepting fails, for example because there are no
/// descriptors left.
pub fn serve(listener: &TcpListener, slow: Slowness, stopped: &dyn Fn() -> bool) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let epoll = epoll::create(CreateFlags::CLOEXEC)?;
    epoll::add(&epoll, listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
    let mut server = NullServer {
        epoll,
        connections: Vec::new(),
        held: BinaryHeap::new(),
        slow,
        random: fastrand::Rng::with_seed(slow.seed),
    };
    let begin = Instant::now();
    let mut next_stall = slow.stall_every;
    let mut events: Vec<Event> = Vec::with_capacity(1024);
    while !stopped() {
        if !slow.stall_every.is_zero() && begin.elapsed() >= next_stall {
            std::thread::sleep(slow.stall);
            next_stall += slow.stall_every;
        }
        let at_once = Timespec::default();
        retry_on_intr(|| epoll::wait(&server.epoll, spare_capacity(&mut events), Some(&at_once)))?;
        for event in events.drain(..) {
            match event.data.u64() {
                LISTENER => server.accept(listener)?,
                index => server.read(usize::try_from(index).unwrap_or(usize::MAX)),
            }
        }
        server.release();
    }
    Ok(())
}

#[derive(Debug)]
struct NullServer {
    epoll: OwnedFd,
    connections: Vec<Option<Peer>>,
    /// The answers that are not due yet.
    held: BinaryHeap<Reverse<(Instant, usize, Vec<u8>)>>,
    slow: Slowness,
    random: fastrand::Rng,
}

#[derive(Debug)]
struct Peer {
    stream: TcpStream,
    input: Vec<u8>,
    received: usize,
    output: Vec<u8>,
    /// How much of the output the kernel has taken.
    written: usize,
}

impl NullServer {
    fn accept(&mut self, listener: &TcpListener) -> io::Result<()> {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            // A client that is gone already is no error of ours: accept(2).
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::ConnectionAborted
                ) =>
            {
                return Ok(());
            }
            Err(error) => return Err(explain(error)),
        };
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        let index = self.connections.len();
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        epoll::add(&self.epoll, stream.as_fd(), EventData::new_u64(index as u64), flags)?;
        let input = vec![0; 64 << 10];
        let peer = Peer { stream, input, received: 0, output: Vec::new(), written: 0 };
        self.connections.push(Some(peer));
        Ok(())
    }

    fn read(&mut self, index: usize) {
        let Some(Some(peer)) = self.connections.get_mut(index) else { return };
        let mut is_open = peer.flush();
        // If it stops here, the socket is full, and an event comes when it has room.
        while is_open && peer.output.len() - peer.written <= MOST_UNSENT {
            if peer.received == peer.input.len() {
                peer.input.resize(peer.input.len() * 2, 0);
            }
            let room = peer.input.len() - peer.received;
            match recv(&peer.stream, &mut peer.input[peer.received..], RecvFlags::empty()) {
                Ok((_, 0)) => is_open = false,
                Ok((_, count)) => {
                    peer.received += count;
                    let Some(end) = complete_frames(&peer.input[..peer.received]) else {
                        is_open = false;
                        continue;
                    };
                    if self.slow.delay.is_zero() {
                        peer.output.extend_from_slice(&peer.input[..end]);
                        is_open = peer.flush();
                    } else {
                        let due = Instant::now() + self.slow.next_delay(&mut self.random);
                        self.held.push(Reverse((due, index, peer.input[..end].to_vec())));
                    }
                    peer.input.copy_within(end..peer.received, 0);
                    peer.received -= end;
                    if count < room {
                        break;
                    }
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(_) => is_open = false,
            }
        }
        if !is_open {
            self.connections[index] = None;
        }
    }

    /// Sends the answers that are due by now.
    fn release(&mut self) {
        while self.held.peek().is_some_and(|Reverse((due, ..))| *due <= Instant::now()) {
            let Some(Reverse((_, index, frame))) = self.held.pop() else { return };
            let Some(Some(peer)) = self.connections.get_mut(index) else { continue };
            peer.output.extend_from_slice(&frame);
            if !peer.flush() {
                self.connections[index] = None;
            }
        }
    }
}

impl Peer {
    /// Sends what the socket takes. Returns `false` once the connection is broken.
    fn flush(&mut self) -> bool {
        while !self.output.is_empty() {
            match send(&self.stream, &self.output[self.written..], SendFlags::NOSIGNAL) {
                Ok(count) => {
                    self.written += count;
                    // Dropped once it is the larger part, so that few bytes are moved.
                    if self.written > self.output.len() / 2 {
                        self.output.drain(..self.written);
                        self.written = 0;
                    }
                }
                Err(Errno::AGAIN) => return true,
                Err(Errno::INTR) => {}
                Err(_) => return false,
            }
        }
        true
    }
}

impl Slowness {
    /// Returns the delays in the order in which answers get them. The same seed gives the same
    /// delays.
    pub fn delays(self) -> impl Iterator<Item = Duration> {
        let mut random = fastrand::Rng::with_seed(self.seed);
        std::iter::from_fn(move || Some(self.next_delay(&mut random)))
    }

    fn next_delay(self, random: &mut fastrand::Rng) -> Duration {
        match self.spread {
            Spread::Constant => self.delay,
            Spread::Exponential => self.delay.mul_f64(-(1.0 - random.f64()).ln()),
        }
    }
}

/// Returns where the last complete frame ends, or `None` if a frame is too large.
fn complete_frames(input: &[u8]) -> Option<usize> {
    let mut end = 0;
    while let Some(header) = input[end..].first_chunk::<4>() {
        let payload = u32::from_be_bytes(*header) as usize;
        if payload > LARGEST {
            return None;
        }
        if input.len() < end + 4 + payload {
            break;
        }
        end += 4 + payload;
    }
    Some(end)
}

/// A null server on its own thread, which runs until this is dropped.
#[derive(Debug)]
pub struct NullServerThread {
    target: Target,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl NullServerThread {
    /// Starts a server that listens on a free port of 127.0.0.1, and spins on `cpus` if they are
    /// given.
    ///
    /// # Errors
    /// There is no port or no thread left, or a CPU may not be used.
    pub fn start(cpus: Option<&[usize]>, slow: Slowness) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let target = Target::Tcp(listener.local_addr()?);
        let stop = Arc::new(AtomicBool::new(false));
        let (pinned, is_pinned) = mpsc::sync_channel(1);
        let (stopped, cpus) = (stop.clone(), cpus.map(<[usize]>::to_vec));
        let thread = thread::Builder::new().name("null server".to_owned()).spawn(move || {
            let outcome = cpus.map_or(Ok(()), |cpus| affinity::pin_current_thread(&cpus));
            let is_right = outcome.is_ok();
            // `start` waits for exactly this message.
            let _ = pinned.send(outcome);
            // If the server fails, its connections end with it, which the generator notices.
            if is_right {
                serve(&listener, slow, &|| stopped.load(Ordering::Relaxed))
            } else {
                Ok(())
            }
        })?;
        let server = Self { target, stop, thread: Some(thread) };
        is_pinned.recv().map_err(io::Error::other)??;
        Ok(server)
    }

    /// Returns the address where the server listens.
    #[must_use]
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// Ends the server.
    ///
    /// # Errors
    /// The error for which the server had ended by itself.
    pub fn end(&mut self) -> io::Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        // A panic of the thread has been printed already.
        self.thread.take().and_then(|thread| thread.join().ok()).unwrap_or(Ok(()))
    }
}

impl Drop for NullServerThread {
    fn drop(&mut self) {
        // A caller that is interested in the error calls `end`.
        let _ = self.end();
    }
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read, Write};

    use super::*;

    #[test]
    fn a_client_that_does_not_read_takes_little_memory_and_is_answered_in_the_end() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        client.set_nonblocking(true).unwrap();
        let mut server = NullServer {
            epoll: epoll::create(CreateFlags::CLOEXEC).unwrap(),
            connections: Vec::new(),
            held: BinaryHeap::new(),
            slow: Slowness::default(),
            random: fastrand::Rng::new(),
        };
        server.accept(&listener).unwrap();
        let frame = [&(64_u32 << 10).to_be_bytes()[..], &[7; 64 << 10]].concat();
        let mut sent = 0;
        for _ in 0..1000 {
            match client.write(&frame[sent % frame.len()..]) {
                Ok(count) => sent += count,
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
            server.read(0);
            let output = server.connections[0].as_ref().unwrap().output.len();
            assert!(output < 3 * MOST_UNSENT, "{output}");
        }
        let (mut left, mut taken) = (sent / frame.len() * frame.len(), vec![0; 64 << 10]);
        for _ in 0..1_000_000 {
            left -= client.read(&mut taken).unwrap_or(0);
            if left == 0 {
                return;
            }
            server.read(0);
        }
        panic!("{left} bytes of {sent} have no answer");
    }
}
