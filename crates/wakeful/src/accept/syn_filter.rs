//! Listeners that accept no new clients while they drain.
//!
//! The kernel resets a connection that is established between the last `accept` and the `close` of
//! its listener. Its client may have sent a request, and cannot know that nobody saw it. So a
//! draining server attaches a filter that drops each SYN (`SO_ATTACH_FILTER`, socket(7): on a
//! listening TCP socket it sees each segment from its TCP header on). Handshakes under way
//! complete, the server accepts what is established, and the listener closes. A client that was
//! dropped sends its SYN again a second later, and is refused or reaches another server.
//!
//! Where the kernel permits no filter, the socket's least TTL does nearly the same ([`least_ttl`]).
//!
//! A filter belongs to the socket. It blocks the socket for all holders, and permanently if the
//! process that attached it is killed. So it is attached only if this server is the only holder
//! ([`Holders`]), and removed before a fork. Any other listener drains without a filter: it accepts
//! what the backlog holds and closes.
//!
//! A Unix socket has no handshake to hold back. There the server removes the socket file first. A
//! socket with an abstract name has no file: the server shuts it down for reading, under the same
//! conditions. The kernel then refuses clients, and those that wait can still be accepted. That
//! cannot be undone, so a child that is forked meanwhile has a socket that lets nobody in.

use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use libc::sock_filter;
use socket2::{SockFilter, SockRef};

use super::holders::Holders;
use crate::sys::before_fork;
use crate::sys::least_ttl;
use crate::sys::panics;
use crate::sys::socket_options;

/// How long handshakes that are under way may take to complete, if the peer is not on this host.
const UNTIL_HANDSHAKES_COMPLETE: Duration = Duration::from_millis(100);

/// The offset of the flags in a TCP header, and two of the flags (RFC 9293, 3.1).
const FLAGS: u32 = 13;
const SYN_AND_ACK: u32 = 0x12;
const SYN: u32 = 0x02;

/// The listening sockets of a server to which clients come until something holds them back.
#[derive(Debug, Default)]
pub(super) struct SynFilter {
    sockets: Vec<Guarded>,
    is_remote: bool,
}

#[derive(Debug)]
struct Guarded {
    socket: Weak<OwnedFd>,
    holders: Holders,
    close: fn(&OwnedFd) -> io::Result<()>,
    open: fn(&OwnedFd),
}

impl SynFilter {
    /// Adds a listener. A socket with a file is skipped, and one that is known already.
    pub(super) fn add(&mut self, socket: &Arc<OwnedFd>, holders: &Holders) {
        let Ok(addr) = SockRef::from(socket).local_addr() else { return };
        let socket = Arc::downgrade(socket);
        if self.sockets.iter().any(|known| known.socket.ptr_eq(&socket)) {
            return;
        }
        let add = |close, open| {
            self.sockets.push(Guarded { socket, holders: holders.clone(), close, open });
        };
        if let Some(addr) = addr.as_socket() {
            add(attach_filter, detach_filter);
            self.is_remote |= !addr.ip().to_canonical().is_loopback();
        } else if addr.as_abstract_namespace().is_some() {
            add(shut_down, |_| ());
        }
    }

    /// Keeps new connections out. Takes at most `patience`.
    pub(super) fn attach(&self, patience: Duration) {
        let mut is_attached = false;
        for Guarded { socket, holders, close, open } in &self.sockets {
            let Some(socket) = socket.upgrade() else { continue };
            match holders.change_if_alone(&socket, close, *open) {
                Ok(changed) => is_attached |= changed,
                // The listener closes without a filter.
                Err(error) => {
                    panics::log!(debug, %error, "a listener's filter cannot be attached");
                }
            }
        }
        if is_attached && self.is_remote {
            thread::sleep(UNTIL_HANDSHAKES_COMPLETE.min(patience));
        }
    }

    /// Lets connections in again if a socket is still open, because a blocked loop was left
    /// running.
    pub(super) fn detach(&self) {
        self.sockets.iter().for_each(|one| before_fork::undo(&one.socket));
    }
}

/// Drops new connections at `socket` until the filter is detached, or the socket closes in all
/// processes. See the [module](self).
pub(super) fn attach_filter(socket: &OwnedFd) -> io::Result<()> {
    let program =
        DROP_BEGINNINGS.map(|sock_filter { code, jt, jf, k }| SockFilter::new(code, jt, jf, k));
    SockRef::from(socket).attach_filter(&program).or_else(|error| {
        // Any other error is not about filters as such.
        if least_ttl::are_filters_refused() { least_ttl::close(socket) } else { Err(error) }
    })
}

/// Does [`attach_filter`] keep new connections out, in all processes that have this socket?
pub(super) fn is_attached(socket: impl AsFd) -> bool {
    is_filtered(&socket) || least_ttl::is_closed(socket)
}

fn is_filtered(socket: impl AsFd) -> bool {
    // Other code may have attached another filter.
    let mut attached = [statement(0, 0, 0, 0); DROP_BEGINNINGS.len()];
    let length = socket_options::filter(socket, &mut attached);
    let parts = |one: &sock_filter| (one.code, one.jt, one.jf, one.k);
    length.is_ok_and(|length| length == attached.len())
        && attached.iter().map(parts).eq(DROP_BEGINNINGS.iter().map(parts))
}

/// Lets nobody in any more at a Unix socket, in all processes that have it.
pub(super) fn shut_down(socket: &OwnedFd) -> io::Result<()> {
    SockRef::from(socket).shutdown(Shutdown::Read)
}

fn detach_filter(socket: &OwnedFd) {
    // This fails if there is no filter any more.
    let _ = SockRef::from(socket).detach_filter();
    if least_ttl::is_closed(socket) {
        let _ = least_ttl::open(socket);
    }
}

/// A classic BPF program: it drops a segment that begins a connection (keeps 0 bytes of it), and
/// keeps any other segment.
const DROP_BEGINNINGS: [sock_filter; 5] = [
    statement(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, 0, 0, FLAGS),
    statement(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, 0, 0, SYN_AND_ACK),
    statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, SYN),
    statement(libc::BPF_RET | libc::BPF_K, 0, 0, 0),
    statement(libc::BPF_RET | libc::BPF_K, 0, 0, u32::MAX),
];

const fn statement(code: u32, jt: u8, jf: u8, k: u32) -> sock_filter {
    // The constants have at most 8 bits.
    sock_filter { code: code as u16, jt, jf, k }
}

#[cfg(all(test, not(wakeful_loom)))]
mod tests {
    use std::io::ErrorKind;
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::{UnixListener, UnixStream};

    use socket2::{Domain, SockAddr, Socket, Type};

    use super::*;

    /// A listener, its socket, and a clone of its record that belongs to a `SharedListener`.
    fn listener() -> (TcpListener, Arc<OwnedFd>, Holders) {
        let holders = Holders::of_new_socket().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = Arc::new(OwnedFd::from(listener.try_clone().unwrap()));
        (listener, socket, holders)
    }

    #[test]
    fn who_is_connected_is_accepted_and_nobody_else_comes_until_it_is_over() {
        let (listener, socket, holders) = listener();
        let addr = listener.local_addr().unwrap();
        let mut filter = SynFilter::default();
        filter.add(&socket, &holders);
        drop(holders);
        let before = TcpStream::connect(addr).unwrap();
        filter.attach(Duration::ZERO);
        // While the filter is attached, a connection attempt gets no answer.
        let error = TcpStream::connect_timeout(&addr, Duration::from_millis(50)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        let (_, peer) = listener.accept().unwrap();
        assert_eq!(peer, before.local_addr().unwrap());
        filter.detach();
        TcpStream::connect(addr).unwrap();
    }

    #[test]
    fn a_socket_that_somebody_else_may_hold_is_left_open() {
        let lend = |holders: Holders| {
            holders.lend();
            None
        };
        let other_holders: [fn(Holders) -> Option<Holders>; 2] = [lend, Some];
        for share in other_holders {
            let (listener, socket, holders) = listener();
            let mut filter = SynFilter::default();
            filter.add(&socket, &holders);
            let _other = share(holders);
            filter.attach(Duration::ZERO);
            let addr = listener.local_addr().unwrap();
            TcpStream::connect_timeout(&addr, Duration::from_secs(20)).unwrap();
        }
    }

    /// An abstract name that the kernel has chosen.
    #[test]
    fn who_waits_at_an_abstract_name_is_accepted_and_nobody_else_comes() {
        for is_alone in [true, false] {
            let holders = Holders::of_new_socket().unwrap();
            let bound = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
            bound.bind(&SockAddr::unix("").unwrap()).unwrap();
            bound.listen(8).unwrap();
            let listener = UnixListener::from(OwnedFd::from(bound));
            let socket = Arc::new(OwnedFd::from(listener.try_clone().unwrap()));
            let addr = listener.local_addr().unwrap();
            let mut filter = SynFilter::default();
            filter.add(&socket, &holders);
            let _other = (!is_alone).then_some(holders);
            let _before = UnixStream::connect_addr(&addr).unwrap();
            filter.attach(Duration::ZERO);
            assert_eq!(UnixStream::connect_addr(&addr).is_err(), is_alone);
            listener.accept().unwrap();
            filter.detach();
        }
    }

    #[test]
    fn a_filter_of_somebody_else_is_not_taken_for_this_one() {
        let (_, socket, _) = listener();
        assert!(!is_attached(&socket));
        // Other filters: one as long as ours, a shorter one, and a longer one.
        let keep = |_| SockFilter::new(DROP_BEGINNINGS[4].code, 0, 0, u32::MAX);
        for length in [DROP_BEGINNINGS.len(), 1, 6] {
            let other: Vec<_> = (0..length).map(keep).collect();
            if let Err(refused) = SockRef::from(&socket).attach_filter(&other) {
                assert_eq!(refused.kind(), ErrorKind::PermissionDenied);
                println!("in part: filters need CAP_NET_ADMIN");
                break;
            }
            assert!(!is_attached(&socket), "{length}");
        }
        attach_filter(&socket).unwrap();
        assert!(is_attached(&socket));
        detach_filter(&socket);
        assert!(!is_attached(&socket));
    }
}
