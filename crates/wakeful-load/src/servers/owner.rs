//! Finds the process that listens at an address of this machine.

use std::net::{SocketAddr, ToSocketAddrs, UdpSocket};
use std::path::Path;

use procfs::net::{self, TcpNetEntry, TcpState};
use procfs::process::{FDTarget, Process};

use crate::procfs::numbers_in;

/// The process that listens at `HOST:PORT` or `unix:PATH` in this network namespace. The first one
/// if several share the socket; `None` if it is on another machine, or belongs to somebody whose
/// descriptors we may not see.
pub(super) fn owner(addr: &str) -> Option<u32> {
    socket_at(addr).and_then(holder)
}

/// The number of the socket that listens at `addr`.
pub(super) fn socket_at(addr: &str) -> Option<u64> {
    if let Some(path) = addr.strip_prefix("unix:") {
        let mut sockets = net::unix().ok()?.into_iter();
        let socket = sockets.find(|socket| socket.path.as_deref() == Some(Path::new(path)))?;
        return Some(socket.inode);
    }
    let addr = addr.to_socket_addrs().ok()?.next()?;
    // Only an address that we could bind is one of this machine.
    UdpSocket::bind((addr.ip(), 0)).ok()?;
    let tables = [net::tcp(), net::tcp6()].into_iter().flatten();
    tables.flatten().find(|socket| listens_at(socket, addr)).map(|socket| socket.inode)
}

/// The first process that has a socket.
pub(super) fn holder(socket: u64) -> Option<u32> {
    let is_it = |target| matches!(target, FDTarget::Socket(number) if number == socket);
    let mut processes = numbers_in("/proc");
    processes.sort_unstable();
    processes.into_iter().find(|pid| {
        let fds = Process::new(pid.cast_signed()).and_then(|process| process.fd());
        fds.is_ok_and(|fds| fds.flatten().any(|fd| is_it(fd.target)))
    })
}

/// Whether the socket listens at `addr`, or at all addresses of this machine.
fn listens_at(socket: &TcpNetEntry, addr: SocketAddr) -> bool {
    let local = socket.local_address;
    socket.state == TcpState::Listen
        && local.port() == addr.port()
        && (local.ip() == addr.ip() || local.ip().is_unspecified())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_listeners_are_ours() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap().to_string();
        assert_eq!(owner(&addr), Some(std::process::id()));
        drop(listener);
        assert_eq!(owner(&addr), None);
    }

    #[test]
    fn unix_sockets_have_owners_too() {
        let path = std::env::temp_dir().join(format!("wakeful-owner-{}", std::process::id()));
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        assert_eq!(owner(&format!("unix:{}", path.display())), Some(std::process::id()));
        drop(listener);
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn other_machines_are_nobodys_here() {
        assert_eq!(owner("192.0.2.1:80"), None);
        assert_eq!(owner("nonsense"), None);
    }

    #[test]
    fn what_listens_everywhere_listens_there_too() {
        let somebody = std::net::TcpListener::bind("0.0.0.0:0").unwrap();
        let port = somebody.local_addr().unwrap().port();
        assert_eq!(owner(&format!("127.0.0.1:{port}")), Some(std::process::id()));
    }

    #[test]
    fn another_address_of_this_machine_is_somebody_elses() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert_eq!(owner(&format!("127.0.0.2:{port}")), None);
    }
}
