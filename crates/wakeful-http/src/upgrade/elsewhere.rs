//! An upgraded connection that is used on another thread: a task of its loop carries the bytes.
//!
//! [`Elsewhere`] ends with the connection, and its reads say how: by the end of the client's bytes,
//! or by an error. If it is dropped, the connection closes after what was written has been sent,
//! and lingers like any other one. If that was during a panic, or if the loop ends before, the
//! client sees that it was cut off.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use async_channel::{Receiver, Sender};
use futures_util::future::{Either, select, try_join};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use tokio::io::{
    AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf, duplex, split,
};
use wakeful::task::yield_now;
use wakeful::time::sleep;
use wakeful::{LoopBound, LoopHandle};

use super::error::{self, UpgradeError};
use super::offer::{Asker, Offer};
use super::upgraded::{Io, Upgraded};
use crate::foreign_code::SafeWaker;

/// The most bytes on their way between the threads, in each direction.
const BUFFER: usize = 64 << 10;

/// After this many bytes, other tasks of the loop run.
const PIECE: usize = 16 << 10;

/// How long a client may take to read what was written before [`Elsewhere`] was dropped.
const LINGER: Duration = Duration::from_secs(10);

pub(super) struct Elsewhere {
    io: TokioIo<Far>,
    /// The wakers are safe ones, because the loop wakes the user with the lock of `io` held.
    reader: SafeWaker,
    writer: SafeWaker,
    /// The channel closes with this.
    _is_used: Sender<()>,
}

/// The user's end of the stream between the threads.
struct Far {
    stream: DuplexStream,
    end: Arc<End>,
}

/// How the two directions have ended. Each is set before the stream between the threads ends.
#[derive(Default)]
struct End {
    /// How the bytes of the client have ended. If that is not set, the connection's loop has given
    /// the connection up.
    of_client: OnceLock<io::Result<()>>,
    /// A panic of the user has dropped its end.
    user_has_panicked: AtomicBool,
}

impl End {
    /// Only the first call counts.
    fn is(&self, how: io::Result<()>) {
        let _ = self.of_client.set(how);
    }

    fn get(&self) -> io::Result<()> {
        match self.of_client.get() {
            Some(Ok(())) => Ok(()),
            Some(Err(error)) => Err(error::copy(error)),
            None => Err(io::Error::new(
                io::ErrorKind::ConnectionAborted,
                "the server has closed this connection",
            )),
        }
    }
}

/// Makes the loop of `offer` carry its connection's bytes.
///
/// # Errors
/// The loop of `offer` has ended.
pub(super) fn open(offer: &Offer) -> Result<Elsewhere, UpgradeError> {
    let there = offer.clone();
    carried(offer.home(), move || async move {
        poll_fn(|cx| there.poll(Asker::HyperReads, cx)).await.ok()
    })
}

/// The same for a connection that was used on its loop before.
///
/// # Errors
/// The loop of the connection has ended.
pub(super) fn goes_on(stream: LoopBound<Upgraded>) -> Result<Elsewhere, UpgradeError> {
    let home = stream.home().clone();
    carried(&home, move || async move { stream.into_inner().ok() })
}

fn carried<F: Future<Output = Option<Upgraded>> + 'static>(
    home: &LoopHandle,
    stream: impl FnOnce() -> F + Send + 'static,
) -> Result<Elsewhere, UpgradeError> {
    let (far, near) = duplex(BUFFER);
    let (is_used, used) = async_channel::bounded(1);
    let end = Arc::<End>::default();
    let far = Far { stream: far, end: end.clone() };
    let carrying = home.spawn(move || {
        let stream = stream();
        async move {
            if let Some(stream) = stream.await {
                carry(stream, near, used, end).await;
            }
        }
    });
    carrying.map_err(|_| UpgradeError::Refused)?.detach();
    let (reader, writer) = (SafeWaker::default(), SafeWaker::default());
    Ok(Elsewhere { io: TokioIo::new(far), reader, writer, _is_used: is_used })
}

/// Ends when both directions have ended, when the client fails, or when the user is gone and all
/// that it has written is sent.
async fn carry(stream: Upgraded, near: DuplexStream, used: Receiver<()>, end: Arc<End>) {
    // Whenever the loop ends, bytes of the user may be on their way. `outward` says goodbye.
    stream.forgo_goodbye();
    let (mut from_client, mut to_client) = split(TokioIo::new(stream));
    let (mut from_user, mut to_user) = split(near);
    let outward = async {
        // It may have been written to on its loop, and not flushed.
        to_client.flush().await?;
        copy(&mut from_user, &mut to_client).await?;
        if end.user_has_panicked.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        to_client.shutdown().await
    };
    let inward = async {
        // A user that reads no more may still have written.
        let copying = async { end.is(copy(&mut from_client, &mut to_user).await) };
        select(pin!(copying), pin!(used.recv())).await;
        to_user.shutdown().await
    };
    let lingering = async {
        let _ = used.recv().await;
        sleep(LINGER).await;
    };
    if let Either::Left((Err(error), _)) =
        select(pin!(try_join(outward, inward)), pin!(lingering)).await
    {
        end.is(Err(error));
    }
}

async fn copy(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
) -> io::Result<()> {
    let mut piece = vec![0; PIECE];
    loop {
        let count = from.read(&mut piece).await?;
        if count == 0 {
            return Ok(());
        }
        to.write_all(&piece[..count]).await?;
        to.flush().await?;
        yield_now().await;
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.end.user_has_panicked.store(true, Ordering::Relaxed);
        }
    }
}

impl AsyncRead for Far {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let room = buf.remaining();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        let has_ended = room > 0 && buf.remaining() == room;
        Poll::Ready(if has_ended { self.end.get() } else { Ok(()) })
    }
}

impl AsyncWrite for Far {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// The task that carries the bytes has the connection, and drops it.
impl Io for Elsewhere {}

impl Read for Elsewhere {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        this.reader.with(cx, |cx| Pin::new(&mut this.io).poll_read(cx, buf))
    }
}

impl Write for Elsewhere {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        this.writer.with(cx, |cx| Pin::new(&mut this.io).poll_write(cx, buf))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        this.writer.with(cx, |cx| Pin::new(&mut this.io).poll_flush(cx))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        this.writer.with(cx, |cx| Pin::new(&mut this.io).poll_shutdown(cx))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use bytes::Bytes;
    use futures_lite::AsyncReadExt as OfClient;
    use wakeful::net::UnixStream;

    use super::*;

    /// Keeps whether it has announced an end.
    struct Wire(UnixStream, Rc<Cell<bool>>);

    impl Io for Wire {
        fn say_goodbye(&mut self) {
            self.1.set(true);
        }
    }

    impl Read for Wire {
        fn poll_read(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            buf: ReadBufCursor<'_>,
        ) -> Poll<io::Result<()>> {
            Read::poll_read(Pin::new(&mut self.0), cx, buf)
        }
    }

    impl Write for Wire {
        fn poll_write(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            buf: &[u8],
        ) -> Poll<io::Result<usize>> {
            Write::poll_write(Pin::new(&mut self.0), cx, buf)
        }

        fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Write::poll_flush(Pin::new(&mut self.0), cx)
        }

        fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            self.1.set(true);
            Write::poll_shutdown(Pin::new(&mut self.0), cx)
        }
    }

    async fn write(io: &mut Elsewhere, bytes: &[u8]) {
        let written = poll_fn(|cx| Pin::new(&mut *io).poll_write(cx, bytes)).await.unwrap();
        assert_eq!(written, bytes.len());
    }

    /// Ends the loop of a connection whose user has written, and perhaps closed, last. Is that a
    /// clean end for the client?
    fn ends_cleanly(drains: bool, closes: bool) -> bool {
        let said = Rc::<Cell<bool>>::default();
        let of_wire = said.clone();
        // The user keeps it for longer than the loop.
        let _kept = wakeful::block_on(async move {
            let (mut client, stream) = UnixStream::pair().unwrap();
            let (drain, drained) = async_channel::bounded::<()>(1);
            let drained = async move { drained.recv().await.unwrap_or(()) };
            let offer = Offer::new();
            let wire = Wire(stream, of_wire);
            let held = wakeful::spawn(offer.clone().fulfil(wire, Bytes::new(), drained));
            let mut io = open(&offer).unwrap();
            write(&mut io, b"x").await;
            OfClient::read_exact(&mut client, &mut [0]).await.unwrap();
            if drains {
                drain.close();
                held.await.unwrap();
            } else {
                held.detach();
            }
            write(&mut io, b"the rest").await;
            if closes {
                poll_fn(|cx| Pin::new(&mut io).poll_shutdown(cx)).await.unwrap();
                let mut rest = Vec::new();
                OfClient::read_to_end(&mut client, &mut rest).await.unwrap();
                assert_eq!(rest, b"the rest");
            }
            (io, client, drain)
        });
        said.get()
    }

    #[test]
    fn a_loop_that_ends_with_bytes_of_the_user_cuts_the_connection_off() {
        for drains in [false, true] {
            assert!(!ends_cleanly(drains, false), "{drains}");
            assert!(ends_cleanly(drains, true), "{drains}");
        }
    }
}
