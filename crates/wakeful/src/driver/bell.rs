//! The bell: an eventfd that ends the loop's wait.
//!
//! It is registered edge-triggered, and the loop never reads it: each write is an edge of its own.
//! So a wake is one system call for the waker and none for the loop.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

use crate::ready_queue::Bell;
use crate::sys::fork_check::Process;
use crate::sys::limits::explain_call;

#[derive(Debug)]
pub(crate) struct EventFdBell {
    eventfd: OwnedFd,
    process: Process,
}

impl EventFdBell {
    pub(super) fn new(process: Process) -> io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Self { eventfd: eventfd(0, flags).map_err(explain_call("eventfd2"))?, process })
    }
}

impl Bell for EventFdBell {
    /// This function is async-signal-safe: it only makes system calls, and rustix makes them
    /// without touching errno.
    fn ring(&self) {
        if self.process.is_forked() {
            // A child has inherited this waker. The loop that sleeps is the parent's, and the child
            // has queued nothing there.
            return;
        }
        loop {
            match rustix::io::write(&self.eventfd, &1_u64.to_ne_bytes()) {
                Ok(_) => return,
                // The counter is full (after 2^64 - 2 rings), and a write that fails is no edge. So
                // the counter is emptied, and the write repeated.
                Err(Errno::AGAIN) => {
                    let _ = rustix::io::read(&self.eventfd, &mut [0; 8]);
                }
                Err(Errno::INTR) => {}
                // This can only happen if foreign code has closed our descriptor.
                Err(error) => {
                    debug_assert!(false, "ringing the loop's bell failed: {error}");
                    return;
                }
            }
        }
    }
}

impl AsFd for EventFdBell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.eventfd.as_fd()
    }
}

/// The bell of a loop's ready queue.
#[derive(Debug)]
pub(crate) enum LoopBell {
    EventFd(EventFdBell),
    /// A bell that counts its rings. It is for tests of tasks without a driver, which Miri
    /// interprets.
    #[cfg(test)]
    Counting(std::sync::Arc<std::sync::atomic::AtomicUsize>),
}

impl Bell for LoopBell {
    #[inline]
    fn ring(&self) {
        match self {
            Self::EventFd(bell) => bell.ring(),
            #[cfg(test)]
            Self::Counting(rings) => {
                rings.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            }
        }
    }
}

#[cfg(all(test, not(wakeful_loom)))]
mod tests {
    use super::*;
    use crate::driver::epoll::{Epoll, Timeout};
    use rustix::event::epoll::EventFlags;

    #[test]
    fn a_full_counter_still_rings() {
        let (epoll, bell) =
            (Epoll::new().unwrap(), EventFdBell::new(Process::current().unwrap()).unwrap());
        epoll.add(bell.as_fd(), EventFlags::IN | EventFlags::ET, 1).unwrap();
        rustix::io::write(&bell.eventfd, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        let mut events = Vec::with_capacity(4);
        epoll.wait(&mut events, 4, Timeout::Zero).unwrap();
        events.clear();
        bell.ring();
        epoll.wait(&mut events, 4, Timeout::Zero).unwrap();
        assert_eq!(events.len(), 1, "the ring after a full counter is an edge");
    }
}
