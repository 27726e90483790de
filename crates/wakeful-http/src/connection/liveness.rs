//! Detects whether the client of a connection is gone.

use std::time::Duration;

use wakeful::net::{Stream, TcpStream};

use crate::tls::TlsStream;

/// A connection for which the kernel may report that the client is gone, even if nothing is read or
/// written.
pub(crate) trait Liveness {
    /// Is the client gone? This makes no system call. A client that has ended only its own side
    /// counts as present.
    fn is_gone(&self) -> bool;

    /// Returns how many written bytes the kernel still holds, because they have not reached the
    /// client. It makes one system call.
    fn unsent(&self) -> usize;

    /// Returns how many written bytes a reset could still take from the client. The bytes in a Unix
    /// socket are the client's, however the connection ends. It makes one system call at most.
    fn at_risk(&self) -> usize;

    /// Returns how many of the `written` bytes the client has taken: those that reached the kernel
    /// and are not [unsent](Self::unsent). With TLS these are encrypted bytes, whatever was written
    /// to it. It makes one system call.
    ///
    /// Only the difference between two numbers means something. A Unix socket also counts the
    /// kernel's own part of each piece as unsent, and a connection from another loop counts what
    /// was written there.
    fn taken(&self, written: u64) -> i64 {
        written.cast_signed().saturating_sub_unsigned(self.unsent() as u64)
    }

    /// Has the close reset the connection. Otherwise the kernel would keep what it has not sent for
    /// minutes, if the client takes nothing.
    fn resets_at_close(&self);

    /// Returns the TCP stream, if it has the bytes as they are, without TLS.
    fn plain_tcp(&self) -> Option<&TcpStream>;
}

impl Liveness for Stream {
    fn is_gone(&self) -> bool {
        self.is_broken()
    }

    fn unsent(&self) -> usize {
        // If the kernel does not tell, nobody should wait for it.
        Self::unsent(self).unwrap_or(0)
    }

    fn at_risk(&self) -> usize {
        self.plain_tcp().map_or(0, |_| Liveness::unsent(self))
    }

    fn resets_at_close(&self) {
        if let Some(stream) = self.plain_tcp() {
            // With a linger of zero, the close is a reset. If this fails, it is an ordinary close.
            let _ = stream.set_linger(Some(Duration::ZERO));
        }
    }

    fn plain_tcp(&self) -> Option<&TcpStream> {
        match self {
            Self::Tcp(stream) => Some(stream),
            Self::Unix(_) => None,
        }
    }
}

impl<IO: Liveness> Liveness for TlsStream<IO> {
    fn is_gone(&self) -> bool {
        self.get_ref().is_gone()
    }

    fn unsent(&self) -> usize {
        self.get_ref().unsent()
    }

    fn at_risk(&self) -> usize {
        self.get_ref().at_risk()
    }

    fn taken(&self, _: u64) -> i64 {
        self.get_ref().taken(self.sent())
    }

    fn resets_at_close(&self) {
        self.get_ref().resets_at_close();
    }

    fn plain_tcp(&self) -> Option<&TcpStream> {
        None
    }
}
