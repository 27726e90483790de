//! The echo service as a hand-written epoll loop, with nothing between it and
//! the kernel: the floor that a runtime can approach and not beat by much.
//!
//! Edge-triggered: each socket is registered once, for reading and writing, and
//! never again. The loop remembers what an edge announced, so that it need not
//! ask the kernel: a read that did not fill the buffer has emptied the socket,
//! and there is no second read that would only return `EAGAIN`.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use slab::Slab;
use wakeful_benches::cli;
use wakeful_benches::frame::FrameBuffer;

/// The echo service as a hand-written epoll loop.
#[derive(Parser)]
struct Args {
    /// The address to listen on.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:7001")]
    listen: SocketAddr,
}

/// How many events one `epoll_wait` may return.
const EVENTS: usize = 1024;

/// The listener's event data; a connection's is its key in the slab.
const LISTENER: u64 = u64::MAX;

/// The flags after which reading finds either bytes, the end or an error.
const READABLE: EventFlags = EventFlags::IN.union(HUNG_UP);

/// The flags after which the client sends nothing more.
const HUNG_UP: EventFlags = EventFlags::RDHUP.union(EventFlags::HUP).union(EventFlags::ERR);

fn main() -> ExitCode {
    cli::exit_code("echo-epoll", run(&Args::parse()))
}

fn run(args: &Args) -> Result<()> {
    let listener = TcpListener::bind(args.listen)
        .with_context(|| format!("cannot listen on {}", args.listen))?;
    listener.set_nonblocking(true)?;
    let epoll = epoll::create(CreateFlags::CLOEXEC)?;
    // Level-triggered, so that one accept for each event is enough.
    epoll::add(&epoll, &listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
    eprintln!("listening on {}", listener.local_addr()?);

    let mut connections = Slab::new();
    let mut events = Vec::with_capacity(EVENTS);
    loop {
        retry_on_intr(|| epoll::wait(&epoll, spare_capacity(&mut events), None))?;
        for event in events.drain(..) {
            match event.data.u64() {
                LISTENER => accept(&listener, &epoll, &mut connections)?,
                key => {
                    let key = usize::try_from(key)?;
                    let outcome = connections[key].on_event(event.flags);
                    if !matches!(outcome, Ok(State::Open)) {
                        // Dropping the socket also takes it out of the epoll set.
                        connections.remove(key);
                    }
                }
            }
        }
    }
}

fn accept(
    listener: &TcpListener,
    epoll: &OwnedFd,
    connections: &mut Slab<Connection>,
) -> Result<()> {
    let (stream, _) = listener.accept().context("cannot accept")?;
    stream.set_nonblocking(true)?;
    stream.set_nodelay(true)?;
    let entry = connections.vacant_entry();
    epoll::add(
        epoll,
        &stream,
        EventData::new_u64(entry.key() as u64),
        EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET,
    )?;
    entry.insert(Connection::new(stream));
    Ok(())
}

/// Whether a connection goes on after an event.
enum State {
    Open,
    Closed,
}

struct Connection {
    stream: TcpStream,
    buffer: FrameBuffer,
    /// The part of the buffer that is still to be written. While there is
    /// any, nothing is read: a client that does not read its answers is
    /// not allowed to fill the server's memory.
    answer: Range<usize>,
    /// A frame was too large: close once the frames before it are answered.
    closing: bool,
    readable: bool,
    hung_up: bool,
}

impl Connection {
    fn new(stream: TcpStream) -> Self {
        Self {
            stream,
            buffer: FrameBuffer::default(),
            answer: 0..0,
            closing: false,
            readable: false,
            hung_up: false,
        }
    }

    /// Goes on writing and reading as far as the socket allows.
    fn on_event(&mut self, flags: EventFlags) -> rustix::io::Result<State> {
        self.readable |= flags.intersects(READABLE);
        self.hung_up |= flags.intersects(HUNG_UP);
        loop {
            if !self.write_answer()? {
                return Ok(State::Open);
            }
            if self.closing {
                return Ok(State::Closed);
            }
            if !self.readable {
                return Ok(State::Open);
            }
            let space = self.buffer.space();
            let free = space.len();
            match recv(&self.stream, space, RecvFlags::empty()) {
                Ok((_, 0)) => return Ok(State::Closed),
                Ok((_, count)) => {
                    // After a hang-up no further edge comes: read to the end.
                    self.readable = count == free || self.hung_up;
                    self.buffer.add_received(count);
                }
                Err(Errno::AGAIN) => {
                    self.readable = false;
                    return Ok(State::Open);
                }
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error),
            }
            let frames = self.buffer.frames();
            self.answer = 0..frames.end;
            self.closing = frames.oversized;
        }
    }

    /// Writes what is left of the answer; false if the socket takes no more.
    fn write_answer(&mut self) -> rustix::io::Result<bool> {
        if self.answer.end == 0 {
            return Ok(true);
        }
        while !self.answer.is_empty() {
            let rest = &self.buffer.received()[self.answer.clone()];
            match send(&self.stream, rest, SendFlags::NOSIGNAL) {
                Ok(count) => self.answer.start += count,
                Err(Errno::AGAIN) => return Ok(false),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
        self.buffer.discard(self.answer.end);
        self.answer = 0..0;
        Ok(true)
    }
}
