//! The loop of this thread.

#[cfg(feature = "tokio")]
use std::cell::Cell;
use std::cell::RefCell;
use std::marker::PhantomData;
use std::rc::Rc;
use std::task::Waker;
use std::time::Duration;

use super::inner::Inner;
use crate::heartbeat::{Running, WorkText};
use crate::metrics::SlowWork;
use crate::sys::panics;
use crate::task::{Attempts, local};

thread_local! {
    static CURRENT: RefCell<Option<Rc<Inner>>> = const { RefCell::new(None) };
}

/// The loop whose turn runs on this thread, if there is one. `None` also while the thread ends.
#[inline]
pub(crate) fn current() -> Option<Rc<Inner>> {
    CURRENT.try_with(|current| current.borrow().clone()).ok().flatten()
}

/// Calls `ask` with the loop whose turn runs on this thread, if there is one. `ask` must not call
/// user code.
#[inline]
pub(crate) fn of_current<R>(ask: impl FnOnce(&Inner) -> R) -> Option<R> {
    CURRENT.try_with(|current| current.borrow().as_deref().map(ask)).ok().flatten()
}

/// Has the loop whose turn runs on this thread wake `waker` after `time`. `false`: there is none.
pub(super) fn wake_after(time: Duration, waker: Waker) -> bool {
    let here = current().filter(|inner| !inner.handle().process().is_forked());
    let Some(inner) = here else {
        panics::discard(waker);
        return false;
    };
    let at = inner.clock().now() + time;
    inner.set_timer(inner.clock().timer_time(at), waker);
    true
}

/// Calls `ask` with the attempts of the loop whose turn runs on this thread, if there is one.
pub(super) fn with_attempts(ask: &mut dyn FnMut(&Attempts)) {
    of_current(|inner| ask(&inner.attempts));
}

/// Gives a name to the work that the running poll has done since the last call in this poll, or
/// since the poll began. If that work was not slow, `name` is not called.
///
/// The report of a [slow turn](crate::EventLoopBuilder::slow_turn) includes the name of the slowest
/// work. `wakeful-http` names each request by method and path. A name that a handler gives replaces
/// the request's name. Work counts as slow if it takes at least an eighth of the threshold of a
/// slow turn.
///
/// A call costs one read of the loop's clock (usually the CPU's time stamp counter), and about 30
/// instructions. Where no loop runs, it does nothing.
///
/// The name goes to the log. If a part of it comes from the network, escape control characters and
/// limit its length.
///
/// ```
/// use wakeful::metrics::name_slow_work;
///
/// # fn render(_: u32) {}
/// # wakeful::block_on(async {
/// for report in 0..3 {
///     render(report);
///     name_slow_work(|| format!("report {report}"));
///     wakeful::task::yield_now().await;
/// }
/// # });
/// ```
#[inline]
pub fn name_slow_work(name: impl FnOnce() -> String) {
    if let Some(work) = of_current(|inner| inner.stopwatch.slow_work()).flatten() {
        name_slow(work, name);
    }
}

#[cold]
fn name_slow(work: SlowWork, name: impl FnOnce() -> String) {
    // `name` is user code, so nothing is borrowed while it runs.
    let name = name();
    if let Some(inner) = current() {
        inner.stopwatch.name(work, name);
    }
}

/// Says what the running poll works on, from this call until the next call or the end of the poll.
/// The supervising process sees this description if it finds this loop
/// [stuck](crate::heartbeat::StuckLoop) meanwhile, or [lists](crate::heartbeat::LoopState) it.
/// wakeful-http makes this call for each request.
///
/// `id` is a number that identifies the work, such as the number of a request. If the last call in
/// the same poll had the same `id`, the description stays, and `describe` is not called. It is not
/// called either if the loop has no heartbeats, or if no loop runs on this thread.
///
/// ```
/// # fn render(_: u64) {}
/// # wakeful::block_on(async {
/// for report in 0..3 {
///     wakeful::heartbeat::working_on(report, |text| {
///         text.add(b"report ");
///         text.add(report.to_string().as_bytes());
///     });
///     render(report);
/// }
/// # });
/// ```
#[inline]
pub fn working_on(id: u64, describe: impl FnOnce(&mut WorkText)) {
    if tell_running(|running| running.is_other_work(id)) == Some(true) {
        // `describe` is user code, so nothing is borrowed while it runs.
        let mut text = WorkText::new();
        describe(&mut text);
        tell_running(|running| running.works_on(id, &text));
    }
}

/// Returns `None` if nobody watches the loop.
#[inline]
fn tell_running<R>(tell: impl FnOnce(&Running) -> R) -> Option<R> {
    of_current(|inner| inner.local.told().map(tell)).flatten()
}

#[track_caller]
pub(super) fn expect_current() -> Rc<Inner> {
    // This is no closure, because a closure would be the caller that a panic names.
    let Some(inner) = current() else {
        let missing = explain_missing(
            "no event loop runs on this thread: call this within `wakeful::block_on`, a task of a loop, \
             or a closure sent by a `LoopHandle`",
        );
        panic!("{missing}")
    };
    inner
}

#[cfg(feature = "tokio")]
thread_local! {
    static GUEST_GOES_ON: Cell<bool> = const { Cell::new(false) };
}

/// Runs `f`, during which tasks of the loop's guest may still run although the loop has ended.
#[cfg(feature = "tokio")]
pub(super) fn while_guest_goes_on(f: impl FnOnce()) {
    let before = GUEST_GOES_ON.replace(true);
    f();
    GUEST_GOES_ON.set(before);
}

/// Has the loop of this thread ended, while tasks of its guest still run? They will be dropped
/// soon.
pub(crate) fn guest_goes_on() -> bool {
    #[cfg(feature = "tokio")]
    let goes_on = GUEST_GOES_ON.get() && current().is_none();
    #[cfg(not(feature = "tokio"))]
    let goes_on = false;
    goes_on
}

/// Explains why there is no current loop. Returns `otherwise`, unless the loop has ended before its
/// guest, or the thread ends. In these cases a loop may still run, but it cannot be found.
#[cold]
pub(crate) fn explain_missing(otherwise: &'static str) -> &'static str {
    match CURRENT.try_with(|_| ()) {
        Ok(()) if guest_goes_on() => {
            "the event loop of this thread has ended. A task of Tokio has called this: Tokio's tasks continue until all \
             loops of the group have ended"
        }
        Ok(()) => otherwise,
        Err(_) => {
            "no event loop can be found on this thread, because the thread ends: this was called in the destructor \
             of a thread-local. Do it before the thread ends, or on another thread"
        }
    }
}

/// Makes `inner` the thread's loop, for tasks and for everything else, until the guard is dropped.
pub(super) fn enter(inner: &Rc<Inner>) -> Entered<'_> {
    // Any time may have passed since the last turn.
    inner.turn_time.set(None);
    // This fails for a loop in a thread-local that ends after `CURRENT` is destroyed, at the end of
    // its thread.
    let outer = CURRENT.try_with(|current| current.replace(Some(inner.clone()))).ok().flatten();
    Entered {
        _tasks: inner.local.enter(),
        #[cfg(feature = "test-util")]
        _in_flight: inner.in_flight.enter(),
        outer,
        _loop: PhantomData,
    }
}

pub(super) struct Entered<'a> {
    _tasks: local::Entered<'a>,
    #[cfg(feature = "test-util")]
    _in_flight: crate::task::InFlightHere<'a>,
    outer: Option<Rc<Inner>>,
    _loop: PhantomData<&'a Inner>,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        let inner = CURRENT.try_with(|current| current.replace(self.outer.take()));
        drop(inner);
    }
}
