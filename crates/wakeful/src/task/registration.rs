//! Registers a waker with an [`AtomicWaker`], safely even if the waker's clone panics.
//!
//! [`AtomicWaker::register`] clones the waker while it holds its lock, and never releases the lock
//! if that panics. A waker of another library is user code. So its clone is made before, and
//! `register` gets a waker whose own clone is that clone.

use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::task::{RawWaker, RawWakerVTable, Waker};

use atomic_waker::AtomicWaker;

use crate::sys::panics;

/// Like [`AtomicWaker::register`]. The caller must have taken out the waker of an earlier call,
/// because its drop may panic, too.
///
/// # Panics
/// When the waker's clone does. `slot` is as before then.
pub(super) fn register(slot: &AtomicWaker, waker: &Waker) {
    let clone = Cell::new(Some(waker.clone()));
    {
        // SAFETY: `clone` outlives the waker, which stays on this thread and is never dropped:
        // `register` only borrows it.
        let hands_out = ManuallyDrop::new(unsafe { Waker::from_raw(hands_out(&clone)) });
        slot.register(&hands_out);
    }
    panics::discard(clone.take());
}

/// A waker whose data is a borrowed `Cell<Option<Waker>>`. Its first clone is that waker.
fn hands_out(clone: &Cell<Option<Waker>>) -> RawWaker {
    static TABLE: RawWakerVTable =
        RawWakerVTable::new(take, wake_by_ref, wake_by_ref, |_borrowed| ());

    unsafe fn take(data: *const ()) -> RawWaker {
        // SAFETY: `register` keeps the cell alive, on this thread.
        let clone = unsafe { &*data.cast::<Cell<Option<Waker>>>() };
        let waker = clone.take().unwrap_or_else(|| Waker::noop().clone());
        // From here on the raw waker owns the count.
        let waker = ManuallyDrop::new(waker);
        RawWaker::new(waker.data(), waker.vtable())
    }
    unsafe fn wake_by_ref(data: *const ()) {
        // SAFETY: as in `take`.
        let clone = unsafe { &*data.cast::<Cell<Option<Waker>>>() };
        if let Some(waker) = clone.take() {
            waker.wake();
        }
    }

    RawWaker::new(std::ptr::from_ref(clone).cast(), &TABLE)
}

#[cfg(all(test, not(wakeful_loom)))]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn it_registers_one_clone() {
        let (slot, woken) = (AtomicWaker::new(), Arc::new(Count::default()));
        register(&slot, &woken.clone().into());
        assert_eq!(Arc::strong_count(&woken), 2);
        slot.wake();
        assert_eq!((woken.0.load(Ordering::Relaxed), Arc::strong_count(&woken)), (1, 1));
    }
}
