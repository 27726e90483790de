//! Panics of wakers and of log subscribers end where they began. A waker may be another executor's,
//! and others wait beside it.

use std::io::IoSlice;
use std::ops::{Deref, DerefMut};
use std::task::Waker;

use bytes::{Buf, Bytes};

/// Runs `f`, and contains a panic in it, which the loop of this thread counts.
pub(crate) use wakeful::log::contained as contain;
pub(crate) use wakeful::task::{Locking, SafeWaker, hold_back_wakers};

/// Wakes `waker`, and contains a panic in it.
pub(crate) fn wake(waker: Waker) {
    contain(|| waker.wake());
}

/// Drops `waker`, and contains a panic in its destructor.
pub(crate) fn discard(waker: Option<Waker>) {
    contain(|| drop(waker));
}

/// Contains a panic in the drop of what it has. Within another panic that would be the end of the
/// process.
///
/// What hyper has of a stream of HTTP/2 may panic there: where a panic has ended the connection (of
/// a body's data, say), h2's lock stays poisoned.
#[derive(Debug)]
pub(crate) struct Contained<T>(
    /// `None` only while it is dropped.
    Option<T>,
);

impl<T> Contained<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Some(value))
    }

    /// `None`: never.
    pub(crate) fn into_inner(mut self) -> Option<T> {
        self.0.take()
    }
}

impl<T> Deref for Contained<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.0.as_ref().expect("it is there until it is dropped")
    }
}

impl<T> DerefMut for Contained<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().expect("it is there until it is dropped")
    }
}

impl<T> Drop for Contained<T> {
    #[inline]
    fn drop(&mut self) {
        if !std::mem::needs_drop::<T>() {
            return;
        }
        if let Some(value) = self.0.take() {
            contain(|| drop(value));
        }
    }
}

/// A body's data. hyper has several pieces of it in a collection, where two that panic in their
/// drop (as `Bytes::from_owner` does if its owner does) would be the end of the process; h2 drops
/// it with its lock held.
impl<T: Buf> Buf for Contained<T> {
    #[inline]
    fn remaining(&self) -> usize {
        (**self).remaining()
    }

    #[inline]
    fn chunk(&self) -> &[u8] {
        (**self).chunk()
    }

    #[inline]
    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        (**self).chunks_vectored(slices)
    }

    #[inline]
    fn advance(&mut self, count: usize) {
        (**self).advance(count);
    }

    #[inline]
    fn copy_to_bytes(&mut self, length: usize) -> Bytes {
        (**self).copy_to_bytes(length)
    }
}

/// Logs at a level of `tracing`, and contains a panic in the subscriber, which is the program's
/// code.
macro_rules! log {
    ($level:ident, $($event:tt)+) => {
        $crate::foreign_code::contain(|| ::tracing::$level!($($event)+))
    };
}
pub(crate) use log;
