//! Work that blocks: it runs on separate threads, never on a loop.
//!
//! [`pool`] has the threads and their queue, [`job`] one piece of work. [`try_again`] is for work
//! that waits because no thread could be started, [`errands`] for calls that are then repeated
//! without a thread of their own. This crate has its own pool for a reason: the pool of the crate
//! `blocking` retries for ever when it cannot start a thread (its issue 79), and other pools panic
//! then, or belong to a runtime.

mod aborts_on_drop;
mod errands;
#[cfg(feature = "test-util")]
mod in_flight;
mod job;
mod on_errand;
#[allow(unsafe_code)]
mod pool;
mod try_again;

use std::fmt;
use std::future::Future;
use std::io;
use std::mem;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use self::job::{Job, Join, Run};
use self::pool::Pool;
use super::coop;
use super::join_error::JoinError;
use crate::sys::panics;
use crate::sys::thread::{SignalMask, start_thread};

pub(crate) use self::aborts_on_drop::AbortsOnDrop;
#[cfg(feature = "test-util")]
pub(crate) use self::in_flight::{Entered as InFlightHere, InFlight};
pub(crate) use self::on_errand::{look_after_errands, on_errand, run_errands};
pub(crate) use self::pool::{end_main_of_child, keep_a_thread};
pub(crate) use self::try_again::{Attempts, try_again_by};

/// Runs `f` on a thread that may block: for file and DNS work, a database client, or long
/// computations. May be called on any thread.
///
/// Threads are started as needed, up to 500 in the process. (The environment variable
/// `BLOCKING_MAX_THREADS` sets another limit, from 1 to 10,000.) They end after half a second
/// without work, except for one, which starts with the first loop that runs. If all threads are
/// busy, work waits in a queue. The queue has no limit, so limit the work that you give it.
///
/// If the process may start no more threads (`ulimit -u`, `pids.max` of its cgroup), the work waits
/// for the existing threads. Each second, a loop whose work waits tries to start another thread.
/// (A thread without a loop does not: its work waits until a thread is free, or other work is
/// given.) If there is no thread at all, the work is dropped, and the handle returns an error that
/// [is cancelled](JoinError::is_cancelled) and names these limits.
///
/// A forked child has none of its parent's threads. It starts its own.
///
/// If a test has paused the clock (`wakeful::time::pause`), the clock does not jump while blocking
/// work of its loop is in flight.
///
/// While `f` runs, its thread blocks the signals that the calling thread blocks now, and so do the
/// threads and processes that `f` starts. Otherwise these threads block all signals of a process,
/// so that a program may read them with sigwait(3).
///
/// No loop runs on these threads. To await there, use [`block_on`](crate::block_on): it runs a
/// separate loop, with its own tasks and sockets, until the future is done. To reach the loop that
/// spawned the work, use a [`LoopHandle`](crate::LoopHandle):
///
/// ```
/// use std::time::Duration;
///
/// use wakeful::LoopHandle;
/// use wakeful::task::spawn_blocking;
///
/// wakeful::block_on(async {
///     let outer = LoopHandle::current();
///     let work = spawn_blocking(move || {
///         let own = wakeful::block_on(async {
///             wakeful::time::sleep(Duration::from_millis(1)).await;
///             40
///         });
///         own + outer.post_and_wait(|| 2).expect("the outer loop runs")
///     });
///     assert_eq!(work.await.expect("no panic"), 42);
/// });
/// ```
///
/// ```
/// wakeful::block_on(async {
///     let text = wakeful::task::spawn_blocking(|| std::fs::read_to_string("/proc/self/comm"));
///     assert!(!text.await.expect("no panic").expect("readable").is_empty());
/// });
/// ```
pub fn spawn_blocking<T, F>(f: F) -> BlockingHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    let here = SignalMask::of_this_thread();
    spawn_without_signals(move || here.within(f))
}

/// Like [`spawn_blocking`], for `f` that starts no thread and no process: signals stay blocked.
/// This spares three system calls.
#[doc(hidden)]
pub fn spawn_without_signals<T, F>(f: F) -> BlockingHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    let job = Arc::new(Job::new(f));
    let pushed = pool::current().and_then(|pool| Ok((pool, pool.push(counted(job.clone()))?)));
    let state = match pushed {
        Ok((pool, number)) => {
            pool.try_again_for(number);
            State::Begun { job, place: Some((pool, number)) }
        }
        Err(error) => {
            panics::discard(job);
            State::Refused(error)
        }
    };
    BlockingHandle { state }
}

/// Makes the job count as a call of this thread's loop, whose paused clock does not jump until the
/// call is over.
#[cfg(feature = "test-util")]
fn counted(job: Arc<dyn Run>) -> Arc<dyn Run> {
    Arc::new(self::in_flight::Counted::new(job))
}

#[cfg(not(feature = "test-util"))]
fn counted(job: Arc<dyn Run>) -> Arc<dyn Run> {
    job
}

/// Runs `f` on a thread of its own, so that no other work can delay it. The thread blocks the same
/// signals as this one. `f` must not fork.
///
/// # Errors
/// No thread can be started. The closure that is returned then runs `f` on the calling thread.
pub(crate) fn on_own_thread<T, F>(
    name: &str,
    f: F,
) -> Result<BlockingHandle<T>, (io::Error, impl FnOnce() -> Result<T, JoinError>)>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    let job = Arc::new(Job::new(f));
    let runs = counted(job.clone());
    match start_thread(name, move || runs.run(&|| false)) {
        Ok(_) => Ok(BlockingHandle { state: State::Begun { job, place: None } }),
        Err(error) => {
            let run_here = move || {
                job.run(&|| false);
                match job.poll(Waker::noop()) {
                    Poll::Ready(Some(outcome)) => outcome.map_err(JoinError::panicked),
                    Poll::Ready(None) | Poll::Pending => Err(JoinError::cancelled()),
                }
            };
            Err((error, run_here))
        }
    }
}

/// The handle of [`spawn_blocking`]. If it is dropped, the work continues.
///
/// In a forked child, the handle of work that the parent began returns an error that [is
/// cancelled](JoinError::is_cancelled).
///
/// # Threads
/// `Send` if the result is. It may be awaited on any thread.
///
/// # Cancel safety
/// You may stop awaiting `&mut handle`, and await it again later.
///
/// # Errors
/// Awaiting the handle returns a [`JoinError`] if the work panicked, was [aborted](Self::abort), or
/// was refused because no thread could be started. A handle that is polled again after it has
/// returned the result returns an error that [is cancelled](JoinError::is_cancelled).
#[must_use = "dropping the handle detaches the work; say so with `detach`"]
pub struct BlockingHandle<T> {
    state: State<T>,
}

enum State<T> {
    Begun {
        job: Arc<dyn Join<T>>,
        /// Where the job is queued, until a thread takes it.
        place: Option<(&'static Pool, u64)>,
    },
    Refused(io::Error),
    /// The outcome was taken.
    Over,
}

impl<T> Unpin for BlockingHandle<T> {}
impl<T> UnwindSafe for BlockingHandle<T> {}
impl<T> RefUnwindSafe for BlockingHandle<T> {}

impl<T> BlockingHandle<T> {
    /// Cancels the work, from any thread. If no thread has begun it, removes it from the queue and
    /// drops its closure on this thread. Work that has begun cannot be stopped, but its result is
    /// dropped. In both cases the handle returns at once an error that [is
    /// cancelled](JoinError::is_cancelled). If the work has finished, the handle still returns its
    /// output or panic.
    ///
    /// ```
    /// use wakeful::task::spawn_blocking;
    ///
    /// wakeful::block_on(async {
    ///     let (send, lines) = std::sync::mpsc::channel::<String>();
    ///     let count = spawn_blocking(move || lines.iter().count()); // until `send` is dropped
    ///     count.abort();
    ///     assert!(count.await.unwrap_err().is_cancelled());
    ///     drop(send);
    /// });
    /// ```
    pub fn abort(&self) {
        let State::Begun { job, place } = &self.state else { return };
        if is_forked(*place) {
            return;
        }
        if let Some((pool, number)) = place {
            panics::discard(pool.remove(*number));
        }
        job.abort();
    }

    /// Returns whether the work is over: finished, panicked, aborted, or refused because no thread
    /// could be started.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        match &self.state {
            State::Begun { job, place } => is_forked(*place) || job.is_over(),
            State::Refused(_) | State::Over => true,
        }
    }

    /// # Errors
    /// The work was refused, because there is no thread.
    pub(crate) fn unless_refused(mut self) -> Result<Self, JoinError> {
        match mem::replace(&mut self.state, State::Over) {
            State::Refused(error) => Err(JoinError::refused(error)),
            state => {
                self.state = state;
                Ok(self)
            }
        }
    }

    /// Lets the work continue without a handle.
    pub fn detach(self) {}

    fn leave(&mut self) {
        let State::Begun { job, place } = mem::replace(&mut self.state, State::Over) else {
            return;
        };
        if is_forked(place) {
            // Another thread may have held the job's lock when the process was forked.
            mem::forget(job);
            return;
        }
        job.forget_waiter();
        // The job may still contain its outcome.
        panics::discard(job);
    }
}

fn is_forked(place: Option<(&'static Pool, u64)>) -> bool {
    place.is_some_and(|(pool, _)| pool.is_forked())
}

impl<T> Future for BlockingHandle<T> {
    type Output = Result<T, JoinError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        ready!(coop::poll_proceed(cx));
        let outcome = match &mut self.state {
            State::Begun { job, place } if !is_forked(*place) => match job.poll(cx.waker()) {
                Poll::Ready(Some(outcome)) => outcome.map_err(JoinError::panicked),
                Poll::Ready(None) => Err(JoinError::cancelled()),
                Poll::Pending => {
                    if let Some((pool, number)) = place {
                        pool.try_again_for(*number);
                    }
                    return Poll::Pending;
                }
            },
            _ => Err(JoinError::cancelled()),
        };
        coop::made_progress();
        if let State::Refused(_) = self.state
            && let State::Refused(error) = mem::replace(&mut self.state, State::Over)
        {
            return Poll::Ready(Err(JoinError::refused(error)));
        }
        self.leave();
        Poll::Ready(outcome)
    }
}

impl<T> Drop for BlockingHandle<T> {
    fn drop(&mut self) {
        self.leave();
    }
}

impl<T> fmt::Debug for BlockingHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockingHandle").finish_non_exhaustive()
    }
}
