//! Clients that tonic generated, over a [`Host`]: `GreeterClient::new(GrpcService::new(host))`.
//!
//! tonic requires bodies that are `Send`, but wakeful's bodies belong to a loop. So they are
//! wrapped: on another thread a read of the body fails.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::{Request, Response};
use tower_service::Service;

use super::{ClientError, Host, HttpVersion, OutgoingBody, ResponseBody, SendBody};

/// An HTTP/2 host as a tower service, for tonic's clients.
///
/// [`head_timeout`](super::ClientBuilder::head_timeout) limits the time until the head of a call's
/// response arrives. A streaming server may send the head only with its first message.
pub struct GrpcService<B: OutgoingBody> {
    host: Host<B>,
}

impl<B: OutgoingBody> GrpcService<B> {
    /// Makes a service that sends calls to `host`.
    ///
    /// # Panics
    /// If the host's target is not [`HttpVersion::Http2`], because gRPC needs HTTP/2.
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
    type Response = Response<SendBody>;
    type Error = ClientError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, ClientError>>>>;

    /// Is always ready: calls wait in the host's queue.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ClientError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let host = self.host.clone();
        Box::pin(async move {
            let response = host.send(request).await?;
            Ok(response.map(ResponseBody::into_send))
        })
    }
}
