//! Makes a listening socket that was shut down listen again.

use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use rustix::net::sockopt::socket_acceptconn;
use rustix::net::{bind, connect_unspec, listen};
use wakeful::net::ListenAddr;

/// Was the socket shut down, so that it does not listen any more?
pub(crate) fn has_stopped(socket: BorrowedFd<'_>) -> bool {
    socket_acceptconn(socket) == Ok(false)
}

/// Makes the socket listen again, if it was shut down. `bound` is the address that an internet
/// socket had, and `addr` the one that was asked for.
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
        // Otherwise each new connection would be shut down, as this socket is (`ss -K`).
        connect_unspec(socket)?;
        // The socket has lost a port that the kernel chose, but has kept a port that was asked for
        // (EINVAL).
        bind(socket, &addr).or_else(|error| match error {
            Errno::INVAL => Ok(()),
            _ => Err(error),
        })?;
    }
    // The kernel reduces the backlog to its own limit.
    listen(socket, i32::MAX)
}
