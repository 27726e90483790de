//! Makes a listening socket that was shut down listen again.

use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use rustix::net::sockopt::{
    ip_freebind, ipv6_freebind, set_ip_freebind, set_ipv6_freebind, socket_acceptconn,
};
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
        Ok(()) => log!(warn, "the socket of {addr} was shut down: listening again"),
        Err(error) => {
            let error = io::Error::from(error);
            log!(error, %error, "the socket of {addr} was shut down, and cannot listen again: no new connections arrive there. The master tries again when it starts a worker");
        }
    }
}

fn open_again(socket: BorrowedFd<'_>, bound: Option<SocketAddr>) -> Result<(), Errno> {
    if let Some(addr) = bound {
        // Otherwise each new connection would be shut down, as this socket is (`ss -K`).
        connect_unspec(socket)?;
        // The socket has lost a port that the kernel chose, but has kept a port that was asked for
        // (EINVAL).
        bind_also_to_an_address_that_is_away(socket, &addr).or_else(|error| match error {
            Errno::INVAL => Ok(()),
            _ => Err(error),
        })?;
    }
    // The kernel reduces the backlog to its own limit.
    listen(socket, i32::MAX)
}

/// A socket that listens stays when its address is removed from the host, and serves again when the
/// address comes back. One that was shut down meanwhile should do the same.
fn bind_also_to_an_address_that_is_away(
    socket: BorrowedFd<'_>,
    addr: &SocketAddr,
) -> Result<(), Errno> {
    let (is_free, set_free): (_, fn(_, _) -> _) = match addr {
        SocketAddr::V4(_) => (ip_freebind(socket), set_ip_freebind::<BorrowedFd<'_>>),
        SocketAddr::V6(_) => (ipv6_freebind(socket), set_ipv6_freebind::<BorrowedFd<'_>>),
    };
    // If the option is refused, the bind says what is wrong.
    let is_changed = is_free == Ok(false) && set_free(socket, true).is_ok();
    let bound = bind(socket, addr);
    if is_changed {
        let _ = set_free(socket, false);
    }
    bound
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use rustix::net::{
        AddressFamily, Shutdown, SocketType, getsockname, ipproto, shutdown, socket,
    };

    use super::*;

    #[test]
    fn a_socket_whose_address_is_away_listens_again() {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        for (ip, port) in [("192.0.2.1", 0), ("192.0.2.1", port), ("2001:db8::1", port)] {
            let addr = SocketAddr::new(ip.parse().unwrap(), port);
            let family = if addr.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
            let Ok(socket) = socket(family, SocketType::STREAM, Some(ipproto::TCP)) else {
                println!("in part: no IPv6");
                continue;
            };
            let set_free =
                if addr.is_ipv4() { set_ip_freebind } else { set_ipv6_freebind::<BorrowedFd<'_>> };
            // As if the address were there now.
            set_free(socket.as_fd(), true).unwrap();
            bind(&socket, &addr).unwrap();
            set_free(socket.as_fd(), false).unwrap();
            listen(&socket, 1).unwrap();
            let bound = SocketAddr::try_from(getsockname(&socket).unwrap()).unwrap();
            shutdown(&socket, Shutdown::Both).unwrap();
            assert!(has_stopped(socket.as_fd()));
            listen_again(socket.as_fd(), &addr.into(), Some(bound));
            assert!(!has_stopped(socket.as_fd()), "{addr}");
            assert_eq!(SocketAddr::try_from(getsockname(&socket).unwrap()), Ok(bound));
            // It listens at no other address that is away.
            let is_free = if addr.is_ipv4() { ip_freebind } else { ipv6_freebind };
            assert_eq!(is_free(socket.as_fd()), Ok(false));
        }
    }
}
