//! A time limit on handlers.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::{Request, Response, StatusCode};
use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;

use crate::foreign_code::contain;

/// Cancels a handler that has not answered in time, and sends a response with an empty body
/// instead.
///
/// The status is 503, like that of [`Limits::request_timeout`](crate::Limits::request_timeout),
/// because the server was too slow. tower-http's layer of this name used to send 408, which says
/// that the *client* was too slow, and makes browsers retry at once. [`status`](Self::status) sets
/// another status, such as 504 for a gateway.
///
/// ```
/// use std::time::Duration;
/// use axum::{Router, routing::get};
/// use http::StatusCode;
/// use wakeful_http::layers::TimeoutLayer;
///
/// let in_time = TimeoutLayer::new(Duration::from_secs(5)).status(StatusCode::GATEWAY_TIMEOUT);
/// let app: Router = Router::new().route("/", get(|| async { "hello" })).layer(in_time);
/// ```
///
/// The time counts from the call of the service to the response's head. It does not limit a
/// streaming body. When the time is up, the loop first handles the bytes that arrived in time (see
/// [`Deadline`](wakeful::time::Deadline)), and then drops the handler's future. A handler that
/// blocks its loop is not interrupted.
///
/// # Panics
/// The services that the layer makes panic if no loop runs on the thread.
#[derive(Debug, Clone, Copy)]
#[must_use = "a layer does nothing by itself"]
pub struct TimeoutLayer {
    limit: Duration,
    status: StatusCode,
}

impl TimeoutLayer {
    /// Makes a layer whose handlers must return the response's head within `limit`.
    pub const fn new(limit: Duration) -> Self {
        Self { limit, status: StatusCode::SERVICE_UNAVAILABLE }
    }

    /// Sets the status of the response when the time is up. The default is 503.
    pub const fn status(mut self, status: StatusCode) -> Self {
        self.status = status;
        self
    }
}

impl<S> Layer<S> for TimeoutLayer {
    type Service = Timeout<S>;

    fn layer(&self, inner: S) -> Timeout<S> {
        Timeout { inner, settings: *self }
    }
}

/// The service of [`TimeoutLayer`].
#[derive(Debug, Clone)]
pub struct Timeout<S> {
    inner: S,
    settings: TimeoutLayer,
}

impl<S, R, B> Service<Request<R>> for Timeout<S>
where
    S: Service<Request<R>, Response = Response<B>>,
    B: Default,
{
    type Response = Response<B>;
    type Error = S::Error;
    type Future = ResponseFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<R>) -> Self::Future {
        let TimeoutLayer { limit, status } = self.settings;
        let answer = wakeful::time::timeout(limit, self.inner.call(request));
        ResponseFuture { answer: Some(answer), status }
    }
}

pin_project! {
    /// The future of [`Timeout`]. Dropping it drops the handler's future.
    #[derive(Debug)]
    #[must_use = "futures do nothing unless polled"]
    pub struct ResponseFuture<F> {
        // `None`: the future was ready.
        #[pin]
        answer: Option<wakeful::time::Timeout<F>>,
        status: StatusCode,
    }
}

impl<F, B, E> Future for ResponseFuture<F>
where
    F: Future<Output = Result<Response<B>, E>>,
    B: Default,
{
    type Output = Result<Response<B>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let answer = this.answer.as_mut().as_pin_mut().expect("polled after its end");
        let in_time = ready!(answer.poll(cx));
        // This drops everything that the handler holds. A panic in the drop does not affect the
        // answer.
        contain(|| this.answer.set(None));
        Poll::Ready(in_time.unwrap_or_else(|_| {
            let mut late = Response::new(B::default());
            *late.status_mut() = *this.status;
            Ok(late)
        }))
    }
}
