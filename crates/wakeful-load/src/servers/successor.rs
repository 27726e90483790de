//! Finds the process that continues with a server's listening socket when its first process has
//! ended, for example after an upgrade.

use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;

use super::owner::{holder, socket_at};
use crate::procfs::ProcessCpu;
use crate::threads;

#[derive(Debug)]
pub(super) struct Successor {
    /// The socket's number, if it is one of this machine.
    socket: Option<u64>,
    known: Mutex<Known>,
}

#[derive(Debug)]
enum Known {
    Nothing,
    /// A thread looks: it takes milliseconds, which a generator does not have.
    Soon(JoinHandle<Option<u32>>),
    Process(u32),
    /// Nobody has the socket any more.
    Nobody,
}

impl Successor {
    /// Of the server that listens at `addr` now. Looking that up takes milliseconds.
    pub(super) fn of(addr: &str) -> Self {
        Self { socket: socket_at(addr), known: Mutex::new(Known::Nothing) }
    }

    /// The process that has the socket. Takes milliseconds.
    pub(super) fn process(&self) -> Option<u32> {
        self.socket.and_then(holder)
    }

    /// Does nobody have the socket any more? Does not wait until that is known: `false` until then.
    pub(super) fn is_missing(&self) -> bool {
        let Some(socket) = self.socket else { return true };
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        *known = match std::mem::replace(&mut *known, Known::Nothing) {
            Known::Soon(looks) if looks.is_finished() => {
                looks.join().ok().flatten().map_or(Known::Nobody, Known::Process)
            }
            Known::Process(pid) if ProcessCpu::read(pid).is_err() => Known::Nothing,
            other => other,
        };
        if matches!(*known, Known::Nothing) {
            // Without a thread it is asked for again.
            let looks = threads::start("successor", move || holder(socket));
            *known = looks.map_or(Known::Nothing, Known::Soon);
        }
        matches!(*known, Known::Nobody)
    }
}
