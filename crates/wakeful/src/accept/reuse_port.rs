//! A listener for each loop.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use socket2::{SockRef, TcpKeepalive};

use super::holders::Holders;
use super::opening::Opening;
use super::shared_listener::SharedListener;
use crate::net::{DetachedListener, ListenAddr, keepalive};
use crate::sys::limits::{explain_call, explain_call_error};

/// Where an internet socket listens.
///
/// # Errors
/// It is a Unix socket.
pub(super) fn internet_address(local: &ListenAddr) -> io::Result<SocketAddr> {
    match *local {
        ListenAddr::Tcp(addr) => Ok(addr),
        ListenAddr::Unix(_) | ListenAddr::Abstract(_) => Err(invalid(format!(
            "{local}: a Unix socket has no SO_REUSEPORT: accept by exclusive or dispatch instead"
        ))),
    }
}

fn invalid(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

/// Opens a socket on the same port for each of `loops` loops. It uses the sockets that `listener`
/// has for them, or its only one, and makes the missing ones. Connections in the backlog of the
/// first socket stay there. A socket that is made here is only bound: until it listens, it gets no
/// connections.
///
/// # Errors
/// It is a Unix socket, or has sockets for another number of loops; the network device that it is
/// bound to was removed; no descriptors left.
pub(super) fn one_each(listener: &SharedListener, loops: usize) -> io::Result<Vec<Opening>> {
    let local = listener.local_addr();
    let addr = internet_address(local)?;
    if let Some(sockets) = listener.of_loops() {
        if sockets.len() != loops {
            let there = sockets.len();
            return Err(invalid(format!(
                "{local}: there are sockets for {there} loops, and the group has {loops}: give both \
                 the same number"
            )));
        }
        let own = |fd| {
            let own = DetachedListener::new(fd, local).lent(listener.is_lent());
            Opening::Own(own, listener.holders.clone())
        };
        return Ok(sockets.into_iter().map(own).collect());
    }
    if loops > 1 {
        // The socket was bound without the option, so that a port in use was an error. If a
        // listening socket sets it now, other sockets may bind the port from now on (Linux:
        // inet_csk_bind_conflict asks the sockets, and reuseport_add_sock makes the group with the
        // second one).
        rustix::net::sockopt::set_socket_reuseport(&listener.fd, true)
            .map_err(explain_call("setsockopt"))?;
    }
    let first = DetachedListener::new(listener.fd.clone(), local).lent(listener.is_lent());
    let mut own = vec![Opening::Own(first, listener.holders.clone())];
    while own.len() < loops {
        let holders = Holders::of_new_socket()?;
        let fd = Arc::new(crate::net::bound_tcp_like(&listener.fd, addr)?);
        copy_keepalive(&listener.fd, &fd)?;
        own.push(Opening::Bound(DetachedListener::new(fd, local), holders));
    }
    Ok(own)
}

/// The kernel copies a listener's options to its connections. These must not differ between loops.
fn copy_keepalive(from: &OwnedFd, to: &OwnedFd) -> io::Result<()> {
    let (from, to) = (SockRef::from(from), SockRef::from(to));
    match keepalive_of(&from).map_err(explain_call_error("getsockopt"))? {
        Some(settings) => to.set_tcp_keepalive(&settings).map_err(explain_call_error("setsockopt")),
        None => Ok(()),
    }
}

fn keepalive_of(socket: &SockRef<'_>) -> io::Result<Option<TcpKeepalive>> {
    if !socket.keepalive()? {
        return Ok(None);
    }
    let (idle, interval) = (socket.tcp_keepalive_time()?, socket.tcp_keepalive_interval()?);
    Ok(Some(keepalive(idle, interval, socket.tcp_keepalive_retries()?)))
}

#[cfg(all(test, not(wakeful_loom), not(miri)))] // Miri has no such options.
mod tests {
    use std::env;
    use std::process::Command;
    use std::time::Duration;

    use rustix::io::Errno;
    use socket2::{Domain, Socket, Type};

    use super::*;

    #[test]
    fn the_sockets_of_the_other_loops_probe_as_the_first_one_does() {
        let listen = || crate::net::listen_tcp("127.0.0.1:0".parse().unwrap()).unwrap();
        let (first, other) = (listen(), listen());
        copy_keepalive(&first, &other).unwrap();
        assert!(!SockRef::from(&other).keepalive().unwrap());
        let (idle, interval) = (Duration::from_secs(77), Duration::from_secs(7));
        SockRef::from(&first).set_tcp_keepalive(&keepalive(idle, interval, 5)).unwrap();
        copy_keepalive(&first, &other).unwrap();
        let other = SockRef::from(&other);
        assert!(other.keepalive().unwrap());
        assert_eq!(other.tcp_keepalive_time().unwrap(), idle);
        assert_eq!(other.tcp_keepalive_interval().unwrap(), interval);
        assert_eq!(other.tcp_keepalive_retries().unwrap(), 5);
    }

    /// The sockets of two loops, of which `first` is one, when it is bound to `addr`.
    fn of_two_loops(first: Socket, addr: &str) -> Vec<Opening> {
        first.bind(&addr.parse::<SocketAddr>().unwrap().into()).unwrap();
        first.listen(16).unwrap();
        one_each(&SharedListener::from_socket(first.into()).unwrap(), 2).unwrap()
    }

    #[test]
    fn the_sockets_of_the_other_loops_take_the_families_that_the_first_one_takes() {
        if std::net::TcpListener::bind("[::1]:0").is_err() {
            return eprintln!("skipped: this machine has no IPv6");
        }
        for only_v6 in [true, false] {
            let first = Socket::new(Domain::IPV6, Type::STREAM, None).unwrap();
            first.set_only_v6(only_v6).unwrap();
            for of_loop in of_two_loops(first, "[::]:0") {
                assert_eq!(SockRef::from(&**of_loop.socket()).only_v6().unwrap(), only_v6);
            }
        }
    }

    #[test]
    fn the_sockets_of_the_other_loops_take_what_the_device_of_the_first_one_brings() {
        let first = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        if let Err(error) = first.bind_device(Some(b"lo")) {
            return eprintln!("skipped: no socket can be bound to a device here: {error}");
        }
        for of_loop in of_two_loops(first, "127.0.0.1:0") {
            let device = SockRef::from(&**of_loop.socket()).device().unwrap();
            assert_eq!(device.as_deref(), Some(&b"lo"[..]));
        }
    }

    /// Set in a process that has a network of its own.
    const ALONE: &str = "WAKEFUL_TEST_ALONE";

    fn ip(arguments: &[&str]) -> bool {
        Command::new("ip").args(arguments).status().is_ok_and(|status| status.success())
    }

    #[test]
    fn without_the_device_of_the_first_socket_no_other_loop_listens() {
        const NAME: &str = concat!(
            "accept::reuse_port::tests::",
            "without_the_device_of_the_first_socket_no_other_loop_listens"
        );
        if env::var_os(ALONE).is_none() {
            let is_possible = Command::new("unshare").args(["--net", "true"]).output();
            if !is_possible.is_ok_and(|output| output.status.success()) {
                return eprintln!("skipped: there can be no network of its own (unshare, root)");
            }
            let mut alone = Command::new("unshare");
            alone.arg("--net").arg(env::current_exe().unwrap());
            let status = alone.args(["--exact", NAME, "--nocapture"]).env(ALONE, "1").status();
            return assert!(status.unwrap().success(), "in its own network");
        }
        // Not each kernel has devices of each kind.
        let add = |kind| ip(&["link", "add", "gone", "type", kind]);
        if !["dummy", "bridge", "ifb"].into_iter().any(add) {
            return eprintln!("skipped: there can be no device (ip)");
        }
        let first = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        first.bind_device(Some(b"gone")).unwrap();
        first.bind(&SocketAddr::from(([0, 0, 0, 0], 0)).into()).unwrap();
        first.listen(16).unwrap();
        assert!(ip(&["link", "delete", "gone"]));
        let listener = SharedListener::from_socket(first.into()).unwrap();
        let error = one_each(&listener, 2).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::NODEV.raw_os_error()), "{error}");
    }
}
