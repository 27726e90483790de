//! Clients that tonic generated, over a [`Host`]: `GreeterClient::new(GrpcService::new(host))`.
//!
//! tonic asks for bodies that are `Send`, and ours belong to a loop. So they are wrapped: read on
//! another thread, a body fails.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Bytes;
use tower_service::Service;

use crate::loop_bound::LoopBound;

use super::{ClientError, Host, HttpVersion, OutgoingBody, ResponseBody};

/// A host of HTTP/2 as a tower service, in the form that tonic's clients take.
///
/// [`head_timeout`](super::ClientBuilder::head_timeout) holds for a call until the head of its
/// response comes, which a server that streams may put off until its first message.
pub struct GrpcService<B: OutgoingBody> {
    host: Host<B>,
}

impl<B: OutgoingBody> GrpcService<B> {
    /// Calls go to `host`.
    ///
    /// # Panics
    /// If the host's target is not of [`HttpVersion::Http2`]: gRPC is HTTP/2.
    #[must_use]
    pub fn new(host: Host<B>) -> Self {
        let version = host.target().http_version();
        assert_eq!(version, HttpVersion::Http2, "gRPC needs a target of HttpVersion::Http2");
        Self { host }
    }
}

impl<B: OutgoingBody> Clone for GrpcService<B> {
    fn clone(&self) -> Self {
        Self { host: self.host.clone() }
    }
}

impl<B: OutgoingBody> fmt::Debug for GrpcService<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("GrpcService").field(&self.host).finish()
    }
}

impl<B: OutgoingBody> Service<Request<B>> for GrpcService<B> {
    type Response = Response<GrpcBody>;
    type Error = ClientError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, ClientError>>>>;

    /// Always: calls wait in the host's queue.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ClientError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let host = self.host.clone();
        Box::pin(async move {
            let response = host.send(request).await?;
            Ok(response.map(|body| GrpcBody(LoopBound::new(body, wakeful::LoopHandle::current()))))
        })
    }
}

/// A [`ResponseBody`] that is `Send`.
///
/// # Threads
/// It may be dropped anywhere. Read on another thread than its loop's it fails with
/// [`ClientError::OtherThread`].
#[derive(Debug)]
pub struct GrpcBody(LoopBound<ResponseBody>);

impl Body for GrpcBody {
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
