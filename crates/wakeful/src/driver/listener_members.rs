//! The memberships of all loops in the list of those that wait for one listener's connections.
//!
//! The list is behind a mutex, and another thread may hold it at the moment of a fork. The child
//! has no such thread, so its copy of the mutex stays locked for ever. Therefore a child never
//! locks what it inherited: it has a list of its own, for its own loops.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use once_cell::race::OnceBox;

use super::membership::Membership;
use crate::sys::fork_check::Process;

/// All loops' memberships in one listener's list. See the [module](self).
#[derive(Debug)]
pub(crate) struct ListenerMembers {
    process: Process,
    /// Whether other processes may have the socket.
    is_lent: bool,
    /// Whether the kernel wakes one loop for a connection, and not all: see `exclusive`.
    is_exclusive: AtomicBool,
    list: Mutex<Vec<Weak<Membership>>>,
    /// The list of a forked child. A `OnceBox` makes it without a lock, because a grandchild could
    /// inherit a locked one, too.
    of_child: OnceBox<ListenerMembers>,
}

impl ListenerMembers {
    /// Makes the list for the loops of `process`.
    pub(crate) fn new(process: Process) -> Self {
        let (is_exclusive, list, of_child) = (true.into(), Mutex::default(), OnceBox::new());
        Self { process, is_lent: false, is_exclusive, list, of_child }
    }

    /// Makes the list for a socket that other code has made, and may keep.
    pub(crate) fn of_lent(process: Process) -> Self {
        Self { is_lent: true, ..Self::new(process) }
    }

    pub(crate) fn is_lent(&self) -> bool {
        self.is_lent
    }

    pub(super) fn is_exclusive(&self) -> bool {
        self.is_exclusive.load(Ordering::Acquire)
    }

    /// Has the kernel wake all loops for each connection. This applies to loops that watch the
    /// socket from now on.
    pub(crate) fn wake_all(&self) {
        self.is_exclusive.store(false, Ordering::Release);
    }

    /// The memberships of this process.
    fn here(&self) -> &Self {
        if self.process.is_forked() {
            self.of_child.get_or_init(|| Box::new(Self::new(self.process.in_this_fork()))).here()
        } else {
            self
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Weak<Membership>>> {
        self.here().list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn alive(&self) -> Vec<Arc<Membership>> {
        self.lock().iter().filter_map(Weak::upgrade).collect()
    }

    pub(super) fn add(&self, membership: &Arc<Membership>) {
        let mut memberships = self.lock();
        memberships.retain(|membership| membership.strong_count() > 0);
        memberships.push(Arc::downgrade(membership));
    }

    pub(super) fn open_if_nobody_waits(&self) {
        let memberships = self.alive();
        if !memberships.iter().any(|membership| membership.is_waiting()) {
            for membership in memberships {
                membership.mend_after(membership.set_open(true));
            }
        }
    }

    /// Has another loop take a connection that loop `from` was woken for and will not take.
    ///
    /// A server looks for connections whose loop is blocked. Without a server nobody does, so then
    /// all loops that wait are told.
    pub(super) fn pass_on(&self, from: &Membership) {
        let others =
            self.alive().into_iter().filter(|membership| !std::ptr::eq(&**membership, from));
        let mut is_told_to_nobody = true;
        for other in others.filter(|membership| membership.is_waiting()) {
            other.mend_after(other.requeue());
            is_told_to_nobody = false;
            if other.has_mender() {
                break;
            }
        }
        if is_told_to_nobody {
            from.is_taken_by_nobody();
        }
    }
}
