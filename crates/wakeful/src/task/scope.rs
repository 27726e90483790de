//! Tasks that belong to one future: it is ready when the last of them has ended, and ends them all
//! if it is dropped.
//!
//! They are ordinary tasks of the loop. The scope adds a guard to each future ([`InScope`]), which
//! is dropped with the future, on the loop's thread. So the scope knows which of its tasks exist,
//! and keeps nothing of those that have ended. How a scope spawns is in
//! `event_loop/task_builder.rs`.
//!
//! No user code runs while something is borrowed here: an abort queues the task, and wakers are
//! cloned, woken and dropped outside.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};

use slab::Slab;

use super::abort_handle::AbortHandle;
use super::coop;
use crate::sys::panics;

/// A group of tasks. It is a future that is ready when all of them have ended. Dropping it cancels
/// them.
///
/// A [`JoinSet`](super::JoinSet) collects the outputs of its tasks. A scope only waits until all
/// tasks have ended. Its tasks may have outputs of any type, and may spawn further tasks with a
/// [`Spawner`]. Each task has its own [`JoinHandle`](super::JoinHandle), which may be
/// [detached](super::JoinHandle::detach).
///
/// * Each task has its own budget, id and place in the loop's queue. The tasks run whether the
///   scope is awaited or not.
/// * A panic in a task ends only that task, and goes to its handle.
/// * If you await the scope by value, and the await is cancelled (by a timeout, or another branch
///   of a `select!`), the scope is dropped and its tasks are cancelled: their futures are dropped
///   in the loop's next turn without being polled again. Await `&mut scope` to keep it.
///   [`shutdown`](Self::shutdown) waits until the futures are dropped.
/// * A future that is spawned in a scope is `'static`, as in every task. It cannot borrow from the
///   future that owns the scope: share values with [`Rc`].
///
/// Each task in a scope costs 16 more bytes, and 16 bytes in the scope's list. The list does not
/// shrink.
///
/// # Cancel safety
/// You may stop awaiting `&mut scope`, and await it again later. An empty scope is ready at once.
/// So in a loop around a `select!`, guard its branch with [`is_empty`](Self::is_empty), or the loop
/// spins.
///
/// # Threads
/// Neither `Send` nor `Sync`: a scope, its spawners and its tasks belong to the loop of its thread.
///
/// # Examples
/// ```
/// use wakeful::task::Scope;
///
/// wakeful::block_on(async {
///     let scope = Scope::new();
///     let spawner = scope.spawner().clone();
///     let total = scope.spawn(async move {
///         let parts = [1, 2, 3].map(|part| spawner.spawn(async move { part * part }));
///         let mut total = 0;
///         for part in parts {
///             total += part.await.expect("no panic");
///         }
///         total
///     });
///     scope.await; // all four have ended
///     assert!(total.is_finished());
///     assert_eq!(total.await.expect("no panic"), 14);
/// });
/// ```
///
/// A scope that runs until one of its tasks stops it, in a `select!`:
///
/// ```
/// use wakeful::task::Scope;
///
/// wakeful::block_on(async {
///     let (stop, stopped) = async_channel::bounded::<()>(1);
///     let mut scope = Scope::new();
///     scope.spawn(std::future::pending::<()>()).detach();
///     scope.spawn(async move { stop.send(()).await }).detach();
///     tokio::select! {
///         () = &mut scope => unreachable!("one is pending for ever"),
///         _ = stopped.recv() => scope.shutdown().await,
///     }
///     assert!(scope.is_empty());
/// });
/// ```
#[must_use = "a scope that is dropped cancels its tasks"]
pub struct Scope {
    spawner: Spawner,
}

/// Spawns tasks in a [`Scope`], from anywhere on the scope's thread, including the scope's tasks.
///
/// It does not keep the scope alive: when the scope is dropped, new tasks are cancelled.
///
/// # Threads
/// Neither `Send` nor `Sync`, like the scope.
///
/// # Examples
/// ```
/// use wakeful::task::{Scope, Spawner};
///
/// /// Visits a tree, each branch in a task of its own.
/// fn visit(scope: &Spawner, depth: u32) {
///     if depth > 0 {
///         for _ in 0..2 {
///             let spawner = scope.clone();
///             scope.spawn(async move { visit(&spawner, depth - 1) }).detach();
///         }
///     }
/// }
///
/// wakeful::block_on(async {
///     let mut scope = Scope::new();
///     visit(scope.spawner(), 5);
///     (&mut scope).await;
///     assert!(scope.is_empty());
/// });
/// ```
#[derive(Clone)]
pub struct Spawner {
    members: Rc<Members>,
}

#[derive(Default)]
struct Members {
    /// `None` only while the task is being spawned.
    tasks: RefCell<Slab<Option<AbortHandle>>>,
    /// Whether the scope takes no more tasks.
    closed: Cell<bool>,
    waiter: Cell<Option<Waker>>,
}

impl Members {
    fn is_empty(&self) -> bool {
        self.tasks.borrow().is_empty()
    }

    fn abort_all(&self) {
        let tasks: Vec<AbortHandle> =
            self.tasks.borrow().iter().filter_map(|(_, task)| task.clone()).collect();
        tasks.iter().for_each(AbortHandle::abort);
    }

    fn wait(&self, waker: &Waker) {
        let waker = waker.clone();
        panics::discard(self.waiter.replace(Some(waker)));
    }
}

impl Scope {
    /// Makes an empty scope.
    pub fn new() -> Self {
        Self { spawner: Spawner { members: Rc::default() } }
    }

    /// Returns a spawner for this scope. Clone it for code that has no access to the scope.
    #[must_use]
    pub fn spawner(&self) -> &Spawner {
        &self.spawner
    }

    /// Returns how many tasks have not ended.
    #[must_use]
    pub fn len(&self) -> usize {
        self.members().tasks.borrow().len()
    }

    /// Returns whether all tasks have ended.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.members().is_empty()
    }

    /// Cancels the current tasks. If their destructors spawn tasks in the scope, those still run.
    pub fn abort_all(&self) {
        self.members().abort_all();
    }

    /// Cancels all tasks, and waits until their futures are dropped. After the first poll of the
    /// returned future, the scope takes no more tasks: a new task is cancelled before its first
    /// poll.
    ///
    /// # Cancel safety
    /// If the returned future is dropped after its first poll, the tasks are still cancelled, and
    /// the scope takes no more tasks. If it is dropped before its first poll, nothing happens.
    ///
    /// # Examples
    /// ```
    /// use std::rc::Rc;
    ///
    /// use wakeful::task::Scope;
    ///
    /// wakeful::block_on(async {
    ///     let mut scope = Scope::new();
    ///     let shared = Rc::new(());
    ///     let held = shared.clone();
    ///     scope.spawn(async move {
    ///         std::future::pending::<()>().await;
    ///         drop(held);
    ///     }).detach();
    ///     scope.shutdown().await;
    ///     assert_eq!(Rc::strong_count(&shared), 1);
    /// });
    /// ```
    pub async fn shutdown(&mut self) {
        self.members().closed.set(true);
        self.members().abort_all();
        self.await;
    }

    fn members(&self) -> &Members {
        &self.spawner.members
    }
}

impl Default for Scope {
    fn default() -> Self {
        Self::new()
    }
}

impl Future for Scope {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        // This also applies to an empty scope, because code that polls it again and again must let
        // others run.
        ready!(coop::poll_proceed(cx));
        if !self.is_empty() {
            self.members().wait(cx.waker());
            // The waker's clone is user code, and may have taken a turn of the loop.
            if !self.is_empty() {
                return Poll::Pending;
            }
        }
        coop::made_progress();
        Poll::Ready(())
    }
}

impl Drop for Scope {
    /// Cancels all tasks, without waiting for them.
    fn drop(&mut self) {
        let members = self.members();
        members.closed.set(true);
        members.abort_all();
        panics::discard(members.waiter.take());
    }
}

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope").field("len", &self.len()).finish_non_exhaustive()
    }
}

impl Spawner {
    /// Notes that the task at this place is `task`.
    pub(crate) fn know(&self, place: usize, task: AbortHandle) {
        if self.members.closed.get() {
            task.abort();
        }
        // The future may be gone already, because the loop is ending.
        if let Some(known @ None) = self.members.tasks.borrow_mut().get_mut(place) {
            *known = Some(task);
        }
    }
}

impl fmt::Debug for Spawner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spawner")
            .field("closed", &self.members.closed.get())
            .finish_non_exhaustive()
    }
}

pin_project_lite::pin_project! {
    /// A future that is spawned in a scope.
    pub(crate) struct InScope<F> {
        // The first field, so that it is dropped before the guard.
        #[pin]
        future: F,
        member: Member,
    }
}

/// The scope has this task until this is dropped.
struct Member {
    members: Rc<Members>,
    place: usize,
}

impl<F> InScope<F> {
    pub(crate) fn new(scope: &Spawner, future: F) -> Self {
        let members = scope.members.clone();
        let place = members.tasks.borrow_mut().insert(None);
        Self { future, member: Member { members, place } }
    }

    /// For [`Spawner::know`].
    pub(crate) fn member(&self) -> usize {
        self.member.place
    }
}

impl<F: Future> Future for InScope<F> {
    type Output = F::Output;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        self.project().future.poll(cx)
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let mut tasks = self.members.tasks.borrow_mut();
        let task = tasks.try_remove(self.place);
        let was_last = tasks.is_empty();
        drop(tasks);
        drop(task);
        if was_last && let Some(waiter) = self.members.waiter.take() {
            panics::wake(waiter);
        }
    }
}

#[cfg(all(test, not(wakeful_loom), target_pointer_width = "64"))]
mod tests {
    use super::*;

    #[test]
    fn a_task_of_a_scope_costs_what_its_documentation_says() {
        assert_eq!(size_of::<InScope<()>>(), 16);
        // The slab adds its tag to the handle.
        assert_eq!(size_of::<Option<AbortHandle>>() + size_of::<usize>(), 16);
    }
}
