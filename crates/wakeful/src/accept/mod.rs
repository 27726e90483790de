//! How connections reach loops.
//!
//! [`ConnectionServer`] is a server's frame: it takes connections on the loops of a group, by one of three strategies ([`AcceptStrategy`]): one
//! listening socket for all loops, one for each, or one loop that accepts for all. What it does when it cannot accept is in `trouble.rs`.
//! [`SharedListener`] is the socket, also for servers without the frame.

mod backlog;
mod balance;
mod counts;
mod descriptors;
mod dispatch;
mod draining;
mod exclusive;
mod here;
mod holders;
mod limit;
mod moving;
mod open_listeners;
mod placement;
mod quiet;
mod reuse_port;
mod server;
mod socket_file;
mod stop;
mod strategy;
mod trouble;

pub use self::counts::{Counts, LoopCounts};
pub use self::descriptors::Descriptors;
pub use self::draining::{Draining, DrainingStarted};
pub use self::exclusive::SharedListener;
pub use self::moving::{Moves, Moving};
pub use self::placement::{Picker, Placement, UnknownPlacement};
pub use self::server::{Connection, ConnectionServer, Serving};
pub use self::strategy::AcceptStrategy;
pub use crate::net::Listener;

use std::io;

/// Is this a lack of descriptors or memory (`EMFILE`, `ENFILE`, `ENOBUFS`, `ENOMEM`, `ENOSPC`) that may pass? After such an
/// error from `accept`, wait a little and try again: the connection stays in the backlog, and a loop that
/// tries again at once would spin.
#[must_use]
pub fn is_shortage(error: &io::Error) -> bool {
    crate::sys::limits::is_shortage(error)
}

#[cfg(all(test, not(wakeful_loom)))]
mod tests;
