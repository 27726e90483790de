//! Which process is this? After a fork the child has a copy of the loop's memory, but the loop's
//! epoll, timer and bell are *shared* with the parent: a child that used them would take the
//! parent's events, and one that merely dropped the loop would remove the parent's descriptors from
//! the epoll. So every use first checks for a fork, by one load: a handler of `pthread_atfork(3)`
//! counts forks in the child. (A child made by a bare `clone(2)` runs no such handler. It is
//! recognised by its process id, which only [`Process::check`] reads, because that is a system
//! call.)

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::before_fork::{self, ForkCount};
use super::{closed_in_child, running_handlers, thread_edges};

/// The number of forks between the first process and this one. It starts near its end, so that it
/// wraps around in every test of forks.
static FORKS: AtomicU32 = AtomicU32::new(u32::MAX);

extern "C" fn before_fork() {
    before_fork::before();
    thread_edges::wait();
    closed_in_child::before();
}

extern "C" fn in_parent() {
    before_fork::after();
}

extern "C" fn in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    thread_edges::in_child();
    running_handlers::in_child();
    // SAFETY: it is the copy of a descriptor of the parent's, and its owner here leaves it alone
    // from now on.
    closed_in_child::in_child(|copy| unsafe { rustix::io::close(copy) });
    before_fork::after();
}

/// Makes sure that forks are counted from now on.
fn watch_for_forks() -> io::Result<()> {
    // This is no `Once`, because a child that was forked while another thread was in it would wait
    // for ever. Two threads, or a child, may register the handlers again. Then each fork counts
    // twice, which does no harm.
    static REGISTERED: AtomicBool = AtomicBool::new(false);
    if !REGISTERED.load(Ordering::Acquire) {
        // SAFETY: the handlers run on the thread that forks, outside of signal handlers. They do
        // not unwind. The lock that they take is held for a few system calls and never across a
        // fork of another thread, so the child can release it.
        let refused =
            unsafe { libc::pthread_atfork(Some(before_fork), Some(in_parent), Some(in_child)) };
        if refused != 0 {
            return Err(io::Error::from_raw_os_error(refused));
        }
        REGISTERED.store(true, Ordering::Release);
    }
    Ok(())
}

fn stamp_behind(forks: u32) -> u32 {
    forks.wrapping_add(2).max(1)
}

/// The process that built a loop.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Process {
    forks: u32,
    process: u32,
}

impl Process {
    /// Returns this process.
    pub(crate) fn current() -> io::Result<Self> {
        watch_for_forks()?;
        Ok(Self::now())
    }

    /// Returns this process. Forks are noticed from the moment when the first loop is built.
    pub(crate) fn now() -> Self {
        Self { forks: FORKS.load(Ordering::Relaxed), process: std::process::id() }
    }

    /// Returns a value that looks like this process's parent.
    #[cfg(test)]
    pub(crate) fn of_parent() -> Self {
        let now = Self::now();
        Self { forks: now.forks.wrapping_sub(1), ..now }
    }

    /// Returns this process, which is a fork of the one that has this value.
    pub(crate) fn in_this_fork(&self) -> Self {
        debug_assert!(self.is_forked(), "a fork");
        Self::now()
    }

    /// Is this process a fork of the one that built the loop? This is one load.
    #[inline]
    pub(crate) fn is_forked(&self) -> bool {
        FORKS.load(Ordering::Relaxed) != self.forks
    }

    /// Passes each of `values` to `f`, which may fork. In a forked child, the others are leaked.
    pub(crate) fn each_unless_forked<T>(
        &self,
        values: impl IntoIterator<Item = T>,
        mut f: impl FnMut(T),
    ) {
        let mut values = values.into_iter();
        while !self.is_forked() {
            let Some(value) = values.next() else { return };
            f(value);
        }
        std::mem::forget(values);
    }

    /// Are both the same process? Unlike [`is_forked`](Self::is_forked) this also recognises a
    /// child of a bare `clone(2)`, if `other` was made there.
    #[inline]
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.forks == other.forks && self.process == other.process
    }

    /// How many times this process has forked so far.
    ///
    /// # Errors
    /// The handlers cannot be registered.
    pub(crate) fn fork_count() -> io::Result<ForkCount> {
        Self::current()?;
        Ok(before_fork::fork_count())
    }

    /// A number that is not 0, and that differs between a process and its forks.
    pub(crate) fn stamp(&self) -> u32 {
        stamp_behind(self.forks)
    }

    /// Is it the stamp of this process, and not of one that this process is a fork of? This is one
    /// load.
    #[cfg(feature = "internals")]
    #[inline]
    pub(crate) fn is_own_stamp(stamp: u32) -> bool {
        stamp_behind(FORKS.load(Ordering::Relaxed)) == stamp
    }

    /// # Errors
    /// This is a fork of the process that built the loop. The check asks the kernel, so that no
    /// kind of fork is overlooked.
    pub(crate) fn check(&self) -> io::Result<()> {
        let now = std::process::id();
        if now == self.process && !self.is_forked() {
            return Ok(());
        }
        Err(self.refusal(now))
    }

    /// Like [`check`](Self::check), by one load.
    #[inline]
    pub(crate) fn check_quickly(&self) -> io::Result<()> {
        if self.is_forked() { Err(self.refusal(std::process::id())) } else { Ok(()) }
    }

    #[cold]
    fn refusal(&self, now: u32) -> io::Error {
        io::Error::other(format!(
            "this event loop was built by process {}, and this is its fork {now}: build a new loop in the child",
            self.process
        ))
    }
}

/// A mark of the process in which something was done, for crates that use this one. A lock that
/// another thread held at a fork stays locked in the child. So code that drops something in a child
/// must not take a lock.
#[derive(Debug, Clone, Copy)]
pub struct ProcessMark {
    forks: u32,
}

impl ProcessMark {
    /// Returns a mark of this process. Only the first call makes a system call.
    #[inline]
    #[must_use]
    pub fn new() -> Self {
        // If this fails, forks are not noticed.
        let _ = watch_for_forks();
        Self { forks: FORKS.load(Ordering::Relaxed) }
    }

    /// Returns a mark of this process, by one load. Forks are noticed from the moment when the
    /// first loop is built.
    #[inline]
    pub(crate) fn now() -> Self {
        Self { forks: FORKS.load(Ordering::Relaxed) }
    }

    /// Returns the mark of another process, as if this one were its fork. For tests.
    #[must_use]
    pub fn of_parent() -> Self {
        Self { forks: FORKS.load(Ordering::Relaxed).wrapping_sub(1) }
    }

    /// Returns whether this process is a fork of the marked one. Costs one load.
    #[inline]
    #[must_use]
    pub fn is_forked(&self) -> bool {
        FORKS.load(Ordering::Relaxed) != self.forks
    }
}

/// A [`ProcessMark`] that any thread may set.
#[derive(Debug, Default)]
pub(crate) struct SharedMark(AtomicU32);

impl SharedMark {
    /// Makes it a mark of this process.
    pub(crate) fn set(&self) {
        self.0.store(ProcessMark::now().forks, Ordering::Relaxed);
    }

    /// Is this process a fork of the one that has set the mark?
    pub(crate) fn is_forked(&self) -> bool {
        ProcessMark { forks: self.0.load(Ordering::Relaxed) }.is_forked()
    }
}

impl Default for ProcessMark {
    fn default() -> Self {
        Self::new()
    }
}
