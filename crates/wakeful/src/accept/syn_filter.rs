//! Listeners that accept no new clients while they drain.
//!
//! The kernel resets a connection that is established between the last `accept` and the `close` of
//! its listener. Its client may have sent a request, and cannot know that nobody saw it. So a
//! draining server attaches a filter that drops each SYN (`SO_ATTACH_FILTER`, socket(7): on a
//! listening TCP socket it sees each segment from its TCP header on). Handshakes under way
//! complete, the server accepts what is established, and the listener closes. A client that was
//! dropped sends its SYN again a second later, and is refused or reaches another server.
//!
//! A filter belongs to the socket. It blocks the socket for all holders, and permanently if the
//! process that attached it is killed. So it is attached only if this server is the only holder
//! ([`Holders`]), and removed before a fork. Any other listener drains without a filter: it accepts
//! what the backlog holds and closes.
//!
//! A Unix socket has no handshake to hold back. There the server removes the socket file first.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use socket2::{SockFilter, SockRef};

use super::holders::Holders;
use crate::sys::before_fork;
use crate::sys::panics;
use crate::sys::socket_options;

/// For handshakes that are under way, where the peer is not on this host.
const SETTLE: Duration = Duration::from_millis(100);

/// A TCP header's byte with its flags, and two of them (RFC 9293, 3.1).
const FLAGS: u32 = 13;
const SYN_AND_ACK: u32 = 0x12;
const SYN: u32 = 0x02;

/// The listening TCP sockets of a server.
#[derive(Debug, Default)]
pub(super) struct SynFilter {
    sockets: Vec<(Weak<OwnedFd>, Holders)>,
    is_remote: bool,
}

impl SynFilter {
    /// Adds a listener. A socket that is not TCP, or that is known already, is skipped.
    pub(super) fn add(&mut self, socket: &Arc<OwnedFd>, holders: &Holders) {
        let addr = SockRef::from(socket).local_addr().ok().and_then(|addr| addr.as_socket());
        let socket = Arc::downgrade(socket);
        let is_known = self.sockets.iter().any(|(known, _)| known.ptr_eq(&socket));
        if let (Some(addr), false) = (addr, is_known) {
            self.sockets.push((socket, holders.clone()));
            self.is_remote |= !addr.ip().to_canonical().is_loopback();
        }
    }

    /// Keeps new connections out. Takes at most `patience`.
    pub(super) fn attach(&self, patience: Duration) {
        let mut is_attached = false;
        for (socket, holders) in &self.sockets {
            let Some(socket) = socket.upgrade() else { continue };
            match holders.change_if_alone(&socket, attach_filter, detach_filter) {
                Ok(changed) => is_attached |= changed,
                // The listener closes without a filter.
                Err(error) => {
                    panics::log!(debug, %error, "a listener's filter cannot be attached");
                }
            }
        }
        if is_attached && self.is_remote {
            thread::sleep(SETTLE.min(patience));
        }
    }

    /// Lets connections in again where a socket is still open: a blocked loop was left behind.
    pub(super) fn detach(&self) {
        self.sockets.iter().for_each(|(socket, _)| before_fork::undo(socket));
    }
}

/// See the [module](self). Until it is detached, or the socket closes in all processes.
pub(super) fn attach_filter(socket: &OwnedFd) -> io::Result<()> {
    SockRef::from(socket).attach_filter(&drop_beginnings())
}

/// Whether nobody comes in any more: in all processes that have this socket.
pub(super) fn is_attached(socket: impl AsFd) -> bool {
    // A filter of somebody else's may be as long. Nobody else is known to attach one to a listener.
    socket_options::filter_length(socket).is_ok_and(|length| length == drop_beginnings().len())
}

fn detach_filter(socket: &OwnedFd) {
    // It fails if there is no filter any more.
    let _ = SockRef::from(socket).detach_filter();
}

/// A program of the classic BPF: 0 bytes of a segment that begins a connection are kept, and all of
/// any other.
fn drop_beginnings() -> [SockFilter; 5] {
    // The constants have at most 8 bits.
    let code = |code: u32| u16::try_from(code).unwrap_or(0);
    let load_byte = code(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS);
    let and = code(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K);
    let jump_if_equal = code(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K);
    let keep = code(libc::BPF_RET | libc::BPF_K);
    [
        SockFilter::new(load_byte, 0, 0, FLAGS),
        SockFilter::new(and, 0, 0, SYN_AND_ACK),
        SockFilter::new(jump_if_equal, 0, 1, SYN),
        SockFilter::new(keep, 0, 0, 0),
        SockFilter::new(keep, 0, 0, u32::MAX),
    ]
}

#[cfg(all(test, not(wakeful_loom)))]
mod tests {
    use std::io::ErrorKind;
    use std::net::{TcpListener, TcpStream};

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
        // As long as no one may come in, nothing is answered.
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
}
