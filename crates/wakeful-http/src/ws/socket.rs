//! An open WebSocket, as its handler has it.
//!
//! A handler may drop the socket while a Close is on its way to the client, for example because it
//! can send no more. A separate task then continues to read: a connection that is closed with
//! unread bytes is reset, and the reset may overtake the Close.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;

use async_tungstenite::WebSocketStream;
use futures_core::{FusedStream, Stream};
use futures_util::{Sink, SinkExt};
use http::HeaderValue;
use wakeful::LoopHandle;

use super::connection::Connection;
use super::lengths::Followed;
use super::{CloseFrame, Error, Message};

/// An open WebSocket. It is a `Stream` and a `Sink` of [`Message`]s, but most handlers need only
/// [`recv`](Self::recv), [`send`](Self::send) and [`close`](Self::close).
///
/// If it is dropped without [`close`](Self::close), the connection ends without a Close frame, and
/// the client sees code 1006. A Close of the client is answered when it is read. If there is no
/// room for the answer, the connection stays open until it is sent, for up to 5 s. If the server
/// has already sent a Close (because it drains, or by [`send`](Self::send)), the connection stays
/// open until the client's Close arrives, for up to 5 s. Messages that arrive in between are
/// dropped.
///
/// # Threads
/// Neither `Send` nor `Sync`: it stays on its loop.
#[derive(Debug)]
pub struct WebSocket {
    /// Only the drop takes it.
    connection: Option<Connection>,
    protocol: Option<HeaderValue>,
}

impl WebSocket {
    pub(super) fn new(
        inner: WebSocketStream<Followed>,
        protocol: Option<HeaderValue>,
        linger: Duration,
    ) -> Self {
        Self { connection: Some(Connection::new(inner, linger)), protocol }
    }

    /// Returns the chosen subprotocol: see [`protocols`](super::WebSocketUpgrade::protocols).
    #[must_use]
    pub fn protocol(&self) -> Option<&HeaderValue> {
        self.protocol.as_ref()
    }

    /// Waits for the next message. Returns `None` at the end. The messages include pings and the
    /// client's Close. The socket answers both: a ping when `recv` is called again or something is
    /// sent, a Close at once. If there is no room for the answer to the Close, the next call waits
    /// for it, for up to 5 s, before it returns `None`.
    ///
    /// If the server has sent a Close (because it drains, by [`send`](Self::send), or as a `Sink`
    /// closes), the messages that the client sends before its own Close still come. The client's
    /// Close must come within 5 s: after that time `recv` returns `None`. The time begins with the
    /// first `recv` after the Close, or with the Close, if another half waits in `recv`.
    ///
    /// # Errors
    /// The connection is broken, or the client violates the protocol or exceeds a limit. In the
    /// last two cases the socket first sends a Close with the reason, and waits for the client for
    /// up to 5 s. After an error the next call returns `None`.
    ///
    /// # Panics
    /// If it has to wait for a time on a thread where no loop runs, for example in the destructor
    /// of a thread-local: for the client after a Close of either side, or for the end of the
    /// [`linger`](super::WebSocketUpgrade::linger) time.
    ///
    /// # Cancel safety
    /// Cancel-safe.
    pub async fn recv(&mut self) -> Option<Result<Message, Error>> {
        self.connection().recv().await
    }

    /// Sends a message, and waits until the connection has accepted it. After a
    /// [`Message::Close`], [`recv`](Self::recv) waits for the client's. [`close`](Self::close) does
    /// both.
    ///
    /// # Errors
    /// The connection is broken, or one of the two sides has already closed (for example, the
    /// server because it drains). If another half reads, and gives up a client that makes no room
    /// for a Close or does not answer one, this fails, too.
    ///
    /// # Cancel safety
    /// Not cancel-safe: if the future is dropped, the message may be sent nevertheless.
    pub async fn send(&mut self, message: Message) -> Result<(), Error> {
        SinkExt::send(self, message).await
    }

    /// Sends a Close, waits up to 5 s for the client's Close, and closes the connection. Messages
    /// that arrive in between are dropped. If the client does not read, it may not get the Close,
    /// and the connection is closed after the same 5 s.
    ///
    /// # Errors
    /// The connection is broken, or the client violates the protocol. If the client has already
    /// closed, there is no error.
    ///
    /// # Panics
    /// If it has to wait for the client on a thread where no loop runs, for example in the
    /// destructor of a thread-local.
    ///
    /// # Cancel safety
    /// Dropping the future drops the socket: the Close is sent nevertheless, if the client reads.
    pub async fn close(mut self, frame: Option<CloseFrame>) -> Result<(), Error> {
        self.connection().close(frame).await
    }

    fn connection(&mut self) -> &mut Connection {
        self.connection.as_mut().expect("only the drop takes it")
    }
}

impl Drop for WebSocket {
    fn drop(&mut self) {
        let Some(mut connection) = self.connection.take() else { return };
        // Without a loop nobody can read on.
        if connection.is_closing() && !thread::panicking() && LoopHandle::try_current().is_ok() {
            wakeful::spawn(async move { while connection.recv().await.is_some() {} }).detach();
        }
    }
}

impl Stream for WebSocket {
    type Item = Result<Message, Error>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().connection().poll_next(cx)
    }
}

impl FusedStream for WebSocket {
    fn is_terminated(&self) -> bool {
        self.connection.as_ref().is_none_or(Connection::has_ended)
    }
}

impl Sink<Message> for WebSocket {
    type Error = Error;

    fn poll_ready(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.get_mut().connection().poll_ready(cx)
    }

    fn start_send(self: Pin<&mut Self>, message: Message) -> Result<(), Error> {
        self.get_mut().connection().start_send(message)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.get_mut().connection().poll_flush(cx)
    }

    /// Sends a Close, without waiting for the client's. [`recv`](Self::recv) waits for it.
    fn poll_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.get_mut().connection().poll_close(cx)
    }
}

#[cfg(test)]
mod tests;
