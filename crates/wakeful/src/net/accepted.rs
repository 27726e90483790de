//! A new connection, before it is on a loop.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::accept::{next, try_next};
use super::addr::PeerAddr;
use super::detached::DetachedStream;
use super::listener::Listener;
use crate::driver::registered::Registered;

/// A new connection, which no loop watches yet.
#[derive(Debug)]
pub(crate) struct Accepted {
    pub(crate) stream: DetachedStream,
    pub(crate) peer: PeerAddr,
}

impl Listener {
    /// Like [`accept`](Self::accept), for whichever loop the connection is to go to.
    pub(crate) async fn accept_detached(&self) -> io::Result<Accepted> {
        match self {
            Self::Tcp(listener) => next_tcp(listener.socket()).await,
            Self::Unix(listener) => next_unix(listener.socket()).await,
        }
    }

    /// As [`accept_detached`](Self::accept_detached), if there is a connection now.
    pub(crate) fn try_accept_detached(&self) -> io::Result<Option<Accepted>> {
        match self {
            Self::Tcp(listener) => try_next_tcp(listener.socket()),
            Self::Unix(listener) => try_next_unix(listener.socket()),
        }
    }
}

/// [`next`], for whichever loop it is to go to.
async fn next_tcp(listener: &Registered<Arc<OwnedFd>>) -> io::Result<Accepted> {
    let (fd, peer) = next(listener).await?;
    of_tcp(listener, fd, peer.internet())
}

/// As [`next_tcp`].
async fn next_unix(listener: &Registered<Arc<OwnedFd>>) -> io::Result<Accepted> {
    let (fd, _) = next(listener).await?;
    Ok(of_unix(listener, fd))
}

/// As [`next_tcp`], if there is one now.
fn try_next_tcp(listener: &Registered<Arc<OwnedFd>>) -> io::Result<Option<Accepted>> {
    try_next(listener)?.map(|(fd, peer)| of_tcp(listener, fd, peer.internet())).transpose()
}

/// As [`try_next_tcp`].
fn try_next_unix(listener: &Registered<Arc<OwnedFd>>) -> io::Result<Option<Accepted>> {
    Ok(try_next(listener)?.map(|(fd, _)| of_unix(listener, fd)))
}

fn of_tcp(
    listener: &Registered<Arc<OwnedFd>>,
    fd: OwnedFd,
    peer: Option<SocketAddr>,
) -> io::Result<Accepted> {
    let stream = DetachedStream::of_tcp(fd, listener.priority());
    let peer = peer.map_or_else(|| stream.peer_addr(), |peer| Ok(PeerAddr::Tcp(peer)))?;
    Ok(Accepted { stream, peer })
}

fn of_unix(listener: &Registered<Arc<OwnedFd>>, fd: OwnedFd) -> Accepted {
    Accepted { stream: DetachedStream::of_unix(fd, listener.priority()), peer: PeerAddr::Unix }
}
