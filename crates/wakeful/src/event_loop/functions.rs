//! The functions by which code on a loop's thread uses its loop.

use std::future::Future;
use std::io;
use std::panic::Location;

use super::callbacks::Hook;
use super::current::{current, expect_current, explain_missing};
use super::handle::LoopHandle;
use super::value::EventLoop;
use crate::priority::Priority;
use crate::task::JoinHandle;

/// Runs `future` on a new event loop on this thread, and returns its output.
///
/// Tasks that have not finished when `future` completes are dropped. Within Tokio, call this only
/// on a thread that may block: see [`EventLoop`](EventLoop#in-a-task-of-tokio).
///
/// ```
/// let answer = wakeful::block_on(async { 42 });
/// assert_eq!(answer, 42);
/// ```
///
/// # Panics
/// If the future panics, if a loop already runs on this thread, or if no loop can be built (for
/// example, no file descriptors are left). [`EventLoop::block_on`] returns errors instead.
///
/// If this is called in the destructor of a thread-local variable, the future may find no loop.
/// Then it cannot spawn, sleep or make sockets.
#[track_caller]
pub fn block_on<F: Future>(future: F) -> F::Output {
    // This is no closure, because a closure would be the caller that a panic names.
    let mut event_loop = EventLoop::new().unwrap_or_else(|error| refused(&error));
    event_loop.block_on(future).unwrap_or_else(|error| refused(&error))
}

#[track_caller]
fn refused(error: &io::Error) -> ! {
    panic!("wakeful::block_on: {error}")
}

/// Spawns a task on this thread's loop. The future need not be `Send`, because it never leaves the
/// thread.
///
/// ```
/// use std::rc::Rc;
///
/// wakeful::block_on(async {
///     let shared = Rc::new(42);
///     let theirs = shared.clone();
///     let task = wakeful::spawn(async move { *theirs });
///     assert_eq!(task.await.expect("no panic"), *shared);
/// });
/// ```
///
/// # Panics
/// If no loop runs on this thread. From another thread, use [`LoopHandle::spawn`].
#[track_caller]
pub fn spawn<F: Future + 'static>(future: F) -> JoinHandle<F::Output> {
    expect_current().spawn(Priority::Normal, future)
}

/// Like [`spawn`], for a task that metrics and logs name by `spawned_at`.
#[track_caller]
pub(crate) fn spawn_at<F: Future + 'static>(
    spawned_at: &'static Location<'static>,
    future: F,
) -> JoinHandle<F::Output> {
    expect_current().local.spawn_at(spawned_at, Priority::Normal, future)
}

/// Like [`spawn`], with this [`Priority`].
///
/// # Panics
/// The same as for [`spawn`].
#[track_caller]
pub fn spawn_with<F: Future + 'static>(priority: Priority, future: F) -> JoinHandle<F::Output> {
    expect_current().spawn(priority, future)
}

impl LoopHandle {
    /// Returns the handle of this thread's loop.
    ///
    /// # Panics
    /// If no loop runs on this thread.
    #[must_use]
    #[track_caller]
    pub fn current() -> Self {
        expect_current().handle().clone()
    }

    /// Returns the handle of this thread's loop, if one runs here. This works even while the loop
    /// is being dropped.
    ///
    /// ```
    /// use wakeful::LoopHandle;
    ///
    /// let missing = LoopHandle::try_current().unwrap_err();
    /// assert!(missing.to_string().contains("no event loop runs on this thread"));
    /// wakeful::block_on(async { assert!(LoopHandle::try_current().is_ok()) });
    /// ```
    ///
    /// # Errors
    /// No loop runs on this thread, or the thread is ending. The error says which.
    pub fn try_current() -> Result<Self, TryCurrentError> {
        match current() {
            Some(inner) => Ok(inner.handle().clone()),
            None => Err(TryCurrentError(explain_missing(NO_LOOP))),
        }
    }
}

const NO_LOOP: &str = "no event loop runs on this thread: `LoopHandle::try_current` finds one within `wakeful::block_on`, \
                       a task of a loop, or a closure sent by a `LoopHandle`";

/// The error of [`LoopHandle::try_current`]: why it found no loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TryCurrentError(&'static str);

/// Runs `callback` at the end of this turn, after the tasks.
///
/// Use it for work that many tasks of the turn can share, such as one vectored write per connection
/// for all responses that were queued.
///
/// ```
/// use std::cell::RefCell;
/// use std::io::IoSlice;
/// use std::rc::Rc;
///
/// /// Responses of one turn, written together at its end.
/// #[derive(Default)]
/// struct Connection {
///     queued: RefCell<Vec<Vec<u8>>>,
///     writes: RefCell<Vec<usize>>, // stands for the socket: how many slices each write had
/// }
///
/// impl Connection {
///     fn respond(self: &Rc<Self>, response: Vec<u8>) {
///         self.queued.borrow_mut().push(response);
///         if self.queued.borrow().len() == 1 {
///             let connection = self.clone();
///             wakeful::run_this_turn(move || connection.flush());
///         }
///     }
///
///     fn flush(&self) {
///         let responses = self.queued.take();
///         let slices: Vec<_> = responses.iter().map(|bytes| IoSlice::new(bytes)).collect();
///         self.writes.borrow_mut().push(slices.len()); // `stream.try_write_vectored(&slices)`
///     }
/// }
///
/// wakeful::block_on(async {
///     let connection = Rc::new(Connection::default());
///     for request in 0..10 {
///         let connection = connection.clone();
///         wakeful::spawn(async move { connection.respond(vec![request; 100]) }).detach();
///     }
///     wakeful::task::yield_now().await;
///     wakeful::task::yield_now().await;
///     assert_eq!(*connection.writes.borrow(), [10]);
/// });
/// ```
///
/// A callback may queue another one for this turn. These callbacks are a phase of the turn, and the
/// phase runs at most [`callback_budget`](crate::EventLoopBuilder::callback_budget) of them.
/// (Callbacks of [`run_next_turn`] have their own phase, with a budget of the same size.) The rest
/// run in the next turn, and the loop does not sleep in between. A panic in a callback ends only
/// that callback, and is counted in [`LoopMetrics::panics`](crate::LoopMetrics::panics).
///
/// # Panics
/// If no loop runs on this thread.
#[track_caller]
pub fn run_this_turn(callback: impl FnOnce() + 'static) {
    expect_current().run_this_turn(callback);
}

/// Runs `callback` in the next turn, before its tasks. The loop does not sleep in between, but it
/// checks its sockets and timers. Callbacks beyond the
/// [`callback_budget`](crate::EventLoopBuilder::callback_budget) run in the turn after that. A
/// panic in a callback ends only that callback, and is counted in
/// [`LoopMetrics::panics`](crate::LoopMetrics::panics).
///
/// # Panics
/// If no loop runs on this thread.
#[track_caller]
pub fn run_next_turn(callback: impl FnOnce() + 'static) {
    expect_current().run_next_turn(callback);
}

/// Runs `callback` each time the loop has nothing to do and is about to wait, until the hook is
/// dropped. If the callback queues work, the loop does not wait.
///
/// A panic in the callback ends only that call, and is counted in
/// [`LoopMetrics::panics`](crate::LoopMetrics::panics). The callback stays registered.
///
/// # Panics
/// If no loop runs on this thread.
#[track_caller]
pub fn before_park(callback: impl FnMut() + 'static) -> Hook {
    expect_current().callbacks.before_park(callback)
}

/// Runs `callback` at the end of every turn, until the hook is dropped. A panic in the callback is
/// handled as for [`before_park`].
///
/// # Panics
/// If no loop runs on this thread.
#[track_caller]
pub fn after_turn(callback: impl FnMut() + 'static) -> Hook {
    expect_current().callbacks.after_turn(callback)
}
