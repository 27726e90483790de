//! Errors of the kernel that a test cannot cause for real. In production this module does nothing.
//! In unit tests it returns the errors, or panics, that a test has asked for on its loop's thread.

/// A system call that may be made to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    /// `accept4`.
    Accept,
    /// `epoll_ctl`, to watch a descriptor.
    Watch,
    /// `epoll_pwait2`.
    PreciseWait,
}

#[cfg(not(all(test, not(wakeful_loom))))]
#[inline(always)]
pub(crate) fn at(_: Call) -> rustix::io::Result<()> {
    Ok(())
}

#[cfg(all(test, not(wakeful_loom)))]
pub(crate) use self::hook::{at, fail, panic_at, watches};

#[cfg(all(test, not(wakeful_loom)))]
mod hook {
    use std::cell::Cell;

    use rustix::io::Errno;

    use super::Call;

    thread_local! {
        static FAULT: Cell<Option<(Call, Errno, u32)>> = const { Cell::new(None) };
        static PANIC: Cell<Option<Call>> = const { Cell::new(None) };
        static WATCHES: Cell<u32> = const { Cell::new(0) };
    }

    /// How often this thread has watched a descriptor.
    pub(crate) fn watches() -> u32 {
        WATCHES.get()
    }

    /// Makes the next `times` of these calls on this thread fail. 0 ends it.
    pub(crate) fn fail(call: Call, error: Errno, times: u32) {
        FAULT.set(Some((call, error, times)));
    }

    /// Makes the next of these calls on this thread panic.
    pub(crate) fn panic_at(call: Call) {
        PANIC.set(Some(call));
    }

    pub(crate) fn at(call: Call) -> rustix::io::Result<()> {
        if call == Call::Watch {
            WATCHES.set(WATCHES.get() + 1);
        }
        if PANIC.get() == Some(call) {
            PANIC.set(None);
            panic!("at {call:?}, on purpose");
        }
        match FAULT.get() {
            Some((failing, error, times @ 1..)) if failing == call => {
                FAULT.set(Some((failing, error, times - 1)));
                Err(error)
            }
            _ => Ok(()),
        }
    }
}
