//! Tasks that end together, and whose ends are awaited in the order in which they come.
//!
//! The set keeps the tasks' handles. [`finished`](super::finished) tells which of them are
//! complete, so that joining one costs the same however many there are. How a set spawns is in
//! `event_loop/join_set.rs`.

use std::fmt;
use std::future::poll_fn;
use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use slab::Slab;

use super::abort_handle::AbortHandle;
use super::coop;
use super::finished::{Chain, Finished, Member};
use super::id::Id;
use super::join::JoinHandle;
use super::join_error::JoinError;
use crate::sys::panics;

/// A set of tasks, which you can await as they finish. Dropping the set aborts them.
///
/// All outputs have one type. Examples are the connections of a server, or the calls of one request
/// to several backends. If you do not need the outputs, or if the tasks spawn further tasks, use a
/// [`Scope`](super::Scope).
///
/// ```
/// use wakeful::task::JoinSet;
///
/// wakeful::block_on(async {
///     let mut set = JoinSet::new();
///     for number in 0..10 {
///         set.spawn(async move { number * number });
///     }
///     let mut sum = 0;
///     while let Some(square) = set.join_next().await {
///         sum += square.expect("no panic, no abort");
///     }
///     assert_eq!(sum, 285);
/// });
/// ```
///
/// A finished task stays in the set with its output until it is joined, so a set whose tasks are
/// never joined leaks memory. Call [`join_next`](Self::join_next) in a `select!` together with the
/// code that spawns, or call [`try_join_next`](Self::try_join_next) before each spawn
/// (`examples/join_set.rs`).
///
/// Each task in the set costs a separate allocation of 48 bytes, and 24 bytes in the set's list.
///
/// # Threads
/// `Send` and `Sync` if the outputs are `Send`. The set may be awaited and dropped on any thread;
/// [`spawn`](Self::spawn) spawns on the loop of the thread that calls it.
pub struct JoinSet<T> {
    tasks: Slab<Entry<T>>,
    finished: Arc<Finished>,
    /// Tasks that have finished and that nobody has joined. They come before those in `finished`.
    taken: Chain,
}

enum Entry<T> {
    Task(JoinHandle<T>),
    /// A task that waits for blocking work, which may be refused.
    Blocking(JoinHandle<Result<T, JoinError>>),
}

impl<T> Entry<T> {
    fn abort_handle(&self) -> AbortHandle {
        match self {
            Self::Task(handle) => handle.abort_handle(),
            Self::Blocking(handle) => handle.abort_handle(),
        }
    }

    /// The outcome of a task that has finished.
    fn join(self) -> (Id, Result<T, JoinError>) {
        match self {
            Self::Task(handle) => (handle.id(), handle.into_output()),
            Self::Blocking(handle) => {
                (handle.id(), handle.into_output().and_then(|outcome| outcome))
            }
        }
    }
}

impl<T> JoinSet<T> {
    /// Makes an empty set. It allocates once, and again as it grows.
    #[must_use]
    pub fn new() -> Self {
        Self { tasks: Slab::new(), finished: Arc::default(), taken: Chain::default() }
    }

    /// Returns how many tasks are in the set: running ones, and finished ones that have not been
    /// joined.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Returns whether the set has no tasks.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// Adds a task that was spawned in another way: with a [`Priority`](crate::Priority), or on
    /// another loop.
    ///
    /// ```
    /// use wakeful::task::JoinSet;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let group = wakeful::LoopGroup::builder().loops(2).build()?;
    /// let mut set = JoinSet::new();
    /// for (number, handle) in group.handles().iter().enumerate() {
    ///     set.insert(handle.spawn(move || async move { number })?);
    /// }
    /// let numbers = wakeful::block_on(set.join_all());
    /// assert_eq!(numbers.iter().sum::<usize>(), 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    /// If the handle has already returned the task's output. The set stays as it was.
    #[track_caller]
    pub fn insert(&mut self, handle: JoinHandle<T>) -> AbortHandle {
        assert!(
            !handle.was_ready(),
            "JoinSet::insert: the handle has already returned the output of its task, so it cannot be joined again"
        );
        self.add(Entry::Task(handle))
    }

    /// Inserts an [`Entry::Blocking`].
    pub(crate) fn insert_blocking(
        &mut self,
        handle: JoinHandle<Result<T, JoinError>>,
    ) -> AbortHandle {
        self.add(Entry::Blocking(handle))
    }

    fn add(&mut self, entry: Entry<T>) -> AbortHandle {
        let abort = entry.abort_handle();
        let place = self.tasks.vacant_entry();
        let waker = Member::waker(&self.finished, place.key());
        match place.insert(entry) {
            Entry::Task(handle) => handle.when_finished(&waker),
            Entry::Blocking(handle) => handle.when_finished(&waker),
        }
        abort
    }

    /// Waits until a task has finished, removes it from the set, and returns its output, or `None`
    /// if the set is empty.
    ///
    /// Tasks of one loop are returned in the order in which they finished.
    ///
    /// If the set is empty, the call returns at once. So in a loop around a `select!`, guard its
    /// branch with [`is_empty`](Self::is_empty), or the loop spins:
    ///
    /// ```
    /// use wakeful::task::JoinSet;
    ///
    /// wakeful::block_on(async {
    ///     let (send, jobs) = async_channel::unbounded();
    ///     (1..=3).for_each(|job| send.try_send(job).expect("there is room"));
    ///     drop(send);
    ///     let (mut set, mut sum, mut more) = (JoinSet::new(), 0, true);
    ///     while more || !set.is_empty() {
    ///         tokio::select! {
    ///             job = jobs.recv(), if more => match job {
    ///                 Ok(job) => drop(set.spawn(async move { job * job })),
    ///                 Err(_) => more = false,
    ///             },
    ///             Some(square) = set.join_next(), if !set.is_empty() => {
    ///                 sum += square.expect("no panic, no abort");
    ///             }
    ///         }
    ///     }
    ///     assert_eq!(sum, 14);
    /// });
    /// ```
    ///
    /// # Errors
    /// The task panicked or was aborted, its loop has ended, or no thread could be started for its
    /// blocking work.
    ///
    /// # Cancel safety
    /// Cancel-safe: a task is removed only when the call returns its output.
    pub async fn join_next(&mut self) -> Option<Result<T, JoinError>> {
        poll_fn(|cx| self.poll_join_next(cx)).await
    }

    /// Like [`join_next`](Self::join_next), but also returns the task's [`Id`], even with an error.
    ///
    /// # Errors
    /// The same as for [`join_next`](Self::join_next).
    ///
    /// # Cancel safety
    /// The same as for [`join_next`](Self::join_next).
    pub async fn join_next_with_id(&mut self) -> Option<(Id, Result<T, JoinError>)> {
        poll_fn(|cx| self.poll_join_next_with_id(cx)).await
    }

    /// Polls like [`join_next`](Self::join_next), for hand-written futures. When a task of the set
    /// has finished, the task that polled last is woken.
    ///
    /// # Errors
    /// The same as for [`join_next`](Self::join_next).
    pub fn poll_join_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<T, JoinError>>> {
        self.poll_join_next_with_id(cx).map(|next| next.map(|(_, outcome)| outcome))
    }

    /// Like [`poll_join_next`](Self::poll_join_next), with the task's [`Id`].
    ///
    /// # Errors
    /// The same as for [`join_next`](Self::join_next).
    pub fn poll_join_next_with_id(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<(Id, Result<T, JoinError>)>> {
        // This also applies to an empty set, because a task that polls it again and again must let
        // others run.
        ready!(coop::poll_proceed(cx));
        let mut next = self.take_next();
        if next.is_none() && !self.is_empty() {
            self.finished.wait(cx.waker());
            // A task may have finished between the two checks.
            next = self.take_next();
            if next.is_none() {
                return Poll::Pending;
            }
        }
        coop::made_progress();
        Poll::Ready(next)
    }

    /// Removes a finished task and returns its output, or `None` if no task has finished or the set
    /// is empty.
    ///
    /// # Errors
    /// The same as for [`join_next`](Self::join_next).
    pub fn try_join_next(&mut self) -> Option<Result<T, JoinError>> {
        self.try_join_next_with_id().map(|(_, outcome)| outcome)
    }

    /// Like [`try_join_next`](Self::try_join_next), with the task's [`Id`].
    ///
    /// # Errors
    /// The same as for [`join_next`](Self::join_next).
    pub fn try_join_next_with_id(&mut self) -> Option<(Id, Result<T, JoinError>)> {
        self.take_next()
    }

    fn take_next(&mut self) -> Option<(Id, Result<T, JoinError>)> {
        let place = self.taken.pop().or_else(|| {
            self.taken = self.finished.take();
            self.taken.pop()
        })?;
        Some(self.tasks.remove(place).join())
    }

    /// Waits for all tasks, and returns their outputs: those of one loop's tasks in the order in
    /// which they finished.
    ///
    /// # Panics
    /// If a task panicked, this call panics with the same payload. It also panics if a task was
    /// aborted, if the loop of a task has ended, or if no thread could be started for blocking
    /// work. The other tasks are then aborted.
    ///
    /// # Cancel safety
    /// Dropping the future aborts the tasks, and loses the outputs.
    pub async fn join_all(mut self) -> Vec<T> {
        let mut outputs = Outputs(Vec::with_capacity(self.len()));
        while let Some(outcome) = self.join_next().await {
            match outcome.map_err(JoinError::try_into_panic) {
                Ok(output) => outputs.0.push(output),
                Err(Ok(payload)) => std::panic::resume_unwind(payload),
                Err(Err(error)) => panic!("JoinSet::join_all: {error}"),
            }
        }
        mem::take(&mut outputs.0)
    }

    /// Aborts all tasks. They stay in the set until they are joined. A task that had finished still
    /// returns its output; the others return an error that [is cancelled](JoinError::is_cancelled).
    pub fn abort_all(&mut self) {
        for (_, entry) in &self.tasks {
            match entry {
                Entry::Task(handle) => handle.abort(),
                Entry::Blocking(handle) => handle.abort(),
            }
        }
    }

    /// Aborts all tasks, and waits until their futures are dropped. Then the set is empty. Outputs
    /// and panics are dropped.
    ///
    /// # Cancel safety
    /// If the future is dropped after its first poll, the tasks are still aborted, and those that
    /// have not ended stay in the set. If it is dropped before its first poll, nothing happens.
    pub async fn shutdown(&mut self) {
        self.abort_all();
        while let Some(outcome) = self.join_next().await {
            panics::discard(outcome);
        }
    }

    /// Removes all tasks from the set, and lets them continue without a handle.
    pub fn detach_all(&mut self) {
        let tasks = mem::take(&mut self.tasks);
        // Tasks that finish while they are dropped must not be reported for new tasks with the same
        // places. So `finished` is replaced first.
        let finished = mem::take(&mut self.finished);
        self.taken = Chain::default();
        drop(tasks);
        // The task that waits for the set finds it empty.
        finished.wake_waiter();
    }
}

impl<T> Default for JoinSet<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Drop for JoinSet<T> {
    /// Aborts all tasks, without waiting for them.
    fn drop(&mut self) {
        self.abort_all();
        self.finished.forget_waiter();
    }
}

/// The outputs that [`JoinSet::join_all`] has so far. Each output may panic in its drop, even while
/// the panic of a task unwinds.
struct Outputs<T>(Vec<T>);

impl<T> Drop for Outputs<T> {
    fn drop(&mut self) {
        panics::discard_each(mem::take(&mut self.0));
    }
}

impl<T> fmt::Debug for JoinSet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinSet").field("len", &self.len()).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(wakeful_loom), target_pointer_width = "64"))]
mod tests {
    use super::*;

    #[test]
    fn a_task_of_a_set_costs_what_its_documentation_says() {
        let counts = 2 * size_of::<usize>();
        assert_eq!(counts + size_of::<Member>(), 48);
        assert_eq!(size_of::<Entry<()>>(), 24);
        assert_eq!(size_of::<Option<Entry<()>>>(), 24, "in the slab");
    }
}
