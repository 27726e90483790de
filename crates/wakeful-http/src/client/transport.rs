//! The stream that carries the bytes of a connection, and what was observed on it.

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::mem::MaybeUninit;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Instant;

use hyper::rt::{Read, ReadBuf, ReadBufCursor, Write};
use wakeful::net::Stream;
use wakeful::task::consume_budget;
use wakeful::time::turn_time;

use super::until_head::UntilHead;
use crate::foreign_code;
use crate::read_ration::ReadRation;
use crate::tls::TlsStream;
use crate::upgrade::Io;

/// The stream that carries the bytes.
#[derive(Debug)]
pub(super) enum Transport {
    Plain(Stream),
    Tls(TlsStream<Stream>),
}

impl Read for Transport {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

/// What was observed on a connection since it got its last request. This decides whether the
/// request may be sent again.
#[derive(Default)]
pub(super) struct Observed {
    /// Used with HTTP/1.1 only.
    written: Cell<bool>,
    reads: Cell<u64>,
    /// When the last read succeeded.
    heard: Cell<Option<Instant>>,
    /// Whether the next read must ask the kernel.
    asks: Cell<bool>,
    is_closed: Cell<bool>,
    /// Woken when the stream is closed.
    close: Cell<Option<Waker>>,
    /// Used with HTTP/1.1 only.
    until_head: UntilHead,
    after_reset: Cell<AfterReset>,
    is_reset: Cell<bool>,
    /// With HTTP/1.1 only: the server reset the connection without ending it first. Then the end of
    /// file that the next reads return is not the end of a response.
    is_broken_off: Cell<bool>,
}

/// What becomes of writes when the server has reset the connection.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum AfterReset {
    /// They fail.
    #[default]
    Fail,
    /// They stay pending, and what came before the reset is read.
    Wait,
    /// They succeed, but their bytes are discarded. What came before the reset is read.
    Discard,
}

impl Observed {
    /// Returns whether something was written.
    pub(super) fn has_written(&self) -> bool {
        self.written.get()
    }

    /// Returns how many reads succeeded; the last one may have been the end.
    pub(super) fn reads(&self) -> u64 {
        self.reads.get()
    }

    /// Returns when anything was last received. It is not [forgotten](Self::forget).
    pub(super) fn heard(&self) -> Option<Instant> {
        self.heard.get()
    }

    /// Waits until the stream is closed. One task may wait for that.
    pub(super) async fn closed(&self) {
        poll_fn(|cx| {
            if self.is_closed.get() {
                return Poll::Ready(());
            }
            self.close.set(Some(cx.waker().clone()));
            Poll::Pending
        })
        .await;
    }

    /// Before anything else is written, checks whether the server has closed, by one system call.
    /// It sees what came during this turn of the loop.
    pub(super) fn look_first(&self) {
        self.asks.set(true);
    }

    /// A response's head is awaited from now on. It may have at most this size.
    pub(super) fn awaits_head(&self, max_header_size: usize) {
        self.until_head.begin(max_header_size);
    }

    /// The head has come, or is no longer awaited.
    pub(super) fn head_has_come(&self) {
        self.until_head.end();
    }

    /// A server may answer, and then reset the connection because it does not read the rest of the
    /// request. hyper would drop that response when a write fails. So after this call a write that
    /// fails in this way stays pending, and what the server sent is read to its end. The
    /// connection's task must then end the connection [with the response](Self::is_reset).
    pub(super) fn hear_out(&self) {
        self.after_reset.set(AfterReset::Wait);
    }

    /// Like [`hear_out`](Self::hear_out), for HTTP/2. h2 may have to write before it reads, so
    /// everything that it writes after a reset is discarded. A request whose frames are discarded
    /// fails when the end is read. The connection must get [no more requests](Self::is_reset).
    pub(super) fn hear_out_and_discard(&self) {
        self.after_reset.set(AfterReset::Discard);
    }

    /// The write that found out has failed with `error`. The stream `is_plain`, or that of TLS.
    #[cold]
    pub(super) fn note_reset(&self, error: &io::Error, is_plain: bool) {
        self.is_reset.set(true);
        if self.after_reset.get() == AfterReset::Wait {
            // If the server had ended the connection before the reset, the kernel reports
            // `BrokenPipe`. With TLS the end is a message, so the kernel's error does not tell
            // whether it came.
            let has_no_end = error.kind() == io::ErrorKind::ConnectionReset;
            self.is_broken_off.set(has_no_end && is_plain);
        }
        // The response, or the end, is there, so the next read must ask the kernel.
        self.asks.set(true);
    }

    /// Returns whether the server has reset the connection, and nothing more can be written.
    pub(super) fn is_reset(&self) -> bool {
        self.is_reset.get()
    }

    /// Forgets what was observed, because another request has the connection.
    pub(super) fn forget(&self) {
        self.written.set(false);
        self.reads.set(0);
    }
}

/// A transport that reports to [`Observed`].
pub(super) struct ObservedTransport {
    transport: Transport,
    observed: Rc<Observed>,
    ration: ReadRation,
}

impl ObservedTransport {
    pub(super) fn new(transport: Transport) -> (Self, Rc<Observed>) {
        let observed = Rc::<Observed>::default();
        (Self { transport, observed: observed.clone(), ration: ReadRation::default() }, observed)
    }

    fn stream(&self) -> &Stream {
        match &self.transport {
            Transport::Plain(stream) => stream,
            Transport::Tls(stream) => stream.get_ref(),
        }
    }

    /// Writes, unless the connection is reset.
    fn poll_write_by<T>(
        &mut self,
        cx: &mut Context<'_>,
        write: impl FnOnce(&mut Transport, &mut Context<'_>) -> Poll<io::Result<T>>,
        discarded: impl FnOnce() -> T,
    ) -> Poll<io::Result<T>> {
        if self.observed.is_reset() {
            return self.poll_write_reset(cx, discarded);
        }
        let written = write(&mut self.transport, cx);
        match &written {
            Poll::Ready(Err(error)) if is_reset(error) && self.hears_out() => {
                let is_plain = matches!(self.transport, Transport::Plain(_));
                self.observed.note_reset(error, is_plain);
                cx.waker().wake_by_ref();
                self.poll_write_reset(cx, discarded)
            }
            _ => written,
        }
    }

    fn hears_out(&self) -> bool {
        self.observed.after_reset.get() != AfterReset::Fail
    }

    /// Writes to a connection that is reset.
    #[cold]
    fn poll_write_reset<T>(
        &self,
        cx: &mut Context<'_>,
        discarded: impl FnOnce() -> T,
    ) -> Poll<io::Result<T>> {
        if self.observed.after_reset.get() == AfterReset::Wait {
            return Poll::Pending;
        }
        // No socket limits how much is discarded in one poll, so the task's budget does.
        pin!(consume_budget()).poll(cx).map(|()| Ok(discarded()))
    }

    /// Reads what came before a reset. A response that ends with its connection is not whole.
    #[cold]
    fn poll_read_broken_off(
        &mut self,
        cx: &mut Context<'_>,
        mut buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        self.observed.asks.set(true);
        let mut scratch = [MaybeUninit::uninit(); 4096];
        let room = scratch.len().min(buf.remaining());
        let mut read = ReadBuf::uninit(&mut scratch[..room]);
        ready!(Pin::new(&mut self.transport).poll_read(cx, read.unfilled()))?;
        if read.filled().is_empty() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        buf.put_slice(read.filled());
        Poll::Ready(Ok(()))
    }

    fn wrote(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if matches!(written, Poll::Ready(Ok(1..))) {
            self.observed.written.set(true);
        }
        written
    }
}

impl Drop for ObservedTransport {
    fn drop(&mut self) {
        self.observed.is_closed.set(true);
        self.observed.close.take().into_iter().for_each(foreign_code::wake);
    }
}

fn is_reset(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset};
    matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset)
}

impl Io for ObservedTransport {
    fn unsent(&self) -> usize {
        self.stream().unsent().unwrap_or(0)
    }

    fn say_goodbye(&mut self) {
        if let Transport::Tls(stream) = &mut self.transport {
            stream.say_goodbye();
        }
    }

    fn forgo_goodbye(&mut self) {
        if let Transport::Tls(stream) = &mut self.transport {
            stream.forgo_goodbye();
        }
    }

    fn abort(&mut self) {
        match &mut self.transport {
            Transport::Plain(stream) => stream.abort(),
            Transport::Tls(stream) => stream.forgo_goodbye(),
        }
    }
}

impl Read for ObservedTransport {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let asks = self.observed.asks.take();
        if asks {
            self.stream().ask_anew();
        }
        let read = if asks && self.observed.is_broken_off.get() {
            self.poll_read_broken_off(cx, buf)
        } else {
            let Self { transport, observed, ration } = &mut *self;
            ration.poll_read(cx, buf, |cx, buf| {
                // Most heads come with the first read.
                if observed.reads.get() > 0 && observed.until_head.is_awaited() {
                    observed.until_head.poll_read(transport, cx, buf)
                } else {
                    Pin::new(transport).poll_read(cx, buf)
                }
            })
        };
        if matches!(read, Poll::Ready(Ok(()))) {
            self.observed.reads.set(self.observed.reads.get().saturating_add(1));
            self.observed.heard.set(Some(turn_time()));
        }
        read
    }
}

impl Write for ObservedTransport {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let write = |transport: &mut Transport, cx: &mut Context<'_>| match transport {
            Transport::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Transport::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
        };
        let written = self.poll_write_by(cx, write, || buf.len());
        self.wrote(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let write = |transport: &mut Transport, cx: &mut Context<'_>| match transport {
            Transport::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
            Transport::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
        };
        let all = || slices.iter().map(|slice| slice.len()).sum();
        let written = self.poll_write_by(cx, write, all);
        self.wrote(written)
    }

    fn is_write_vectored(&self) -> bool {
        match &self.transport {
            Transport::Plain(stream) => stream.is_write_vectored(),
            Transport::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flush = |transport: &mut Transport, cx: &mut Context<'_>| match transport {
            Transport::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Transport::Tls(stream) => Pin::new(stream).poll_flush(cx),
        };
        self.poll_write_by(cx, flush, || ())
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.transport {
            Transport::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Transport::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
