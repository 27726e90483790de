//! Listeners that let nobody in any more, before they close.
//!
//! A connection that is established between the last `accept` and the `close` of its listener is reset, and its client, which may have sent a request, cannot know that nobody saw it. So for the end a
//! filter drops what would begin a connection (`SO_ATTACH_FILTER`, socket(7): on a listening TCP socket it sees each segment, from its TCP header on). What was under way is established, what is established
//! is accepted, and then the listener closes. Who came meanwhile asks again, a second later, and is refused, or finds another server.
//!
//! A filter is the socket's, whoever else has it: it is taken off again where the socket stays open, and a forked child, whose parent may go on, sets none. Unix sockets have no handshake: there a
//! connection that comes in that moment is still reset.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use socket2::{SockFilter, SockRef};

use crate::driver::home::Home;

/// For handshakes that are under way, where the peer is not on this host.
const SETTLE: Duration = Duration::from_millis(100);

/// A TCP header's byte with its flags, and two of them (RFC 9293, 3.1).
const FLAGS: u32 = 13;
const SYN_AND_ACK: u32 = 0x12;
const SYN: u32 = 0x02;

/// The listening TCP sockets of a server.
#[derive(Debug)]
pub(super) struct Quiet {
    sockets: Vec<Weak<OwnedFd>>,
    is_remote: bool,
    home: Home,
}

impl Quiet {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { sockets: Vec::new(), is_remote: false, home: Home::here()? })
    }

    /// Of a listener; one that is no TCP socket is passed over.
    pub(super) fn add(&mut self, socket: &Arc<OwnedFd>) {
        let addr = SockRef::from(socket).local_addr().ok().and_then(|addr| addr.as_socket());
        // Several loops may share it.
        let socket = Arc::downgrade(socket);
        let is_known = self.sockets.iter().any(|known| known.ptr_eq(&socket));
        if let (Some(addr), false) = (addr, is_known) {
            self.sockets.push(socket);
            self.is_remote |= !addr.ip().to_canonical().is_loopback();
        }
    }

    /// Nobody comes in any more. Takes at most `patience`.
    pub(super) fn begin(&self, patience: Duration) {
        if self.home.is_elsewhere() {
            return;
        }
        self.for_each(|socket| socket.attach_filter(&drop_beginnings()));
        if self.is_remote {
            thread::sleep(SETTLE.min(patience));
        }
    }

    /// Where somebody else keeps the socket, they come in again.
    pub(super) fn end(&self) {
        if !self.home.is_elsewhere() {
            self.for_each(|socket| socket.detach_filter());
        }
    }

    fn for_each(&self, change: impl Fn(&SockRef<'_>) -> io::Result<()>) {
        for socket in self.sockets.iter().filter_map(Weak::upgrade) {
            if let Err(error) = change(&SockRef::from(&socket)) {
                // It closes without, as if nothing were in its way.
                tracing::debug!(%error, "a listener's filter cannot be changed");
            }
        }
    }
}

/// A program of the classic BPF: 0 bytes of a segment that begins a connection are kept, and all of any other.
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

    #[test]
    fn who_is_connected_is_accepted_and_nobody_else_comes_until_it_is_over() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let socket = Arc::new(OwnedFd::from(listener.try_clone().unwrap()));
        let mut quiet = Quiet::new().unwrap();
        quiet.add(&socket);
        let before = TcpStream::connect(addr).unwrap();
        quiet.begin(Duration::ZERO);
        // As long as no one may come in, nothing is answered.
        let error = TcpStream::connect_timeout(&addr, Duration::from_millis(50)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        let (_, peer) = listener.accept().unwrap();
        assert_eq!(peer, before.local_addr().unwrap());
        quiet.end();
        TcpStream::connect(addr).unwrap();
    }
}
