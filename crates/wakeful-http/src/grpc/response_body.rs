//! A call's response on its way to the client, and its trailers. The handler's trailers pass
//! through. A response that must end early ends with trailers that say why. The response to a
//! request that is no call is never cut, because its client would take a part of it for the whole.
//!
//! A response is cut only when it waits, or after its second frame, because a unary response has
//! ended by then (see `request_body`).

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use http::{HeaderMap, header};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tonic::Status;
use wakeful::time::{Deadline, seen_until};

use super::layer::deadline_exceeded;
use super::request_body::FRAMES_OF_A_UNARY;
use super::shutdown::Shutdown;
use crate::foreign_code::contain;

pin_project! {
    /// The response body under [`GrpcLayer`](super::GrpcLayer): the handler's bytes, until they
    /// end, or until the layer ends them.
    #[derive(Debug)]
    pub struct CallResponseBody<B> {
        // Dropped when the response is cut, together with what is left of the handler.
        #[pin]
        inner: Option<B>,
        deadline: Option<Deadline>,
        frames: u8,
        shutdown: Shutdown,
    }
}

impl<B> CallResponseBody<B> {
    pub(super) fn new(inner: B, deadline: Option<Instant>, shutdown: Shutdown) -> Self {
        Self { inner: Some(inner), deadline: deadline.map(Deadline::at), frames: 0, shutdown }
    }

    pub(super) fn empty() -> Self {
        Self { inner: None, deadline: None, frames: 0, shutdown: Shutdown::never() }
    }
}

impl<B: Body> Body for CallResponseBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let mut this = self.project();
        let Some(inner) = this.inner.as_mut().as_pin_mut() else { return Poll::Ready(None) };
        // A response that always has another frame must end, too.
        let mut cut = if *this.frames >= FRAMES_OF_A_UNARY {
            poll_cut(this.deadline, this.shutdown, cx)
        } else {
            Poll::Pending
        };
        if cut.is_pending() {
            if let Poll::Ready(frame) = inner.poll_frame(cx) {
                *this.frames = this.frames.saturating_add(1);
                return Poll::Ready(frame);
            }
            cut = poll_cut(this.deadline, this.shutdown, cx);
        }
        let status = ready!(cut);
        // The body may panic in its drop. The client is told why the response ends in any case.
        contain(|| this.inner.set(None));
        Poll::Ready(Some(Ok(Frame::trailers(trailers(status)))))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let hint = self.inner.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint);
        if self.shutdown.is_never() {
            return hint;
        }
        // The response may be cut, and trailers do not count in the size.
        let mut cut = SizeHint::new();
        if let Some(upper) = hint.upper() {
            cut.set_upper(upper);
        }
        cut
    }
}

fn poll_cut(
    deadline: &mut Option<Deadline>,
    shutdown: &mut Shutdown,
    cx: &mut Context<'_>,
) -> Poll<Status> {
    // The first check is for a handler that spends its task's budget in every poll, because then
    // the second check is never ready.
    if let Some(deadline) = deadline
        && (deadline.instant() <= seen_until() || Pin::new(deadline).poll(cx).is_ready())
    {
        return Poll::Ready(deadline_exceeded());
    }
    shutdown.poll(cx)
}

fn trailers(status: Status) -> HeaderMap {
    let (mut parts, ()) = status.into_http::<()>().into_parts();
    parts.headers.remove(header::CONTENT_TYPE);
    parts.headers
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::pin::pin;
    use std::time::{Duration, Instant};

    use bytes::Bytes;
    use futures_lite::stream;
    use http_body::Frame;
    use http_body_util::{BodyExt, StreamBody};

    use super::{CallResponseBody, Shutdown};

    #[test]
    fn a_handler_that_spends_its_whole_budget_in_every_poll_has_its_deadline() {
        let toil = stream::unfold((), |()| async {
            loop {
                wakeful::task::consume_budget().await;
            }
            #[allow(unreachable_code)]
            Some((Ok::<_, Infallible>(Frame::data(Bytes::new())), ()))
        });
        let deadline = Instant::now() + Duration::from_millis(20);
        let shutdown = Shutdown::after(Duration::ZERO);
        let body = CallResponseBody::new(StreamBody::new(toil), Some(deadline), shutdown);
        let last = wakeful::block_on(wakeful::time::timeout(Duration::from_secs(20), async {
            pin!(body).frame().await
        }));
        let trailers = last.unwrap().unwrap().unwrap().into_trailers().unwrap();
        assert_eq!(trailers["grpc-status"], "4");
    }
}
