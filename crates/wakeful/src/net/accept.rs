//! The next connection of a listener, TCP or Unix: the system call, and the wait for it.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrAny, SocketFlags};

use crate::driver::registered::Registered;
use crate::driver::source::Direction;
use crate::driver::waiters::Place;
use crate::sys::failures;
use crate::sys::least_ttl;
use crate::sys::limits::{explain_call, explain_call_error};
use crate::task::ready_here;

/// How many connections that are gone [`try_next`] skips.
const MOST_GONE: usize = 64;

/// The peer of a new connection, as far as the kernel has reported it.
#[derive(Debug, Clone, Copy)]
pub(super) enum Peer {
    Internet(SocketAddr),
    /// A Unix socket without a name, which is usual for clients.
    Unnamed,
    /// The kernel has not reported the peer, so it must be asked.
    Unsaid,
}

impl Peer {
    fn of(addr: Option<SocketAddrAny>) -> Self {
        /// Only the family was reported, without a name.
        const UNNAMED: usize = size_of::<libc::sa_family_t>();
        let Some(addr) = addr else { return Self::Unsaid };
        match addr.address_family() {
            AddressFamily::UNIX if addr.addr_len() as usize == UNNAMED => Self::Unnamed,
            // rustix would panic on a path of 108 bytes.
            AddressFamily::UNIX => Self::Unsaid,
            _ => SocketAddr::try_from(addr).map_or(Self::Unsaid, Self::Internet),
        }
    }

    pub(super) fn internet(self) -> Option<SocketAddr> {
        match self {
            Self::Internet(addr) => Some(addr),
            Self::Unnamed | Self::Unsaid => None,
        }
    }
}

/// One of possibly many tasks that wait for connections. It skips connections that their peers have
/// given up.
pub(super) struct Acceptor<'a> {
    listener: &'a Registered<Arc<OwnedFd>>,
    place: Option<Place>,
}

impl<'a> Acceptor<'a> {
    pub(super) fn new(listener: &'a Registered<Arc<OwnedFd>>) -> Self {
        Self { listener, place: None }
    }

    pub(super) fn listener(&self) -> &'a Registered<Arc<OwnedFd>> {
        self.listener
    }

    /// If it is pending, it has taken no connection.
    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<(OwnedFd, Peer)>> {
        let listener = self.listener;
        loop {
            let place = &mut self.place;
            let accepted =
                ready!(super::poll_shared(listener, Direction::Read, place, cx, |socket| {
                    unless_gone(accept(socket, listener.is_lent()))
                }));
            if let Some(accepted) = accepted.transpose() {
                return Poll::Ready(taken(listener, accepted));
            }
        }
    }
}

impl Drop for Acceptor<'_> {
    fn drop(&mut self) {
        self.listener.stop_waiting(Direction::Read, &mut self.place);
    }
}

/// Waits for the next connection, as an [`Acceptor`] does.
///
/// *Cancel-safe*: a call that was dropped before it returned has taken no connection.
pub(super) async fn next(listener: &Registered<Arc<OwnedFd>>) -> io::Result<(OwnedFd, Peer)> {
    let mut acceptor = Acceptor::new(listener);
    poll_fn(|cx| acceptor.poll_next(cx)).await
}

/// Like [`next`], for one task at a time: only the task that asked last is woken.
pub(super) fn poll_next_alone(
    listener: &Registered<Arc<OwnedFd>>,
    cx: &mut Context<'_>,
) -> Poll<io::Result<(OwnedFd, Peer)>> {
    loop {
        let accepted = ready!(super::poll_alone(listener, Direction::Read, cx, |socket| {
            match accept(socket, listener.is_lent()) {
                Err(Errno::AGAIN) => {
                    listener.would_block(Direction::Read);
                    Err(Errno::AGAIN)
                }
                accepted => unless_gone(accepted),
            }
        }));
        if let Some(accepted) = accepted.transpose() {
            return Poll::Ready(taken(listener, accepted));
        }
    }
}

/// `None`: the connection is gone. It is skipped, but counts as one operation of what a task may do
/// in a turn.
fn unless_gone<T>(accepted: Result<T, Errno>) -> Result<Option<T>, Errno> {
    match accepted {
        Err(Errno::CONNABORTED) => Ok(None),
        accepted => accepted.map(Some),
    }
}

fn taken<T>(listener: &Registered<Arc<OwnedFd>>, accepted: io::Result<T>) -> io::Result<T> {
    let accepted = accepted.map_err(explain_call_error("accept4"))?;
    listener.one_taken(ready_here());
    Ok(accepted)
}

/// The next connection, if there is one.
pub(super) fn try_next(listener: &Registered<Arc<OwnedFd>>) -> io::Result<Option<(OwnedFd, Peer)>> {
    let mut gone = 0;
    loop {
        match accept(listener.io(), listener.is_lent()) {
            Ok(accepted) => return Ok(Some(accepted)),
            Err(Errno::AGAIN) => return Ok(None),
            Err(Errno::INTR) => {}
            Err(Errno::CONNABORTED) if gone < MOST_GONE => gone += 1,
            Err(error) => return Err(explain_call("accept4")(error)),
        }
    }
}

/// Accepts one connection, by one system call. If other code has the socket too (`is_lent`), there
/// are two more, because that code may have made the socket blocking, or closed it by its least TTL
/// ([`least_ttl`]). `CONNABORTED`: the connection is gone, whatever error the kernel returned.
fn accept(listener: &Arc<OwnedFd>, is_lent: bool) -> Result<(OwnedFd, Peer), Errno> {
    failures::at(failures::Call::Accept)?;
    if is_lent {
        // If the call is refused, the socket stays as it was.
        let _ = rustix::io::ioctl_fionbio(listener, true);
    }
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    match rustix::net::acceptfrom_with(&**listener, flags) {
        Ok((fd, peer)) => {
            let peer = Peer::of(peer);
            if let Peer::Internet(addr) = peer {
                least_ttl::remove_inherited(&fd, addr, is_lent);
            }
            Ok((fd, peer))
        }
        // According to accept(2), these are errors of the connection, not of the listener.
        Err(
            Errno::PROTO
            | Errno::NETDOWN
            | Errno::HOSTDOWN
            | Errno::HOSTUNREACH
            | Errno::NETUNREACH
            | Errno::NONET
            | Errno::NOPROTOOPT,
        ) => Err(Errno::CONNABORTED),
        Err(error) => Err(error),
    }
}
