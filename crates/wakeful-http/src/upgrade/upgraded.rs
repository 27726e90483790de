//! The connection that an upgrade leaves, for every kind of connection.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};

use bytes::{Buf, Bytes};
use futures_io::{AsyncRead, AsyncWrite};
use hyper::rt::{Read, ReadBuf, ReadBufCursor, Write};
use wakeful::process::ProcessMark;

use super::error;
use crate::foreign_code::{self, Locking, SafeWaker};

/// Any connection, TLS or not.
pub(crate) trait Io: Read + Write + Unpin {
    /// Sends what still waits, and announces the end, if the protocol has a message for that
    /// (`close_notify` of TLS). It does not wait: what the socket does not take now is lost.
    fn say_goodbye(&mut self) {}

    /// Stops a later shutdown from announcing the end. The peer then sees that the connection was
    /// cut off.
    fn forgo_goodbye(&mut self) {}

    /// From now on, an end that the peer has not announced is an error, if the protocol has a
    /// message for that.
    fn require_close_notify(&mut self) {}

    /// Returns how many written bytes the kernel still holds. 0: none, or it is not known.
    fn unsent(&self) -> usize {
        0
    }

    /// May a read find an end although the peer has not ended its side? If so,
    /// [`poll_check_end`](Self::poll_check_end) knows.
    fn may_look_ended(&self) -> bool {
        false
    }

    /// Called after a read has found the end. Fails if the peer has not ended its side.
    fn poll_check_end(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Has the drop show the peer that the connection was cut off, if that is possible.
    fn abort(&mut self) {
        self.forgo_goodbye();
    }
}

/// Its drop announces the end.
impl Io for Upgraded {}

#[cfg(test)]
impl Io for wakeful::net::UnixStream {}

/// A connection after an upgrade, which no longer speaks HTTP. It implements the read and write
/// traits of futures-io and of hyper. Dropping it closes the connection.
///
/// With TLS, dropping it also sends the buffered bytes and `close_notify`, so that the peer does
/// not see a truncated connection. But the drop sends only what the socket accepts at once. It
/// sends nothing during a panic, or if the server has already closed the connection. To be sure
/// that everything is sent, await its `close`. [`abort`](Self::abort) sends nothing, and shows the
/// peer that the connection was cut off.
///
/// If a socket closes and its peer still sends, the kernel resets the connection, and the peer may
/// lose data that it has not read. So a server's connection over HTTP/1.1 that is dropped after its
/// `close` reads and discards what still comes: until the client ends its side, until it has sent
/// and taken nothing for 2 s, and for at most 30 s. It counts as open meanwhile. For any other
/// connection, read to the end before you drop it.
///
/// Over HTTP/2, what was written before the drop is still sent as the client makes room for it. If
/// the client takes it more slowly than [`Limits::min_rate`](crate::Limits::min_rate), the stream
/// is reset.
///
/// # Errors
/// With TLS, if the peer closes the connection without `close_notify`, a read fails with
/// `UnexpectedEof`: data may be missing. The kernel reports a reset only once. If a write or a
/// flush has got that error, a later read that finds no more bytes fails with it, too.
///
/// Over HTTP/2, a read also fails if the client resets the stream, whatever the code, and even if
/// the client had ended its side before. There is one exception: if the server has ended its own
/// side, and has sent everything, a reset with the code CANCEL or NO_ERROR looks like an ordinary
/// end. Then only the protocol itself can tell whether all has come.
///
/// If the server has closed it to accept another connection
/// ([`WhenFull::Replace`](wakeful::accept::WhenFull::Replace)), each operation fails with
/// `ConnectionAborted`, and waiting tasks are woken.
///
/// # Threads
/// Neither `Send` nor `Sync`, like the underlying connection.
pub struct Upgraded {
    /// Bytes that came after the request. They are read first.
    unread: Bytes,
    open: Rc<Open>,
    wakers: Wakers,
    /// The write side is shut down.
    has_ended: bool,
    /// The peer is known to have ended its side, or to have failed.
    peer_has_ended: bool,
    /// See [`Io::may_look_ended`].
    may_look_ended: bool,
    /// How a write or a flush has failed. A socket reports its error only once.
    write_error: Option<io::Error>,
    /// The process of the connection. A forked child has a copy of it, and must send nothing.
    home: ProcessMark,
}

impl Upgraded {
    pub(super) fn new(io: impl Io + 'static) -> Self {
        Self::behind(Bytes::new(), io)
    }

    /// Makes a connection from `io`. `unread` was read before, and comes first.
    pub(crate) fn behind(unread: Bytes, io: impl Io + 'static) -> Self {
        let may_look_ended = io.may_look_ended();
        let io = RefCell::new(Some(Locking::new(Box::new(io) as Box<dyn Io>)));
        let open = Rc::new(Open { io, ..Open::default() });
        let (has_ended, peer_has_ended) = (false, false);
        let (wakers, home) = (Wakers::default(), ProcessMark::new());
        let write_error = None;
        Self { unread, open, wakers, has_ended, peer_has_ended, may_look_ended, write_error, home }
    }

    /// Makes a connection that its HTTP connection still holds, too.
    pub(super) fn held(io: impl Io + 'static, unread: Bytes) -> (Self, Held) {
        let upgraded = Self::behind(unread, io);
        upgraded.open.is_held.set(true);
        let held = Held(upgraded.open.clone());
        (upgraded, held)
    }

    /// Closes the connection so that the peer sees that it was cut off, for a protocol in which the
    /// close marks the end of the data. Over TLS it sends no `close_notify`. A plain TCP connection
    /// is reset, and data that the peer has not received yet may be lost. Later operations fail
    /// with `ConnectionAborted`.
    ///
    /// A stream of HTTP/2 is reset with the code CANCEL. A Unix socket ends as it does when this is
    /// dropped.
    pub fn abort(&mut self) {
        // The cell is not borrowed below, because the drop of the io may drop a waker, which is
        // user code.
        let io = self.open.io.borrow_mut().take();
        self.unread.clear();
        let Some(mut io) = io else { return };
        // A reset would also reach the parent's connection.
        if !self.home.is_forked() {
            io.abort();
        }
        drop(io);
        if let Some(connection) = self.open.connection.take() {
            connection.wake();
        }
    }

    /// Returns how many written bytes the kernel still holds, because they have not reached the
    /// peer; over TLS, how many encrypted bytes. If this becomes less, the peer's kernel takes
    /// bytes, although this one may take no further ones for a long time. 0: none, or it is not
    /// known (over HTTP/2, after the close, and if the connection is another loop's). It makes one
    /// system call.
    pub fn unsent(&self) -> usize {
        self.open.io.borrow().as_ref().map_or(0, |io| io.unsent())
    }

    /// Has the drop send nothing, so that the peer sees a truncated connection, unless a shutdown
    /// comes before. The same holds for the loop's end.
    #[cfg(feature = "tokio")]
    pub(super) fn forgo_goodbye(&self) {
        self.open.forgoes_goodbye.set(true);
    }

    fn poll_reading<R>(
        &mut self,
        cx: &mut Context<'_>,
        poll: impl FnOnce(Pin<&mut (dyn Io + 'static)>, &mut Context<'_>) -> Poll<io::Result<R>>,
    ) -> Poll<io::Result<R>> {
        self.open.reader.keep(cx, self.open.is_held.get());
        self.wakers.reader.with(cx, |cx| self.open.with_io(|io| poll(io, cx)))
    }

    fn poll_read_into(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        if buf.unfilled().remaining() == 0 {
            return self.poll_reading(cx, |io, cx| io.poll_read(cx, buf.unfilled()));
        }
        if !self.unread.is_empty() {
            self.take_unread(buf.unfilled());
            return Poll::Ready(Ok(()));
        }
        ready!(self.poll_reading(cx, |io, cx| io.poll_read(cx, buf.unfilled())))?;
        match buf.filled().len() == before {
            true => self.poll_check_end(cx),
            false => Poll::Ready(Ok(())),
        }
    }

    /// Called when a read has found the end. Fails if the peer has not ended its side.
    #[cold]
    fn poll_check_end(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(error) = &self.write_error {
            return Poll::Ready(Err(error::copy(error)));
        }
        let checked = ready!(self.poll_reading(cx, |mut io, cx| io.poll_check_end(cx)));
        // The io may report this only once.
        self.write_error = checked.as_ref().err().map(error::copy);
        Poll::Ready(checked)
    }

    fn take_unread(&mut self, mut buf: ReadBufCursor<'_>) {
        let count = self.unread.len().min(buf.remaining());
        buf.put_slice(&self.unread[..count]);
        self.unread.advance(count);
    }

    fn poll_writing<R>(
        &mut self,
        cx: &mut Context<'_>,
        poll: impl FnOnce(Pin<&mut (dyn Io + 'static)>, &mut Context<'_>) -> Poll<io::Result<R>>,
    ) -> Poll<io::Result<R>> {
        self.open.writer.keep(cx, self.open.is_held.get());
        let polled = self.wakers.writer.with(cx, |cx| self.open.with_io(|io| poll(io, cx)));
        if let Poll::Ready(Err(error)) = &polled
            // The peer had ended before that, so its bytes are complete.
            && error.kind() != io::ErrorKind::BrokenPipe
        {
            self.write_error = Some(error::copy(error));
        }
        polled
    }
}

impl Drop for Upgraded {
    fn drop(&mut self) {
        let may_send = !std::thread::panicking() && !self.home.is_forked();
        if may_send && self.open.is_held.get() && self.has_ended && !self.peer_has_ended {
            self.open.lingers.set(true);
        } else {
            // The cell is not borrowed here, because the drop of the io may drop a waker, which is
            // user code.
            let io = self.open.io.borrow_mut().take();
            if let Some(mut io) = io
                && may_send
                && !self.open.forgoes_goodbye.get()
            {
                io.say_goodbye();
            }
        }
        for waiting in [&self.open.reader, &self.open.writer] {
            foreign_code::discard(waiting.0.take());
        }
        if let Some(connection) = self.open.connection.take() {
            connection.wake();
        }
    }
}

/// The wakers of the two directions.
#[derive(Default)]
struct Wakers {
    reader: SafeWaker,
    writer: SafeWaker,
}

impl fmt::Debug for Upgraded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upgraded").field("unread", &self.unread.len()).finish_non_exhaustive()
    }
}

impl Read for Upgraded {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.unread.is_empty() {
            self.take_unread(buf);
            return Poll::Ready(Ok(()));
        }
        if self.write_error.is_none() && !self.may_look_ended {
            return self.poll_reading(cx, |io, cx| io.poll_read(cx, buf));
        }
        // A cursor that is given away cannot say how much was read.
        let mut space = [0; 4096];
        let room = space.len().min(buf.remaining());
        let mut piece = ReadBuf::new(&mut space[..room]);
        ready!(self.poll_read_into(cx, &mut piece))?;
        buf.put_slice(piece.filled());
        Poll::Ready(Ok(()))
    }
}

impl Write for Upgraded {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_writing(cx, |io, cx| io.poll_write(cx, buf))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_writing(cx, |io, cx| io.poll_write_vectored(cx, slices))
    }

    fn is_write_vectored(&self) -> bool {
        self.open.io.borrow().as_ref().is_some_and(|io| io.is_write_vectored())
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_writing(cx, Write::poll_flush)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let ended = self.poll_writing(cx, Write::poll_shutdown);
        self.has_ended |= matches!(ended, Poll::Ready(Ok(())));
        ended
    }
}

impl AsyncRead for Upgraded {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let has_room = !buf.is_empty();
        let mut buf = ReadBuf::new(buf);
        let read = self.poll_read_into(cx, &mut buf);
        let read = read.map_ok(|()| buf.filled().len());
        self.peer_has_ended |= has_room && matches!(read, Poll::Ready(Ok(0) | Err(_)));
        read
    }
}

impl AsyncWrite for Upgraded {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Write::poll_write(self, cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Write::poll_write_vectored(self, cx, slices)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Write::poll_flush(self, cx)
    }

    /// Shuts down the write side.
    fn poll_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Write::poll_shutdown(self, cx)
    }
}

/// What an upgraded connection and its user share.
#[derive(Default)]
struct Open {
    /// `None`: the connection is closed.
    io: RefCell<Option<Locking<Box<dyn Io>>>>,
    /// Whether an HTTP connection waits for the end, and may cause it.
    is_held: Cell<bool>,
    /// The user has shut the connection down and dropped it, and the peer may still read.
    lingers: Cell<bool>,
    /// Whether the drop announces no end.
    forgoes_goodbye: Cell<bool>,
    connection: Cell<Option<Waker>>,
    reader: Waiting,
    writer: Waiting,
}

impl Open {
    fn with_io<R>(
        &self,
        poll: impl FnOnce(Pin<&mut (dyn Io + 'static)>) -> Poll<io::Result<R>>,
    ) -> Poll<io::Result<R>> {
        match &mut *self.io.borrow_mut() {
            // Wakes by this poll are delayed, by `Locking` and `SafeWaker`.
            Some(io) => poll(Pin::new(&mut ***io)),
            None => Poll::Ready(Err(io::Error::new(
                io::ErrorKind::ConnectionAborted,
                "the server has closed this connection",
            ))),
        }
    }

    fn close(&self) {
        let io = self.io.borrow_mut().take();
        drop(io);
    }

    fn wake_user(&self) {
        for waiting in [&self.reader, &self.writer] {
            if let Some(waker) = waiting.0.take() {
                foreign_code::wake(waker);
            }
        }
    }

    fn is_closed(&self) -> bool {
        self.io.borrow().is_none()
    }
}

/// The waker of the task that last polled one direction.
#[derive(Default)]
struct Waiting(Cell<Option<Waker>>);

impl Waiting {
    fn keep(&self, cx: &Context<'_>, is_held: bool) {
        if !is_held {
            return;
        }
        // The clone and the drop of a waker may run user code.
        let last = self.0.take();
        if last.as_ref().is_some_and(|last| last.will_wake(cx.waker())) {
            self.0.set(last);
            return;
        }
        self.0.set(Some(cx.waker().clone()));
        foreign_code::discard(last);
    }
}

/// The connection's side. It completes when the user has dropped the connection, which may still
/// have to [linger](Self::lingering). If this future is
/// dropped earlier, it closes the connection, although the user still has it.
pub(super) struct Held(Rc<Open>);

impl Future for Held {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.0.is_closed() || self.0.lingers.get() {
            return Poll::Ready(());
        }
        self.0.connection.set(Some(cx.waker().clone()));
        Poll::Pending
    }
}

impl Held {
    /// What the user has left behind, which must not close before the peer has read it.
    pub(super) fn lingering(&self) -> Option<Locking<Box<dyn Io>>> {
        self.0.io.borrow_mut().take()
    }

    /// Leaves the connection to its user, until the loop's end closes it. (The user may be on
    /// another thread, where a drop after that would leak the connection.)
    pub(super) fn leave(self) {
        wakeful::spawn(Left { held: self, home: ProcessMark::new() }).detach();
    }
}

/// A connection that was left to its user.
struct Left {
    held: Held,
    /// See [`Upgraded::home`].
    home: ProcessMark,
}

impl Future for Left {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.held).poll(cx)
    }
}

impl Drop for Left {
    fn drop(&mut self) {
        let Held(open) = &self.held;
        // The drop of the io may drop a waker, which is user code.
        let io = open.io.borrow_mut().take();
        let Some(mut io) = io else { return };
        if !self.home.is_forked() && !open.forgoes_goodbye.get() {
            io.say_goodbye();
        }
        drop(io);
        open.wake_user();
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if !self.0.is_held.replace(false) || self.0.is_closed() {
            return;
        }
        self.0.close();
        self.0.wake_user();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_lite::io::{AsyncReadExt, AsyncWriteExt, split};
    use wakeful::net::UnixStream;
    use wakeful::time::timeout;

    use super::*;

    #[test]
    fn who_reads_or_writes_is_told_that_its_connection_was_taken_away() {
        let told = async {
            let (mut client, stream) = UnixStream::pair().unwrap();
            let (upgraded, held) = Upgraded::held(stream, Bytes::new());
            let (mut reader, mut writer) = split(upgraded);
            let reader = wakeful::spawn(async move { reader.read(&mut [0]).await.map(drop) });
            let writes: wakeful::JoinHandle<io::Result<()>> = wakeful::spawn(async move {
                // This continues until the sockets can hold no more.
                loop {
                    writer.write_all(&[0; 64 << 10]).await?;
                }
            });
            while wakeful::LoopHandle::current().metrics().parks == 0 {
                wakeful::time::sleep(Duration::from_millis(1)).await;
            }
            assert!(!reader.is_finished() && !writes.is_finished());
            drop(held);
            for error in [reader.await.unwrap(), writes.await.unwrap()] {
                assert_eq!(error.unwrap_err().kind(), io::ErrorKind::ConnectionAborted);
            }
            // And so is the client.
            let mut buf = [0; 64 << 10];
            while let Ok(1..) = client.read(&mut buf).await {}
        };
        wakeful::block_on(timeout(Duration::from_secs(20), told)).expect("nobody waits for ever");
    }

    /// A socket that holds two pieces, and whose peer has reset it. It reports its error once, as
    /// the kernel does.
    struct Reset {
        pieces: u8,
        error: Option<io::ErrorKind>,
    }

    impl Io for Reset {}

    impl Read for Reset {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            mut buf: ReadBufCursor<'_>,
        ) -> Poll<io::Result<()>> {
            if self.pieces > 0 {
                self.pieces -= 1;
                buf.put_slice(b"piece");
                return Poll::Ready(Ok(()));
            }
            Poll::Ready(self.error.take().map_or(Ok(()), |error| Err(error.into())))
        }
    }

    impl Write for Reset {
        fn poll_write(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            _: &[u8],
        ) -> Poll<io::Result<usize>> {
            let error = self.error.take().unwrap_or(io::ErrorKind::BrokenPipe);
            Poll::Ready(Err(error.into()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[test]
    fn a_reset_that_a_write_has_seen_is_no_end_for_a_read() {
        use io::ErrorKind::{BrokenPipe, ConnectionReset};
        futures_lite::future::block_on(async {
            // After its peer's end, a socket fails with BrokenPipe.
            for (error, expected) in [(ConnectionReset, Err(ConnectionReset)), (BrokenPipe, Ok(0))]
            {
                let io = Reset { pieces: 2, error: Some(error) };
                let (mut reader, mut writer) = split(Upgraded::behind(Bytes::new(), io));
                assert_eq!(writer.write(b"x").await.unwrap_err().kind(), error);
                let mut piece = [0; 8];
                for _ in 0..2 {
                    assert_eq!(reader.read(&mut piece).await.unwrap(), 5);
                    assert_eq!(&piece[..5], b"piece");
                }
                for _ in 0..2 {
                    let end = reader.read(&mut piece).await;
                    assert_eq!(end.map_err(|error| error.kind()), expected);
                }
            }
        });
    }
}
