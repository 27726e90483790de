//! tokio's traits.

use std::io::{self, SeekFrom};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncSeek, AsyncWrite, ReadBuf};

use super::{for_readers, impl_write};
use crate::fs::File;
use crate::net::ByteStream;

macro_rules! async_read {
    ($($type:ty),*) => { $(
        impl AsyncRead for $type {
            fn poll_read(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buf: &mut ReadBuf<'_>,
            ) -> Poll<io::Result<()>> {
                self.get_mut().io().poll_read(cx, buf).map_ok(|_| ())
            }
        }
    )* };
}

for_readers!(async_read);
impl_write!(AsyncWrite, poll_shutdown, is_write_vectored);

impl AsyncSeek for File {
    fn start_seek(self: Pin<&mut Self>, to: SeekFrom) -> io::Result<()> {
        self.get_mut().io().start_seek(to)
    }

    fn poll_complete(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<u64>> {
        self.get_mut().io().poll_sought(cx)
    }
}
