//! Wakers that wait until a library has released its lock, on a thread whose loop does not run.
//!
//! A [`SafeWaker`](super::SafeWaker)'s stand-in is woken and dropped by a library that holds a
//! lock. Within a turn the loop calls the other library's waker later. A thread without a loop, and
//! a loop's own thread between two turns, have no later turn. So each call of such a library
//! ([`hold_back_wakers`]) collects the calls that its stand-ins ask for, and makes them after it
//! has returned. If such calls are nested, the outermost one makes them, because an inner call may
//! run with the lock of an outer one held.
//!
//! Each list is taken before its wakers are called. A call that such a waker itself makes has a
//! list of its own, so it does not wait for the other wakers.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;

use pin_project_lite::pin_project;

use super::local;
use crate::sys::panics;

struct HeldBack {
    /// Whether a call is collecting.
    collects: Cell<bool>,
    /// The collected calls. Each is made by dropping it. The list is empty unless a call collects,
    /// so it needs no destructor, and exists also while the thread ends.
    deeds: ManuallyDrop<RefCell<Vec<Box<dyn Any>>>>,
}

thread_local! {
    static HERE: HeldBack = const {
        let deeds = ManuallyDrop::new(RefCell::new(Vec::new()));
        HeldBack { collects: Cell::new(false), deeds }
    };
}

/// Calls `f`, which may wake and drop stand-ins with a lock held. Their wakers are called when
/// nothing is locked any more. On a thread whose loop runs, this costs one load.
#[doc(hidden)]
#[inline]
pub fn hold_back_wakers<R>(f: impl FnOnce() -> R) -> R {
    if local::is_within_turn() { f() } else { collect_during(f) }
}

#[cold]
fn collect_during<R>(f: impl FnOnce() -> R) -> R {
    let is_outermost = HERE.with(|here| !here.collects.replace(true));
    let _end = is_outermost.then(|| End);
    f()
}

struct End;

impl Drop for End {
    fn drop(&mut self) {
        let deeds = HERE.with(|here| {
            here.collects.set(false);
            here.deeds.take()
        });
        panics::discard_each(deeds);
    }
}

/// Adds `deed`, which is dropped when the outermost call that collects has returned.
///
/// # Errors
/// No call collects. `deed` is returned.
pub(super) fn add<D: Any>(deed: D) -> Result<(), D> {
    HERE.with(|here| {
        if !here.collects.get() {
            return Err(deed);
        }
        here.deeds.borrow_mut().push(Box::new(deed));
        Ok(())
    })
}

pin_project! {
    /// What a library drops with a lock held, and stand-ins with it. Contains a panic in its drop.
    #[doc(hidden)]
    #[derive(Debug)]
    pub struct Locking<T> {
        // `None` only during the drop.
        #[pin]
        value: Option<T>,
    }

    impl<T> PinnedDrop for Locking<T> {
        fn drop(this: Pin<&mut Self>) {
            hold_back_wakers(|| panics::contain(|| this.project().value.set(None)));
        }
    }
}

const IS_THERE: &str = "it is there until it is dropped";

impl<T> Locking<T> {
    pub fn new(value: T) -> Self {
        Self { value: Some(value) }
    }

    /// Returns the value, pinned.
    pub fn as_pin_mut(self: Pin<&mut Self>) -> Pin<&mut T> {
        self.project().value.as_pin_mut().expect(IS_THERE)
    }
}

impl<T> Deref for Locking<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.value.as_ref().expect(IS_THERE)
    }
}

impl<T> DerefMut for Locking<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        self.value.as_mut().expect(IS_THERE)
    }
}
