//! A listener for each loop.

use std::io;
use std::sync::Arc;

use super::SharedListener;
use super::holders::Holders;
use super::strategy::Opening;
use crate::net::{DetachedListener, ListenAddr};

/// Sockets on the same port for so many loops: that of `listener`, and more. What waits in the backlog of the first one stays there.
///
/// # Errors
/// It is a Unix socket; no descriptors left.
pub(super) fn one_each(listener: &SharedListener, loops: usize) -> io::Result<Vec<Opening>> {
    let local = listener.local_addr();
    let ListenAddr::Tcp(addr) = *local else {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!(
                "{local}: a Unix socket has no SO_REUSEPORT: use the strategy exclusive or dispatch"
            ),
        ));
    };
    if loops > 1 {
        // It was bound without, so that a port in use was found to be so. On a socket that listens it allows others beside
        // it from now on (Linux: inet_csk_bind_conflict asks the sockets, and reuseport_add_sock makes the group with the second one).
        rustix::net::sockopt::set_socket_reuseport(&listener.fd, true)?;
    }
    let first = DetachedListener::new(listener.fd.clone(), local);
    let mut own = vec![Opening::Own(first, listener.holders.clone())];
    while own.len() < loops {
        let holders = Holders::of_new_socket()?;
        let fd = Arc::new(crate::net::listen_tcp_beside(addr)?);
        own.push(Opening::Own(DetachedListener::new(fd, local), holders));
    }
    Ok(own)
}
