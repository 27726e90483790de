//! Which task this is: an id that costs a task nothing.
//!
//! It is the address of the task's memory. The address belongs to the task as long as anything
//! refers to the task, so no counter is needed, and no memory for the id.

use std::fmt;
use std::num::NonZero;
use std::ptr::NonNull;

use super::header::Header;

/// Identifies a task within the process.
///
/// No other task has this id while the task runs, or while a [`JoinHandle`](super::JoinHandle), an
/// [`AbortHandle`](super::AbortHandle), a [`JoinSet`](super::JoinSet) or a
/// [`Waker`](std::task::Waker) refers to it. After that a new task may get the same id. Ids do not
/// reflect the order of spawns.
///
/// It is displayed as a hexadecimal number. It is derived from the task's address: use it in logs,
/// but do not show it to clients.
///
/// ```
/// use wakeful::task;
///
/// wakeful::block_on(async {
///     let handle = wakeful::spawn(async { task::id() });
///     let id = handle.id();
///     assert_eq!(handle.await.expect("no panic"), id);
/// });
/// ```
///
/// # Threads
/// `Send` and `Sync`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Id(NonZero<usize>);

impl Id {
    #[inline]
    pub(super) fn of(header: NonNull<Header>) -> Self {
        Self(header.addr())
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Id({self})")
    }
}
