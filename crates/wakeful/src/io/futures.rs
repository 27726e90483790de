//! `futures-io`.

use std::io::{self, SeekFrom};
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_io::{AsyncRead, AsyncSeek, AsyncWrite};

use super::{for_readers, impl_write};
use crate::fs::File;
use crate::net::ByteStream;

macro_rules! async_read {
    ($($type:ty),*) => { $(
        impl AsyncRead for $type {
            fn poll_read(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buf: &mut [u8],
            ) -> Poll<io::Result<usize>> {
                self.get_mut().io().poll_read(cx, buf)
            }
        }
    )* };
}

for_readers!(async_read);
impl_write!(AsyncWrite, poll_close);

impl AsyncSeek for File {
    fn poll_seek(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        to: SeekFrom,
    ) -> Poll<io::Result<u64>> {
        self.get_mut().io().poll_seek(cx, to)
    }
}
