//! A call's two bodies, each of which may have to end before its time: the response by trailers
//! that say why, the request by an error that the handler sees.
//!
//! A unary call is not to notice that the server drains, and not to pay for being able to. So a
//! request is cut only where its first message has come in full, or none of it, and only when its
//! handler waits for more or has had two frames; a response only when it waits, or behind its
//! second frame: a unary one has ended by then.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes};
use http::{HeaderMap, header};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tonic::Status;
use wakeful::time::{Deadline, seen_until};

use super::layer::deadline_exceeded;
use super::shutdown::Told;
use crate::error::BoxError;

/// So many frames has a unary call's body at most that is small.
const FRAMES_OF_A_UNARY: u8 = 2;

pin_project! {
    /// What a handler reads, under [`GrpcLayer`](super::GrpcLayer): the client's bytes, or
    /// UNAVAILABLE when the server drains and the client would go on.
    #[derive(Debug)]
    pub struct CallRequestBody<B> {
        #[pin]
        inner: B,
        first: FirstMessage,
        frames: u8,
        told: Told,
        is_cut: bool,
    }
}

impl<B> CallRequestBody<B> {
    pub(super) fn new(inner: B, linger: Duration) -> Self {
        let (first, told) = (FirstMessage::default(), Told::after(linger));
        Self { inner, first, frames: 0, told, is_cut: false }
    }
}

impl<B> Body for CallRequestBody<B>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.project();
        if *this.is_cut {
            return Poll::Ready(None);
        }
        let may_be_cut = this.first.may_be_cut();
        // One that always has another frame has to end all the same.
        let mut cut = if may_be_cut && *this.frames >= FRAMES_OF_A_UNARY {
            this.told.poll(cx)
        } else {
            Poll::Pending
        };
        if cut.is_pending() {
            if let Poll::Ready(frame) = this.inner.poll_frame(cx) {
                if let Some(data) = frame.iter().flatten().find_map(Frame::data_ref) {
                    this.first.saw(data);
                    *this.frames = this.frames.saturating_add(1);
                }
                return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
            }
            if may_be_cut {
                cut = this.told.poll(cx);
            }
        }
        let status = ready!(cut);
        *this.is_cut = true;
        Poll::Ready(Some(Err(status.into())))
    }

    fn is_end_stream(&self) -> bool {
        self.is_cut || self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// How much of a body's first message is to come: it has a byte of flags and four of length in
/// front of it.
#[derive(Debug, Default)]
struct FirstMessage {
    /// Of the prefix.
    seen: u8,
    length: u32,
    left: u32,
}

impl FirstMessage {
    fn saw(&mut self, mut data: &[u8]) {
        while self.seen < 5 && data.has_remaining() {
            // The flags' byte goes out at the top.
            self.length = self.length << 8 | u32::from(data.get_u8());
            self.seen += 1;
            if self.seen == 5 {
                self.left = self.length;
            }
        }
        self.left = self.left.saturating_sub(u32::try_from(data.len()).unwrap_or(u32::MAX));
    }

    /// None of it has come, or all.
    fn may_be_cut(&self) -> bool {
        self.seen == 0 || (self.seen == 5 && self.left == 0)
    }
}

pin_project! {
    /// What a client reads, under [`GrpcLayer`](super::GrpcLayer): the handler's bytes, until they
    /// end or have to.
    #[derive(Debug)]
    pub struct CallResponseBody<B> {
        // Dropped when it is cut: with it what is left of the handler.
        #[pin]
        inner: Option<B>,
        deadline: Option<Deadline>,
        frames: u8,
        told: Told,
    }
}

impl<B> CallResponseBody<B> {
    pub(super) fn new(inner: B, deadline: Option<Instant>, linger: Duration) -> Self {
        let (deadline, told) = (deadline.map(Deadline::at), Told::after(linger));
        Self { inner: Some(inner), deadline, frames: 0, told }
    }

    pub(super) fn empty() -> Self {
        Self { inner: None, deadline: None, frames: 0, told: Told::after(Duration::ZERO) }
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
        // One that always has another frame has to end all the same.
        let mut cut = if *this.frames >= FRAMES_OF_A_UNARY {
            poll_cut(this.deadline, this.told, cx)
        } else {
            Poll::Pending
        };
        if cut.is_pending() {
            if let Poll::Ready(frame) = inner.poll_frame(cx) {
                *this.frames = this.frames.saturating_add(1);
                return Poll::Ready(frame);
            }
            cut = poll_cut(this.deadline, this.told, cx);
        }
        let status = ready!(cut);
        this.inner.set(None);
        Poll::Ready(Some(Ok(Frame::trailers(trailers(status)))))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        // It may be cut, and trailers do not count.
        let hint = self.inner.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint);
        let mut cut = SizeHint::new();
        if let Some(upper) = hint.upper() {
            cut.set_upper(upper);
        }
        cut
    }
}

fn poll_cut(
    deadline: &mut Option<Deadline>,
    told: &mut Told,
    cx: &mut Context<'_>,
) -> Poll<Status> {
    // The first question is for a handler that has spent its task's budget, as it may in every
    // poll: then the second one is not answered.
    if let Some(deadline) = deadline
        && (deadline.instant() <= seen_until() || Pin::new(deadline).poll(cx).is_ready())
    {
        return Poll::Ready(deadline_exceeded());
    }
    told.poll(cx)
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

    use super::{CallResponseBody, FirstMessage};

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
        let body = CallResponseBody::new(StreamBody::new(toil), Some(deadline), Duration::ZERO);
        let last = wakeful::block_on(wakeful::time::timeout(Duration::from_secs(20), async {
            pin!(body).frame().await
        }));
        let trailers = last.unwrap().unwrap().unwrap().into_trailers().unwrap();
        assert_eq!(trailers["grpc-status"], "4");
    }

    #[test]
    fn only_the_first_message_is_protected_however_it_comes() {
        let bytes = [&[1, 0, 0, 1, 2][..], &[7; 258], &[0, 0, 0, 0, 9, 1]].concat();
        for piece in [1, 2, 3, 5, 7, 100, bytes.len()] {
            let (mut first, mut seen) = (FirstMessage::default(), 0);
            assert!(first.may_be_cut(), "nothing has come");
            for piece in bytes.chunks(piece) {
                first.saw(piece);
                seen += piece.len();
                assert_eq!(first.may_be_cut(), seen >= 5 + 258, "behind {seen} bytes");
            }
        }
        let mut empty = FirstMessage::default();
        empty.saw(&[0; 5]);
        assert!(empty.may_be_cut());
    }
}
