//! The services as a hand-written epoll loop directly on the kernel. A runtime can come close to
//! it, but can hardly be faster.
//!
//! Edge-triggered: each socket is registered once, for reading and writing. The loop remembers what
//! an edge announced, so it need not ask the kernel. A read that did not fill the buffer has
//! emptied the socket, so there is no second read that would only return `EAGAIN`.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use peer_common::{Args, Idle, Service, Session, cli, version};
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{RecvFlags, SendFlags, SocketFlags, accept_with, recv, send};
use slab::Slab;

const NAME: &str = "epoll";

/// How many events one `epoll_wait` may return.
const EVENTS: usize = 1024;

/// The listener's event data; a connection's is its key in the slab.
const LISTENER: u64 = u64::MAX;

/// The flags after which a read returns bytes, the end or an error.
const READABLE: EventFlags = EventFlags::IN.union(HUNG_UP);

/// The flags after which the client sends nothing more.
const HUNG_UP: EventFlags = EventFlags::RDHUP.union(EventFlags::HUP).union(EventFlags::ERR);

fn main() -> ExitCode {
    let (args, idle) = cli::parse(NAME, version::RUSTIX, Service::ALL, Idle::VARIANTS);
    cli::exit_code(NAME, run(&args, idle))
}

fn run(args: &Args, idle: Idle) -> Result<()> {
    let service = args.service;
    cli::run_workers(args, move |socket, ready| serve(&socket.into_fd(), service, idle, ready))
}

fn serve(listener: &OwnedFd, service: Service, idle: Idle, ready: &dyn Fn()) -> Result<()> {
    let epoll = epoll::create(CreateFlags::CLOEXEC)?;
    // Level-triggered, so that one accept for each event is enough. Exclusive, so that a connection
    // to a Unix socket does not wake every worker.
    let flags = EventFlags::IN | EventFlags::EXCLUSIVE;
    epoll::add(&epoll, listener, EventData::new_u64(LISTENER), flags)?;
    ready();

    let timeout = match idle {
        Idle::Park => None,
        Idle::Spin => Some(Timespec { tv_sec: 0, tv_nsec: 0 }),
    };
    let mut connections = Slab::new();
    let mut events = Vec::with_capacity(EVENTS);
    loop {
        retry_on_intr(|| epoll::wait(&epoll, spare_capacity(&mut events), timeout.as_ref()))?;
        for event in events.drain(..) {
            match event.data.u64() {
                LISTENER => accept(listener.as_fd(), service, &epoll, &mut connections)?,
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
    listener: BorrowedFd<'_>,
    service: Service,
    epoll: &OwnedFd,
    connections: &mut Slab<Connection>,
) -> io::Result<()> {
    let stream = match accept_with(listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
        Ok(stream) => stream,
        // Another worker was faster, or the client is gone.
        Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => return Ok(()),
        Err(_) => {
            // No descriptor may be left. The event comes again.
            std::thread::sleep(Duration::from_millis(5));
            return Ok(());
        }
    };
    let entry = connections.vacant_entry();
    epoll::add(
        epoll,
        &stream,
        EventData::new_u64(entry.key() as u64),
        EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET,
    )?;
    entry.insert(Connection::new(stream, service));
    Ok(())
}

/// Whether a connection continues after an event.
enum State {
    Open,
    Closed,
}

struct Connection {
    stream: OwnedFd,
    session: Session,
    /// How much of the answer is written. Until all of it is written, nothing is read: a client
    /// that does not read its answers must not fill the server's memory.
    written: usize,
    readable: bool,
    hung_up: bool,
}

impl Connection {
    fn new(stream: OwnedFd, service: Service) -> Self {
        let session = Session::new(service);
        Self { stream, session, written: 0, readable: false, hung_up: false }
    }

    /// Writes and reads as far as the socket allows.
    fn on_event(&mut self, flags: EventFlags) -> rustix::io::Result<State> {
        self.readable |= flags.intersects(READABLE);
        self.hung_up |= flags.intersects(HUNG_UP);
        loop {
            while self.written < self.session.output().len() {
                let rest = &self.session.output()[self.written..];
                match send(&self.stream, rest, SendFlags::NOSIGNAL) {
                    Ok(count) => self.written += count,
                    Err(Errno::AGAIN) => return Ok(State::Open),
                    Err(Errno::INTR) => {}
                    Err(error) => return Err(error),
                }
            }
            self.written = 0;
            if !self.session.written() {
                return Ok(State::Closed);
            }
            if !self.readable {
                return Ok(State::Open);
            }
            let space = self.session.space();
            let free = space.len();
            match recv(&self.stream, space, RecvFlags::empty()) {
                Ok((_, 0)) => return Ok(State::Closed),
                Ok((_, count)) => {
                    // After a hang-up there is no further edge, so read to the end.
                    self.readable = count == free || self.hung_up;
                    self.session.received(count);
                }
                Err(Errno::AGAIN) => {
                    self.readable = false;
                    return Ok(State::Open);
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
    }
}
