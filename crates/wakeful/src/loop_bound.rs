//! A value that belongs to its loop's thread, in a type that is `Send`.
//!
//! Frameworks require requests and handlers to be `Send`, and some of them move a request to
//! another thread. So a value in a request must survive that: it cannot be used on another thread,
//! and if it is dropped there, it is sent to its own loop. `SendWrapper` compares threads before
//! each use, and has the unsafe code.

use std::fmt;
use std::mem;

use send_wrapper::SendWrapper;

use crate::event_loop::LoopHandle;
use crate::sys::once_per_second::OncePerSecond;
use crate::sys::panics;

/// A value that belongs to one loop, in a type that is `Send` and `Sync`.
///
/// Use it to keep a value that is not `Send` (a socket, a client, an `Rc`) in a place that requires
/// `Send`, such as the extensions of a request, or a body. The value never leaves the thread of its
/// loop: [`get`](Self::get) returns it only there.
///
/// For a future, use [`on_this_loop`](crate::on_this_loop). For one value per loop, use
/// [`PerLoop`](crate::PerLoop).
///
/// ```
/// use std::rc::Rc;
/// use wakeful::LoopBound;
///
/// wakeful::block_on(async {
///     let bound = LoopBound::new(Rc::new(42));
///     assert_eq!(bound.get().map(|value| **value), Some(42));
///     let bound = std::thread::spawn(move || {
///         assert!(bound.get().is_none(), "another thread");
///         bound
///     });
///     let bound = bound.join().expect("no panic");
///     assert_eq!(bound.into_inner().ok().as_deref(), Some(&42));
/// });
/// ```
///
/// # Threads
/// If a `LoopBound` is dropped on another thread, the value is sent to its loop, and dropped there.
/// If the loop has ended by then, or this process is a fork, no thread may drop the value: it
/// leaks, and a line is logged, once a second at most.
pub struct LoopBound<T: 'static> {
    /// `None` only during the drop.
    value: Option<SendWrapper<T>>,
    home: LoopHandle,
}

impl<T> LoopBound<T> {
    /// Binds `value` to the loop of this thread.
    ///
    /// # Panics
    /// If no loop runs on this thread.
    #[must_use]
    #[track_caller]
    pub fn new(value: T) -> Self {
        Self::with_home(value, LoopHandle::current())
    }

    /// Binds `value` to this thread and to `home`, a loop of this thread. The loop need not be
    /// running.
    ///
    /// If `home` is a loop of another thread, the value can be used only on this thread, and leaks
    /// if it is dropped elsewhere.
    #[must_use]
    pub fn with_home(value: T, home: LoopHandle) -> Self {
        Self { value: Some(SendWrapper::new(value)), home }
    }

    /// Returns a reference to the value on its loop's thread, and `None` on any other thread.
    #[must_use]
    pub fn get(&self) -> Option<&T> {
        self.value.as_ref().filter(|value| value.valid()).map(|value| &**value)
    }

    /// Returns a mutable reference to the value on its loop's thread, and `None` on any other
    /// thread.
    #[must_use]
    pub fn get_mut(&mut self) -> Option<&mut T> {
        self.value.as_mut().filter(|value| value.valid()).map(|value| &mut **value)
    }

    /// Returns the value itself, if this is its loop's thread.
    ///
    /// # Errors
    /// This is not the thread of the value's loop. The error returns `self`.
    pub fn into_inner(mut self) -> Result<T, Self> {
        match self.value.take_if(|value| value.valid()) {
            Some(value) => Ok(value.take()),
            None => Err(self),
        }
    }

    /// Returns the handle of the value's loop.
    #[must_use]
    pub fn home(&self) -> &LoopHandle {
        &self.home
    }
}

impl<T> Drop for LoopBound<T> {
    fn drop(&mut self) {
        let Some(value) = self.value.take() else { return };
        if value.valid() {
            return drop(value);
        }
        let on_its_way = OnItsWay(Some(value));
        if self.home.post(move || drop(on_its_way)).is_err() && mem::needs_drop::<T>() {
            leaked::<T>();
        }
    }
}

/// A value that was dropped on another thread, on the way to its loop. A loop that has ended
/// returns the closure with the value, and a loop that ends drops it.
struct OnItsWay<T>(Option<SendWrapper<T>>);

impl<T> Drop for OnItsWay<T> {
    fn drop(&mut self) {
        match self.0.take() {
            Some(value) if value.valid() => drop(value),
            // This is another thread, and the loop's thread is gone. So the value is leaked,
            // because no thread may drop it.
            elsewhere => mem::forget(elsewhere),
        }
    }
}

#[cold]
fn leaked<T>() {
    static LIMIT: OncePerSecond = OncePerSecond::new();
    let Some(count) = LIMIT.pass() else { return };
    panics::log!(
        warn,
        of = std::any::type_name::<T>(),
        count,
        "a value of an event loop was dropped on another thread after the loop's end, and leaks. Drop it before, or on \
         the loop"
    );
}

impl<T: fmt::Debug> fmt::Debug for LoopBound<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.get() {
            Some(value) => value.fmt(f),
            None => f.write_str("(of another thread)"),
        }
    }
}
