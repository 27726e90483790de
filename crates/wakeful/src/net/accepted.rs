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
    /// Like [`accept`](Self::accept), but leaves open which loop will have the connection.
    pub(crate) async fn accept_detached(&self) -> io::Result<Accepted> {
        match self {
            Self::Tcp(listener) => next_tcp(listener.socket()).await,
            Self::Unix(listener) => next_unix(listener.socket()).await,
        }
    }

    /// Like [`accept_detached`](Self::accept_detached), but returns `None` if there is no
    /// connection now.
    pub(crate) fn try_accept_detached(&self) -> io::Result<Option<Accepted>> {
        match self {
            Self::Tcp(listener) => try_next_tcp(listener.socket()),
            Self::Unix(listener) => try_next_unix(listener.socket()),
        }
    }
}

/// Like [`next`], but leaves open which loop will have the connection.
async fn next_tcp(listener: &Registered<Arc<OwnedFd>>) -> io::Result<Accepted> {
    let (fd, peer) = next(listener).await?;
    of_tcp(listener, fd, peer.internet())
}

/// Like [`next_tcp`], for a Unix socket.
async fn next_unix(listener: &Registered<Arc<OwnedFd>>) -> io::Result<Accepted> {
    let (fd, _) = next(listener).await?;
    Ok(of_unix(listener, fd))
}

/// Like [`next_tcp`], but returns `None` if there is no connection now.
fn try_next_tcp(listener: &Registered<Arc<OwnedFd>>) -> io::Result<Option<Accepted>> {
    try_next(listener)?.map(|(fd, peer)| of_tcp(listener, fd, peer.internet())).transpose()
}

/// Like [`try_next_tcp`], for a Unix socket.
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
