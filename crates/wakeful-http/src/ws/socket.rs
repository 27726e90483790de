//! An open WebSocket: messages both ways, and the ways it ends.
//!
//! Reading drives it: it answers pings, notices the drain, and tells a client that breaks the
//! protocol why. After the server's Close it sends nothing more. Messages that the client had sent
//! before it saw the Close are read, and delivered or dropped: a connection that is closed with
//! unread bytes is reset, and a reset may overtake the Close. So if a socket is dropped meanwhile
//! (by a handler that leaves when it can send no more, for example), a task of its own reads on.
//!
//! tungstenite keeps every pong until it is sent. If a client does not read its pongs, the server
//! stops reading from it once [`MOST_PONGS`] may wait.

use std::future::{Future, poll_fn};
use std::ops::{Deref, DerefMut};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker, ready};
use std::time::Duration;

use async_tungstenite::WebSocketStream;
use async_tungstenite::tungstenite::error::{CapacityError, ProtocolError};
use futures_core::{FusedStream, Stream};
use futures_io::AsyncRead;
use futures_util::task::AtomicWaker;
use futures_util::{Sink, SinkExt};
use http::HeaderValue;
use wakeful::LoopHandle;
use wakeful::task::consume_budget;
use wakeful::time::Deadline;

use super::lengths::{Followed, NotMinimal};
use super::{CloseCode, CloseFrame, Error, Message};
use crate::drain::{DrainBegins, drain_begins};
use crate::foreign_code::{self, SafeWaker};

/// How long the client may take to answer a Close.
const CLOSE_WAIT: Duration = Duration::from_secs(5);

/// The most bytes of pongs that may wait for the client to read them.
const MOST_PONGS: usize = 64 << 10;

/// The maximum size of the header of a server's frame, in bytes.
const FRAME_HEAD: usize = 10;

/// How many messages are discarded before other tasks run.
const DISCARDED_AT_ONCE: usize = 64;

/// An open WebSocket. It is a `Stream` and a `Sink` of [`Message`]s, but most handlers need only
/// [`recv`](Self::recv), [`send`](Self::send) and [`close`](Self::close).
///
/// If it is dropped without [`close`](Self::close), the connection ends without a Close frame, and
/// the client sees code 1006. A Close of the client is answered when it is read. If the server has
/// already sent a Close (because it drains, or by [`send`](Self::send)), the connection stays open
/// until the client's Close arrives, for up to 5 s. Messages that arrive in between are dropped.
///
/// # Threads
/// Neither `Send` nor `Sync`: it stays on its loop.
#[derive(Debug)]
pub struct WebSocket {
    inner: Inner,
    /// The waiting reader. tungstenite would drop a waker with its own lock held, and wake the
    /// reader before the writer.
    reader: SafeWaker,
    flushers: Flushers,
    protocol: Option<HeaderValue>,
    linger: Duration,
    phase: Phase,
    /// How many bytes of pongs were queued since everything was sent.
    pongs: usize,
    /// The handler has queued a Close itself, or the answer to the client's Close waits for room.
    has_close: bool,
    /// This is the rest of a dropped socket, from which a task reads on.
    is_left: bool,
}

/// The stream. It is `None` in a drop that has left the rest to a task.
#[derive(Debug)]
struct Inner(Option<WebSocketStream<Followed>>);

impl Deref for Inner {
    type Target = WebSocketStream<Followed>;

    fn deref(&self) -> &Self::Target {
        self.0.as_ref().expect("only a drop takes it")
    }
}

impl DerefMut for Inner {
    fn deref_mut(&mut self) -> &mut Self::Target {
        self.0.as_mut().expect("only a drop takes it")
    }
}

/// The tasks that wait until something is sent: the half that writes, and the half that reads, when
/// it has to send a Close. They may be two tasks, and tungstenite knows only one waker.
#[derive(Debug)]
struct Flushers {
    both: Arc<Both>,
    /// The waker that wakes both.
    waker: Waker,
    /// These are safe wakers, because a waker whose clone panics would leave its place in `both`
    /// locked.
    reader: SafeWaker,
    writer: SafeWaker,
}

#[derive(Debug, Default)]
struct Both {
    reader: AtomicWaker,
    writer: AtomicWaker,
}

impl Flushers {
    fn new() -> Self {
        let both = Arc::<Both>::default();
        let (reader, writer) = Default::default();
        Self { waker: both.clone().into(), both, reader, writer }
    }

    fn with_reader(&mut self, cx: &mut Context<'_>) -> Context<'_> {
        self.reader.with(cx, |cx| self.both.reader.register(cx.waker()));
        Context::from_waker(&self.waker)
    }

    fn with_writer(&mut self, cx: &mut Context<'_>) -> Context<'_> {
        self.writer.with(cx, |cx| self.both.writer.register(cx.waker()));
        Context::from_waker(&self.waker)
    }
}

impl Wake for Both {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let both = [self.reader.take(), self.writer.take()];
        both.into_iter().flatten().for_each(foreign_code::wake);
    }
}

#[derive(Debug)]
enum Phase {
    Open(DrainBegins),
    /// The server drains, and the socket still has the linger time.
    Lingering(Deadline),
    /// Our Close is being sent. The client's Close must come by this deadline.
    Closing(Deadline),
    /// The client broke the protocol, and was told. It must close by this deadline.
    Discarding(Deadline, Option<Error>),
    Ended,
}

impl WebSocket {
    pub(super) fn new(
        inner: WebSocketStream<Followed>,
        protocol: Option<HeaderValue>,
        linger: Duration,
    ) -> Self {
        let (flushers, phase) = (Flushers::new(), Phase::Open(drain_begins()));
        let (inner, reader) = (Inner(Some(inner)), SafeWaker::default());
        let (has_close, is_left) = (false, false);
        Self { inner, reader, flushers, protocol, linger, phase, pongs: 0, has_close, is_left }
    }

    /// Returns the chosen subprotocol: see [`protocols`](super::WebSocketUpgrade::protocols).
    #[must_use]
    pub fn protocol(&self) -> Option<&HeaderValue> {
        self.protocol.as_ref()
    }

    /// Waits for the next message. Returns `None` at the end. The messages include pings and the
    /// client's Close. The socket has answered both.
    ///
    /// # Errors
    /// The connection is broken, or the client violates the protocol or exceeds a limit. In the
    /// last two cases the socket first sends a Close with the reason, and waits for the client for
    /// up to 5 s. After an error the next call returns `None`.
    ///
    /// # Cancel safety
    /// Cancel-safe.
    pub async fn recv(&mut self) -> Option<Result<Message, Error>> {
        poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await
    }

    /// Sends a message, and waits until the connection has accepted it.
    ///
    /// # Errors
    /// The connection is broken, or one of the two sides has already closed (for example, the
    /// server because it drains).
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
    /// # Cancel safety
    /// Dropping the future drops the socket: the Close is sent nevertheless, if the client reads.
    pub async fn close(mut self, frame: Option<CloseFrame>) -> Result<(), Error> {
        if matches!(self.phase, Phase::Open(_) | Phase::Lingering(_)) {
            // The Close is queued whether or not there is room for it, and further reads send it.
            match Pin::new(&mut *self.inner).start_send(Message::Close(frame)) {
                // The client has closed first.
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

    /// Queues a Close. Further reads send it.
    fn begin_to_close(&mut self, code: CloseCode, reason: &'static str) {
        let frame = CloseFrame { code, reason: reason.into() };
        // This fails only if a Close has been sent already.
        let _ = Pin::new(&mut *self.inner).start_send(Message::Close(Some(frame)));
    }

    /// Pending while too many pongs wait. If a flush fails, the read after it reports that.
    fn poll_pongs(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        // After our Close no ping is answered, and the client's Close is awaited.
        if self.pongs >= MOST_PONGS && !matches!(self.phase, Phase::Closing(_)) {
            let mut cx = self.flushers.with_reader(cx);
            let _ = ready!(Pin::new(&mut *self.inner).poll_flush(&mut cx));
            self.pongs = 0;
        }
        Poll::Ready(())
    }

    fn poll_message(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Message, Error>>> {
        let Self { reader, inner, .. } = self;
        reader.with(cx, |cx| Pin::new(&mut **inner).poll_next(cx))
    }

    /// Reads and discards data, until the client closes or the time is up.
    fn poll_discard(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Phase::Discarding(until, _) = &mut self.phase else { return Poll::Ready(()) };
        if Pin::new(until).poll(cx).is_ready() {
            return Poll::Ready(());
        }
        let _ = Pin::new(&mut *self.inner).poll_flush(&mut self.flushers.with_reader(cx));
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

impl Drop for WebSocket {
    fn drop(&mut self) {
        let is_closing = match self.phase {
            Phase::Open(_) | Phase::Lingering(_) => self.has_close,
            Phase::Closing(_) | Phase::Discarding(..) => true,
            Phase::Ended => false,
        };
        // The task ends with its loop. Without a loop nobody can read on.
        let is_over = self.is_left || LoopHandle::try_current().is_err();
        if !is_closing || is_over || std::thread::panicking() {
            return;
        }
        let phase = match std::mem::replace(&mut self.phase, Phase::Ended) {
            Phase::Open(_) | Phase::Lingering(_) => Phase::Closing(Deadline::after(CLOSE_WAIT)),
            phase => phase,
        };
        let mut rest = Self {
            inner: Inner(self.inner.0.take()),
            reader: SafeWaker::default(),
            flushers: Flushers::new(),
            protocol: None,
            linger: self.linger,
            phase,
            pongs: self.pongs,
            has_close: true,
            is_left: true,
        };
        wakeful::spawn(async move { while rest.recv().await.is_some() {} }).detach();
    }
}

/// The code that tells the client about its mistake. `None`: there is nobody to tell.
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
                    let mut cx = this.flushers.with_reader(cx);
                    let _ = Pin::new(&mut *this.inner).poll_flush(&mut cx);
                }
                Phase::Discarding(..) => {
                    ready!(this.poll_discard(cx));
                    let Phase::Discarding(_, error) =
                        std::mem::replace(&mut this.phase, Phase::Ended)
                    else {
                        continue;
                    };
                    return Poll::Ready(error.map(Err));
                }
                // Code that polls again and again would always get an answer at once, so this uses
                // up budget.
                Phase::Ended => return pin!(consume_budget()).poll(cx).map(|()| None),
            }
            // One read may bring very many messages, and tungstenite does not stop when the budget
            // delays its pongs.
            ready!(pin!(consume_budget()).poll(cx));
            ready!(this.poll_pongs(cx));
            return match ready!(this.poll_message(cx)) {
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
                Some(Ok(message)) => {
                    match &message {
                        Message::Ping(payload) => this.pongs += payload.len() + FRAME_HEAD,
                        // Otherwise the answer would wait for the next read, and a handler may not
                        // read again.
                        Message::Close(_) => {
                            let mut cx = this.flushers.with_reader(cx);
                            let flushed = Pin::new(&mut *this.inner).poll_flush(&mut cx);
                            this.has_close |= flushed.is_pending();
                        }
                        _ => {}
                    }
                    Poll::Ready(Some(Ok(message)))
                }
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

    fn poll_ready(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        // After the end this fails at once each time, so it uses up budget.
        ready!(pin!(consume_budget()).poll(cx));
        let this = self.get_mut();
        Pin::new(&mut *this.inner).poll_ready(&mut this.flushers.with_writer(cx))
    }

    fn start_send(mut self: Pin<&mut Self>, message: Message) -> Result<(), Error> {
        let is_close = matches!(message, Message::Close(_));
        let started = Pin::new(&mut *self.inner).start_send(message);
        self.has_close |= is_close && started.is_ok();
        started
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let this = self.get_mut();
        Pin::new(&mut *this.inner).poll_flush(&mut this.flushers.with_writer(cx))
    }

    /// Sends a Close, without waiting for the client's.
    fn poll_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let this = self.get_mut();
        this.has_close = true;
        Pin::new(&mut *this.inner).poll_close(&mut this.flushers.with_writer(cx))
    }
}

#[cfg(test)]
mod tests {
    use async_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
    use bytes::Bytes;
    use futures_lite::AsyncReadExt;
    use wakeful::net::UnixStream;
    use wakeful::task::yield_now;
    use wakeful::time::{now, pause, timeout};

    use super::*;
    use crate::foreign_code::Wakes;
    use crate::read_ration::AT_ONCE;
    use crate::upgrade::Upgraded;

    const LONG: Duration = Duration::from_secs(60);

    /// A text message of one letter, as a client sends it.
    const X: &[u8] = &[0x81, 0x80 | 1, 0, 0, 0, 0, b'x'];

    async fn pair() -> (UnixStream, WebSocket) {
        let (client, stream) = UnixStream::pair().unwrap();
        let io = Followed::new(Upgraded::behind(Bytes::new(), stream));
        let inner = WebSocketStream::from_raw_socket(io, Role::Server, None).await;
        (client, WebSocket::new(inner, None, Duration::ZERO))
    }

    /// Sends until the sockets can hold no more.
    async fn fill(socket: &mut WebSocket) {
        let piece = Message::binary(vec![7; 1 << 16]);
        while timeout(Duration::from_secs(1), socket.send(piece.clone())).await.is_ok() {}
    }

    #[test]
    fn a_client_that_reads_nothing_has_no_more_than_the_time_of_a_close() {
        wakeful::block_on(async {
            pause();
            let (client, mut socket) = pair().await;
            fill(&mut socket).await;
            let begun = now();
            let closed = timeout(LONG, socket.close(None)).await;
            closed.expect("it does not wait for ever").unwrap();
            assert!(now() - begun >= CLOSE_WAIT);
            drop(client);
        });
    }

    struct Panics;

    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("of a waker, on purpose")
        }
    }

    impl Drop for Panics {
        fn drop(&mut self) {
            panic!("of a waker's drop, on purpose")
        }
    }

    fn poll_by_one_that_panics(socket: &mut WebSocket) {
        let theirs = Waker::from(Arc::new(Panics));
        let polled = Pin::new(socket).poll_next(&mut Context::from_waker(&theirs));
        assert!(polled.is_pending());
    }

    #[test]
    fn small_messages_without_end_leave_their_loop_to_others() {
        const MESSAGES: usize = 5000;
        /// Without a payload.
        const PING: &[u8] = &[0x89, 0x80, 0, 0, 0, 0];
        wakeful::block_on(async {
            for message in [X, PING] {
                let (mut client, mut socket) = pair().await;
                client.write_all(&message.repeat(MESSAGES)).await.unwrap();
                let mut reads = pin!(async move {
                    for _ in 0..MESSAGES {
                        socket.recv().await.unwrap().unwrap();
                    }
                });
                let mut polls = 0;
                poll_fn(|cx| {
                    polls += 1;
                    reads.as_mut().poll(cx)
                })
                .await;
                assert!(polls > MESSAGES / 128, "{polls} polls");
            }
        });
    }

    #[test]
    fn empty_frames_without_end_leave_their_loop_to_others() {
        /// Not the message's last frame.
        const FRAME: &[u8] = &[0x00, 0x80, 0, 0, 0, 0];
        wakeful::block_on(async {
            let (mut client, stream) = UnixStream::pair().unwrap();
            let io = Followed::new(Upgraded::behind(Bytes::new(), stream));
            let config = WebSocketConfig::default().read_buffer_size(8 << 10);
            let inner = WebSocketStream::from_raw_socket(io, Role::Server, Some(config)).await;
            let mut socket = WebSocket::new(inner, None, Duration::ZERO);
            client.write_all(&[0x01, 0x80, 0, 0, 0, 0]).await.unwrap();
            // As much as the socket has room for.
            let held = client.write(&FRAME.repeat(1 << 20)).await.unwrap();
            assert!(held > AT_ONCE, "{held} bytes");
            let wakes = Arc::new(Wakes::default());
            let (waker, mut polls) = (Waker::from(wakes.clone()), 0);
            while wakes.count() >= polls {
                polls += 1;
                let polled = Pin::new(&mut socket).poll_next(&mut Context::from_waker(&waker));
                assert!(polled.is_pending());
                yield_now().await;
            }
            assert!(polls > held / AT_ONCE, "{polls} polls for {held} bytes");
        });
    }

    #[test]
    fn a_waker_that_panics_in_its_drop_costs_no_later_wake() {
        wakeful::block_on(async {
            pause();
            let (mut client, mut socket) = pair().await;
            poll_by_one_that_panics(&mut socket);
            let reads = wakeful::spawn(async move { socket.recv().await.unwrap().unwrap() });
            yield_now().await;
            client.write_all(X).await.unwrap();
            let read = timeout(LONG, reads).await.expect("it is woken").unwrap();
            assert_eq!(read, Message::text("x"));
        });
    }

    #[test]
    fn a_half_that_writes_is_woken_though_the_other_one_s_waker_panics() {
        wakeful::block_on(async {
            pause();
            let (mut client, mut socket) = pair().await;
            fill(&mut socket).await;
            poll_by_one_that_panics(&mut socket);
            let writes = wakeful::spawn(async move { socket.send(Message::text("x")).await });
            yield_now().await;
            let mut taken = vec![0; 1 << 20];
            while !writes.is_finished() {
                let read = timeout(LONG, client.read(&mut taken)).await;
                assert!(read.expect("it writes on").unwrap() > 0);
                yield_now().await;
            }
            writes.await.unwrap().unwrap();
        });
    }

    /// A socket whose Close is sent, and not answered.
    async fn closing() -> (UnixStream, WebSocket) {
        let (client, mut socket) = pair().await;
        socket.begin_to_close(CloseCode::Away, "");
        socket.phase = Phase::Closing(Deadline::after(CLOSE_WAIT));
        (client, socket)
    }

    #[test]
    fn a_socket_that_is_dropped_behind_its_close_sends_it_and_waits_for_the_client_s() {
        wakeful::block_on(async {
            pause();
            let (mut client, socket) = closing().await;
            drop(socket);
            // More than a Close is read, and it is not reset.
            client.write_all(&X.repeat(1000)).await.unwrap();
            let mut close = [0; 4];
            client.read_exact(&mut close).await.unwrap();
            assert_eq!(close, [0x88, 2, 3, 0xe9]);
            client.write_all(&X.repeat(1000)).await.unwrap();
            yield_now().await;
            client.write_all(&[0x88, 0x80, 0, 0, 0, 0]).await.unwrap();
            let begun = now();
            let end = timeout(LONG, client.read(&mut close)).await;
            assert_eq!(end.expect("it closes").unwrap(), 0);
            assert!(now() - begun < CLOSE_WAIT);

            let (mut client, socket) = closing().await;
            drop(socket);
            let begun = now();
            while timeout(LONG, client.read(&mut close)).await.expect("it closes").unwrap() > 0 {}
            assert!(now() - begun >= CLOSE_WAIT);
        });
    }

    /// Expects that a dropped socket reads on, and that this Close comes.
    async fn assert_reads_on(mut client: UnixStream, expected: &[u8]) {
        client.write_all(&X.repeat(1000)).await.expect("it is not closed yet");
        let mut all = Vec::new();
        let reads = timeout(LONG, client.read_to_end(&mut all)).await;
        reads.expect("it closes").expect("it is not reset");
        assert!(all.ends_with(expected), "{:?}", all.last_chunk::<8>());
    }

    #[test]
    fn a_socket_that_is_dropped_behind_a_close_of_its_handler_reads_on() {
        wakeful::block_on(async {
            pause();
            let (client, mut socket) = pair().await;
            socket.send(Message::Close(None)).await.unwrap();
            drop(socket);
            assert_reads_on(client, &[0x88, 0]).await;

            let (client, mut socket) = pair().await;
            SinkExt::close(&mut socket).await.unwrap();
            drop(socket);
            assert_reads_on(client, &[0x88, 0]).await;

            // There is no room for this Close yet.
            let (client, mut socket) = pair().await;
            fill(&mut socket).await;
            timeout(Duration::from_secs(1), SinkExt::close(&mut socket)).await.unwrap_err();
            drop(socket);
            assert_reads_on(client, &[0x88, 0]).await;
        });
    }

    #[test]
    fn the_answer_to_a_client_s_close_is_sent_though_there_is_no_room_for_it_at_first() {
        wakeful::block_on(async {
            pause();
            let (mut client, mut socket) = pair().await;
            fill(&mut socket).await;
            client.write_all(&[0x88, 0x80, 0, 0, 0, 0]).await.unwrap();
            assert_eq!(socket.recv().await.unwrap().unwrap(), Message::Close(None));
            drop(socket);
            let mut all = Vec::new();
            timeout(LONG, client.read_to_end(&mut all)).await.expect("it closes").unwrap();
            assert!(all.ends_with(&[0x88, 0]), "{:?}", all.last_chunk::<8>());
        });
    }

    #[test]
    fn a_socket_that_ends_with_its_loop_is_not_read_on() {
        wakeful::block_on(async {
            let both = closing().await;
            wakeful::spawn(async move {
                let _both = both;
                std::future::pending::<()>().await;
            })
            .detach();
            yield_now().await;
        });
    }
}
