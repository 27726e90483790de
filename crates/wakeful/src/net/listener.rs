use std::io;
use std::sync::Arc;

use super::{DetachedListener, PeerAddr, Stream, TcpListener, UnixListener};
use crate::driver::door::Door;

/// A TCP or a Unix listener of this loop, for servers that listen on both.
///
/// *Threads*: Neither `Send` nor `Sync`: it stays on its loop's thread.
#[derive(Debug)]
pub enum Listener {
    /// On a TCP port.
    Tcp(TcpListener),
    /// On a Unix socket.
    Unix(UnixListener),
}

impl Listener {
    /// Takes the next connection.
    ///
    /// *Cancel-safe*: a call that has not returned has taken no connection.
    ///
    /// # Errors
    /// As for [`TcpListener::accept`].
    pub async fn accept(&self) -> io::Result<(Stream, PeerAddr)> {
        match self {
            Self::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                Ok((stream.into(), PeerAddr::Tcp(peer)))
            }
            Self::Unix(listener) => Ok((listener.accept().await?.into(), PeerAddr::Unix)),
        }
    }

    /// This loop's place among those that wait, if the socket is shared.
    pub(crate) fn door(&self) -> Option<&Arc<Door>> {
        match self {
            Self::Tcp(listener) => listener.door(),
            Self::Unix(listener) => listener.door(),
        }
    }

    /// Takes the listener off its loop, to [attach](DetachedListener::attach) it to another one.
    pub fn detach(self) -> DetachedListener {
        DetachedListener::take(self)
    }
}
