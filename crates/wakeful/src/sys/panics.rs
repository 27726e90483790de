//! Contains panics of code that nobody awaits: callbacks, closures, wakers, drops and log
//! subscribers.
//!
//! All of these may be user code. A panic in a destructor that runs because of another panic aborts
//! the process, as everywhere in Rust. This module cannot change that.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::task::Waker;

use super::once_per_second::OncePerSecond;

thread_local! {
    /// The function that counts a panic on the loop of this thread. (This is no `OnceLock`. A child
    /// that was forked while another thread set it would wait for ever.)
    static COUNTER: Cell<Option<fn()>> = const { Cell::new(None) };
}

/// Has `count` called for each panic that is contained on this thread from now on.
pub(crate) fn count_by(count: fn()) {
    COUNTER.set(Some(count));
}

/// Runs `f`, and contains a panic in it. The panic hook reports the panic, and the loop of this
/// thread counts it. Returns whether `f` ran to its end.
pub(crate) fn contain(f: impl FnOnce()) -> bool {
    let ended = catch_unwind(AssertUnwindSafe(f));
    ended.map_err(swallow).is_ok()
}

/// Drops `value`, and contains a panic in its destructor.
pub(crate) fn discard<T>(value: T) {
    contain(|| drop(value));
}

/// Drops each of `values` separately, because two panics within one collection's destructor would
/// abort the process.
pub(crate) fn discard_each<T>(values: impl IntoIterator<Item = T>) {
    values.into_iter().for_each(discard);
}

/// Wakes `waker` and drops it. Contains a panic of the wake, and one of the drop. In `Waker::wake`
/// the second one could come during the first, which would abort the process.
pub(crate) fn wake(waker: Waker) {
    contain(|| waker.wake_by_ref());
    discard(waker);
}

/// Swallows a panic that nobody is told of. The loop of this thread counts it.
#[cold]
pub(crate) fn swallow(payload: Box<dyn Any + Send>) {
    if let Some(count) = COUNTER.get() {
        count();
    }
    advise(&*payload);
    if let Err(another) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        // The destructor of this payload may panic with another one, and so on without end.
        std::mem::forget(another);
    }
}

/// Logs at a level of `tracing`, and contains a panic in the subscriber, which is user code.
macro_rules! log {
    ($level:ident, $($event:tt)+) => {
        { $crate::sys::panics::contain(|| ::tracing::$level!($($event)+)); }
    };
}
pub(crate) use log;

/// Takes the lock, unless another thread has it. A lock that a panic has poisoned counts as free,
/// so what it guards must be valid at every moment.
pub(crate) fn try_lock<T: ?Sized>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Logs what to do about a panic of a Tokio type that found no runtime, or the wrong kind, at most
/// once a second.
#[cold]
pub(crate) fn advise(payload: &(dyn Any + Send)) {
    let Some(message) = message(payload) else { return };
    let Some(advice) = advice(message) else { return };
    static LIMIT: OncePerSecond = OncePerSecond::new();
    let Some(count) = LIMIT.pass() else { return };
    log!(error, panic = message, count, "{advice}");
}

/// Tokio's messages are "there is no reactor running, must be called from the context of a Tokio
/// 1.x runtime" and "no timer running"; and with a runtime, "A Tokio 1.x context was found, but it
/// is being shutdown" and "..., but timers are disabled".
fn advice(message: &str) -> Option<&'static str> {
    if message.contains("Tokio") && message.contains("context was found, but") {
        return Some(
            "a task used Tokio's I/O, timers or spawn, but the Tokio runtime of this loop's tasks has ended, or was built without \
             them. A runtime for `tokio_handle` must be built with `enable_all`, and has to outlive the loops",
        );
    }
    let has_none = message.contains("no reactor running")
        || message.contains("Tokio")
            && (message.contains("context") || message.contains("runtime"));
    has_none.then_some(
        "a task used Tokio's I/O, timers or spawn, but no Tokio runtime runs on this loop. Run Tokio on each loop (feature \
         `tokio`: `LoopGroupBuilder::tokio`, `Server::tokio`, `wakeful::tokio::block_on`), or give the loops a runtime of your own \
         (`LoopGroupBuilder::tokio_handle`, `Server::tokio_handle`), or use `wakeful::net`, `wakeful::time` and `wakeful::spawn`",
    )
}

/// The text of a panic, if it has one.
pub(crate) fn message(payload: &(dyn Any + Send)) -> Option<&str> {
    payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
}
