//! How connections reach loops.
//!
//! Today there is one strategy, [`SharedListener`]: one listening socket for all loops, each of which watches it with
//! EPOLLEXCLUSIVE, so that a connection wakes one of them. [`ConnectionServer`] is a server's frame around it.

mod balance;
mod draining;
mod exclusive;
mod moving;
mod server;

pub use self::draining::{Draining, DrainingStarted};
pub use self::exclusive::SharedListener;
pub use self::moving::{Moves, Moving};
pub use self::server::{Connection, ConnectionServer, Counts, Serving};
pub use crate::net::Listener;

use std::io;

/// Is this a lack of descriptors or memory (`EMFILE`, `ENFILE`, `ENOBUFS`, `ENOMEM`, `ENOSPC`) that may pass? After such an
/// error from `accept`, wait a little and try again: the connection stays in the backlog, and a loop that
/// tries again at once would spin.
#[must_use]
pub fn is_shortage(error: &io::Error) -> bool {
    crate::driver::is_shortage(error)
}
