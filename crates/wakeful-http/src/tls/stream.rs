//! The bytes of a TLS connection, in hyper's traits.
//!
//! rustls does the protocol and no I/O. What it has decrypted is given out before the socket is
//! asked for more: the socket may be empty while a record waits in memory. What it has encrypted is
//! written when the user flushes, or when 64 KiB of it wait, so that a response's parts go out
//! together. Both buffers are bounded, by rustls and by [`ROOM`].
//!
//! The socket is read into a buffer that the connections of a thread share: rustls alone would read
//! 4 KiB at a time. `accept.rs` and `client.rs` begin connections.

use std::cell::Cell;
use std::future::{Future as _, poll_fn};
use std::io::{self, BufRead as _, IoSlice, Write as _};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker, ready};

use hyper::rt::{Read, ReadBuf, ReadBufCursor, Write};
use rustls::pki_types::CertificateDer;
use rustls::{Connection, HandshakeKind};
use wakeful::task::unconstrained;

use super::Alpn;
use crate::read_ration::ReadRation;

/// How much is read from a socket at once: about one record of the largest size.
const ROOM: usize = 16 * 1024;
/// How many bytes a peer may send without any data in them. rustls allows any number of new keys,
/// if there are empty records among them, and each costs some microseconds.
const MOST_WITHOUT_DATA: usize = 128 * 1024;

thread_local! {
    /// Absent while it is in use. A connection through another TLS connection gets a separate
    /// buffer.
    static SHARED: Cell<Option<Box<[u8]>>> = const { Cell::new(None) };
}

/// What the end of the socket means if the peer has not announced it (`close_notify`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Truncation {
    /// It counts as the end, because the peer's messages themselves show where they are complete,
    /// as requests do.
    IsAnEnd,
    /// It is an error, because it may have cut off a response that ends with the connection.
    IsAnError,
}

/// A TLS connection over `IO`, with hyper's [`Read`] and [`Write`].
///
/// Written bytes are sent by a flush (hyper flushes after each response), or when 64 KiB wait. A
/// shutdown sends `close_notify` to the peer, and shuts down the write side of `IO`. If the stream
/// is dropped without a shutdown, the peer sees a truncated connection. If the peer ends without
/// `close_notify`, a read fails with `UnexpectedEof`.
///
/// At any time, one task may read and one other task may write. More tasks must not use the stream
/// at the same time.
///
/// The stream cannot move to another loop, because the state of its keys and counters cannot.
#[derive(Debug)]
pub struct TlsStream<IO> {
    io: IO,
    session: Box<Connection>,
    /// Bytes that were read from the socket and that rustls has not taken yet, from `fed` on.
    unfed: Vec<u8>,
    fed: usize,
    truncation: Truncation,
    /// How many bytes have come since the last data.
    without_data: usize,
    /// Decrypted bytes count for hyper's rations, but not all bytes become such.
    ration: ReadRation,
    /// How many encrypted bytes the socket has taken.
    sent: u64,
    /// A writer waits for the socket. Then a reader must not wait, because a socket wakes only one
    /// of them.
    writer_waits: bool,
    /// `close_notify` has been encrypted, or is not to be sent.
    said_goodbye: bool,
}

impl<IO> TlsStream<IO> {
    /// Makes a stream over `io`, from which `unfed` was read already.
    pub(super) fn new(
        io: IO,
        session: impl Into<Connection>,
        unfed: Vec<u8>,
        truncation: Truncation,
    ) -> Self {
        Self {
            io,
            session: Box::new(session.into()),
            unfed,
            fed: 0,
            truncation,
            without_data: 0,
            ration: ReadRation::default(),
            sent: 0,
            writer_waits: false,
            said_goodbye: false,
        }
    }

    /// Returns the protocol that both sides agreed on (ALPN), or `None` if the client named none.
    #[must_use]
    pub fn alpn(&self) -> Option<Alpn> {
        self.session.alpn_protocol().and_then(Alpn::from_wire)
    }

    /// Returns the peer's certificates, its own first, or `None` if it has sent none.
    #[must_use]
    pub fn peer_certificates(&self) -> Option<&[CertificateDer<'static>]> {
        self.session.peer_certificates().filter(|chain| !chain.is_empty())
    }

    /// Returns whether the handshake resumed an earlier session.
    #[must_use]
    pub fn is_resumed(&self) -> bool {
        self.session.handshake_kind() == Some(HandshakeKind::Resumed)
    }

    /// Returns a reference to the underlying stream.
    #[must_use]
    pub fn get_ref(&self) -> &IO {
        &self.io
    }

    /// Returns how many encrypted bytes the socket has taken.
    pub(crate) fn sent(&self) -> u64 {
        self.sent
    }

    pub(super) fn into_inner(self) -> IO {
        self.io
    }
}

impl<IO: Read + Write + Unpin> TlsStream<IO> {
    /// Does the handshake. What rustls then still has to send goes with the next flush, or before
    /// the socket is read. (A server's tickets go with its first response.)
    pub(super) fn poll_handshake(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.session.is_handshaking() {
            ready!(self.poll_send(cx))?;
            if self.session.is_handshaking() && ready!(self.poll_receive(cx))? == 0 {
                let text = "the peer closed in the middle of the handshake";
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::UnexpectedEof, text)));
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Sends what is encrypted.
    pub(super) fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.session.wants_write() {
            let mut records = Records { io: &mut self.io, cx };
            match self.session.write_tls(&mut records) {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Ok(count) => self.sent += count as u64,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Poll::Pending,
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        // Sockets have no buffer to flush, but other streams may have one.
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_flush_as_writer(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let sent = self.poll_send(cx);
        self.writer_waits = sent.is_pending();
        sent
    }

    /// Sends what still waits, and then `close_notify`, without waiting. What the socket does not
    /// take now is lost.
    pub(crate) fn say_goodbye(&mut self) {
        if !self.said_goodbye {
            self.said_goodbye = true;
            self.session.send_close_notify();
        }
        // There is no later time for this, so the task's budget does not apply.
        let send = unconstrained(poll_fn(|cx| self.poll_send(cx)));
        let _ = pin!(send).poll(&mut Context::from_waker(Waker::noop()));
    }

    /// From now on, no `close_notify` is sent.
    pub(crate) fn forgo_goodbye(&mut self) {
        self.said_goodbye = true;
    }

    /// From now on, an end without the peer's `close_notify` is an error.
    pub(crate) fn require_close_notify(&mut self) {
        self.truncation = Truncation::IsAnError;
    }

    /// Gives rustls the next bytes. Returns how many, 0 at the end.
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.fed < self.unfed.len() {
            let unfed = std::mem::take(&mut self.unfed);
            let count = self.feed(cx, &unfed[self.fed..])?;
            self.fed += count;
            // The buffer is freed if it is empty, so that an idle connection holds none.
            if self.fed < unfed.len() {
                self.unfed = unfed;
            }
            return Poll::Ready(Ok(count));
        }
        let mut room = SHARED.take().unwrap_or_else(|| vec![0; ROOM].into());
        let received = self.poll_receive_into(cx, &mut room);
        SHARED.set(Some(room));
        received
    }

    fn poll_receive_into(
        &mut self,
        cx: &mut Context<'_>,
        room: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        // This sends tickets, alerts and new keys. If it fails, the next write fails, too, so the
        // error is ignored here.
        if !self.writer_waits {
            let _ = self.poll_send(cx);
        }
        let mut buf = ReadBuf::new(room);
        let Self { io, ration, .. } = self;
        ready!(ration.poll_read(cx, buf.unfilled(), |cx, buf| Pin::new(io).poll_read(cx, buf)))?;
        let received = buf.filled();
        if received.is_empty() {
            self.session.read_tls(&mut io::empty())?;
            return Poll::Ready(Ok(0));
        }
        let count = self.feed(cx, received)?;
        if count < received.len() {
            self.unfed = received[count..].to_vec();
            self.fed = 0;
        }
        Poll::Ready(Ok(received.len()))
    }

    /// Gives rustls as much of `records` as it takes.
    fn feed(&mut self, cx: &mut Context<'_>, records: &[u8]) -> io::Result<usize> {
        let mut rest = records;
        while !rest.is_empty() {
            match self.session.read_tls(&mut rest) {
                // After the peer's `close_notify` rustls takes nothing, and further bytes are
                // ignored (RFC 8446, 6.1).
                Ok(0) => return Ok(records.len()),
                Ok(_) => {}
                // A whole record is decrypted and not read, which is enough for now.
                Err(_) => break,
            }
            if let Err(error) = self.session.process_new_packets() {
                // This sends the alert that tells the peer the reason, if the socket takes it at
                // once. If a writer waits, the writer sends it.
                if !self.writer_waits {
                    let _ = self.poll_send(cx);
                }
                return Err(io::Error::new(io::ErrorKind::InvalidData, error));
            }
        }
        if rest.len() == records.len() {
            // rustls was given bytes because nothing was decrypted, so this is a message that never
            // ends.
            let text = "the peer sent a TLS message that is too long";
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        Ok(records.len() - rest.len())
    }
}

impl<IO: Read + Write + Unpin> Read for TlsStream<IO> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let room = buf.remaining();
        while buf.remaining() > 0 {
            let mut reader = this.session.reader();
            match reader.fill_buf() {
                Ok([]) => break,
                Ok(plain) => {
                    let count = plain.len().min(buf.remaining());
                    buf.put_slice(&plain[..count]);
                    reader.consume(count);
                    this.without_data = 0;
                }
                Err(_) if buf.remaining() < room => break,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    this.without_data += ready!(this.poll_receive(cx))?;
                    if this.without_data > MOST_WITHOUT_DATA {
                        let text = "the peer sends TLS records without data";
                        return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, text)));
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    return match this.truncation {
                        Truncation::IsAnEnd => Poll::Ready(Ok(())),
                        Truncation::IsAnError => Poll::Ready(Err(error)),
                    };
                }
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl<IO: Read + Write + Unpin> Write for TlsStream<IO> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if slices.iter().all(|slice| slice.is_empty()) {
            return Poll::Ready(Ok(0));
        }
        loop {
            let taken = self.session.writer().write_vectored(slices)?;
            if taken > 0 {
                return Poll::Ready(Ok(taken));
            }
            // The limit of encrypted bytes that may wait is reached.
            if !self.session.wants_write() {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            ready!(self.poll_flush_as_writer(cx))?;
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush_as_writer(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.said_goodbye {
            self.said_goodbye = true;
            self.session.send_close_notify();
        }
        ready!(self.poll_flush_as_writer(cx))?;
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

/// The socket, for rustls to write to. If it is pending, and only then, the result is `WouldBlock`.
struct Records<'a, 'b, IO> {
    io: &'a mut IO,
    cx: &'a mut Context<'b>,
}

impl<IO: Write + Unpin> io::Write for Records<'_, '_, IO> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        block(Pin::new(&mut *self.io).poll_write(self.cx, buf))
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        block(Pin::new(&mut *self.io).poll_write_vectored(self.cx, slices))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn block(written: Poll<io::Result<usize>>) -> io::Result<usize> {
    match written {
        // A stream that fails with this error has registered no waker.
        Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::WouldBlock => {
            Err(io::Error::other(error))
        }
        Poll::Ready(result) => result,
        Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
    }
}
