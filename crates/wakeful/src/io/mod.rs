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

/// Calls `$implement` with the types that read.
macro_rules! for_readers {
    ($implement:ident) => {
        $implement!(
            crate::net::TcpStream,
            crate::net::UnixStream,
            crate::net::Stream,
            crate::net::ReadHalf<'_>,
            crate::net::OwnedReadHalf
        );
    };
}
use for_readers;

/// Implements a trait for the types that write. The traits differ in what they call the end of
/// writing, and in whether they ask about slices.
macro_rules! impl_write {
    ($trait:ident, $shutdown:ident $(, $is_vectored:ident)?) => {
        crate::io::impl_write!(
            @for [
                crate::net::TcpStream,
                crate::net::UnixStream,
                crate::net::Stream,
                crate::net::WriteHalf<'_>,
                crate::net::OwnedWriteHalf
            ]
            $trait, $shutdown, [$($is_vectored)?]
        );
    };
    (@for [$($type:ty),*] $trait:ident, $shutdown:ident, $is_vectored:tt) => { $(
        impl $trait for $type {
            fn poll_write(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buf: &[u8],
            ) -> Poll<io::Result<usize>> {
                self.io().poll_write(cx, buf)
            }

            fn poll_write_vectored(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                slices: &[io::IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                self.io().poll_write_vectored(cx, slices)
            }

            crate::io::impl_write!(@vectored $is_vectored);

            /// Nothing is buffered here.
            fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
                Poll::Ready(Ok(()))
            }

            /// Shuts the write side down.
            fn $shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
                Poll::Ready(self.io().shutdown(std::net::Shutdown::Write))
            }
        }
    )* };
    (@vectored []) => {};
    (@vectored [$is_vectored:ident]) => {
        fn $is_vectored(&self) -> bool {
            true
        }
    };
}
use impl_write;
