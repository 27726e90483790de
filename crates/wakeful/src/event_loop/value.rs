//! The loop as a value: it runs its thread, or another library's loop drives it.

use std::future::Future;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::panic::Location;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use super::callbacks::Hook;
use super::current::{self, current};
use super::handle::LoopHandle;
use super::inner::Inner;
use super::pulse::Spent;
use super::root::Root;
use super::sleep_observer::SleepObserver;
use crate::driver::epoll::Timer;
use crate::priority::Priority;
use crate::task::{JoinHandle, coop, keep_a_thread, look_after_errands};

/// An event loop: the tasks, timers, sockets and callbacks of one thread.
///
/// Most programs need [`block_on`](crate::block_on) or a [`LoopGroup`](crate::LoopGroup) instead.
/// Use a loop as a value to embed it in another loop, or to change its settings.
///
/// ```
/// use std::time::Duration;
///
/// # fn main() -> std::io::Result<()> {
/// let mut event_loop = wakeful::EventLoop::new()?;
/// let answer = event_loop.block_on(async {
///     wakeful::time::sleep(Duration::from_millis(1)).await;
///     42
/// })?;
/// assert_eq!(answer, 42);
/// # Ok(())
/// # }
/// ```
///
/// # A turn
/// The loop works in turns. Each turn has these phases, in this order:
///
/// | # | phase | bound |
/// |---|---|---|
/// | 1 | **wait**: ask the kernel for events; sleep only if nothing of any kind is runnable. [`before_park`](Self::before_park) hooks run just before the sleep, or before the spin that precedes it | `max_wait` |
/// | 2 | **take** the closures and wakes that other threads pushed | all of them |
/// | 3 | **events**: record them in their descriptors, and wake the waiting tasks; events of [high-priority](crate::Priority) sockets first | [`io_batch`](crate::EventLoopBuilder::io_batch), and again as many of high-priority sockets |
/// | 4 | **timers** that are due | `timer_budget` |
/// | 5 | **next-turn callbacks** that the last turn queued | `callback_budget` |
/// | 6 | **tasks and closures**: [high-priority](crate::Priority) ones, then normal ones, each in the order in which they became ready | [`task_budget`](crate::EventLoopBuilder::task_budget); while normal ones are ready, high-priority ones get half of it |
/// | 7 | **this-turn callbacks**, including those that these callbacks queue | `callback_budget` |
/// | 8 | [`after_turn`](Self::after_turn) hooks | each once |
///
/// Closures of one priority that one thread sent run in the order of sending. Tasks of one priority
/// that one thread spawned begin in the order of spawning. Tasks that are woken in the same turn
/// run in any order. In builds with debug assertions the environment variable
/// `WAKEFUL_SHUFFLE=seed` (a number) runs those tasks in a random order, and the same seed gives
/// the same order. Run your tests with a few seeds.
///
/// Each of the phases 4 to 7 runs at least a few items, and stops early when the turn has used up
/// its [`turn_budget`](crate::EventLoopBuilder::turn_budget). The remaining items come first in the
/// next turn, and the loop does not sleep in between.
///
/// # What waits for what
/// A flood may keep the loop busy: many ready sockets, one event that wakes a thousand tasks, tasks
/// that always yield, connections that always have data, posts of other threads, or callbacks that
/// queue themselves. All other work still takes its next step within this number of turns:
///
/// | what | when |
/// |---|---|
/// | a timer that is due | its waker is called in the next turn; of *n* that are due, the last in the ⌈*n* / `timer_budget`⌉th |
/// | a socket that is ready | its waker is called in the next turn; after *n* others that were ready before, in the ⌈(*n* + 1) / `io_batch`⌉th |
/// | a high-priority socket | its waker is called in the next turn; after *n* other high-priority ones, in the ⌈(*n* + 1) / `io_batch`⌉th |
/// | a post or wake of another thread | taken in the next turn |
/// | a task or closure that is ready | after *n* others that were ready before, in the ⌈(*n* + 1) / `task_budget`⌉th turn |
/// | a high-priority task or closure | in the next turn, or in the current one if phase 6 is not over; after *n* other high-priority ones, in the ⌈2(*n* + 1) / `task_budget`⌉th |
/// | a next-turn callback | in the next turn; after *n* others, in the ⌈(*n* + 1) / `callback_budget`⌉th |
///
/// The event of the loop's wake-up eventfd counts towards `io_batch`. So does the event that
/// announces events of high-priority sockets.
///
/// A turn that is out of time runs eight items of each kind instead of the budget. If a post
/// arrives just before the loop would sleep, the turn takes the post and does not ask the kernel
/// for events. This never happens twice in a row, so events in the kernel are seen one turn later.
///
/// # Threads
/// A loop stays on the thread that built it: it is neither `Send` nor `Sync`. Its
/// [`handle`](Self::handle) is both. Building a loop sets the thread's timer slack to 1 ns
/// (`PR_SET_TIMERSLACK`). The default of 50 µs would delay each timer by up to that much. The
/// setting remains after the loop's end.
///
/// ```compile_fail,E0277
/// let event_loop = wakeful::EventLoop::new().unwrap();
/// std::thread::spawn(move || drop(event_loop)); // not `Send`
/// ```
///
/// # In a task of Tokio
/// [`run`](Self::run) and [`block_on`](Self::block_on) block their thread, and a task of Tokio must
/// not block. Until they return, a current-thread runtime does not advance its timers, sockets and
/// tasks, and `tokio::task::yield_now` may never complete. So run a loop on a thread of its own, or
/// in `tokio::task::spawn_blocking`.
///
/// Channels, locks and join handles of Tokio work even there. For Tokio the whole run is one poll,
/// but with the feature `tokio` the budget of that poll does not apply to the loop. A task that
/// receives from a channel without end does not yield, as on any loop that has no guest: wrap it in
/// [`budgeted`](crate::task::budgeted). Without the feature the budget applies. After 128
/// operations of Tokio's types, each further one waits for the end of the run. To prevent that,
/// call `run` or `block_on` in `tokio::task::unconstrained(async { … })`.
///
/// # Fork
/// A forked child shares the loop's kernel descriptors with its parent, and must not use them. So
/// in the child every method that runs the loop returns an error, its handles return every closure,
/// and dropping the loop does not affect the parent's loop. The child may build a new loop, even if
/// it was forked within a turn. That turn runs no further task, callback or hook in the child. Data
/// that was read into memory before the fork exists in both processes. A task that continues in the
/// child until its next `await` may still write to the parent's sockets. So call `fork` before you
/// build the loop, or directly before `exec`.
///
/// Dropping the loop in the child drops neither its tasks' futures nor its callbacks, hooks and
/// posted closures. They may own locks, channels and guards that another thread of the parent was
/// using at the fork, and the child would wait for that thread for ever. Their memory stays
/// allocated until the child ends. For the same reason, wakers of other executors that awaited the
/// loop's tasks, sockets and timers in the parent are neither called nor dropped.
///
/// Dropping the loop closes the child's copies of the loop's connections and other sockets, even of
/// sockets that its tasks do not own. Each further use of such a socket is an error. To keep a
/// socket, take it off the loop first, with `into_std`. Listeners that are shared with other loops,
/// and other files that the tasks own, stay open until the child ends or calls `exec`.
///
/// A child that was forked on a thread of this crate (of a [`LoopGroup`](crate::LoopGroup), or of
/// the pool for blocking work) ends when that thread's loop or closure returns, unless it has
/// started other threads. Destructors of thread-locals do not run on that thread. A child that was
/// forked on a thread of the program's own, other than the main thread, and has used a loop, must
/// call `exit` or `_exit`: if that thread only returns, a thread of the pool keeps the process.
///
/// The standard library takes a lock in each thread that starts or ends. If a process forks at that
/// moment, each thread that the child starts waits for ever. A fork waits for such threads of this
/// crate, but not for those that your program starts, or that Tokio starts. So start and end those
/// threads at other times, or start no thread in the child.
///
/// A handler of `pthread_atfork(3)` detects the fork. A bare `clone(2)` and `_Fork(3)` call no such
/// handler: then only [`run`](Self::run) and [`block_on`](Self::block_on) detect the child, by its
/// process id. All other operations in such a child, including the drop of the loop, still reach
/// the parent's descriptors: call `exec` or `_exit` at once.
///
/// # The end
/// Dropping the loop drops all its futures, closures and callbacks on its thread, even if wakers of
/// its tasks still exist. Awaiting a handle of such a task returns an error that [is
/// cancelled](crate::JoinError::is_cancelled).
///
/// The destructors that run then may spawn tasks and add callbacks. These never run, and are
/// dropped before the drop of the loop returns. If destructors add over 10,000 more of them than
/// the loop had, the loop leaks the rest, and logs an error.
pub struct EventLoop {
    pub(super) inner: Rc<Inner>,
    #[cfg(feature = "tokio")]
    pub(super) guest: Option<Box<crate::guest::Runtime>>,
}

impl EventLoop {
    /// Returns the handle by which other threads and signal handlers reach this loop.
    #[must_use]
    pub fn handle(&self) -> LoopHandle {
        self.inner.handle.clone()
    }

    /// Runs turns until [`stop`](Self::stop) is called, here or through a handle. If `stop` was
    /// called earlier, `run` takes one turn without waiting. Closures that a thread sent before it
    /// called `stop` still run, within the turn's budget.
    ///
    /// # Errors
    /// A loop is already running on this thread; the process was forked since the loop was built;
    /// the kernel returned an error instead of events; or Tokio is a guest and the thread is
    /// ending.
    pub fn run(&mut self) -> io::Result<()> {
        let _entered = self.enter_to_run()?;
        #[cfg(feature = "tokio")]
        let _beside = self.inner.settings.tokio.enter_beside();
        self.inner.stopwatch.skip();
        #[cfg(feature = "tokio")]
        if let Some(guest) = &self.guest {
            guest.check_thread()?;
            return super::as_guest::run(&self.inner, guest);
        }
        coop::without_tokio_s_budget(|| {
            while !self.inner.handle.take_stop() {
                self.inner.turn(None)?;
            }
            // Messages sent before the stop are taken, and run as far as one turn goes.
            self.inner.turn(Some(Duration::ZERO))
        })
    }

    /// Runs turns until `future` is done, and returns its output. The future may borrow, and need
    /// not be `Send`.
    ///
    /// Spawned tasks continue in the next `run` or `block_on`. A [`stop`](Self::stop) during this
    /// call does not end it, but ends the next `run`.
    ///
    /// # Errors
    /// The same as for [`run`](Self::run).
    ///
    /// # Panics
    /// If the future panics.
    #[track_caller]
    pub fn block_on<F: Future>(&mut self, future: F) -> io::Result<F::Output> {
        let _entered = self.enter_to_run()?;
        #[cfg(feature = "tokio")]
        let _beside = self.inner.settings.tokio.enter_beside();
        let called_at = Location::caller();
        self.inner.stopwatch.skip();
        #[cfg(feature = "tokio")]
        if let Some(guest) = &self.guest {
            guest.check_thread()?;
            return super::as_guest::block_on(&self.inner, guest, future, called_at);
        }
        let root = Root::new(self.inner.handle.queue().clone());
        let waker = root.clone().into();
        let mut cx = Context::from_waker(&waker);
        let mut future = pin!(future);
        coop::without_tokio_s_budget(|| {
            loop {
                if root.take_woken() {
                    let _ration = coop::ration(self.inner.settings.cooperative_budget);
                    let polled = future.as_mut().poll(&mut cx);
                    self.inner.stopwatch.polled_root(called_at);
                    if let Poll::Ready(output) = polled {
                        return Ok(output);
                    }
                }
                self.inner.turn(None)?;
            }
        })
    }

    /// Calls `f` as code of this loop, before its turns. However long `f` takes, it does not count
    /// as a slow turn.
    ///
    /// # Errors
    /// A loop is already running on this thread; or the process was forked since the loop was
    /// built.
    pub(crate) fn prepare<R>(&mut self, f: impl FnOnce() -> R) -> io::Result<R> {
        let _entered = self.enter_to_run()?;
        Ok(f())
    }

    /// Makes the current [`run`](Self::run), or the next one, end after its turn.
    pub fn stop(&self) {
        self.inner.handle.stop();
    }

    /// Takes one turn (see [the phases](Self#a-turn)). If nothing is runnable, it waits for up to
    /// `max_wait`: `Some(Duration::ZERO)` does not wait, `None` waits until something happens. A
    /// signal does not shorten a wait with a limit. With `None` a signal may make the call return
    /// with nothing done.
    ///
    /// A task of another loop may call it, to embed this loop in that one.
    ///
    /// # Errors
    /// The process was forked since the loop was built; the kernel returned an error instead of
    /// events; or Tokio is a guest of this loop.
    pub fn turn(&mut self, max_wait: Option<Duration>) -> io::Result<()> {
        self.check_who_sleeps()?;
        self.inner.handle.process().check_quickly()?;
        keep_a_thread(self.inner.handle.process());
        let _entered = current::enter(&self.inner);
        #[cfg(feature = "tokio")]
        let _beside = self.inner.settings.tokio.enter_beside();
        look_after_errands(self.inner.handle.process());
        self.inner.stopwatch.skip();
        let _foreign = ForeignTurn::enter(&self.inner);
        self.inner.turn(max_wait)
    }

    /// Prepares this loop for a wait in another library's loop, and returns whether to wait.
    ///
    /// If it returns `true`, nothing is runnable. From now until the next [`turn`](Self::turn), the
    /// loop's descriptor ([`AsFd`]) becomes readable as soon as there is work: an event, a timer
    /// that is due, a push from another thread. Wait for that, then take a turn. If it returns
    /// `false`, take a turn first.
    ///
    /// `true` holds only until the next turn: a wait after that turn may miss wakes. Watch the
    /// descriptor level-triggered, as `poll(2)` does: a turn takes one batch of events, and there
    /// is no new edge for the remaining ones. Once readable, the descriptor stays readable until
    /// the next turn. (`examples/calloop` runs a loop inside another library's loop.)
    ///
    /// If nothing is runnable, the [`before_park`](Self::before_park) hooks run first. If they
    /// queue work, the result is `false`.
    ///
    /// A signal may end the other loop's wait (EINTR) while the descriptor is not readable. Then
    /// either wait again, or take a turn.
    ///
    /// ```
    /// use std::time::Duration;
    /// use rustix::event::{PollFd, PollFlags, poll};
    /// use rustix::io::retry_on_intr;
    ///
    /// # fn main() -> std::io::Result<()> {
    /// let mut event_loop = wakeful::EventLoop::new()?;
    /// let task = event_loop.spawn(wakeful::time::sleep(Duration::from_millis(1)));
    /// while !task.is_finished() {
    ///     if event_loop.prepare_to_park()? {
    ///         // Here would stand the other loop's own wait, with its own descriptors.
    ///         let mut fds = [PollFd::new(&event_loop, PollFlags::IN)];
    ///         retry_on_intr(|| poll(&mut fds, None))?;
    ///     }
    ///     event_loop.turn(Some(Duration::ZERO))?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The process was forked since the loop was built; the first call cannot create a timerfd (no
    /// descriptors are left); or Tokio is a guest of this loop.
    pub fn prepare_to_park(&mut self) -> io::Result<bool> {
        self.check_who_sleeps()?;
        let _entered = current::enter(&self.inner);
        self.inner.prepare_to_park()
    }

    /// A loop with Tokio as its guest can only be run by `run` or `block_on`, because Tokio owns
    /// the sleep.
    #[inline]
    fn check_who_sleeps(&self) -> io::Result<()> {
        #[cfg(feature = "tokio")]
        if self.guest.is_some() {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "a loop that has Tokio as its guest cannot be driven by another loop: use `run` or `block_on`",
            ));
        }
        Ok(())
    }

    /// Spawns a task on this loop. The task makes progress only while the loop runs.
    #[track_caller]
    pub fn spawn<F: Future + 'static>(&self, future: F) -> JoinHandle<F::Output> {
        self.spawn_with(Priority::Normal, future)
    }

    /// Like [`spawn`](Self::spawn), with this [`Priority`].
    #[track_caller]
    pub fn spawn_with<F: Future + 'static>(
        &self,
        priority: Priority,
        future: F,
    ) -> JoinHandle<F::Output> {
        self.inner.spawn(priority, future)
    }

    /// Runs `callback` at the end of this turn, or of the next turn if none is running. See
    /// [`wakeful::run_this_turn`](crate::run_this_turn).
    pub fn run_this_turn(&self, callback: impl FnOnce() + 'static) {
        self.inner.run_this_turn(callback);
    }

    /// Runs `callback` in the next turn. See [`wakeful::run_next_turn`](crate::run_next_turn).
    pub fn run_next_turn(&self, callback: impl FnOnce() + 'static) {
        self.inner.run_next_turn(callback);
    }

    /// Runs `callback` each time the loop is about to wait. See
    /// [`wakeful::before_park`](crate::before_park).
    pub fn before_park(&self, callback: impl FnMut() + 'static) -> Hook {
        self.inner.callbacks.before_park(callback)
    }

    /// Runs `callback` at the end of every turn. See [`wakeful::after_turn`](crate::after_turn).
    pub fn after_turn(&self, callback: impl FnMut() + 'static) -> Hook {
        self.inner.callbacks.after_turn(callback)
    }

    /// See [`Inner::look_every`].
    pub(crate) fn look_every(&self, time: Duration, look: impl Fn(Spent) + 'static) {
        self.inner.look_every(time, look);
    }

    /// See [`Inner::observe_sleep`].
    pub(crate) fn observe_sleep<'a>(
        &self,
        observer: Box<dyn SleepObserver>,
        alarms: impl IntoIterator<Item = &'a Timer>,
    ) -> io::Result<()> {
        self.inner.observe_sleep(observer, alarms)
    }

    fn enter_to_run(&self) -> io::Result<Running<'_>> {
        // In a child that was forked within a turn, the parent's loop is still the current one. It
        // does not count.
        if current().is_some_and(|outer| !outer.handle.process().is_forked()) {
            return Err(io::Error::other(
                "an event loop is already running on this thread: await the future, or spawn it, \
                 instead of running a loop inside a loop",
            ));
        }
        self.inner.handle.process().check()?;
        keep_a_thread(self.inner.handle.process());
        self.inner.enter_turn();
        let running = Running { inner: &self.inner, _entered: current::enter(&self.inner) };
        look_after_errands(self.inner.handle.process());
        Ok(running)
    }
}

/// A `run` or a `block_on` in progress. After its end, the loop takes no turns.
struct Running<'a> {
    inner: &'a Inner,
    _entered: current::Entered<'a>,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.inner.leave_cpu();
    }
}

/// A turn that another event loop drives. When the next one comes is unknown.
struct ForeignTurn<'a>(&'a Inner);

impl<'a> ForeignTurn<'a> {
    #[inline]
    fn enter(inner: &'a Inner) -> Self {
        inner.enter_turn();
        Self(inner)
    }
}

impl Drop for ForeignTurn<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.leave_turn();
    }
}

impl AsFd for EventLoop {
    /// Returns the epoll descriptor. Use it only to wait until it is readable, after
    /// [`prepare_to_park`](Self::prepare_to_park) has returned `true`.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.driver.as_fd()
    }
}

impl Drop for EventLoop {
    fn drop(&mut self) {
        #[cfg(feature = "tokio")]
        if let Some(guest) = self.guest.take() {
            self.inner.end_with_tokio(*guest);
            return;
        }
        #[cfg(feature = "tokio")]
        let _beside = self.inner.settings.tokio.enter_beside();
        self.inner.end();
    }
}

impl std::fmt::Debug for EventLoop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EventLoop")
            .field("tasks", &self.inner.local.tasks())
            .field("ready", &self.inner.local.ready())
            .field("timers", &self.inner.timers.borrow().len())
            .field("descriptors", &self.inner.driver.registered())
            .finish_non_exhaustive()
    }
}
