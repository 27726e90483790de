//! A log subscriber is the program's code: a panic in it ends neither the master nor a worker. If
//! it forks in a master, and returns in the child, the child ends.

use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::sys;

/// Logs at a level of `tracing`. What the subscriber may do is in the [module](self).
macro_rules! log {
    ($level:ident, $($event:tt)+) => {{
        ::wakeful::log::contained(|| ::tracing::$level!($($event)+));
        $crate::log::end_if_no_master();
    }};
}

/// The process that is a master. 0: none is.
static MASTER: AtomicU32 = AtomicU32::new(0);

/// As long as it lives, this process is a master.
#[derive(Debug)]
pub(crate) struct IsMaster(());

impl IsMaster {
    pub(crate) fn new() -> Self {
        MASTER.store(process::id(), Ordering::Relaxed);
        Self(())
    }
}

impl Drop for IsMaster {
    fn drop(&mut self) {
        is_no_master();
    }
}

/// From now on this process, a new worker, is no copy of its master.
pub(crate) fn is_no_master() {
    MASTER.store(0, Ordering::Relaxed);
}

/// Ends this process if it is a copy of a master that the program's code has made. Two masters
/// would signal the same workers, and change the same files.
pub(crate) fn end_if_no_master() {
    let master = MASTER.load(Ordering::Relaxed);
    if master != 0 && master != process::id() {
        sys::exit_now();
    }
}
