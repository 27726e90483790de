//! The bodies of a request under way and of a response.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use http_body::{Body, Frame, SizeHint};
use hyper::body::{Bytes, Incoming};
use wakeful::task::consume_budget;
use wakeful::time::turn_time;
use wakeful::{BelongsToOneLoop_UseOnThisLoop, LoopBound};

use super::error::ClientError;
use super::tasks::{GivenUp, PanicListener};
use super::unwritten::{Piece, Pieces, Unwritten};
use super::upload::{Answering, Uploading};
use crate::error::BoxError;
use crate::foreign_code::{self, Contained, Locking, SafeWaker};
use crate::joined::{self, Joining, Polled, Source};

/// The requirements for a request's body: any [`Body`] that is `Unpin` and whose pieces are `Send`.
/// (hyper requires `Send`; nothing is sent to another thread.)
pub trait OutgoingBody: Body<Data: Send, Error: Into<BoxError>> + Unpin + 'static {}

impl<B: Body<Data: Send, Error: Into<BoxError>> + Unpin + 'static> OutgoingBody for B {}

/// The body of a response.
///
/// # Cancel safety
/// If the body is dropped before its end, its HTTP/1.1 connection is closed, because the remaining
/// bytes are not read. Over HTTP/2 its stream is reset.
///
/// An HTTP/1.1 connection is also closed if the response ends before the request's body: the rest
/// of the request's body is not sent.
///
/// # Errors
/// A read fails with [`ClientError::Body`] or [`ClientError::CutShort`] if the response breaks off,
/// with [`ClientError::TotalTimeout`] if it is not complete in time, and with
/// [`ClientError::Panicked`] if the program panicked within its HTTP/2 connection. After an error
/// the body has ended.
pub struct ResponseBody {
    _of_one_loop: PhantomData<*const BelongsToOneLoop_UseOnThisLoop>,
    incoming: Locking<Incoming>,
    waker: SafeWaker,
    target: Arc<str>,
    deadline: Option<Deadline>,
    /// With HTTP/2: the stream counts as open as long as its body is read.
    stream: Option<OpenStream>,
    /// With HTTP/1.1: the request's body ends with the response.
    answering: Option<Answering>,
    /// Whether nothing more of the body will come.
    has_ended: bool,
}

/// What a response keeps of its connection until its end.
pub(super) enum Exchange {
    Http1(Answering),
    Http2(OpenStream),
}

/// When the response must be complete.
#[derive(Debug)]
pub(super) struct Deadline {
    pub(super) end: wakeful::time::Deadline,
    pub(super) after: Duration,
}

/// A stream on its connection. When this and the request's body are dropped, another stream has
/// room.
pub(super) struct OpenStream {
    place: Rc<Place>,
    listener: PanicListener,
    /// `None`: nothing was sent on it yet, or it was answered to its end.
    sent_at: Option<Instant>,
    /// Whether the server or the connection has ended it.
    has_failed: bool,
}

impl OpenStream {
    pub(super) fn new(
        connection: Rc<dyn Streams>,
        unwritten: Rc<Unwritten>,
        listener: PanicListener,
    ) -> Self {
        let pieces = Pieces::new(unwritten);
        let place = Rc::new(Place { connection, pieces, given_up: Rc::default() });
        Self { place, listener, sent_at: None, has_failed: false }
    }

    /// Called when the request is sent.
    pub(super) fn mark_sent(&mut self) {
        self.sent_at = Some(turn_time());
    }

    /// Called when the stream has ended with an error, and need not be reset.
    pub(super) fn fails(&mut self) {
        self.has_failed = true;
    }

    /// Returns the stream's place, for the request's body. A server may send its whole response
    /// first, and read the request after that. The stream counts as open until then.
    pub(super) fn place(&self) -> Rc<Place> {
        self.place.clone()
    }

    /// Has a panic ended the connection? If so, the connection must not be polled any more.
    pub(super) fn has_panicked(&self) -> bool {
        self.listener.have_panicked()
    }
}

/// An HTTP/2 connection, whatever type its requests' bodies have.
pub(super) trait Streams {
    /// Notes that a request, sent at that time, was cancelled.
    fn gave_up(&self, sent_at: Instant);

    /// Notes that a response has ended, or was given up.
    fn response_ended(&self);

    /// Notes that a stream has ended in both directions. `is_unwritten`: h2 still holds a part of
    /// it.
    fn ended_one(&self, is_unwritten: bool);

    /// See [`Tasks::sends_next`](super::tasks::Tasks::sends_next).
    fn sends_next(&self, given_up: Rc<GivenUp>);
}

/// A stream's place among those that the server allows.
pub(super) struct Place {
    connection: Rc<dyn Streams>,
    /// The pieces of the request's body.
    pieces: Pieces,
    given_up: Rc<GivenUp>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.connection.ended_one(self.pieces.are_left());
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.place.connection.response_ended();
        let Some(sent_at) = self.sent_at else { return };
        if !self.has_failed {
            self.place.connection.gave_up(sent_at);
        }
        self.place.given_up.set();
    }
}

impl ResponseBody {
    pub(super) fn new(
        incoming: Incoming,
        target: Arc<str>,
        deadline: Option<Deadline>,
        exchange: Exchange,
    ) -> Self {
        let (stream, answering) = match exchange {
            Exchange::Http1(answering) => (None, Some(answering)),
            Exchange::Http2(stream) => (Some(stream), None),
        };
        let has_panicked = stream.as_ref().is_some_and(OpenStream::has_panicked);
        let has_ended = !has_panicked && incoming.is_end_stream();
        let (incoming, waker) = (Locking::new(incoming), SafeWaker::default());
        let _of_one_loop = PhantomData;
        let mut this =
            Self { _of_one_loop, incoming, waker, target, deadline, stream, answering, has_ended };
        if has_ended {
            this.end_whole();
        }
        this
    }

    /// Sets when the response must be complete.
    pub(super) fn has_until(&mut self, deadline: Option<Deadline>) {
        self.deadline = deadline;
    }

    /// Called when all of the body has come.
    fn end_whole(&mut self) {
        if let Some(stream) = &mut self.stream {
            stream.sent_at = None;
        }
        self.end();
    }

    /// With HTTP/2: hyper takes a reset without an error code for the body's end, also if the
    /// server has not ended the stream. A body of which all bytes have come is whole all the same.
    fn is_cut_short(&self) -> bool {
        let incoming = &self.incoming;
        self.stream.is_some()
            && !incoming.is_end_stream()
            && incoming.size_hint().exact() != Some(0)
    }

    /// Is the response late? Then it ends here.
    fn poll_deadline(&mut self, cx: &mut Context<'_>) -> Poll<ClientError> {
        let Some(deadline) = &mut self.deadline else { return Poll::Pending };
        ready!(Pin::new(&mut deadline.end).poll(cx));
        let (target, after) = (self.target.clone(), deadline.after);
        self.end();
        Poll::Ready(ClientError::TotalTimeout { target, after })
    }

    fn end(&mut self) {
        self.stream = None;
        self.answering = None;
        self.has_ended = true;
    }

    fn has_panicked(&self) -> bool {
        self.stream.as_ref().is_some_and(OpenStream::has_panicked)
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = ClientError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ClientError>>> {
        let this = &mut *self;
        if this.has_ended {
            // Code that polls again and again would always get an answer at once, so this uses up
            // budget.
            return pin!(consume_budget()).poll(cx).map(|()| None);
        }
        if this.has_panicked() {
            this.end();
            return Poll::Ready(Some(Err(ClientError::Panicked { target: this.target.clone() })));
        }
        let polled = this.waker.with(cx, |cx| Pin::new(&mut *this.incoming).poll_frame(cx));
        let Poll::Ready(frame) = polled else {
            if let Some(stream) = &this.stream {
                stream.listener.wakes(cx.waker());
            }
            return this.poll_deadline(cx).map(|late| Some(Err(late)));
        };
        if matches!(frame, Some(Err(_))) {
            this.stream.iter_mut().for_each(OpenStream::fails);
            this.end();
        } else if frame.is_none() && this.is_cut_short() {
            this.end();
            return Poll::Ready(Some(Err(ClientError::CutShort { target: this.target.clone() })));
        } else if frame.is_none() || this.incoming.is_end_stream() {
            this.end_whole();
        } else if this.deadline.as_ref().is_some_and(|it| it.end.instant() <= turn_time())
            && let Poll::Ready(late) = this.poll_deadline(cx)
        {
            // Code that reads slowly, or a server that sends without a pause, never waits here.
            return Poll::Ready(Some(Err(late)));
        }
        let broken = |source| ClientError::Body { target: this.target.clone(), source };
        Poll::Ready(frame.map(|frame| frame.map_err(broken)))
    }

    fn is_end_stream(&self) -> bool {
        self.has_ended || (!self.has_panicked() && self.incoming.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

/// A [`ResponseBody`] in a wrapper that is `Send`, made by [`ResponseBody::into_send`].
///
/// # Threads
/// Read it on the thread of its client's loop: on another thread a read fails with
/// [`ClientError::OtherThread`]. It may be dropped on any thread, like a [`LoopBound`].
///
/// # Cancel safety
/// The same as for [`ResponseBody`].
#[derive(Debug)]
pub struct SendBody(LoopBound<ResponseBody>);

impl ResponseBody {
    /// Wraps the body so that it is `Send`, for axum and tonic handlers that forward the response
    /// of another server.
    ///
    /// The body still stays on this loop, as a handler's response does.
    ///
    /// ```
    /// use axum::body::Body;
    /// use axum::extract::{Request, State};
    /// use axum::http::StatusCode;
    /// use axum::response::{IntoResponse, Response};
    /// use axum::{Router, routing::get};
    /// use wakeful::{PerLoop, on_this_loop};
    /// use wakeful_http::client::{Client, ResponseBody};
    ///
    /// async fn proxy(State(client): State<PerLoop<Client<Body>>>, request: Request) -> Response {
    ///     on_this_loop(async move {
    ///         match client.get().send(request).await {
    ///             Ok(response) => response.map(ResponseBody::into_send).into_response(),
    ///             Err(_) => StatusCode::BAD_GATEWAY.into_response(),
    ///         }
    ///     })
    ///     .await
    /// }
    ///
    /// let clients = PerLoop::new(Client::new);
    /// let app: Router = Router::new().route("/", get(proxy)).with_state(clients);
    /// # drop(app);
    /// ```
    ///
    /// # Panics
    /// If no loop runs on this thread.
    #[must_use]
    #[track_caller]
    pub fn into_send(self) -> SendBody {
        SendBody(LoopBound::new(self))
    }
}

impl Body for SendBody {
    type Data = Bytes;
    type Error = ClientError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ClientError>>> {
        match self.0.get_mut() {
            Some(body) => Pin::new(body).poll_frame(cx),
            None => Poll::Ready(Some(Err(ClientError::OtherThread))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.0.get().is_some_and(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.0.get().map(Body::size_hint).unwrap_or_default()
    }
}

impl fmt::Debug for ResponseBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseBody").field("of", &self.target).finish_non_exhaustive()
    }
}

/// The body of a request under way: the caller's body, or none instead of an empty one.
pub(super) enum Outgoing<B: Body> {
    Given(Given<B>),
    Empty,
}

/// The caller's body, on its way to hyper.
pub(super) struct Given<B: Body> {
    body: OfCaller<B>,
    /// With HTTP/2, set when the request is sent.
    place: Option<Rc<Place>>,
    /// With HTTP/1.1, set when the request is sent.
    uploading: Option<Uploading>,
    was_polled: bool,
    /// For HTTP/2 only.
    joining: Joining<B::Data>,
    /// For HTTP/2 only: a frame is paid for by the next poll.
    owes: bool,
}

/// The caller's body. hyper polls it in the task of its connection, which with HTTP/2 also serves
/// other requests. So a panic in it becomes an error of this body.
struct OfCaller<B> {
    body: Contained<B>,
    has_panicked: Cell<bool>,
}

impl<B: Body> Outgoing<B> {
    pub(super) fn given(body: B) -> Self {
        let body = OfCaller { body: Contained::new(body), has_panicked: Cell::new(false) };
        let (place, uploading) = (None, None);
        let (was_polled, joining, owes) = (false, Joining::default(), false);
        Self::Given(Given { body, place, uploading, was_polled, joining, owes })
    }

    /// The body, for a request that is sent on this stream.
    pub(super) fn on(mut self, stream: &OpenStream) -> Self {
        if let Self::Given(given) = &mut self {
            given.place = Some(stream.place());
        }
        self
    }

    /// The body, for a request that is sent on an HTTP/1.1 connection.
    pub(super) fn by(mut self, uploading: Uploading) -> Self {
        if let Self::Given(given) = &mut self {
            given.uploading = Some(uploading);
        }
        self
    }

    /// The body, for a request that is no longer sent.
    pub(super) fn on_none(mut self) -> Self {
        if let Self::Given(given) = &mut self {
            (given.place, given.uploading) = (None, None);
            given.was_polled = false;
        }
        self
    }
}

impl<B: Body> Given<B> {
    pub(super) fn body(&self) -> &B {
        &self.body.body
    }

    pub(super) fn into_body(self) -> Option<B> {
        self.body.body.into_inner()
    }
}

impl<B: Body> OfCaller<B> {
    /// Calls `ask` with the body. `None`: it panicked.
    fn ask<R>(&self, ask: impl FnOnce(&B) -> R) -> Option<R> {
        let mut answer = None;
        foreign_code::contain(|| answer = Some(ask(&self.body)));
        self.has_panicked.set(self.has_panicked.get() || answer.is_none());
        answer
    }
}

impl<B: Body<Error: Into<BoxError>> + Unpin> Source for OfCaller<B> {
    type Data = B::Data;

    fn poll(&mut self, cx: &mut Context<'_>) -> Polled<B::Data> {
        let mut polled = None;
        if !self.has_panicked.get() {
            foreign_code::contain(|| {
                let poll = |cx: &mut Context<'_>| Pin::new(&mut *self.body).poll_frame(cx);
                polled = Some(joined::poll_frame(cx, poll));
            });
            self.has_panicked.set(polled.is_none());
        }
        polled.unwrap_or_else(|| Poll::Ready(Some(Err("the request's body has panicked".into()))))
    }

    fn is_at_end(&self) -> bool {
        self.ask(Body::is_end_stream).unwrap_or(false)
    }
}

impl<B: Body<Error: Into<BoxError>> + Unpin> Body for Outgoing<B> {
    type Data = Piece<B::Data>;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Piece<B::Data>>, BoxError>>> {
        let Self::Given(given) = &mut *self else { return Poll::Ready(None) };
        if !given.was_polled {
            if let Some(place) = &given.place {
                // hyper polls the body once, and then starts a task for the rest.
                place.connection.sends_next(place.given_up.clone());
            }
            given.uploading.iter().for_each(Uploading::is_asked);
        }
        given.was_polled = true;
        let pieces = given.place.as_ref().map(|place| &place.pieces);
        if given.owes {
            // hyper takes frames until its buffer is full, however many these are.
            ready!(pin!(consume_budget()).poll(cx));
            given.owes = false;
        }
        let polled = match pieces {
            Some(_) => given.joining.poll(&mut given.body, cx),
            None => joined::vectored(given.body.poll(cx)),
        };
        given.owes = pieces.is_some() && polled.is_ready();
        polled.map_ok(|frame| frame.map_data(|data| Piece::new(data, pieces)))
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Given(given) => given.joining.is_at_end(|| given.body.is_at_end()),
            Self::Empty => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Given(given) if given.joining.keeps_some() => SizeHint::default(),
            Self::Given(given) => given.body.ask(Body::size_hint).unwrap_or_default(),
            Self::Empty => SizeHint::with_exact(0),
        }
    }
}
