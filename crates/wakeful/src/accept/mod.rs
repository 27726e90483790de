//! How connections reach loops.
//!
//! [`ConnectionServer`] accepts connections on the loops of a group, and calls a handler for each
//! connection. An [`AcceptStrategy`] says how connections reach the loops: all loops share a
//! listening socket, each loop has its own socket, or one loop accepts for all.
//!
//! [`SharedListener`] is a listening socket. It can also be used without a `ConnectionServer`.

// * The way of a connection: `accepting` or `dispatch` accepts it, `arrival` is the connection on
//   its way, `route`, `routes` and `inbox` bring it to its loop, and `loop_server` has its task.
//   `moving` takes it on to another loop. While the loop that accepts for all is blocked,
//   `stand_in` accepts. `siblings` hears of other processes that accept.
// * The start: `set_up` is what loops do before they accept, and `gate` keeps them from accepting
//   until all have started.
// * Limits: `limit` is the number of open connections, `descriptors` how many the process has room
//   for. `room` makes room for those that wait, `when_full` for the next one. `gives_way` is what a
//   connection says when its place is needed.
// * Errors: `accept_failed` handles a failed accept, with a descriptor kept for it in `reserve`.
//   `open_listeners` says when a server has no listener left.
// * Listeners: `holders` records who may hold a socket, `socket_file` has the file of a Unix
//   socket. `port_group` has several sockets on one port, for a master of several servers.
// * The drain: `draining` tells connections, `syn_filter` lets nobody in, and `drain_backlog`
//   serves what the backlog holds.
mod accept_failed;
mod accepting;
mod arrival;
mod bind_error;
mod connection;
mod descriptors;
mod dispatch;
mod drain_backlog;
mod draining;
mod gate;
mod gives_way;
mod holders;
mod inbox;
mod limit;
mod loop_server;
mod moving;
mod open_listeners;
mod opening;
mod port_group;
mod reserve;
mod reuse_port;
mod room;
mod route;
mod routes;
mod server;
mod serving;
mod set_up;
mod shared_listener;
mod siblings;
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
pub use crate::balance::siblings::{Sibling, Siblings};
pub use crate::net::Listener;

use std::io;

/// Returns whether the error is a temporary lack of descriptors or memory (`EMFILE`, `ENFILE`,
/// `ENOBUFS`, `ENOMEM`, `ENOSPC`). After such an error from `accept`, wait a little and try again.
/// The connection stays in the backlog, so a loop that tries again at once would spin.
#[must_use]
pub fn is_shortage(error: &io::Error) -> bool {
    crate::sys::limits::is_shortage(error)
}

#[cfg(all(test, not(wakeful_loom)))]
mod tests;
