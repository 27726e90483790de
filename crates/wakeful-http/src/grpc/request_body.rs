//! A call's request on its way to the handler. When the server drains, the request may have to end
//! early, with an error that the handler sees.
//!
//! A unary call should neither notice the drain nor pay for the possibility. So a request is cut
//! only if all or nothing of its first message has come, and only when its handler waits for more
//! or has had two frames.
//!
//! A message for which there is no memory ends the request, too: the codec would end the process.
//!
//! The body of a request that is no call passes through.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tonic::Status;

use super::messages::Messages;
use super::shutdown::Shutdown;
use crate::error::BoxError;
use crate::memory;

/// Hardly a codec allows larger messages. It refuses them without memory for them.
const GREATEST_MESSAGE: usize = 1 << 30;

/// The codec reserves the whole message, and what it decodes may be a copy.
fn is_there_for_message(length: usize) -> bool {
    length > GREATEST_MESSAGE || memory::is_there_for(2 * length)
}

#[cold]
fn no_memory(length: usize) -> Status {
    Status::resource_exhausted(format!("no memory is left for a message of {length} bytes"))
}

/// The most frames that the body of a small unary call has.
pub(super) const FRAMES_OF_A_UNARY: u8 = 2;

pin_project! {
    /// The request body under [`GrpcLayer`](super::GrpcLayer): the client's bytes; or UNAVAILABLE
    /// if the server drains and the client continues to send; or RESOURCE_EXHAUSTED if the process
    /// has no memory for a message.
    #[derive(Debug)]
    pub struct CallRequestBody<B> {
        #[pin]
        inner: B,
        messages: Messages,
        frames: u8,
        shutdown: Shutdown,
        is_cut: bool,
    }
}

impl<B> CallRequestBody<B> {
    pub(super) fn new(inner: B, shutdown: Shutdown) -> Self {
        let messages = Messages::default();
        Self { inner, messages, frames: 0, shutdown, is_cut: false }
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
        let may_be_cut = this.messages.may_be_cut();
        // A request that always has another frame must end, too.
        let mut cut = if may_be_cut && *this.frames >= FRAMES_OF_A_UNARY {
            this.shutdown.poll(cx)
        } else {
            Poll::Pending
        };
        if cut.is_pending() {
            if let Poll::Ready(frame) = this.inner.poll_frame(cx) {
                if let Some(data) = frame.iter().flatten().find_map(Frame::data_ref) {
                    *this.frames = this.frames.saturating_add(1);
                    if !this.shutdown.is_never() {
                        let length = this.messages.saw(data) as usize;
                        if !is_there_for_message(length) {
                            *this.is_cut = true;
                            return Poll::Ready(Some(Err(no_memory(length).into())));
                        }
                    }
                }
                return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
            }
            if may_be_cut {
                cut = this.shutdown.poll(cx);
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

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};
    use std::time::Duration;

    use http_body::Body;
    use http_body_util::Full;

    use super::{Bytes, CallRequestBody, Poll, Shutdown};

    /// Of a text the first bytes would be the length of a large message.
    #[test]
    fn lengths_are_read_in_calls_only() {
        let mut cx = Context::from_waker(Waker::noop());
        for (shutdown, is_followed) in
            [(Shutdown::never(), false), (Shutdown::after(Duration::ZERO), true)]
        {
            let body = CallRequestBody::new(Full::new(Bytes::from_static(b"{\"na")), shutdown);
            let mut body = pin!(body);
            let frame = body.as_mut().poll_frame(&mut cx);
            assert!(matches!(frame, Poll::Ready(Some(Ok(_)))));
            assert_eq!(body.messages.may_be_cut(), !is_followed);
        }
    }
}
