//! A key-value service (GET, SET, DEL and PING of RESP) whose threads share everything: one epoll
//! on which all of them wait, every connection behind a mutex, and the keys behind sharded locks.
//! It is the design from which the case of `shared-socket` came, made safe: `EPOLLONESHOT` gives an
//! event to one thread, which takes the connection's lock, and asks for the next event when it is
//! done.

use std::io;
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Parser;
use peer_common::cli;
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::fd::OwnedFd;
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{RecvFlags, SendFlags, SocketFlags, accept_with, recv, send};
use shared_poller::Arguments;
use shared_poller::buffers::Buffers;
use shared_poller::store::Store;
use slab::Slab;

const NAME: &str = "shared-poller";

/// How many events one thread takes at a time. No other thread can serve the events that it has
/// taken.
const EVENTS: usize = 8;

/// The listener's event data; a connection's is its key in the slab.
const LISTENER: u64 = u64::MAX;

const LISTENING: EventFlags = EventFlags::IN.union(EventFlags::ONESHOT);

/// What all threads share.
struct Shared {
    epoll: OwnedFd,
    listener: OwnedFd,
    /// Events find their connection here. A key is reused only after its connection has left the
    /// epoll. By then no thread can hold an event of that connection, because its only event is
    /// being handled by the thread that closes it.
    connections: RwLock<Slab<Arc<Mutex<Connection>>>>,
    store: Store,
}

fn main() -> ExitCode {
    cli::exit_code(NAME, run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> Result<()> {
    let (addr, socket) = arguments.listen.bind()?;
    let shared = Shared {
        epoll: epoll::create(CreateFlags::CLOEXEC)?,
        listener: socket.into_fd(),
        connections: RwLock::default(),
        store: Store::default(),
    };
    epoll::add(&shared.epoll, &shared.listener, EventData::new_u64(LISTENER), LISTENING)?;
    cli::announce(&addr);
    // A thread ends only by an error, and then the process ends, too: with one thread less it would
    // be measured as a slow one.
    thread::scope(|scope| {
        for index in 0..arguments.workers {
            let shared = &shared;
            thread::Builder::new()
                .name(format!("worker-{index}"))
                .spawn_scoped(scope, move || {
                    let outcome = serve(shared);
                    eprintln!("{NAME}: a thread ended: {outcome:?}");
                    std::process::exit(1);
                })
                .context("cannot start a thread")?;
        }
        Ok(())
    })
}

fn serve(shared: &Shared) -> Result<()> {
    let mut events = Vec::with_capacity(EVENTS);
    loop {
        retry_on_intr(|| epoll::wait(&shared.epoll, spare_capacity(&mut events), None))?;
        for event in events.drain(..) {
            match event.data.u64() {
                LISTENER => accept(shared)?,
                key => on_event(shared, usize::try_from(key)?)?,
            }
        }
    }
}

fn accept(shared: &Shared) -> Result<()> {
    match accept_with(&shared.listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
        Ok(stream) => {
            let mut connections = write(&shared.connections);
            let entry = connections.vacant_entry();
            let data = EventData::new_u64(entry.key() as u64);
            epoll::add(&shared.epoll, &stream, data, EventFlags::IN | EventFlags::ONESHOT)?;
            entry.insert(Arc::new(Mutex::new(Connection::new(stream))));
        }
        Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => {}
        // No descriptor may be left.
        Err(_) => thread::sleep(Duration::from_millis(5)),
    }
    let data = EventData::new_u64(LISTENER);
    Ok(epoll::modify(&shared.epoll, &shared.listener, data, LISTENING)?)
}

fn on_event(shared: &Shared, key: usize) -> Result<()> {
    let connections = shared.connections.read().unwrap_or_else(PoisonError::into_inner);
    let found = connections.get(key).cloned();
    drop(connections);
    let Some(shared_connection) = found else { return Ok(()) };
    let mut connection = shared_connection.lock().unwrap_or_else(PoisonError::into_inner);
    let interest = match connection.go_on(&shared.store) {
        Next::Readable => EventFlags::IN,
        Next::Writable => EventFlags::OUT,
        Next::Closed => {
            // Leave the epoll first: the last owner closes the descriptor.
            epoll::delete(&shared.epoll, connection.stream.as_fd())?;
            drop(connection);
            write(&shared.connections).remove(key);
            return Ok(());
        }
    };
    let data = EventData::new_u64(key as u64);
    // Under the connection's lock, because from here on another thread may get its events.
    epoll::modify(&shared.epoll, connection.stream.as_fd(), data, interest | EventFlags::ONESHOT)?;
    Ok(())
}

fn write<T>(lock: &RwLock<T>) -> std::sync::RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

/// What a connection waits for.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    Readable,
    Writable,
    Closed,
}

/// A connection. The thread that holds its lock reads and writes as far as the socket allows.
struct Connection {
    stream: OwnedFd,
    buffers: Buffers,
    written: usize,
}

impl Connection {
    fn new(stream: OwnedFd) -> Self {
        Self { stream, buffers: Buffers::default(), written: 0 }
    }

    /// Writes, answers and reads until the socket has no more bytes or accepts no more.
    fn go_on(&mut self, store: &Store) -> Next {
        let mut is_empty = false;
        loop {
            match self.flush() {
                Ok(true) => {}
                Ok(false) => return Next::Writable,
                Err(_) => return Next::Closed,
            }
            if self.buffers.answer(store).is_err() {
                // Tell the client what was wrong, if it still reads.
                self.flush().ok();
                return Next::Closed;
            }
            if !self.buffers.output.is_empty() {
                continue;
            }
            if is_empty {
                return Next::Readable;
            }
            let space = self.buffers.space();
            let room = space.len();
            match recv(&self.stream, space, RecvFlags::empty()) {
                Ok((_, 0)) => return Next::Closed,
                Ok((_, count)) => {
                    self.buffers.received(count);
                    // A stream socket that returned less than there was room for is empty. If it
                    // has more by now, the next event says so.
                    is_empty = count < room;
                }
                Err(Errno::AGAIN) => return Next::Readable,
                Err(Errno::INTR) => {}
                Err(_) => return Next::Closed,
            }
        }
    }

    /// Returns whether everything is written.
    fn flush(&mut self) -> io::Result<bool> {
        while self.written < self.buffers.output.len() {
            match send(&self.stream, &self.buffers.output[self.written..], SendFlags::NOSIGNAL) {
                Ok(count) => self.written += count,
                Err(Errno::AGAIN) => return Ok(false),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.buffers.output.clear();
        self.written = 0;
        Ok(true)
    }
}
