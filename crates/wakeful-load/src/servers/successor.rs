//! Finds the process that continues with a server's listening socket when its first process has
//! ended, for example after an upgrade.

use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;

use super::owner::{holder, socket_at};
use crate::procfs::has_ended;
use crate::threads;

#[derive(Debug)]
pub(super) struct Successor {
    /// The number of the listening socket, if it is a socket of this machine.
    socket: Option<u64>,
    known: Mutex<Known>,
}

#[derive(Debug)]
enum Known {
    Nothing,
    /// A thread is searching, because a search takes milliseconds, which a generator does not have.
    Soon(JoinHandle<Option<u32>>),
    Process(u32),
    /// Nobody has the socket any more.
    Nobody,
}

impl Successor {
    /// Looks up the socket of the server that listens at `addr` now. That takes milliseconds.
    pub(super) fn of(addr: &str) -> Self {
        Self { socket: socket_at(addr), known: Mutex::new(Known::Nothing) }
    }

    /// Returns the process that has the socket. That takes milliseconds.
    pub(super) fn process(&self) -> Option<u32> {
        self.socket.and_then(holder)
    }

    /// Whether it is known that no process has the socket any more. Does not wait for the search,
    /// and returns `false` until it is done.
    pub(super) fn is_missing(&self) -> bool {
        let Some(socket) = self.socket else { return true };
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        *known = match std::mem::replace(&mut *known, Known::Nothing) {
            Known::Soon(looks) if looks.is_finished() => {
                looks.join().ok().flatten().map_or(Known::Nobody, Known::Process)
            }
            Known::Process(pid) if has_ended(pid) => Known::Nothing,
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
