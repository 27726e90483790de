//! The connection of a WebSocket: what is read and written, and the phases in which it ends.
//!
//! Reading drives it: it answers pings, notices the drain, and tells a client that breaks the
//! protocol why. After the server's Close it sends nothing more. Messages that the client had sent
//! before it saw the Close are read, and delivered or dropped: a connection that is closed with
//! unread bytes is reset, and a reset may overtake the Close.
//!
//! A Close that the handler sends itself limits the time of the reading, too. The handler may have
//! sent it by another half than the one that reads, so it wakes the reader.
//!
//! At the end nothing waits for room any more: a half that writes is woken, and fails.
//!
//! After the client's Close it only sends what waits. The next read of tungstenite would end the
//! connection, whether or not everything is sent. From then on tungstenite's flush writes to the
//! connection below, but does not flush it, and TLS keeps what is written until it is flushed.
//!
//! tungstenite keeps every pong until it is sent. If a client does not read its pongs, the server
//! stops reading from it once [`MOST_PONGS`] may wait.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use async_tungstenite::WebSocketStream;
use async_tungstenite::tungstenite::error::{CapacityError, ProtocolError};
use futures_core::Stream;
use futures_io::{AsyncRead, AsyncWrite};
use futures_util::Sink;
use wakeful::task::consume_budget;
use wakeful::time::Deadline;

use super::flushers::Flushers;
use super::lengths::{Followed, Refused};
use super::{CloseCode, CloseFrame, Error, Message};
use crate::drain::{DrainBegins, drain_begins};
use crate::foreign_code::SafeWaker;

/// How long the client may take to answer a Close, and to make room for the answer to its own.
pub(super) const CLOSE_WAIT: Duration = Duration::from_secs(5);

/// The most bytes of pongs that may wait for the client to read them.
const MOST_PONGS: usize = 64 << 10;

/// The maximum size of the header of a server's frame, in bytes.
const FRAME_HEAD: usize = 10;

/// How many messages are discarded before other tasks run.
const DISCARDED_AT_ONCE: usize = 64;

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Connection {
    inner: WebSocketStream<Followed>,
    /// The waiting reader. tungstenite would drop a waker with its own lock held, and wake the
    /// reader before the writer.
    reader: SafeWaker,
    flushers: Flushers,
    linger: Duration,
    phase: Phase,
    /// How many bytes of pongs were queued since everything was sent.
    pongs: usize,
    /// The handler has queued a Close itself.
    has_close: bool,
    /// The next read pays for the last message. One operation has to be enough for a message,
    /// although the socket spends one, too.
    owes: bool,
}

#[derive(Debug)]
enum Phase {
    Open(DrainBegins),
    /// The server drains, and the socket still has the linger time.
    Lingering(Deadline),
    /// Our Close is being sent. The client's Close must come by this deadline.
    Closing(Deadline),
    /// The client's Close has come. What waits, the answer to it included, must be sent by this
    /// deadline.
    Answering(Deadline),
    /// The client broke the protocol, and was told. It must close by this deadline.
    Discarding(Deadline, Option<Error>),
    Ended,
}

impl Connection {
    pub(super) fn new(inner: WebSocketStream<Followed>, linger: Duration) -> Self {
        let (reader, flushers) = (SafeWaker::default(), Flushers::new());
        let phase = Phase::Open(drain_begins());
        Self { inner, reader, flushers, linger, phase, pongs: 0, has_close: false, owes: false }
    }

    pub(super) async fn recv(&mut self) -> Option<Result<Message, Error>> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// Sends a Close, unless one was sent, and reads until the client's Close has come or the time
    /// is up.
    pub(super) async fn close(&mut self, frame: Option<CloseFrame>) -> Result<(), Error> {
        if matches!(self.phase, Phase::Open(_) | Phase::Lingering(_)) {
            self.queue_pongs();
            // The Close is queued whether or not there is room for it, and further reads send it.
            match Pin::new(&mut self.inner).start_send(Message::Close(frame)) {
                // The handler has sent a Close before.
                Ok(()) | Err(Error::Protocol(ProtocolError::SendAfterClosing)) => {}
                Err(Error::ConnectionClosed | Error::AlreadyClosed) => return Ok(()),
                Err(error) => return Err(error),
            }
            self.phase = Phase::Closing(Deadline::after(CLOSE_WAIT));
        }
        while let Some(message) = self.recv().await {
            message?;
        }
        Ok(())
    }

    /// Returns whether a Close of the server may still be on its way to the client. If so, the
    /// caller must continue to call `recv`, and the time for that is limited from now on at the
    /// latest.
    pub(super) fn is_closing(&mut self) -> bool {
        self.limit_close();
        matches!(self.phase, Phase::Closing(_) | Phase::Answering(_) | Phase::Discarding(..))
    }

    /// If the handler has queued a Close itself, the client's must come within the time for it.
    fn limit_close(&mut self) {
        if self.has_close && matches!(self.phase, Phase::Open(_) | Phase::Lingering(_)) {
            self.phase = Phase::Closing(Deadline::after(CLOSE_WAIT));
        }
    }

    pub(super) fn has_ended(&self) -> bool {
        matches!(self.phase, Phase::Ended)
    }

    /// Begins to end the connection by a Close. Further reads send it.
    pub(super) fn begin_to_close(&mut self, code: CloseCode, reason: &'static str) {
        self.queue_close(code, reason);
        self.phase = Phase::Closing(Deadline::after(CLOSE_WAIT));
    }

    fn queue_close(&mut self, code: CloseCode, reason: &'static str) {
        self.queue_pongs();
        let frame = CloseFrame { code, reason: reason.into() };
        // This fails only if a Close has been sent already.
        let _ = Pin::new(&mut self.inner).start_send(Message::Close(Some(frame)));
    }

    /// Queues the pongs that wait. tungstenite would queue them behind what comes next, and nothing
    /// may come behind a Close.
    fn queue_pongs(&mut self) {
        // Without room, this is pending, and they are queued nevertheless.
        let _ = Pin::new(&mut self.inner).poll_flush(&mut self.flushers.with_both());
    }

    /// What [`recv`](Self::recv) polls.
    pub(super) fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Message, Error>>> {
        self.limit_close();
        loop {
            match &mut self.phase {
                Phase::Open(begins) => {
                    if Pin::new(begins).poll(cx).is_ready() {
                        self.phase = Phase::Lingering(Deadline::after(self.linger));
                        continue;
                    }
                }
                Phase::Lingering(until) => {
                    if Pin::new(until).poll(cx).is_ready() {
                        self.begin_to_close(CloseCode::Away, "the server is draining");
                        continue;
                    }
                }
                Phase::Closing(until) => {
                    if Pin::new(until).poll(cx).is_ready() {
                        self.end();
                        continue;
                    }
                    let mut cx = self.flushers.with_reader(cx);
                    let _ = Pin::new(&mut self.inner).poll_flush(&mut cx);
                }
                Phase::Answering(until) => {
                    if Pin::new(until).poll(cx).is_pending() {
                        let mut cx = self.flushers.with_reader(cx);
                        let _ = ready!(poll_flush_all(&mut self.inner, &mut cx));
                    }
                    // Another read could wait for room without a limit, because tungstenite first
                    // sends the pongs that wait.
                    self.end();
                    continue;
                }
                Phase::Discarding(..) => {
                    ready!(self.poll_discard(cx));
                    let Phase::Discarding(_, error) = self.end() else { continue };
                    return Poll::Ready(error.map(Err));
                }
                // This uses up budget, because code that polls again and again always gets an
                // answer at once.
                Phase::Ended => return pin!(consume_budget()).poll(cx).map(|()| None),
            }
            // One read may bring very many messages, and tungstenite does not stop when the budget
            // delays its pongs.
            if self.owes {
                ready!(pin!(consume_budget()).poll(cx));
                self.owes = false;
            }
            ready!(self.poll_pongs(cx));
            return match ready!(self.poll_message(cx)) {
                Some(Err(error)) => match close_code(&error) {
                    Some(code) => {
                        self.queue_close(code, "");
                        self.phase = Phase::Discarding(Deadline::after(CLOSE_WAIT), Some(error));
                        continue;
                    }
                    None => {
                        self.end();
                        Poll::Ready(Some(Err(error)))
                    }
                },
                Some(Ok(message)) => {
                    self.owes = true;
                    match &message {
                        Message::Ping(payload) => self.pongs += payload.len() + FRAME_HEAD,
                        Message::Close(_) => self.answer(cx),
                        _ => {}
                    }
                    Poll::Ready(Some(Ok(message)))
                }
                None => {
                    self.end();
                    Poll::Ready(None)
                }
            };
        }
    }

    /// Sends the answer to the client's Close, if there is room. Otherwise it would wait for the
    /// next read, and a handler may not read again.
    fn answer(&mut self, cx: &mut Context<'_>) {
        let flushed = poll_flush_all(&mut self.inner, &mut self.flushers.with_reader(cx));
        let last = self.end();
        if flushed.is_pending() {
            self.phase = Phase::Answering(match last {
                Phase::Closing(until) => until,
                _ => Deadline::after(CLOSE_WAIT),
            });
        }
    }

    /// Ends the connection, and returns its last phase. A half that waits for room is woken.
    fn end(&mut self) -> Phase {
        self.flushers.wake_writer();
        std::mem::replace(&mut self.phase, Phase::Ended)
    }

    /// Pending while too many pongs wait. If a flush fails, the read after it reports that.
    fn poll_pongs(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        // After our Close no ping is answered, and the client's Close is awaited.
        if self.pongs >= MOST_PONGS && !matches!(self.phase, Phase::Closing(_)) {
            let mut cx = self.flushers.with_reader(cx);
            let _ = ready!(Pin::new(&mut self.inner).poll_flush(&mut cx));
            self.pongs = 0;
        }
        Poll::Ready(())
    }

    fn poll_message(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Message, Error>>> {
        let Self { reader, inner, .. } = self;
        let polled = reader.with(cx, |cx| Pin::new(inner).poll_next(cx));
        if polled.is_pending() {
            // For `queued_close`.
            self.flushers.with_reader(cx);
        }
        polled
    }

    /// Reads and discards data, until the client closes or the time is up.
    fn poll_discard(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Phase::Discarding(until, _) = &mut self.phase else { return Poll::Ready(()) };
        if Pin::new(until).poll(cx).is_ready() {
            return Poll::Ready(());
        }
        let _ = Pin::new(&mut self.inner).poll_flush(&mut self.flushers.with_reader(cx));
        let mut unwanted = [0; 4096];
        for _ in 0..DISCARDED_AT_ONCE {
            match AsyncRead::poll_read(Pin::new(&mut self.inner.get_mut().inner), cx, &mut unwanted)
            {
                Poll::Ready(Ok(1..)) => {}
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => return Poll::Pending,
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    pub(super) fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        // This uses up budget, because after the end it fails at once each time.
        ready!(pin!(consume_budget()).poll(cx));
        let ready = Pin::new(&mut self.inner).poll_ready(&mut self.flushers.with_writer(cx));
        self.unless_ended(ready)
    }

    /// What waits for room at the end fails: the reader may have given up a client that makes none.
    fn unless_ended(&self, sent: Poll<Result<(), Error>>) -> Poll<Result<(), Error>> {
        if sent.is_pending() && self.has_ended() {
            return Poll::Ready(Err(Error::ConnectionClosed));
        }
        sent
    }

    pub(super) fn start_send(&mut self, message: Message) -> Result<(), Error> {
        let is_close = matches!(message, Message::Close(_));
        if is_close {
            self.queue_pongs();
        }
        let started = Pin::new(&mut self.inner).start_send(message);
        if is_close && started.is_ok() {
            self.queued_close();
        }
        started
    }

    /// The reader is woken, because its time is limited from now on.
    fn queued_close(&mut self) {
        if !std::mem::replace(&mut self.has_close, true) {
            self.flushers.wake_reader();
        }
    }

    pub(super) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let mut cx = self.flushers.with_writer(cx);
        if matches!(self.phase, Phase::Answering(_)) {
            return poll_flush_all(&mut self.inner, &mut cx);
        }
        let flushed = Pin::new(&mut self.inner).poll_flush(&mut cx);
        self.unless_ended(flushed)
    }

    /// Sends a Close, without waiting for the client's.
    pub(super) fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        if matches!(self.phase, Phase::Answering(_)) {
            return self.poll_flush(cx);
        }
        self.queued_close();
        self.queue_pongs();
        let closed = Pin::new(&mut self.inner).poll_close(&mut self.flushers.with_writer(cx));
        self.unless_ended(closed)
    }
}

/// Flushes the connection below as well: see the module's documentation.
fn poll_flush_all(
    inner: &mut WebSocketStream<Followed>,
    cx: &mut Context<'_>,
) -> Poll<Result<(), Error>> {
    ready!(Pin::new(&mut *inner).poll_flush(cx))?;
    AsyncWrite::poll_flush(Pin::new(inner.get_mut()), cx).map_err(Error::Io)
}

/// The code that tells the client about its mistake. `None`: there is nobody to tell.
fn close_code(error: &Error) -> Option<CloseCode> {
    match error {
        Error::Capacity(CapacityError::MessageTooLong { .. }) => Some(CloseCode::Size),
        Error::Utf8(_) => Some(CloseCode::Invalid),
        Error::Protocol(ProtocolError::ResetWithoutClosingHandshake) => None,
        Error::Protocol(_) => Some(CloseCode::Protocol),
        Error::Io(error) => Some(match error.get_ref()?.downcast_ref()? {
            Refused::NotMinimal | Refused::LongControl => CloseCode::Protocol,
            Refused::NoMemory => CloseCode::Size,
        }),
        _ => None,
    }
}
