//! No local port is left for a connection. That is a shortage on this machine, not a failure of the
//! server.
//!
//! The kernel reports it as EADDRNOTAVAIL, which also means that this machine has no address from
//! which the server can be reached. UDP has separate ports, so connecting a UDP socket to the same
//! address fails only in the second case. It sends nothing.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use rustix::io::Errno;

#[derive(Debug, thiserror::Error)]
#[error("{0}: all local ports are in use for that address (net.ipv4.ip_local_port_range)")]
struct NoPort(Errno);

/// Explains `error`, of a connection to `addr`, if it means that no local port is left. Any other
/// error is returned unchanged.
pub(super) fn explain(error: io::Error, addr: SocketAddr) -> io::Error {
    match errno(&error) {
        Some(code @ Errno::ADDRNOTAVAIL) if can_be_reached(addr) => {
            io::Error::new(error.kind(), NoPort(code))
        }
        _ => error,
    }
}

/// Was this error made by [`explain`], because there was no local port?
pub(super) fn is_missing(error: &io::Error) -> bool {
    error.get_ref().and_then(|error| error.downcast_ref::<NoPort>()).is_some()
}

/// The kernel's error. The loop's streams add an explanation, and keep the kernel's error as the
/// cause.
pub(super) fn errno(error: &io::Error) -> Option<Errno> {
    let cause = error.get_ref().and_then(|explained| explained.source());
    let cause = cause.and_then(|cause| cause.downcast_ref()).unwrap_or(error);
    Errno::from_io_error(cause)
}

fn can_be_reached(addr: SocketAddr) -> bool {
    let any = match addr {
        SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
    };
    UdpSocket::bind(any).and_then(|socket| socket.connect(addr)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_where_the_server_can_be_reached_is_it_a_want_of_ports() {
        let here = SocketAddr::from((Ipv4Addr::LOCALHOST, 80));
        let none = explain(Errno::ADDRNOTAVAIL.into(), here);
        assert!(is_missing(&none), "{none}");
        assert!(none.to_string().contains("(os error 99): all local ports"), "{none}");
        assert!(!is_missing(&explain(Errno::CONNREFUSED.into(), here)));
        // The kernel refuses the broadcast address unless a socket has asked for it.
        let nowhere = SocketAddr::from((Ipv4Addr::BROADCAST, 80));
        assert!(!is_missing(&explain(Errno::ADDRNOTAVAIL.into(), nowhere)));
    }
}
