//! How connections reach loops.
//!
//! [`ConnectionServer`] is a server's frame: it takes connections on the loops of a group, by one
//! of three strategies ([`AcceptStrategy`]): one listening socket for all loops, one for each, or
//! one loop that accepts for all. What it does when it cannot accept is in `accept_failed.rs`.
//! [`SharedListener`] is the socket, also for servers without the frame.

mod accept_failed;
mod accepting;
mod arrival;
mod connection;
mod descriptors;
mod dispatch;
mod drain_backlog;
mod draining;
mod gives_way;
mod holders;
mod inbox;
mod limit;
mod loop_server;
mod moving;
mod open_listeners;
mod opening;
mod reserve;
mod reuse_port;
mod room;
mod route;
mod routes;
mod server;
mod serving;
mod set_up;
mod shared_listener;
mod socket_file;
mod stand_in;
mod stop;
mod strategy;
mod syn_filter;
mod when_full;

pub use self::connection::Connection;
pub use self::descriptors::Descriptors;
pub use self::draining::{Draining, DrainingStarted};
pub use self::gives_way::{GivesWay, Standing};
pub use self::moving::Moving;
pub use self::server::ConnectionServer;
pub use self::serving::Serving;
pub use self::shared_listener::SharedListener;
pub use self::strategy::AcceptStrategy;
pub use self::when_full::WhenFull;
pub use crate::balance::counts::{Counts, LoopCounts};
pub use crate::balance::dispatch_placement::{Picker, Placement, UnknownPlacement};
pub use crate::balance::move_settings::Moves;
pub use crate::net::Listener;

use std::io;

/// Is this a lack of descriptors or memory (`EMFILE`, `ENFILE`, `ENOBUFS`, `ENOMEM`, `ENOSPC`) that
/// may pass? After such an error from `accept`, wait a little and try again: the connection stays
/// in the backlog, and a loop that tries again at once would spin.
#[must_use]
pub fn is_shortage(error: &io::Error) -> bool {
    crate::sys::limits::is_shortage(error)
}

#[cfg(all(test, not(wakeful_loom)))]
mod tests;
