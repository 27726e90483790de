//! [`stdin`], [`stdout`] and [`stderr`], and I/O traits of other crates for wakeful's streams,
//! pipes and files: `futures-io` always, tokio's `AsyncRead` and `AsyncWrite` with the feature
//! `tokio-io`, hyper's with the feature `hyper`. These are only traits: none of them adds a
//! runtime.

mod futures;
#[cfg(feature = "hyper")]
mod hyper;
mod standard;
mod stdin;
#[cfg(feature = "tokio-io")]
mod tokio;

#[cfg(feature = "hyper")]
pub use self::hyper::{LoopExecutor, LoopTimer};
pub use self::standard::{stderr, stdout};
pub use self::stdin::{Stdin, stdin};

/// Calls `$implement` with the types that read.
macro_rules! for_readers {
    ($implement:ident) => {
        $implement!(
            crate::net::TcpStream,
            crate::net::UnixStream,
            crate::net::Stream,
            crate::net::ReadHalf<'_>,
            crate::net::OwnedReadHalf,
            crate::net::pipe::Receiver,
            crate::fs::File,
            crate::io::Stdin
        );
    };
}
use for_readers;

/// Implements a trait for the types that write. The traits differ in the name of the method that
/// ends writing, and in whether they have `is_write_vectored`.
macro_rules! impl_write {
    ($trait:ident, $shutdown:ident $(, $is_vectored:ident)?) => {
        crate::io::impl_write!(
            @for [
                crate::net::TcpStream,
                crate::net::UnixStream,
                crate::net::Stream,
                crate::net::WriteHalf<'_>,
                crate::net::OwnedWriteHalf,
                crate::net::pipe::Sender,
                crate::fs::File
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
                self.get_mut().io().poll_write(cx, buf)
            }

            fn poll_write_vectored(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                slices: &[io::IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                self.get_mut().io().poll_write_vectored(cx, slices)
            }

            crate::io::impl_write!(@vectored $is_vectored);

            fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                self.get_mut().io().poll_flush(cx)
            }

            /// Shuts down a socket's write side, closes a pipe, or flushes a file.
            fn $shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                self.get_mut().io().poll_shutdown(cx)
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
