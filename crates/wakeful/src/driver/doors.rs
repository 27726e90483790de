//! The doors of all loops to one listener.
//!
//! The list is behind a mutex, and another thread may hold it at the moment of a fork. The child
//! has no such thread, so its copy of the mutex stays locked for ever. Therefore a child never
//! locks what it inherited: it has a list of its own, for its own loops.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use once_cell::race::OnceBox;

use super::door::Door;
use crate::sys::panics;
use crate::sys::process::Process;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Doors {
    process: Process,
    list: Mutex<Vec<Weak<Door>>>,
    /// The list of a forked child. It is made without a lock, which a grandchild could inherit too.
    of_child: OnceBox<Doors>,
}

impl Doors {
    /// For the loops of `process`.
    pub(crate) fn new(process: Process) -> Self {
        Self { process, list: Mutex::default(), of_child: OnceBox::new() }
    }

    /// Those of this process.
    fn here(&self) -> &Self {
        if self.process.is_forked() {
            self.of_child.get_or_init(|| Box::new(Self::new(self.process.in_this_fork()))).here()
        } else {
            self
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Weak<Door>>> {
        self.here().list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn alive(&self) -> Vec<Arc<Door>> {
        self.lock().iter().filter_map(Weak::upgrade).collect()
    }

    pub(super) fn add(&self, door: &Arc<Door>) {
        let mut doors = self.lock();
        doors.retain(|door| door.strong_count() > 0);
        doors.push(Arc::downgrade(door));
    }

    pub(super) fn open_if_nobody_waits(&self) {
        let doors = self.alive();
        if !doors.iter().any(|door| door.is_waiting()) {
            doors.iter().for_each(|door| door.set_open(true));
        }
    }

    /// A loop was woken for a connection that it will not take: another one should.
    pub(super) fn pass_on(&self, from: &Door) {
        let mut others = self.alive().into_iter().filter(|door| !std::ptr::eq(&**door, from));
        if let Some(other) = others.find(|door| door.is_waiting())
            && let Err(error) = other.knock()
        {
            panics::log!(debug, %error, "a loop cannot watch a listener");
        }
    }
}
