//! Values that belong to a future and the calls in it: [`task_local!`](crate::task_local).
//!
//! The value stays in its place: in the scope's future, or in the frame of
//! [`LocalKey::sync_scope`]. While the scope runs, a thread-local points to it. So no poll moves
//! the value, no scope allocates, and there is no run-time borrow that a scope within `with` could
//! conflict with.
//!
//! **Why the pointer is valid.** Only [`LocalKey::enter`] sets it, and the guard restores the
//! previous pointer, even in a panic. The guard borrows the value. It lives in a stack frame of
//! this thread that is older than the frame of any code that reads the pointer, and frames end in
//! reverse order.

use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::ptr;
use std::task::{Context, Poll, ready};
use std::thread;

use crate::sys::panics;

/// Declares task-local values. Each value is visible to the futures and calls that run in its
/// scope.
///
/// ```
/// wakeful::task_local! {
///     /// The id of the request that is handled.
///     pub static REQUEST: u64;
///     static USER: String;
/// }
///
/// async fn log(text: &str) -> String {
///     wakeful::task::yield_now().await;
///     format!("[{}] {text}", REQUEST.get())
/// }
///
/// wakeful::block_on(async {
///     let handled = REQUEST.scope(7, async { log("it works").await });
///     assert_eq!(wakeful::spawn(handled).await.expect("no panic"), "[7] it works");
///     assert!(USER.try_with(|_| ()).is_err(), "outside of a scope");
/// });
/// ```
///
/// Each name is a static of the type [`LocalKey`](crate::task::LocalKey). A task that is spawned in
/// a scope is not part of it: give the spawned future its own scope.
#[macro_export]
macro_rules! task_local {
    () => {};
    ($(#[$attribute:meta])* $visibility:vis static $name:ident: $type:ty; $($rest:tt)*) => {
        $crate::task_local!($(#[$attribute])* $visibility static $name: $type);
        $crate::task_local!($($rest)*);
    };
    ($(#[$attribute:meta])* $visibility:vis static $name:ident: $type:ty) => {
        $(#[$attribute])*
        $visibility static $name: $crate::task::LocalKey<$type> = {
            ::std::thread_local! {
                static SLOT: $crate::task::TaskLocalSlot<$type> = const {
                    $crate::task::TaskLocalSlot::new()
                };
            }
            $crate::task::LocalKey::of(SLOT)
        };
    };
}

/// Where a thread has the pointer to the value. Nobody but this module reads or sets it.
#[doc(hidden)]
pub struct TaskLocalSlot<T>(Cell<*const T>);

impl<T> TaskLocalSlot<T> {
    #[allow(clippy::new_without_default, reason = "for the macro only")]
    #[must_use]
    pub const fn new() -> Self {
        Self(Cell::new(ptr::null()))
    }
}

impl<T> fmt::Debug for TaskLocalSlot<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TaskLocalSlot")
    }
}

/// A task-local value that [`task_local!`](crate::task_local) declares.
///
/// Scopes of one key may be nested. Inside the inner scope the inner value is visible; after it the
/// outer value is visible again, even if the inner scope panics.
///
/// # Threads
/// The value need not be `Sync`. A scope whose value and future are `Send` is `Send`, and may be
/// polled on any thread.
pub struct LocalKey<T: 'static> {
    slot: thread::LocalKey<TaskLocalSlot<T>>,
}

impl<T: 'static> LocalKey<T> {
    /// For the macro.
    #[doc(hidden)]
    #[must_use]
    pub const fn of(slot: thread::LocalKey<TaskLocalSlot<T>>) -> Self {
        Self { slot }
    }

    /// Returns a future that runs `future` with `value` as the task-local value, both in its polls
    /// and while it is dropped.
    ///
    /// ```
    /// # use std::time::Duration;
    /// wakeful::task_local! { static NUMBER: u32; }
    ///
    /// wakeful::block_on(async {
    ///     let sleeps = |number| {
    ///         NUMBER.scope(number, async {
    ///             wakeful::time::sleep(Duration::from_millis(1)).await;
    ///             NUMBER.get()
    ///         })
    ///     };
    ///     // Both run in turns.
    ///     let (one, other) = (wakeful::spawn(sleeps(1)), wakeful::spawn(sleeps(2)));
    ///     assert_eq!((one.await.expect("no panic"), other.await.expect("no panic")), (1, 2));
    /// });
    /// ```
    ///
    /// # Cancel safety
    /// The same as for `future`. The value is dropped after the future.
    pub fn scope<F: Future>(&'static self, value: T, future: F) -> TaskLocalFuture<T, F> {
        TaskLocalFuture { key: self, value: Some(value), future: Some(future) }
    }

    /// Calls `f` with `value` as the task-local value.
    ///
    /// ```
    /// wakeful::task_local! { static NUMBER: u32; }
    ///
    /// let (inner, outer) = NUMBER.sync_scope(1, || {
    ///     (NUMBER.sync_scope(2, || NUMBER.get()), NUMBER.get())
    /// });
    /// assert_eq!((inner, outer), (2, 1));
    /// ```
    ///
    /// # Panics
    /// If `f` panics.
    #[allow(
        clippy::needless_pass_by_value,
        reason = "it lives as long as the scope, as in `scope`"
    )]
    pub fn sync_scope<R>(&'static self, value: T, f: impl FnOnce() -> R) -> R {
        let _entered = self.enter(&value);
        f()
    }

    /// Calls `f` with the value.
    ///
    /// `f` may enter further scopes, of this key too.
    ///
    /// # Panics
    /// If the call is not in a scope of this key. See [`try_with`](Self::try_with).
    #[track_caller]
    pub fn with<R>(&'static self, f: impl FnOnce(&T) -> R) -> R {
        // This is no closure, because a closure would be the caller that a panic names.
        match self.value() {
            Some(value) => f(value),
            None => panic!("{AccessError}"),
        }
    }

    /// Calls `f` with the value, if the call is in a scope of this key.
    ///
    /// # Errors
    /// The call is not in a scope of this key. `f` is not called.
    pub fn try_with<R>(&'static self, f: impl FnOnce(&T) -> R) -> Result<R, AccessError> {
        self.value().map(f).ok_or(AccessError)
    }

    /// Returns a copy of the value.
    ///
    /// # Panics
    /// The same as for [`with`](Self::with).
    #[must_use]
    #[track_caller]
    pub fn get(&'static self) -> T
    where
        T: Clone,
    {
        self.with(T::clone)
    }

    /// Returns the value. The reference must not be kept beyond the call that asks for it.
    fn value<'a>(&'static self) -> Option<&'a T> {
        let value = self.slot.with(|slot| slot.0.get());
        // SAFETY: see the module: it is valid as long as the frame of the guard that set it, which
        // is above those of our callers. These pass it to a closure that cannot keep it.
        unsafe { value.as_ref() }
    }

    fn enter<'a>(&'static self, value: &'a T) -> Entered<'a, T> {
        let outer = self.slot.with(|slot| slot.0.replace(value));
        Entered { key: self, outer, _value: value }
    }
}

impl<T: 'static> fmt::Debug for LocalKey<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalKey").finish_non_exhaustive()
    }
}

/// Its value is the current one until this is dropped. It is never moved out of its frame.
struct Entered<'a, T: 'static> {
    key: &'static LocalKey<T>,
    outer: *const T,
    _value: &'a T,
}

impl<T> Drop for Entered<'_, T> {
    fn drop(&mut self) {
        self.key.slot.with(|slot| slot.0.set(self.outer));
    }
}

pin_project_lite::pin_project! {
    /// The future of [`LocalKey::scope`].
    #[must_use = "futures do nothing unless awaited"]
    pub struct TaskLocalFuture<T: 'static, F> {
        key: &'static LocalKey<T>,
        // `Some` until it is dropped.
        value: Option<T>,
        // `None`: the future was ready, and was dropped.
        #[pin]
        future: Option<F>,
    }

    impl<T: 'static, F> PinnedDrop for TaskLocalFuture<T, F> {
        fn drop(this: Pin<&mut Self>) {
            let mut this = this.project();
            let dropped = catch_unwind(AssertUnwindSafe(|| {
                let _entered = this.value.as_ref().map(|value| this.key.enter(value));
                this.future.set(None);
            }));
            if let Err(payload) = dropped {
                // While it unwinds, a second panic would end the process.
                panics::discard(this.value.take());
                resume_unwind(payload);
            }
        }
    }
}

impl<T: 'static, F: Future> Future for TaskLocalFuture<T, F> {
    type Output = F::Output;

    /// # Panics
    /// If it is polled after it was ready.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let mut this = self.project();
        let _entered = this.value.as_ref().map(|value| this.key.enter(value));
        let future = this.future.as_mut().as_pin_mut();
        let future = future.expect("a scope is not polled again after it was ready");
        let output = ready!(future.poll(cx));
        this.future.set(None);
        Poll::Ready(output)
    }
}

impl<T: fmt::Debug, F> fmt::Debug for TaskLocalFuture<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = f.debug_struct("TaskLocalFuture");
        if let Some(value) = &self.value {
            text.field("value", value);
        }
        text.finish_non_exhaustive()
    }
}

/// The error of [`LocalKey::try_with`] outside a scope of the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "no scope of this task-local value runs here: call this in a future that `LocalKey::scope` runs"
)]
#[non_exhaustive]
pub struct AccessError;

#[cfg(all(test, not(wakeful_loom)))]
mod tests {
    use std::cell::RefCell;
    use std::pin::pin;
    use std::task::Waker;

    use super::*;

    crate::task_local! { static LIST: RefCell<Vec<u32>>; }

    fn note(number: u32) {
        LIST.with(|list| list.borrow_mut().push(number));
    }

    #[test]
    fn a_pointer_is_valid_through_nested_scopes_polls_and_drops() {
        struct Notes;
        impl Drop for Notes {
            fn drop(&mut self) {
                note(4);
            }
        }
        let mut cx = Context::from_waker(Waker::noop());
        let inner = async {
            let _notes = Notes;
            note(1);
            crate::task::yield_now().await;
            LIST.with(|outer| {
                LIST.sync_scope(RefCell::default(), || note(2));
                outer.borrow_mut().push(3);
            });
        };
        let mut scope = pin!(LIST.scope(RefCell::default(), async {
            inner.await;
            LIST.with(RefCell::take)
        }));
        assert!(scope.as_mut().poll(&mut cx).is_pending());
        assert!(LIST.try_with(|_| ()).is_err());
        assert_eq!(scope.as_mut().poll(&mut cx), Poll::Ready(vec![1, 3, 4]));
        let mut dropped = Box::pin(LIST.scope(RefCell::default(), async {
            let _notes = Notes;
            std::future::pending::<()>().await;
        }));
        assert!(dropped.as_mut().poll(&mut cx).is_pending());
        drop(dropped);
    }
}
