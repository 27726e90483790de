//! A value that belongs to its loop's thread, in a type that is `Send` in fact.
//!
//! Frameworks ask for requests and handlers that are `Send`, and some of them move a request to
//! another thread. So what a request carries must survive that: used elsewhere it says so, and
//! dropped elsewhere it goes home.

use std::fmt;
use std::mem::ManuallyDrop;

use send_wrapper::SendWrapper;
use wakeful::LoopHandle;

/// See the module's documentation.
pub(crate) struct LoopBound<T: 'static> {
    /// `None` only while it is dropped.
    value: Option<SendWrapper<T>>,
    home: LoopHandle,
}

impl<T> LoopBound<T> {
    /// `home` is the loop of this thread.
    pub(crate) fn new(value: T, home: LoopHandle) -> Self {
        Self { value: Some(SendWrapper::new(value)), home }
    }

    /// Returns the value, or `None` on another thread.
    pub(crate) fn get(&self) -> Option<&T> {
        self.value.as_ref().filter(|value| value.valid()).map(|value| &**value)
    }

    /// As [`get`](Self::get).
    pub(crate) fn get_mut(&mut self) -> Option<&mut T> {
        self.value.as_mut().filter(|value| value.valid()).map(|value| &mut **value)
    }
}

impl<T> Drop for LoopBound<T> {
    fn drop(&mut self) {
        let Some(value) = self.value.take() else { return };
        if value.valid() {
            return drop(value);
        }
        // If the loop has ended there is no thread that may drop the value: it leaks.
        let value = ManuallyDrop::new(value);
        let _ = self.home.post(move || drop(ManuallyDrop::into_inner(value)));
    }
}

impl<T: fmt::Debug> fmt::Debug for LoopBound<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.get() {
            Some(value) => value.fmt(f),
            None => f.write_str("(of another thread)"),
        }
    }
}
