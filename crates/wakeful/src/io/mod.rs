//! The ecosystem's traits on our streams: `futures-io` always, tokio's `AsyncRead` and `AsyncWrite`
//! by the feature `tokio-io`, hyper's by the feature `hyper`. Traits only: none of them brings a
//! runtime along.

mod futures;
#[cfg(feature = "hyper")]
mod hyper;
#[cfg(feature = "tokio-io")]
mod tokio;

#[cfg(feature = "hyper")]
pub use self::hyper::{LoopExecutor, LoopTimer};

/// Calls `$implement` with the types that read, and with those that write.
macro_rules! for_streams {
    (read: $read:ident, write: $write:ident) => {
        $read!(
            crate::net::TcpStream,
            crate::net::UnixStream,
            crate::net::Stream,
            crate::net::ReadHalf<'_>,
            crate::net::OwnedReadHalf
        );
        $write!(
            crate::net::TcpStream,
            crate::net::UnixStream,
            crate::net::Stream,
            crate::net::WriteHalf<'_>,
            crate::net::OwnedWriteHalf
        );
    };
}
use for_streams;

/// `poll_shutdown`, `poll_close`: what all three call the end of writing.
fn shutdown_write(io: &crate::net::StreamIo) -> std::task::Poll<std::io::Result<()>> {
    std::task::Poll::Ready(io.shutdown(std::net::Shutdown::Write))
}
