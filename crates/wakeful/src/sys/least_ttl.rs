//! Keeps new clients out of a TCP listener by the TTL of what they send (ip(7), `IP_MINTTL`).
//!
//! A filter of the socket is more exact, but newer kernels (6.18.44, for one) permit it only with
//! CAP_NET_ADMIN. This needs no privilege. The kernel drops a segment to the listener if its TTL is
//! below the socket's minimum, but it does not compare those that complete a handshake. Hosts begin
//! with a TTL of 64 or 128, and each router takes one away. So with the largest minimum, 255,
//! nobody comes in but neighbours on the same link that begin with 255, as some load balancers do.
//!
//! (Segments that complete a handshake by a SYN cookie, under a flood of SYNs, are compared, too.)
//!
//! A connection inherits the minimum when its handshake completes, and then the kernel drops all
//! that its peer sends. Whoever accepts it must remove the minimum. Then the peer's next attempt
//! arrives, which may take several of its round trips, and 0.2 s at least. [`until_heard`] says for
//! how long a drain should wait for that. In this process, each accept after [`close`] looks for
//! the minimum. But a socket of several processes may be closed by another one, which may have
//! other capabilities. So there each accept does, which costs a system call more.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketFlags, SocketType, getsockname, socket_with};
use socket2::{SockFilter, SockRef};

use crate::sys::clock::monotonic;
use crate::sys::socket_options::{get_of, set_of};

/// The largest TTL.
const MOST: libc::c_int = 255;
const BY_IPV4: (libc::c_int, libc::c_int) = (libc::IPPROTO_IP, libc::IP_MINTTL);
/// `IPV6_MINHOPCOUNT` of linux/in6.h.
const BY_IPV6: (libc::c_int, libc::c_int) = (libc::IPPROTO_IPV6, 73);

/// Has this process closed a listener so?
static IS_USED: AtomicBool = AtomicBool::new(false);

/// When a minimum was last removed from a connection, on the clock of [`monotonic`]. 0: never.
static REMOVED: AtomicU64 = AtomicU64::new(0);

/// How long a peer may take to send again what the kernel has dropped. By then Linux has sent it a
/// second time over a path with a round trip of 0.3 s, and a third time over one with 0.13 s.
const UNTIL_HEARD: Duration = Duration::from_secs(1);

/// Lets nobody in at this listener any more, in all processes that have it.
///
/// # Errors
/// The kernel's: it is no TCP socket.
pub(crate) fn close(listener: impl AsFd) -> io::Result<()> {
    // This comes before a connection can inherit the minimum.
    IS_USED.store(true, Ordering::SeqCst);
    set(listener, MOST)
}

/// Lets clients in again.
///
/// # Errors
/// The kernel's: it is no TCP socket.
pub(crate) fn open(listener: impl AsFd) -> io::Result<()> {
    set(listener, 0)
}

pub(crate) fn is_closed(listener: impl AsFd) -> bool {
    get_of(listener, BY_IPV4).is_ok_and(|least| least == MOST)
}

/// Removes the minimum that an accepted connection may have inherited. `is_lent`: another process
/// may have closed the listener.
#[inline]
pub(crate) fn remove_inherited(connection: impl AsFd, peer: SocketAddr, is_lent: bool) {
    if !is_lent && !IS_USED.load(Ordering::SeqCst) {
        return;
    }
    // A connection may have inherited only one of the two: they are set one after the other.
    let by = if peer.ip().to_canonical().is_ipv4() { BY_IPV4 } else { BY_IPV6 };
    if get_of(&connection, by).is_ok_and(|least| least == MOST) {
        // The call cannot fail for such a socket.
        let _ = set_of(&connection, by, 0);
        REMOVED.fetch_max(monotonic(), Ordering::Relaxed);
    }
}

/// How long to wait until the peers are heard whose connections had a minimum.
pub(crate) fn until_heard() -> Duration {
    let heard = match REMOVED.load(Ordering::Relaxed) {
        0 => Duration::ZERO,
        removed => Duration::from_nanos(removed) + UNTIL_HEARD,
    };
    heard.saturating_sub(Duration::from_nanos(monotonic()))
}

fn set(listener: impl AsFd, least: libc::c_int) -> io::Result<()> {
    if getsockname(&listener)?.address_family() == AddressFamily::INET6 {
        set_of(&listener, BY_IPV6, least)?;
    }
    // Clients of IPv4 come to a socket of IPv6, too.
    set_of(&listener, BY_IPV4, least)
}

/// Does the kernel refuse filters to this process?
pub(crate) fn are_filters_refused() -> bool {
    static ARE_REFUSED: OnceLock<bool> = OnceLock::new();
    if let Some(are_refused) = ARE_REFUSED.get() {
        return *are_refused;
    }
    // Without a descriptor for the question they may be refused. The next call asks again.
    let Ok(socket) =
        socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)
    else {
        return true;
    };
    let keeps_all = SockFilter::new((libc::BPF_RET | libc::BPF_K) as u16, 0, 0, u32::MAX);
    let are_refused = SockRef::from(&socket).attach_filter(&[keeps_all]).is_err();
    *ARE_REFUSED.get_or_init(|| are_refused)
}

#[cfg(all(test, not(wakeful_loom)))]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    use super::*;

    fn listeners() -> impl Iterator<Item = TcpListener> {
        let bound = ["127.0.0.1:0", "[::1]:0", "[::]:0"].map(TcpListener::bind);
        bound.into_iter().flatten()
    }

    /// The addresses at which clients reach the listener.
    fn addrs(listener: &TcpListener) -> Vec<SocketAddr> {
        let addr = listener.local_addr().unwrap();
        let at = |ip: &str| SocketAddr::new(ip.parse().unwrap(), addr.port());
        if addr.ip().is_unspecified() { vec![at("127.0.0.1"), at("::1")] } else { vec![addr] }
    }

    #[test]
    fn nobody_comes_in_until_it_is_opened_again() {
        for listener in listeners() {
            assert!(!is_closed(&listener));
            close(&listener).unwrap();
            assert!(is_closed(&listener));
            for addr in addrs(&listener) {
                let refused = TcpStream::connect_timeout(&addr, Duration::from_millis(50));
                assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::TimedOut);
            }
            open(&listener).unwrap();
            assert!(!is_closed(&listener));
            for addr in addrs(&listener) {
                TcpStream::connect(addr).unwrap();
            }
        }
    }

    #[test]
    fn whose_handshake_completes_after_the_close_is_heard() {
        for listener in listeners() {
            // The handshake is over for the client, and here with the first byte only.
            crate::sys::socket_options::set(&listener, libc::TCP_DEFER_ACCEPT, 30).unwrap();
            for addr in addrs(&listener) {
                open(&listener).unwrap();
                let mut client = TcpStream::connect(addr).unwrap();
                close(&listener).unwrap();
                client.write_all(b"a").unwrap();
                let (mut accepted, peer) = listener.accept().unwrap();
                assert!(is_closed(&accepted), "inherited");
                if peer.ip().to_canonical().is_ipv6() {
                    // As if the handshake had completed between the two calls of `close`.
                    set_of(&accepted, BY_IPV4, 0).unwrap();
                }
                remove_inherited(&accepted, peer, false);
                client.write_all(b"b").unwrap();
                let mut both = [0; 2];
                accepted.read_exact(&mut both).unwrap();
                assert_eq!(&both, b"ab");
            }
        }
    }
}
