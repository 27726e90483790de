//! Bodies on their way through the limits: a request's as the service reads it, and a response's.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::Limited;
use hyper::body::Incoming;
use pin_project_lite::pin_project;
use wakeful::task::consume_budget;

use super::in_flight::InFlight;
use crate::connection::Progress;
use crate::error::BoxError;
use crate::foreign_code::{self, Contained, Locking, SafeWaker};
use crate::foreign_error;
use crate::observe::ObservedRequest;
use crate::own_values;

/// The body of a request: hyper's body, within the server's limits.
///
/// # Errors
/// If the body is larger than [`Limits::max_body`](crate::Limits::max_body), a read fails with a
/// [`LengthLimitError`](http_body_util::LengthLimitError), like that of `http_body_util::Limited`.
/// The client then gets 413, whatever the service answers, unless the response has begun. If the
/// client's connection or stream breaks off, a read fails with a [`hyper::Error`].
///
/// # Threads
/// `Send`.
#[derive(Debug)]
pub struct RequestBody(
    /// `None`: it is empty. Small, since a request is moved many times on its way to its handler.
    Option<Box<Unread>>,
);

#[derive(Debug)]
struct Unread {
    inner: Locking<Limited<Incoming>>,
    waker: SafeWaker,
    /// What its limits of time need.
    progress: Option<Progress>,
    /// It has returned its end, or an error.
    has_ended: bool,
}

impl RequestBody {
    #[inline]
    pub(crate) fn new(inner: Incoming, progress: Option<Progress>, most: Option<u64>) -> Self {
        if inner.is_end_stream() {
            return Self(None);
        }
        let most = most.map_or(usize::MAX, |most| usize::try_from(most).unwrap_or(usize::MAX));
        let (inner, waker) = (Locking::new(Limited::new(inner, most)), SafeWaker::default());
        Self(Some(Box::new(Unread { inner, waker, progress, has_ended: false })))
    }
}

/// hyper then reads once more, for the case that this was almost all of it.
impl Drop for Unread {
    fn drop(&mut self) {
        let Some(progress) = &self.progress else { return };
        // As its drop, the question may panic.
        foreign_code::contain(|| {
            if !self.inner.is_end_stream() {
                progress.is_dropped();
            }
        });
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        // After the end, or an error, code that asks again is answered at once each time.
        if self.0.as_ref().is_none_or(|it| it.has_ended) {
            ready!(pin!(consume_budget()).poll(cx));
        }
        let Some(this) = &mut self.0 else { return Poll::Ready(None) };
        let polled = this.waker.with(cx, |cx| Pin::new(&mut *this.inner).poll_frame(cx));
        this.has_ended = matches!(polled, Poll::Ready(None | Some(Err(_))));
        if let Some(progress) = &this.progress {
            progress.saw(&polled);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(|it| it.inner.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.0.as_ref().map_or(SizeHint::with_exact(0), |it| it.inner.size_hint())
    }
}

pin_project! {
    /// A response's body; the request is in flight until it is gone, and observed until its end.
    pub(crate) struct ResponseBody<B> {
        // None: the server has answered by itself.
        #[pin]
        inner: Option<B>,
        in_flight: Option<InFlight>,
        observed: Option<Box<ObservedRequest>>,
    }

    impl<B> PinnedDrop for ResponseBody<B> {
        // hyper drops a body before it has sent what came of it.
        fn drop(this: Pin<&mut Self>) {
            if std::mem::needs_drop::<B>() {
                let mut inner = this.project().inner;
                foreign_code::contain(|| inner.set(None));
            }
        }
    }
}

impl<B> ResponseBody<B> {
    pub(crate) fn of_service(inner: B, in_flight: Option<InFlight>) -> Self {
        Self { inner: Some(inner), in_flight, observed: None }
    }

    pub(crate) fn empty() -> Self {
        Self { inner: None, in_flight: None, observed: None }
    }

    pub(crate) fn is_observed_by(&mut self, observed: Box<ObservedRequest>) {
        self.observed = Some(observed);
    }
}

impl<B> Body for ResponseBody<B>
where
    B: Body<Error: Into<BoxError>>,
{
    type Data = Contained<B::Data>;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Contained<B::Data>>, BoxError>>> {
        let mut this = self.project();
        let Some(mut inner) = this.inner.as_mut().as_pin_mut() else { return Poll::Ready(None) };
        if let Some(in_flight) = this.in_flight {
            in_flight.working();
        }
        let polled = foreign_code::poll_frame_with_data(cx, |cx| {
            let entered = this.observed.as_deref().map(ObservedRequest::enter);
            let polled = inner.as_mut().poll_frame(cx);
            drop(entered);
            // First of all: what is asked of the frame may panic, and then its drop.
            let polled =
                polled.map_ok(|frame| own_values::of_trailers(frame.map_data(Contained::new)));
            let polled = polled.map_err(foreign_error::guard);
            if let Some(observed) = this.observed
                && let Poll::Ready(frame) = &polled
                && observed.saw(frame, is_at_end(&*inner))
            {
                *this.observed = None;
            }
            polled
        });
        if let Some(in_flight) = this.in_flight {
            in_flight.worked();
            in_flight.asked(polled.is_ready());
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.inner.as_ref().is_none_or(is_at_end)
    }

    /// Of any size, if the question panics.
    fn size_hint(&self) -> SizeHint {
        let mut hint = SizeHint::default();
        foreign_code::contain(|| {
            hint = self.inner.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint);
        });
        hint
    }
}

/// Not, if the question panics. hyper asks with the response's head or a frame in its hands, whose
/// drop may panic, too: its extensions are the program's.
#[inline]
fn is_at_end<B: Body>(body: &B) -> bool {
    let mut is_at_end = false;
    foreign_code::contain(|| is_at_end = body.is_end_stream());
    is_at_end
}
