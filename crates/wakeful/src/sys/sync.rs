//! The one place that chooses between the real atomics and loom's. So the ready queue, the task's
//! state and the heartbeats' protocol themselves are model-checked (`--cfg wakeful_loom`), and not
//! copies of them.

#[cfg(not(wakeful_loom))]
pub(crate) use self::real::*;
#[cfg(wakeful_loom)]
pub(crate) use loom::{
    cell::UnsafeCell,
    sync::atomic::{AtomicPtr, AtomicUsize},
};

#[cfg(not(wakeful_loom))]
mod real {
    pub(crate) use std::sync::atomic::{AtomicPtr, AtomicUsize};

    /// `std`'s cell with loom's interface: access goes through a closure, which loom checks for
    /// data races.
    #[derive(Debug)]
    pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        pub(crate) const fn new(value: T) -> Self {
            Self(std::cell::UnsafeCell::new(value))
        }

        #[inline(always)]
        pub(crate) fn with<R>(&self, access: impl FnOnce(*const T) -> R) -> R {
            access(self.0.get())
        }

        #[inline(always)]
        pub(crate) fn with_mut<R>(&self, access: impl FnOnce(*mut T) -> R) -> R {
            access(self.0.get())
        }
    }
}
