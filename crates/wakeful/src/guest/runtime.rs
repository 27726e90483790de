//! The Tokio runtime of a loop's thread.

use std::cell::Cell;
use std::future::Future;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::task::{Context, Poll};

use ::tokio::io::Interest;
use ::tokio::io::unix::{AsyncFd, AsyncFdReadyGuard};
use ::tokio::runtime::{Builder, EnterGuard, Handle, LocalOptions, LocalRuntime};

use super::together::Together;
use crate::sys::fork_check::Process;
use crate::sys::limits::explain_call;
use crate::sys::panics;
use crate::sys::watcher::epoll_that_watches;

/// As many as a Tokio runtime has by default.
const BLOCKING_THREADS: usize = 512;

/// However many loops share them.
const LEAST_BLOCKING_THREADS: usize = 8;

/// What a loop's runtime is built by.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    blocking_threads: usize,
    together: Option<Together>,
    #[cfg(feature = "test-util")]
    start_paused: bool,
}

impl Default for Settings {
    /// For one loop.
    fn default() -> Self {
        Self {
            blocking_threads: BLOCKING_THREADS,
            together: None,
            #[cfg(feature = "test-util")]
            start_paused: false,
        }
    }
}

impl Settings {
    /// For each of so many loops, which end together.
    pub(crate) fn for_each_of(loops: usize) -> Self {
        let share = BLOCKING_THREADS / loops.max(1);
        let together = (loops > 1).then(Together::new);
        Self {
            blocking_threads: share.max(LEAST_BLOCKING_THREADS),
            together,
            #[cfg(feature = "test-util")]
            start_paused: false,
        }
    }

    #[cfg(feature = "test-util")]
    pub(crate) fn start_paused(self, start_paused: bool) -> Self {
        Self { start_paused, ..self }
    }
}

/// What Tokio calls on the loop's thread, with nothing borrowed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hooks {
    /// It is about to sleep, unless it finds work when this has returned.
    pub(crate) before_park: fn(),
    /// It has slept, or not.
    pub(crate) after_park: fn(),
}

/// See the [module](self).
pub(crate) struct Runtime {
    /// A duplicate of the loop's epoll, watched by Tokio's. Edge-triggered, as all that Tokio
    /// watches: see [`Readable`].
    epoll: AsyncFd<OwnedFd>,
    runtime: LocalRuntime,
    together: Option<Together>,
    process: Process,
    /// It cannot run any more.
    broken: Cell<bool>,
}

/// The loop's epoll has something, or had when it was asked last.
pub(crate) struct Readable<'a>(AsyncFdReadyGuard<'a, OwnedFd>);

impl Runtime {
    pub(crate) fn new(
        settings: Settings,
        hooks: Hooks,
        epoll: BorrowedFd<'_>,
        process: Process,
    ) -> io::Result<Self> {
        let mut builder = Builder::new_current_thread();
        #[cfg(feature = "test-util")]
        builder.start_paused(settings.start_paused);
        let runtime = builder
            .enable_io()
            .enable_time()
            .max_blocking_threads(settings.blocking_threads)
            .thread_name("tokio-blocking")
            .on_thread_park(hooks.before_park)
            .on_thread_unpark(hooks.after_park)
            .build_local(LocalOptions::default())?;
        match watch(&runtime, epoll) {
            Ok(epoll) => {
                let Settings { together, .. } = settings;
                Ok(Self { epoll, runtime, together, process, broken: Cell::new(false) })
            }
            Err(error) => {
                // Its drop panics within another runtime, and where `enter` has refused it.
                panics::contain(|| runtime.shutdown_background());
                Err(error)
            }
        }
    }

    /// # Errors
    /// The thread ends, and Tokio cannot run there any more.
    pub(crate) fn check_thread(&self) -> io::Result<()> {
        check_thread()
    }

    /// A duplicate of Tokio's epoll, if `/proc` shows which that is.
    pub(crate) fn epoll(&self) -> Option<OwnedFd> {
        epoll_that_watches(self.epoll.get_ref().as_fd())
    }

    /// Tokio's tasks run meanwhile.
    ///
    /// # Panics
    /// When `future` does; within a Tokio runtime.
    #[track_caller]
    pub(crate) fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.runtime.block_on(future)
    }

    /// A panic has come out of Tokio itself: it has lost its timers and sockets.
    pub(crate) fn breaks(&self) {
        self.broken.set(true);
    }

    /// See [`enter`].
    pub(crate) fn enter(&self) -> Option<EnterGuard<'_>> {
        enter(self.runtime.handle())
    }

    #[cfg(feature = "test-util")]
    pub(crate) fn handle(&self) -> Handle {
        self.runtime.handle().clone()
    }

    /// Has the loop's epoll something to ask for? Pending: it has nothing, and when it has, the
    /// root future is polled. To be called in the root future only.
    pub(crate) fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<Readable<'_>>> {
        self.epoll.poll_read_ready(cx).map_ok(Readable)
    }

    /// Ends the runtime, behind its loop. The runtimes of a group's loops end together: until then,
    /// and for half a second at most, this one runs what the others' tasks may have here, such as
    /// the socket of a client that all share.
    ///
    /// What runs on threads for blocking work goes on there, and nobody waits for it. In a forked
    /// child nothing is ended, because the descriptors are shared with the parent.
    pub(crate) fn end(self) {
        if self.process.is_forked() {
            std::mem::forget(self);
            return;
        }
        let Self { epoll, runtime, together, broken, .. } = self;
        drop(epoll);
        // Where something unwinds, a second panic would end the process.
        let can_run = !std::thread::panicking() && !thread_ends() && !broken.get();
        if let Some(together) = together.filter(|_| can_run) {
            runtime.block_on(together.others());
        }
        runtime.shutdown_background();
    }
}

/// Has `runtime` watch a duplicate of `epoll`.
fn watch(runtime: &LocalRuntime, epoll: BorrowedFd<'_>) -> io::Result<AsyncFd<OwnedFd>> {
    let epoll = rustix::io::fcntl_dupfd_cloexec(epoll, 0).map_err(explain_call("fcntl"))?;
    check_thread()?;
    let Some(_entered) = enter(runtime.handle()) else {
        return Err(io::Error::other(
            "Tokio cannot be entered here: this was called in a drop that Tokio makes with its own context locked (of a \
             future that it refuses to spawn, say)",
        ));
    };
    #[allow(deprecated, reason = "an `OwnedFd` is what the unsafe successor asks for")]
    AsyncFd::with_interest(epoll, Interest::READABLE)
}

fn check_thread() -> io::Result<()> {
    if thread_ends() {
        return Err(io::Error::other(
            "Tokio cannot run here, because the thread ends: this was called in the destructor of a thread-local",
        ));
    }
    Ok(())
}

/// Are Tokio's thread-locals gone?
fn thread_ends() -> bool {
    Handle::try_current().is_err_and(|error| error.is_thread_local_destroyed())
}

/// Makes it the thread's runtime until the guard goes. `None`: the thread ends, and Tokio can have
/// none there any more; or this runs in a drop that Tokio makes with its own context locked (of a
/// future that it refuses to spawn, say), where it panics.
pub(super) fn enter(handle: &Handle) -> Option<EnterGuard<'_>> {
    let mut entered = None;
    if !thread_ends() {
        panics::contain(|| entered = Some(handle.enter()));
    }
    entered
}

impl Readable<'_> {
    /// The loop's epoll was asked and has nothing any more. Tokio tells of what comes from now on;
    /// what came since the question is told, too.
    pub(crate) fn take_back(mut self) {
        self.0.clear_ready();
    }
}

impl std::fmt::Debug for Runtime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Runtime").finish_non_exhaustive()
    }
}
