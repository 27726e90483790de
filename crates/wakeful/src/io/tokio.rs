//! tokio's traits.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{for_readers, impl_write};
use crate::net::ByteStream;

macro_rules! async_read {
    ($($type:ty),*) => { $(
        impl AsyncRead for $type {
            fn poll_read(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buf: &mut ReadBuf<'_>,
            ) -> Poll<io::Result<()>> {
                self.io().poll_read(cx, buf).map_ok(|_| ())
            }
        }
    )* };
}

for_readers!(async_read);
impl_write!(AsyncWrite, poll_shutdown, is_write_vectored);
