//! Whether the client of a connection is gone.

use wakeful::net::Stream;

use crate::tls::TlsStream;

/// A connection of which the kernel may say that nobody is at its other end, though nothing is read
/// or written.
pub(crate) trait Liveness {
    /// It makes no system call. A client that has ended only its own side counts as present.
    fn is_gone(&self) -> bool;
}

impl Liveness for Stream {
    fn is_gone(&self) -> bool {
        self.is_broken()
    }
}

impl<IO: Liveness> Liveness for TlsStream<IO> {
    fn is_gone(&self) -> bool {
        self.get_ref().is_gone()
    }
}
