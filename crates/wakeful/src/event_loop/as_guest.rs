//! A loop that has Tokio as its guest: it is the root future of the thread's Tokio runtime, which
//! owns the sleep.
//!
//! A poll of the root future polls the user's future if that was woken, and takes one turn, which
//! does not wait. It asks the kernel only if Tokio says that the loop's epoll has something, or a
//! timer is due. If anything is left then, the root future wakes itself: Tokio's tasks, sockets and
//! timers have their turn in between. Otherwise [`may_park`](super::may_park) decides, as before
//! every sleep, and the queue is marked asleep until the next poll. So other threads ring the bell,
//! which is in the loop's epoll, which is in Tokio's. Code on this thread wakes the root future
//! instead (`task::hosted`).
//!
//! # Tokio's budget
//! Tokio gives each poll of the root future 128 operations, and all tasks of a turn share them.
//! When none is left, the turn's phase 6 is over. If the user's future has used all of them, a
//! whole turn comes before its next poll. If high-priority tasks have used all of them, a normal
//! task comes first in the next turn. If callbacks have, tasks come before them there.
//!
//! # The edge
//! Tokio watches the loop's epoll edge-triggered. The loop clears Tokio's readiness only when a
//! wait has brought all events that there were. That is so if the wait brought less than a batch.
//! If the epoll has a level-triggered descriptor, the wait must have brought nothing, because such
//! a descriptor stays ready without another edge.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::io;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use ::tokio::task::coop::has_budget_remaining;

use super::current::while_guest_goes_on;
use super::inner::Inner;
use crate::driver::epoll::Timeout;
use crate::guest::{Hooks, Runtime};
use crate::sys::panics;
use crate::task::coop;

mod idle;

pub(super) const HOOKS: Hooks =
    Hooks { before_park: idle::before_park, after_park: idle::after_park };

/// Runs the loop of `inner`, which is entered, until `look` is ready. `look` is called before each
/// turn. `None`: `look` has nothing to do.
#[track_caller]
fn drive<T>(
    inner: &Inner,
    runtime: &Runtime,
    state: &State,
    mut look: impl FnMut(&mut Context<'_>) -> Option<Poll<T>>,
) -> io::Result<T> {
    let _in_host = inner.local.enter_host();
    inner.guest_idle.begins();
    let root = poll_fn(|cx| inner.poll_as_guest(runtime, state, &mut look, cx));
    runtime.block_on(root)
}

/// What one poll of the root future leaves for the next poll.
#[derive(Debug, Default)]
struct State {
    /// The last poll had no operations left for a turn.
    owes_turn: Cell<bool>,
    /// This is a `run`, which a stop ends.
    is_run: bool,
    #[cfg(feature = "test-util")]
    told: super::guest_clock::Told,
}

/// See [`EventLoop::run`](super::EventLoop::run).
pub(super) fn run(inner: &Inner, runtime: &Runtime) -> io::Result<()> {
    let stopped = |_: &mut Context<'_>| match inner.handle.take_stop() {
        true => Some(Poll::Ready(())),
        false => None,
    };
    let state = State { is_run: true, ..State::default() };
    let driven = catch_unwind(AssertUnwindSafe(|| {
        drive(inner, runtime, &state, stopped)?;
        runtime.block_on(last_turn(inner))
    }));
    // A turn contains the panics in it. This panic comes out of Tokio itself, for example because a
    // waker of another executor has panicked there.
    driven.unwrap_or_else(|payload| {
        runtime.breaks();
        let panic = panics::message(&*payload).unwrap_or("not a text").to_owned();
        panics::swallow(payload);
        Err(io::Error::other(format!(
            "this loop's Tokio runtime has panicked, and cannot continue: {panic}. Possible causes: a waker that panics \
             when Tokio calls it; a task that holds a guard of `Handle::enter` across an await"
        )))
    })
}

/// Messages sent before the stop are taken, and run as far as one turn goes. Outside of a poll by
/// Tokio there is no budget, so a task that Tokio never lets wait would not return.
fn last_turn(inner: &Inner) -> impl Future<Output = io::Result<()>> {
    let mut is_taken = false;
    poll_fn(move |cx| {
        if is_taken {
            return Poll::Ready(Ok(()));
        }
        inner.turn(Some(Duration::ZERO))?;
        is_taken = true;
        // Before the next poll Tokio wakes the tasks that yielded to it. They go on in the next
        // run.
        cx.waker().wake_by_ref();
        Poll::Pending
    })
}

/// See [`EventLoop::block_on`](super::EventLoop::block_on).
#[track_caller]
pub(super) fn block_on<F: Future>(
    inner: &Inner,
    runtime: &Runtime,
    future: F,
    called_at: &'static Location<'static>,
) -> io::Result<F::Output> {
    // When `drive` returns or unwinds, Tokio's own guard is gone. What the future still owns may
    // need the runtime in its drop, so this guard outlives the future.
    let _context = runtime.enter();
    let mut future = pin!(future);
    let mut woken: Option<(Arc<Woken>, Waker)> = None;
    drive(inner, runtime, &State::default(), |cx| {
        let (woken, waker) = woken.get_or_insert_with(|| {
            let woken = Arc::new(Woken { woken: true.into(), root: cx.waker().clone() });
            (woken.clone(), woken.into())
        });
        if !woken.take() {
            return None;
        }
        let _ration = coop::ration(inner.settings.cooperative_budget);
        let polled = future.as_mut().poll(&mut Context::from_waker(waker));
        inner.stopwatch.polled_root(called_at);
        Some(polled)
    })
}

/// Whether the user's future was woken, and not only the root future.
struct Woken {
    woken: AtomicBool,
    root: Waker,
}

impl Woken {
    fn take(&self) -> bool {
        // A wake that comes after this check wakes the root future again.
        self.woken.load(Ordering::Relaxed) && self.woken.swap(false, Ordering::Acquire)
    }
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // The flag is set first, so that the poll that the wake causes sees it.
        if !self.woken.swap(true, Ordering::AcqRel) {
            self.root.wake_by_ref();
        }
    }
}

impl Inner {
    fn poll_as_guest<T>(
        &self,
        runtime: &Runtime,
        state: &State,
        look: &mut dyn FnMut(&mut Context<'_>) -> Option<Poll<T>>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        self.handle.process().check_quickly()?;
        self.local.know_host(cx.waker());
        if self.guest_idle.takes_round() && self.local.is_asleep() {
            match look(cx) {
                None if self.is_quiet(runtime, cx) => return Poll::Pending,
                Some(Poll::Ready(output)) => return Poll::Ready(Ok(output)),
                None | Some(Poll::Pending) => {}
            }
        }
        self.end_permission();
        // Tokio's tasks ran since the last poll.
        self.stopwatch.skip();
        let owed_turn = state.owes_turn.take();
        if !owed_turn {
            if let Some(Poll::Ready(output)) = look(cx) {
                return Poll::Ready(Ok(output));
            }
            if !has_budget_remaining() {
                state.owes_turn.set(true);
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
        // The wake that caused this poll may have been for the user's future.
        let is_left = self.turn_as_guest(runtime, state, cx)?;
        // If a stop came after the check, this turn has consumed its wake. So the root future wakes
        // itself.
        let stops = state.is_run && self.handle.has_stop();
        if is_left || owed_turn || stops {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }

    /// Does neither the kernel nor the loop itself have work for the loop? Work from other threads
    /// rings the bell.
    fn is_quiet(&self, runtime: &Runtime, cx: &mut Context<'_>) -> bool {
        runtime.poll_readable(cx).is_pending() && !self.driver.has_left_over() && !self.work().any()
    }

    /// Takes a turn. `true`: there is more to do. `false`: the queue is marked asleep, and new work
    /// wakes the root future.
    fn turn_as_guest(
        &self,
        runtime: &Runtime,
        #[cfg_attr(not(feature = "test-util"), allow(unused_variables))] state: &State,
        cx: &mut Context<'_>,
    ) -> io::Result<bool> {
        let readable = match runtime.poll_readable(cx) {
            Poll::Ready(readable) => Some(readable?),
            Poll::Pending => None,
        };
        let brought_all = Cell::new(false);
        let wait = || {
            if readable.is_none() && !self.driver.has_left_over() && !self.work().due_timers {
                return Ok(());
            }
            if self.next_deadline().is_some() {
                // Timers that are due by now should expire in this turn.
                self.now();
            }
            let left_over = self.driver.has_left_over();
            let events = self.ask(Timeout::Zero)?;
            let most = if self.driver.has_level_triggered() { 1 } else { self.driver.batch() };
            brought_all.set(!left_over && !self.driver.was_interrupted() && events < most);
            Ok(())
        };
        // A child that was forked in this turn gets an error here, and must not touch the
        // descriptors.
        self.turn_by(wait, Some(has_budget_remaining))?;
        // From here on Tokio's tasks run, not the loop's.
        self.local.runs_no_node();
        if let Some(readable) = readable {
            if !brought_all.get() {
                return Ok(true);
            }
            readable.take_back();
            // `poll_readable` is never ready here, because Tokio updates the readiness only outside
            // of this poll.
            if runtime.poll_readable(cx).is_ready() {
                return Ok(true);
            }
        }
        if !self.may_foreign_loop_wait()? {
            return Ok(true);
        }
        self.arm_timer(None).inspect_err(|_| self.end_permission())?;
        #[cfg(feature = "test-util")]
        if self.tell_guest(&state.told, cx).is_ready() {
            self.end_permission();
            return Ok(true);
        }
        Ok(false)
    }

    /// The end of a loop that has Tokio as its guest, on its thread. The runtime ends last.
    pub(super) fn end_with_tokio(self: &std::rc::Rc<Self>, runtime: Runtime) {
        let entered = runtime.enter();
        self.end();
        drop(entered);
        while_guest_goes_on(|| {
            // If the runtime cannot be entered, its drop panics, too.
            panics::contain(|| runtime.end());
        });
    }
}
