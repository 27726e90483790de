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
use crate::sys::limits::{explain_call, no_descriptors};
use crate::sys::panics;
use crate::sys::watcher::epoll_that_watches;

/// The default of a Tokio runtime.
const BLOCKING_THREADS: usize = 512;

/// Each loop gets at least this many, however many loops share them.
const LEAST_BLOCKING_THREADS: usize = 8;

/// The settings of a loop's runtime.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    blocking_threads: usize,
    together: Option<Together>,
    #[cfg(feature = "test-util")]
    start_paused: bool,
}

impl Default for Settings {
    /// The settings for one loop.
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
    /// The settings for each of `loops` loops, which end together.
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

/// Functions that Tokio calls on the loop's thread, with nothing borrowed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hooks {
    /// Tokio is about to sleep, unless it finds work after this has returned.
    pub(crate) before_park: fn(),
    /// Tokio's wait is over, whether it slept or not.
    pub(crate) after_park: fn(),
}

/// The Tokio runtime of one loop. See the [module](self).
pub(crate) struct Runtime {
    /// A duplicate of the loop's epoll, watched by Tokio's. Tokio watches it edge-triggered, like
    /// everything: see [`Readable`].
    epoll: AsyncFd<OwnedFd>,
    runtime: LocalRuntime,
    together: Option<Together>,
    process: Process,
    /// Whether a panic has broken the runtime, so that it cannot run any more.
    broken: Cell<bool>,
}

/// The loop's epoll has events, or had when Tokio last looked.
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
        builder
            .enable_io()
            .enable_time()
            .max_blocking_threads(settings.blocking_threads)
            .thread_name("tokio-blocking")
            .on_thread_park(hooks.before_park)
            .on_thread_unpark(hooks.after_park);
        let runtime = build(&mut builder)?;
        match watch(&runtime, epoll) {
            Ok(epoll) => {
                let Settings { together, .. } = settings;
                Ok(Self { epoll, runtime, together, process, broken: Cell::new(false) })
            }
            Err(error) => {
                // The drop of the runtime panics within another runtime, and where `enter` has
                // refused it.
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

    /// A duplicate of Tokio's epoll, if `/proc` shows which descriptor that is.
    pub(crate) fn epoll(&self) -> Option<OwnedFd> {
        epoll_that_watches(self.epoll.get_ref().as_fd())
    }

    /// Runs `future` to its end. Tokio's tasks run meanwhile.
    ///
    /// # Panics
    /// When `future` does; within a Tokio runtime.
    #[track_caller]
    pub(crate) fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.runtime.block_on(future)
    }

    /// Notes that a panic has come out of Tokio itself, which has lost its timers and sockets.
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

    /// Ready: the loop's epoll may have events. Pending: it has none, and the root future is polled
    /// when it has. Must be called in the root future only.
    pub(crate) fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<Readable<'_>>> {
        self.epoll.poll_read_ready(cx).map_ok(Readable)
    }

    /// Ends the runtime, after its loop. The runtimes of a group's loops end together. Until the
    /// last loop has ended, but for half a second at most, this runtime keeps running what tasks of
    /// the other loops may use here, such as the socket of a client that all loops share.
    ///
    /// Blocking work continues on its threads, and nobody waits for it. In a forked child nothing
    /// is ended, because the descriptors are shared with the parent.
    pub(crate) fn end(self) {
        if self.process.is_forked() {
            std::mem::forget(self);
            return;
        }
        let Self { epoll, runtime, together, broken, .. } = self;
        drop(epoll);
        // During an unwind a second panic would abort the process.
        let can_run = !std::thread::panicking() && !thread_ends() && !broken.get();
        if let Some(together) = together.filter(|_| can_run) {
            runtime.block_on(together.others());
        }
        runtime.shutdown_background();
    }
}

/// Tokio's feature `signal`, which the program may enable, panics if it finds no descriptors left.
fn build(builder: &mut Builder) -> io::Result<LocalRuntime> {
    let mut built = None;
    panics::contain(|| built = Some(builder.build_local(LocalOptions::default())));
    let panicked = "Tokio panicked while it made its runtime (see the message of the panic), as its feature `signal` does if too few descriptors are left; raise RLIMIT_NOFILE (ulimit -n)";
    built.unwrap_or_else(|| Err(no_descriptors(panicked)))
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

/// Makes `handle` the thread's runtime until the guard is dropped. `None`: the thread ends, so
/// Tokio can have no runtime there any more; or this runs in a drop that Tokio makes while its own
/// context is locked (for example, of a future that it refuses to spawn), and entering would panic.
pub(super) fn enter(handle: &Handle) -> Option<EnterGuard<'_>> {
    let mut entered = None;
    if !thread_ends() {
        panics::contain(|| entered = Some(handle.enter()));
    }
    entered
}

impl Readable<'_> {
    /// Notes that the loop's epoll was asked and has no more events. Tokio reports events from now
    /// on, and also events that came since the question.
    pub(crate) fn take_back(mut self) {
        self.0.clear_ready();
    }
}

impl std::fmt::Debug for Runtime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Runtime").finish_non_exhaustive()
    }
}
