//! Who goes on at the address of a server whose first process has ended: the new one of an upgrade,
//! say.

use std::sync::atomic::{AtomicU32, Ordering};

use super::owner::owner;
use crate::procfs::ProcessCpu;

#[derive(Debug, Default)]
pub(super) struct Successor {
    /// The one that was found last; 0 before there is one.
    known: AtomicU32,
}

impl Successor {
    /// The process that listens at `addr`. Looking for it takes milliseconds, so it is kept as long
    /// as it lives.
    pub(super) fn at(&self, addr: &str) -> Option<u32> {
        let known = self.known.load(Ordering::Relaxed);
        if known != 0 && ProcessCpu::read(known).is_ok() {
            return Some(known);
        }
        let found = owner(addr);
        self.known.store(found.unwrap_or(0), Ordering::Relaxed);
        found
    }
}
