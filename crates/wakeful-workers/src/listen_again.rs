//! A listening socket that somebody has shut down listens again.

use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use rustix::net::sockopt::socket_acceptconn;
use rustix::net::{bind, connect_unspec, listen};
use wakeful::net::ListenAddr;

/// Has somebody shut it down?
pub(crate) fn has_stopped(socket: BorrowedFd<'_>) -> bool {
    socket_acceptconn(socket) == Ok(false)
}

/// If it has been shut down. `bound` is where an internet socket was, and `addr` names it.
pub(crate) fn listen_again(socket: BorrowedFd<'_>, addr: &ListenAddr, bound: Option<SocketAddr>) {
    if !has_stopped(socket) {
        return;
    }
    match open_again(socket, bound) {
        Ok(()) => tracing::warn!("the socket of {addr} was shut down: listening again"),
        Err(error) => {
            let error = io::Error::from(error);
            tracing::error!(%error, "the socket of {addr} was shut down, and cannot listen again: no new connections arrive there. Restart the server");
        }
    }
}

fn open_again(socket: BorrowedFd<'_>, bound: Option<SocketAddr>) -> Result<(), Errno> {
    if let Some(addr) = bound {
        // Else each connection would begin as shut down as this socket is (`ss -K`).
        connect_unspec(socket)?;
        // It has lost a port that the kernel chose, and has kept one that was asked for (EINVAL).
        bind(socket, &addr).or_else(|error| match error {
            Errno::INVAL => Ok(()),
            _ => Err(error),
        })?;
    }
    // The kernel lowers it to its own limit.
    listen(socket, i32::MAX)
}
