//! A worker that does one thing at a time: it waits for the listener, takes one connection, answers
//! it, and waits again.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Result;
use peer_common::{Args, cli};
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{SocketFlags, accept_with};

use crate::counts::Counts;
use crate::exchange::{self, LONGEST_REQUEST};

/// How long a silent client may occupy its worker.
const PATIENCE: Duration = Duration::from_secs(10);

/// How a worker waits for the listener.
#[derive(Debug, Clone, Copy)]
pub enum Wait {
    /// poll(2). It sleeps on the socket as select(2) does, and has a safe interface. Every
    /// connection wakes every sleeper.
    Poll,
    /// An epoll instance for each worker. Here, too, every connection wakes every sleeper.
    Epoll,
    /// An epoll instance for each worker, with EPOLLEXCLUSIVE (Linux 4.5): a connection wakes one
    /// of the sleepers. It is level-triggered and returns one event at a time, so that no worker
    /// keeps an event while it is busy.
    Exclusive,
}

/// Starts the workers. Returns only if one of them fails.
pub fn run(args: &Args, wait: Wait) -> Result<()> {
    let counts: Arc<Vec<Counts>> =
        Arc::new((0..args.workers).map(|_| Counts::with_waits()).collect());
    let next = Arc::new(AtomicUsize::new(0));
    cli::run_workers(args, move |socket, ready| {
        let index = next.fetch_add(1, Ordering::Relaxed);
        work(&socket.into_fd(), wait, &counts, index, ready)
    })
}

fn work(
    listener: &OwnedFd,
    wait: Wait,
    all: &[Counts],
    index: usize,
    ready: &dyn Fn(),
) -> Result<()> {
    let counts = &all[index];
    let waiter = Waiter::new(listener, wait)?;
    ready();
    loop {
        waiter.wait(listener.as_fd())?;
        counts.returned();
        match accept_with(listener, SocketFlags::CLOEXEC) {
            Ok(stream) => {
                counts.accepted();
                // An error on a connection is for its client to notice.
                let _ = serve(stream.into(), all);
            }
            Err(Errno::AGAIN) => counts.accepted_nothing(),
            Err(Errno::INTR | Errno::CONNABORTED) => {}
            // No descriptor may be left. The event comes again.
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

enum Waiter {
    Poll,
    Epoll(OwnedFd),
}

impl Waiter {
    fn new(listener: &OwnedFd, wait: Wait) -> io::Result<Self> {
        let flags = match wait {
            Wait::Poll => return Ok(Self::Poll),
            Wait::Epoll => EventFlags::IN,
            Wait::Exclusive => EventFlags::IN | EventFlags::EXCLUSIVE,
        };
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, listener, EventData::new_u64(0), flags)?;
        Ok(Self::Epoll(epoll))
    }

    fn wait(&self, listener: BorrowedFd<'_>) -> io::Result<()> {
        match self {
            Self::Poll => {
                retry_on_intr(|| {
                    poll(&mut [PollFd::from_borrowed_fd(listener, PollFlags::IN)], None)
                })?;
            }
            Self::Epoll(epoll) => {
                let mut events = Vec::with_capacity(1);
                retry_on_intr(|| epoll::wait(epoll, spare_capacity(&mut events), None))?;
            }
        }
        Ok(())
    }
}

fn serve(mut stream: UnixStream, counts: &[Counts]) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut request = [0; LONGEST_REQUEST];
    let mut length = 0;
    while !exchange::is_complete(&request[..length]) {
        match stream.read(&mut request[length..])? {
            // The end, or too long.
            0 => return Ok(()),
            more => length += more,
        }
    }
    stream.write_all(&exchange::answer(&request[..length], counts))
}
