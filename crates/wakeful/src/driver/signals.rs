//! What runs in a signal handler: one byte into the socket that a loop watches. Handlers are inherited by a forked child, and
//! so is the socket; a signal that is sent to the child must not be told to the parent's loop, so the handler asks first.

use std::io;
use std::os::unix::net::UnixStream;

use rustix::net::{SendFlags, send};
use signal_hook::SigId;

use super::home::Home;

/// From now on, and until the returned id is unregistered, each arrival of `signal` in this process writes a byte to `pipe`.
pub(crate) fn watch(signal: i32, pipe: UnixStream) -> io::Result<SigId> {
    let home = Home::here()?;
    let tell = move || {
        if !home.is_elsewhere() {
            // A full socket: there are arrivals enough that are not yet taken.
            let _ = send(&pipe, b"s", SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        }
    };
    // SAFETY: what runs in the handler is async-signal-safe: a load and one system call, which rustix makes without touching
    // errno; nothing is allocated or locked, and nothing panics.
    unsafe { signal_hook::low_level::register(signal, tell) }
}
