//! Bodies on their way through the limits: a request's as the service reads it, and a response's.

use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use pin_project_lite::pin_project;
use wakeful::task::consume_budget;

use super::in_flight::InFlight;
use super::received::Received;
use super::unread;
use crate::connection::{BodyReads, LastWaker, Progress, ResetRation};
use crate::error::BoxError;
use crate::foreign_code::{self, SafeWaker};
use crate::joined::{self, Data, Joining, Polled, Source};
use crate::observe::ObservedRequest;

/// The body of a request: hyper's body, within the server's limits.
///
/// # Errors
/// If the body is larger than [`Limits::max_body`](crate::Limits::max_body), a read fails with a
/// [`LengthLimitError`](http_body_util::LengthLimitError), like that of `http_body_util::Limited`.
/// The client then gets 413, whatever the service answers, unless the response has begun. If the
/// client's connection or stream breaks off, a read fails with a [`hyper::Error`], or with an
/// [`io::Error`] of the kind `UnexpectedEof` if the client gave no error code (HTTP/2). In a forked
/// child a read of the parent's body fails.
///
/// # Threads
/// `Send`.
#[derive(Debug)]
pub struct RequestBody(
    /// `None`: the body is empty. This is small, because a request is moved many times on its way
    /// to its handler.
    Option<Box<Unread>>,
);

#[derive(Debug)]
struct Unread {
    /// `None` only during the drop.
    inner: Option<Received>,
    waker: SafeWaker,
    /// With HTTP/2: how often a body may be dropped before its end.
    resets: Option<ResetRation>,
    reads: Option<BodyReads>,
    /// What the limits need to know.
    progress: Option<Progress>,
    last_waker: LastWaker,
    /// Whether the body has returned its end, or an error.
    has_ended: bool,
}

impl RequestBody {
    #[inline]
    pub(crate) fn new(
        inner: Incoming,
        progress: Option<Progress>,
        most: Option<u64>,
        resets: Option<&ResetRation>,
        reads: Option<&BodyReads>,
    ) -> Self {
        if inner.is_end_stream() {
            return Self(None);
        }
        let most = most.map_or(usize::MAX, |most| usize::try_from(most).unwrap_or(usize::MAX));
        Self(Some(Box::new(Unread {
            inner: Some(Received::new(inner, most, resets.is_some())),
            waker: SafeWaker::default(),
            resets: resets.cloned(),
            reads: reads.cloned(),
            progress,
            last_waker: LastWaker::default(),
            has_ended: false,
        })))
    }
}

impl Unread {
    fn is_end_stream(&self) -> bool {
        self.inner.as_ref().is_none_or(Body::is_end_stream)
    }

    /// With HTTP/2: hyper takes a reset without an error code for the body's end.
    fn is_cut_short(&self) -> bool {
        self.resets.is_some() && !self.is_end_stream()
    }
}

/// After a body is dropped, hyper reads once more, in case only little of the body is left.
impl Drop for Unread {
    fn drop(&mut self) {
        // Like the drop, `is_end_stream` may panic.
        let mut has_rest = false;
        foreign_code::contain(|| has_rest = !self.is_end_stream());
        if let Some(progress) = &self.progress
            && has_rest
        {
            progress.is_dropped();
        }
        if let (Some(inner), Some(resets)) = (self.inner.take_if(|_| has_rest), &self.resets) {
            unread::drop_in_turn(inner, resets);
        }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        // After the end, or an error, code that polls again and again would always get an answer at
        // once, so this uses up budget.
        if self.0.as_ref().is_none_or(|it| it.has_ended) {
            ready!(pin!(consume_budget()).poll(cx));
        }
        let Some(this) = &mut self.0 else { return Poll::Ready(None) };
        let Unread { inner: Some(inner), waker, progress, last_waker, .. } = &mut **this else {
            return Poll::Ready(None);
        };
        let inner = Pin::new(inner);
        let mut polled = waker.with(cx, |cx| match progress {
            Some(progress) => {
                let waker = progress.asks(last_waker, cx.waker());
                inner.poll_frame(&mut Context::from_waker(&waker))
            }
            None => inner.poll_frame(cx),
        });
        if !this.has_ended && matches!(polled, Poll::Ready(None)) && this.is_cut_short() {
            let text = "the client ended its request's stream before the request was complete";
            let error = io::Error::new(io::ErrorKind::UnexpectedEof, text);
            polled = Poll::Ready(Some(Err(error.into())));
        }
        this.has_ended = matches!(polled, Poll::Ready(None | Some(Err(_))));
        if let (Some(reads), Poll::Ready(Some(Ok(_)))) = (&this.reads, &polled) {
            reads.one_more();
        }
        if let Some(progress) = &this.progress {
            progress.saw(&polled);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(|it| it.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        let inner = self.0.as_ref().and_then(|it| it.inner.as_ref());
        inner.map_or(SizeHint::with_exact(0), Body::size_hint)
    }
}

pin_project! {
    /// A response's body. The request is in flight until this is dropped, and observed until the
    /// body's end.
    pub(crate) struct ResponseBody<B>
    where
        B: Body,
    {
        // `None`: the server itself has answered.
        #[pin]
        inner: Option<B>,
        in_flight: Option<InFlight>,
        observed: Option<Box<ObservedRequest>>,
        // Both are for HTTP/2 only. A frame is paid for by the next poll: if the body spends
        // budget, too, one operation has to be enough for it.
        joining: Joining<B::Data>,
        owes: bool,
    }

    impl<B> PinnedDrop for ResponseBody<B>
    where
        B: Body,
    {
        // hyper may drop a body before it has sent the body's last frames.
        fn drop(this: Pin<&mut Self>) {
            if std::mem::needs_drop::<B>() {
                let mut inner = this.project().inner;
                foreign_code::contain(|| inner.set(None));
            }
        }
    }
}

impl<B: Body> ResponseBody<B> {
    pub(crate) fn of_service(inner: B, in_flight: Option<InFlight>) -> Self {
        Self {
            inner: Some(inner),
            in_flight,
            observed: None,
            joining: Joining::default(),
            owes: false,
        }
    }

    pub(crate) fn empty() -> Self {
        Self {
            inner: None,
            in_flight: None,
            observed: None,
            joining: Joining::default(),
            owes: false,
        }
    }

    pub(crate) fn is_observed_by(&mut self, observed: Box<ObservedRequest>) {
        self.observed = Some(observed);
    }
}

/// The service's body, which is polled in the request's span.
struct OfService<'a, B> {
    body: Pin<&'a mut B>,
    observed: Option<&'a ObservedRequest>,
}

impl<B: Body<Error: Into<BoxError>>> Source for OfService<'_, B> {
    type Data = B::Data;

    #[inline]
    fn poll(&mut self, cx: &mut Context<'_>) -> Polled<B::Data> {
        joined::poll_frame(cx, |cx| {
            let _entered = self.observed.map(ObservedRequest::enter);
            self.body.as_mut().poll_frame(cx)
        })
    }

    fn is_at_end(&self) -> bool {
        is_at_end(&*self.body)
    }
}

/// Is the body at its end? If the call panics, the answer is no. hyper calls this while it holds
/// the response's head or a frame, whose drop may panic, too, because the extensions belong to the
/// program.
#[inline]
fn is_at_end<B: Body>(body: &B) -> bool {
    let mut is_at_end = false;
    foreign_code::contain(|| is_at_end = body.is_end_stream());
    is_at_end
}

impl<B> Body for ResponseBody<B>
where
    B: Body<Error: Into<BoxError>>,
{
    type Data = Data<B::Data>;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Data<B::Data>>, BoxError>>> {
        let mut this = self.project();
        let Some(mut body) = this.inner.as_mut().as_pin_mut() else { return Poll::Ready(None) };
        let is_http2 = this.in_flight.as_ref().is_some_and(InFlight::is_http2);
        if *this.owes {
            // hyper takes frames until its buffer is full, however many these are.
            ready!(pin!(consume_budget()).poll(cx));
            *this.owes = false;
        }
        if let Some(in_flight) = this.in_flight {
            in_flight.working();
        }
        let mut source = OfService { body: body.as_mut(), observed: this.observed.as_deref() };
        let polled = match is_http2 {
            true => this.joining.poll(&mut source, cx),
            false => joined::vectored(source.poll(cx)),
        };
        if let Some(observed) = this.observed
            && let Poll::Ready(frame) = &polled
            && observed.saw(frame, this.joining.is_at_end(|| is_at_end(&*body)))
        {
            *this.observed = None;
        }
        *this.owes = is_http2 && polled.is_ready();
        if let Some(in_flight) = this.in_flight {
            in_flight.worked();
            in_flight.asked(polled.is_ready());
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.inner.as_ref().is_none_or(|inner| self.joining.is_at_end(|| is_at_end(inner)))
    }

    /// If the call panics, the size is unknown.
    fn size_hint(&self) -> SizeHint {
        let mut hint = SizeHint::default();
        if !self.joining.keeps_some() {
            foreign_code::contain(|| {
                hint = self.inner.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint);
            });
        }
        hint
    }
}
