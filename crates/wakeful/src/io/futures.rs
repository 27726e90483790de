//! `futures-io`.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_io::{AsyncRead, AsyncWrite};

use super::{for_readers, impl_write};
use crate::net::ByteStream;

macro_rules! async_read {
    ($($type:ty),*) => { $(
        impl AsyncRead for $type {
            fn poll_read(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buf: &mut [u8],
            ) -> Poll<io::Result<usize>> {
                self.io().poll_read(cx, buf)
            }
        }
    )* };
}

for_readers!(async_read);
impl_write!(AsyncWrite, poll_close);
