use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::addr::PeerAddr;
use super::incoming::Incoming;
use super::stream::Stream;
use super::tcp::TcpListener;
use super::unix::UnixListener;
use crate::driver::membership::Membership;
use crate::sys::unsent::{is_backlog_empty, unaccepted};

/// A TCP or a Unix listener of this loop, for servers that listen on both.
///
/// # Threads
/// Neither `Send` nor `Sync`: it stays on its loop's thread.
#[derive(Debug)]
pub enum Listener {
    /// On a TCP port.
    Tcp(TcpListener),
    /// On a Unix socket.
    Unix(UnixListener),
}

impl Listener {
    /// Accepts the next connection.
    ///
    /// # Cancel safety
    /// Cancel-safe: a call that was dropped before it returned has taken no connection.
    ///
    /// # Errors
    /// The same as for [`TcpListener::accept`].
    pub async fn accept(&self) -> io::Result<(Stream, PeerAddr)> {
        match self {
            Self::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                Ok((stream.into(), PeerAddr::Tcp(peer)))
            }
            Self::Unix(listener) => Ok((listener.accept().await?.0.into(), PeerAddr::Unix)),
        }
    }

    /// Polls like [`accept`](Self::accept), for hand-written futures. Only one task at a time may
    /// poll: only the last caller is woken. Any number of tasks may await `accept` meanwhile.
    ///
    /// # Errors
    /// No descriptors are left: the message names the limit, and the connection stays in the
    /// backlog. Wait before you try again (see
    /// [`accept::is_shortage`](crate::accept::is_shortage)).
    ///
    /// # Cancel safety
    /// A poll that was pending has taken no connection.
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(Stream, PeerAddr)>> {
        Poll::Ready(match self {
            Self::Tcp(listener) => {
                let (stream, peer) = ready!(listener.poll_accept(cx))?;
                Ok((stream.into(), PeerAddr::Tcp(peer)))
            }
            Self::Unix(listener) => {
                let (stream, _) = ready!(listener.poll_accept(cx))?;
                Ok((stream.into(), PeerAddr::Unix))
            }
        })
    }

    /// Returns a stream of accepted connections. See [`Incoming`].
    pub fn incoming(&self) -> Incoming<'_, Stream> {
        match self {
            Self::Tcp(listener) => Incoming::new(listener.socket(), |listener, fd| {
                super::tcp::on_loop(listener, fd).map(Stream::Tcp)
            }),
            Self::Unix(listener) => Incoming::new(listener.socket(), |listener, fd| {
                super::unix::on_loop(listener, fd).map(Stream::Unix)
            }),
        }
    }

    /// This loop's membership among the loops that wait, if the socket is shared.
    pub(crate) fn membership(&self) -> Option<&Arc<Membership>> {
        match self {
            Self::Tcp(listener) => listener.membership(),
            Self::Unix(listener) => listener.membership(),
        }
    }

    /// Is the backlog empty? `false` also if the kernel does not tell, and if the listener is
    /// broken: then `accept` returns the reason.
    pub(crate) fn is_empty(&self) -> bool {
        is_backlog_empty(self.fd())
    }

    /// How many connections are in the backlog. For a Unix socket the kernel tells only whether
    /// there is any, so the result is at most 1. If the socket was shut down, so that nobody else
    /// comes in, the kernel does not tell even that, and the result is 0.
    pub(crate) fn waiting(&self) -> u32 {
        let fd = self.fd();
        unaccepted(fd).unwrap_or_else(|| {
            let mut fd = [PollFd::from_borrowed_fd(fd, PollFlags::IN | PollFlags::RDHUP)];
            let is_known = poll(&mut fd, Some(&Timespec::default())).is_ok();
            u32::from(is_known && fd[0].revents() == PollFlags::IN)
        })
    }

    /// Does other code have the socket, too, so that it may accept from it?
    pub(crate) fn is_lent(&self) -> bool {
        match self {
            Self::Tcp(listener) => listener.is_lent(),
            Self::Unix(listener) => listener.is_lent(),
        }
    }

    /// The descriptor's number, for the log.
    pub(crate) fn raw_fd(&self) -> RawFd {
        self.fd().as_raw_fd()
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(listener) => listener.as_fd(),
            Self::Unix(listener) => listener.as_fd(),
        }
    }
}

impl From<TcpListener> for Listener {
    fn from(listener: TcpListener) -> Self {
        Self::Tcp(listener)
    }
}

impl From<UnixListener> for Listener {
    fn from(listener: UnixListener) -> Self {
        Self::Unix(listener)
    }
}
