//! Which process is this? After a fork the child has a copy of the loop's memory, but the loop's epoll, timer and bell are
//! *shared* with the parent: a child that used them would take the parent's events, and one that merely dropped the loop would
//! remove the parent's descriptors from the epoll. So every use asks first, by one load: a handler of `pthread_atfork(3)`
//! counts forks in the child. (A child made by a bare `clone(2)` runs no such handler; that one is found out by its process id,
//! which only [`Home::check`] asks for, because it is a system call.)

use std::io;
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

/// How many forks led from the first process to this one. It starts near its end, so that it wraps in every test of forks.
static FORKS: AtomicU32 = AtomicU32::new(u32::MAX);

extern "C" fn count() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// The process that built a loop.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Home {
    forks: u32,
    process: u32,
}

impl Home {
    /// This process.
    pub(crate) fn here() -> io::Result<Self> {
        static REGISTERED: Once = Once::new();
        let mut refused = 0;
        REGISTERED.call_once(|| {
            // SAFETY: the handler touches an atomic and nothing else, which any moment of a process allows.
            refused = unsafe { libc::pthread_atfork(None, None, Some(count)) };
        });
        if refused != 0 {
            return Err(io::Error::from_raw_os_error(refused));
        }
        Ok(Self { forks: FORKS.load(Ordering::Relaxed), process: std::process::id() })
    }

    /// Is this another process, a fork of the one that built the loop? One load.
    #[inline]
    pub(crate) fn is_elsewhere(&self) -> bool {
        FORKS.load(Ordering::Relaxed) != self.forks
    }

    /// A number that is not 0, and another one in a fork.
    pub(crate) fn stamp(&self) -> u32 {
        self.forks.wrapping_add(2).max(1)
    }

    /// # Errors
    /// This is a fork of the process that built the loop. Asks the kernel, so that no kind of fork is overlooked.
    pub(crate) fn check(&self) -> io::Result<()> {
        let now = std::process::id();
        if now == self.process && !self.is_elsewhere() {
            return Ok(());
        }
        Err(self.refusal(now))
    }

    /// As [`check`](Self::check), by one load.
    #[inline]
    pub(crate) fn check_quickly(&self) -> io::Result<()> {
        if self.is_elsewhere() { Err(self.refusal(std::process::id())) } else { Ok(()) }
    }

    #[cold]
    fn refusal(&self, now: u32) -> io::Error {
        io::Error::other(format!(
            "this event loop was built by process {}, and this is its fork {now}: build a new loop in the child",
            self.process
        ))
    }
}
