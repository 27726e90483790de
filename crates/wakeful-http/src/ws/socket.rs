//! An open WebSocket: messages both ways, and the ways it ends.
//!
//! Reading drives it: pings are answered, the drain is noticed, and a client that breaks the protocol is told why. After a Close of ours nothing is said any more; what the client had sent before it
//! saw that is read, and delivered or dropped: a connection that is closed with bytes unread is reset, and a reset may overtake the Close.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use async_tungstenite::WebSocketStream;
use async_tungstenite::tungstenite::error::{CapacityError, ProtocolError};
use futures_core::{FusedStream, Stream};
use futures_io::AsyncRead;
use futures_util::Sink;
use http::HeaderValue;
use wakeful::time::Deadline;

use super::lengths::{Followed, NotMinimal};
use super::{CloseCode, CloseFrame, Error, Message};
use crate::DrainBegins;

/// How long the client may take to answer a Close.
const CLOSE_WAIT: Duration = Duration::from_secs(5);
/// At one time when nobody wants what is read.
const DISCARDED_AT_ONCE: usize = 64;

/// An open WebSocket. A `Stream` and a `Sink` of [`Message`]s; [`recv`](Self::recv), [`send`](Self::send) and [`close`](Self::close) are all that most need.
///
/// Dropped without [`close`](Self::close), the connection ends without a word: to the client that is 1006.
///
/// *Threads*: neither `Send` nor `Sync`: it stays on its loop.
#[derive(Debug)]
pub struct WebSocket {
    inner: WebSocketStream<Followed>,
    protocol: Option<HeaderValue>,
    linger: Duration,
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    Open(DrainBegins),
    /// The server drains.
    Lingering(Deadline),
    /// A Close of ours is on its way. Until then, the client's has to come.
    Closing(Deadline),
    /// The client broke the protocol, and was told. Until then it has to close.
    Discarding(Deadline, Option<Error>),
    Ended,
}

impl WebSocket {
    pub(super) fn new(
        inner: WebSocketStream<Followed>,
        protocol: Option<HeaderValue>,
        linger: Duration,
    ) -> Self {
        Self { inner, protocol, linger, phase: Phase::Open(crate::drain_begins()) }
    }

    /// The subprotocol that was chosen: see [`protocols`](super::WebSocketUpgrade::protocols).
    #[must_use]
    pub fn protocol(&self) -> Option<&HeaderValue> {
        self.protocol.as_ref()
    }

    /// The next message. Pings are among them, already answered, and the client's Close. `None` at the end.
    ///
    /// *Cancel-safe*.
    pub async fn recv(&mut self) -> Option<Result<Message, Error>> {
        poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await
    }

    /// Sends a message, and waits until the connection has taken it.
    ///
    /// # Errors
    /// The connection is broken; one of the two sides has closed already, the server perhaps because it drains.
    ///
    /// Not *cancel-safe*: a message may be sent though its future was dropped.
    pub async fn send(&mut self, message: Message) -> Result<(), Error> {
        self.inner.send(message).await
    }

    /// Sends a Close, waits for the client's for up to 5 s, and closes the connection. What comes in between is dropped.
    ///
    /// # Errors
    /// The connection is broken.
    pub async fn close(mut self, frame: Option<CloseFrame>) -> Result<(), Error> {
        if matches!(self.phase, Phase::Open(_) | Phase::Lingering(_)) {
            match self.send(Message::Close(frame)).await {
                // The client was first.
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

    /// Queues a Close; what reads on sends it.
    fn begin_to_close(&mut self, code: CloseCode, reason: &'static str) {
        let frame = CloseFrame { code, reason: reason.into() };
        // Refused only if one has been sent already.
        let _ = Pin::new(&mut self.inner).start_send(Message::Close(Some(frame)));
    }

    /// Reads, and drops it, until the client closes or its time is up.
    fn poll_discard(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Phase::Discarding(until, _) = &mut self.phase else { return Poll::Ready(()) };
        if Pin::new(until).poll(cx).is_ready() {
            return Poll::Ready(());
        }
        let _ = Pin::new(&mut self.inner).poll_flush(cx);
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
}

/// What the client is told about its mistake; `None` if there is nobody to tell.
fn close_code(error: &Error) -> Option<CloseCode> {
    match error {
        Error::Capacity(CapacityError::MessageTooLong { .. }) => Some(CloseCode::Size),
        Error::Utf8(_) => Some(CloseCode::Invalid),
        Error::Protocol(ProtocolError::ResetWithoutClosingHandshake) => None,
        Error::Protocol(_) => Some(CloseCode::Protocol),
        Error::Io(error) => {
            let source = error.get_ref()?;
            source.is::<NotMinimal>().then_some(CloseCode::Protocol)
        }
        _ => None,
    }
}

impl Stream for WebSocket {
    type Item = Result<Message, Error>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        loop {
            match &mut this.phase {
                Phase::Open(begins) => {
                    if Pin::new(begins).poll(cx).is_ready() {
                        this.phase = Phase::Lingering(Deadline::after(this.linger));
                        continue;
                    }
                }
                Phase::Lingering(until) => {
                    if Pin::new(until).poll(cx).is_ready() {
                        this.begin_to_close(CloseCode::Away, "the server is draining");
                        this.phase = Phase::Closing(Deadline::after(CLOSE_WAIT));
                        continue;
                    }
                }
                Phase::Closing(until) => {
                    if Pin::new(until).poll(cx).is_ready() {
                        this.phase = Phase::Ended;
                        continue;
                    }
                    let _ = Pin::new(&mut this.inner).poll_flush(cx);
                }
                Phase::Discarding(..) => {
                    std::task::ready!(this.poll_discard(cx));
                    let Phase::Discarding(_, error) =
                        std::mem::replace(&mut this.phase, Phase::Ended)
                    else {
                        continue;
                    };
                    return Poll::Ready(error.map(Err));
                }
                Phase::Ended => return Poll::Ready(None),
            }
            return match std::task::ready!(Pin::new(&mut this.inner).poll_next(cx)) {
                Some(Err(error)) => match close_code(&error) {
                    Some(code) => {
                        this.begin_to_close(code, "");
                        this.phase = Phase::Discarding(Deadline::after(CLOSE_WAIT), Some(error));
                        continue;
                    }
                    None => {
                        this.phase = Phase::Ended;
                        Poll::Ready(Some(Err(error)))
                    }
                },
                Some(Ok(message)) => Poll::Ready(Some(Ok(message))),
                None => {
                    this.phase = Phase::Ended;
                    Poll::Ready(None)
                }
            };
        }
    }
}

impl FusedStream for WebSocket {
    fn is_terminated(&self) -> bool {
        matches!(self.phase, Phase::Ended)
    }
}

impl Sink<Message> for WebSocket {
    type Error = Error;

    fn poll_ready(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Pin::new(&mut self.inner).poll_ready(cx)
    }

    fn start_send(mut self: Pin<&mut Self>, message: Message) -> Result<(), Error> {
        Pin::new(&mut self.inner).start_send(message)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    /// Sends a Close, without waiting for the client's.
    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Pin::new(&mut self.inner).poll_close(cx)
    }
}
