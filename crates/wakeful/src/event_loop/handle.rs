//! How other threads reach a loop.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvError, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};
use std::time::Duration;

use super::posted_call::{Answer, Awaited, PostedCall};
use crate::driver::bell::{EventFdBell, LoopBell};
use crate::metrics::{Counters, LoopMetrics};
use crate::priority::Priority;
use crate::sys::fork_check::Process;
use crate::task::{self, JoinHandle, Queue};

struct Shared {
    queue: Arc<Queue>,
    counters: Arc<Counters>,
    stop: AtomicBool,
    thread: ThreadId,
    process: Process,
}

/// Sends work to a loop, from any thread.
///
/// To wake a sleeping loop, the sender makes one system call. If the loop is awake, or another
/// thread has just woken it, the sender makes none.
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// let mut event_loop = wakeful::EventLoop::new()?;
/// let handle = event_loop.handle();
/// let thread = std::thread::spawn(move || {
///     let sum = handle.post_and_wait(|| 40 + 2).expect("the loop runs");
///     handle.stop();
///     sum
/// });
/// event_loop.run()?;
/// assert_eq!(thread.join().expect("no panic"), 42);
/// # Ok(())
/// # }
/// ```
///
/// # Threads
/// `Clone`, `Send` and `Sync`. Clones refer to the same loop. The loop runs the closures of one
/// thread and one priority in the order in which that thread sent them. Closures of different
/// threads run in any order. If the loop's own thread sends a closure, messages of other threads
/// that the loop has already taken run before it.
#[derive(Clone)]
pub struct LoopHandle(Arc<Shared>);

impl LoopHandle {
    pub(super) fn new(process: Process, bell: EventFdBell) -> Self {
        Self(Arc::new(Shared {
            queue: Arc::new(Queue::new(LoopBell::EventFd(bell))),
            counters: Arc::default(),
            stop: AtomicBool::new(false),
            thread: thread::current().id(),
            process,
        }))
    }

    /// Makes the loop run `f`, and returns without waiting for it. A panic in `f` ends only `f`,
    /// and is counted in [`LoopMetrics::panics`].
    ///
    /// `f` runs after everything that this thread sent before with normal priority. Closures of
    /// different threads run in any order.
    ///
    /// # Errors
    /// The loop has ended, or this process is a fork of the loop's process. The error returns the
    /// closure. If the loop ends before it runs an accepted closure, it drops the closure on its
    /// thread.
    #[track_caller]
    pub fn post<F: FnOnce() + Send + 'static>(&self, f: F) -> Result<(), SendError<F>> {
        self.post_with(Priority::Normal, f)
    }

    /// Like [`post`](Self::post), with this [`Priority`]. The order applies to everything that this
    /// thread sent with the same priority.
    ///
    /// # Errors
    /// The same as for [`post`](Self::post).
    #[track_caller]
    pub fn post_with<F: FnOnce() + Send + 'static>(
        &self,
        priority: Priority,
        f: F,
    ) -> Result<(), SendError<F>> {
        if self.0.process.is_forked() {
            return Err(SendError::WrongProcess(f));
        }
        task::send(&self.0.queue, priority, f).map_err(SendError::LoopEnded)
    }

    /// Makes the loop run `f`, blocks this thread until `f` has returned, and returns its result.
    /// If nothing runs the loop, the call blocks until the loop runs or ends.
    ///
    /// Do not call it on the thread of another loop: it would block that loop, and two loops that
    /// wait for each other deadlock. Use [`spawn`](Self::spawn) there, and await the handle.
    ///
    /// # Errors
    /// The call was made on the loop's own thread (it would wait for ever); the loop ended before
    /// it ran `f`; this process is a fork of the loop's process; or `f` panicked.
    #[track_caller]
    pub fn post_and_wait<F, R>(&self, f: F) -> Result<R, PostAndWaitError>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        let awaited = self.post_call(f)?;
        // Nobody gives this wait up.
        result_of(awaited.recv())?.ok_or(PostAndWaitError::LoopEnded)
    }

    /// Like [`post_and_wait`](Self::post_and_wait), but if the loop does not answer for a while,
    /// `listen` gets a function that ends the wait. What `listen` returns is dropped when the wait
    /// is over. Returns `None` if the wait was ended so; the loop may still run `f` later.
    ///
    /// # Errors
    /// The same as for `post_and_wait`.
    #[track_caller]
    pub(crate) fn post_and_wait_unless<F, R, L>(
        &self,
        f: F,
        listen: impl FnOnce(Box<dyn FnOnce() + Send>) -> L,
    ) -> Result<Option<R>, PostAndWaitError>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        /// A loop that is not blocked answers much sooner.
        const A_WHILE: Duration = Duration::from_millis(100);

        let awaited = self.post_call(f)?;
        match awaited.recv_timeout(A_WHILE) {
            Ok(answer) => result_of(Ok(answer)),
            Err(RecvTimeoutError::Disconnected) => Err(PostAndWaitError::LoopEnded),
            Err(RecvTimeoutError::Timeout) => {
                let _listening = listen(awaited.give_up());
                result_of(awaited.recv())
            }
        }
    }

    #[track_caller]
    fn post_call<F, R>(&self, f: F) -> Result<Awaited<R>, PostAndWaitError>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        if self.0.thread == thread::current().id() {
            return Err(PostAndWaitError::OwnThread);
        }
        if self.0.process.is_forked() {
            return Err(PostAndWaitError::WrongProcess);
        }
        let (call, awaited) = PostedCall::new(f, self.0.process);
        self.post(move || call.run()).map_err(|error| match error {
            SendError::LoopEnded(_) => PostAndWaitError::LoopEnded,
            SendError::WrongProcess(_) => PostAndWaitError::WrongProcess,
        })?;
        Ok(awaited)
    }

    /// Calls `make` on the loop, and spawns the future that `make` returns as a task of that loop.
    /// The future need not be `Send`.
    ///
    /// ```
    /// # fn main() -> std::io::Result<()> {
    /// # let mut event_loop = wakeful::EventLoop::new()?;
    /// # let handle = event_loop.handle();
    /// let task = handle.spawn(|| async {
    ///     let not_send = std::rc::Rc::new(42);
    ///     wakeful::task::yield_now().await;
    ///     *not_send
    /// });
    /// # let task = task.expect("the loop has not ended");
    /// # assert_eq!(event_loop.block_on(task)?.expect("no panic"), 42);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The loop has ended, or this process is a fork of the loop's process. The error returns the
    /// closure.
    #[track_caller]
    pub fn spawn<M, F>(&self, make: M) -> Result<JoinHandle<F::Output>, SendError<M>>
    where
        M: FnOnce() -> F + Send + 'static,
        F: Future + 'static,
        F::Output: Send,
    {
        self.spawn_with(Priority::Normal, make)
    }

    /// Like [`spawn`](Self::spawn), with this [`Priority`].
    ///
    /// # Errors
    /// The same as for [`spawn`](Self::spawn).
    #[track_caller]
    pub fn spawn_with<M, F>(
        &self,
        priority: Priority,
        make: M,
    ) -> Result<JoinHandle<F::Output>, SendError<M>>
    where
        M: FnOnce() -> F + Send + 'static,
        F: Future + 'static,
        F::Output: Send,
    {
        self.spawn_at(Location::caller(), priority, make)
    }

    /// Like [`spawn_with`](Self::spawn_with), for a task that metrics and logs name by
    /// `spawned_at`.
    pub(super) fn spawn_at<M, F>(
        &self,
        spawned_at: &'static Location<'static>,
        priority: Priority,
        make: M,
    ) -> Result<JoinHandle<F::Output>, SendError<M>>
    where
        M: FnOnce() -> F + Send + 'static,
        F: Future + 'static,
        F::Output: Send,
    {
        if self.0.process.is_forked() {
            return Err(SendError::WrongProcess(make));
        }
        let spawned = task::spawn_remote(&self.0.queue, spawned_at, priority, make);
        spawned.map_err(SendError::LoopEnded)
    }

    /// Makes the loop's current [`run`](crate::EventLoop::run), or its next one, end after its
    /// turn. It has no effect if the loop has ended, or in a forked child of the loop's process.
    ///
    /// Async-signal-safe, like [`wake`](Self::wake).
    pub fn stop(&self) {
        self.0.stop.store(true, Ordering::Release);
        self.wake();
    }

    /// Makes the loop take a turn soon, so that its [`before_park`](crate::before_park) and
    /// [`after_turn`](crate::after_turn) hooks run. It has no effect if the loop has ended, or in a
    /// forked child of the loop's process.
    ///
    /// Async-signal-safe: it allocates nothing, takes no lock and does not change errno.
    pub fn wake(&self) {
        self.0.queue.wake();
    }

    /// Returns the loop's metrics. The call neither stops nor slows the loop.
    #[must_use]
    pub fn metrics(&self) -> LoopMetrics {
        self.0.counters.read()
    }

    /// Returns whether both handles belong to the same loop.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub(crate) fn queue(&self) -> &Arc<Queue> {
        &self.0.queue
    }

    #[inline]
    pub(super) fn counters(&self) -> &Arc<Counters> {
        &self.0.counters
    }

    #[inline]
    pub(super) fn take_stop(&self) -> bool {
        self.0.stop.load(Ordering::Relaxed) && self.0.stop.swap(false, Ordering::AcqRel)
    }

    /// Is there a stop that nobody has taken?
    #[cfg(feature = "tokio")]
    pub(super) fn has_stop(&self) -> bool {
        // `Relaxed` is enough: the turn that took the stop's wake from the queue has acquired what
        // came before the wake.
        self.0.stop.load(Ordering::Relaxed)
    }

    /// The process that built the loop.
    pub(crate) fn process(&self) -> &Process {
        &self.0.process
    }
}

impl fmt::Debug for LoopHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoopHandle")
            .field("thread", &self.0.thread)
            .field("queue", &self.0.queue)
            .finish_non_exhaustive()
    }
}

/// The error of a loop that did not accept a closure. It returns the closure.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum SendError<T> {
    /// The loop has ended.
    #[error("the event loop has ended")]
    LoopEnded(T),
    /// This process was forked from the loop's process.
    #[error(
        "the event loop runs in the process that this one was forked from: build a new loop in the child"
    )]
    WrongProcess(T),
}

impl<T> SendError<T> {
    /// Returns the closure that was not sent.
    pub fn into_inner(self) -> T {
        match self {
            Self::LoopEnded(sent) | Self::WrongProcess(sent) => sent,
        }
    }
}

impl<T> fmt::Debug for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LoopEnded(_) => "LoopEnded(..)",
            Self::WrongProcess(_) => "WrongProcess(..)",
        })
    }
}

/// The result of a call. `None`: its wait was given up.
fn result_of<R>(answer: Result<Answer<R>, RecvError>) -> Result<Option<R>, PostAndWaitError> {
    match answer {
        Ok(Answer::Result(Ok(value))) => Ok(Some(value)),
        Ok(Answer::Result(Err(payload))) => {
            Err(PostAndWaitError::Panicked(PanicPayload(Mutex::new(payload))))
        }
        Ok(Answer::GivenUp) => Ok(None),
        Err(RecvError) => Err(PostAndWaitError::LoopEnded),
    }
}

/// The error of [`LoopHandle::post_and_wait`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PostAndWaitError {
    /// The call was made on the loop's own thread, where it would wait for ever.
    #[error(
        "post_and_wait was called on the loop's own thread, where it would wait for itself: call the closure directly"
    )]
    OwnThread,
    /// The loop ended before it ran the closure, which has been dropped.
    #[error("the event loop ended before it ran the closure")]
    LoopEnded,
    /// This process was forked from the loop's process.
    #[error(
        "the event loop runs in the process that this one was forked from: build a new loop in the child"
    )]
    WrongProcess,
    /// The closure panicked.
    #[error("the closure panicked on the event loop: {0}")]
    Panicked(PanicPayload),
}

/// The payload of a closure's panic, in [`PostAndWaitError::Panicked`]. `Display` and `Debug` show
/// the panic's message, if the payload is a string.
///
/// # Threads
/// `Send` and `Sync`.
pub struct PanicPayload(Mutex<Box<dyn Any + Send>>);

impl PanicPayload {
    /// Returns the payload, for [`std::panic::resume_unwind`].
    #[must_use]
    pub fn into_inner(self) -> Box<dyn Any + Send> {
        self.0.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl fmt::Display for PanicPayload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let payload = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        f.write_str(crate::sys::panics::message(&**payload).unwrap_or("(not a text)"))
    }
}

impl fmt::Debug for PanicPayload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PanicPayload({:?})", self.to_string())
    }
}
