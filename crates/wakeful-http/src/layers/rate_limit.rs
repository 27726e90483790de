//! A limit on the number of requests in a period.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{HeaderValue, Request, Response, StatusCode, header};
use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;
use wakeful::time::{now, turn_time};

use super::bucket::Bucket;
use super::scope::Scope;

/// Refuses (429) requests that exceed a rate. The `retry-after` header of the response has the
/// seconds until another request would be accepted. Requests do not wait.
///
/// ```
/// use std::time::Duration;
/// use axum::{Router, routing::post};
/// use wakeful_http::layers::RateLimitLayer;
///
/// let ten_a_minute = RateLimitLayer::new(10, Duration::from_secs(60)).burst(3);
/// let mail = post(|| async { "sent" }).layer(ten_a_minute);
/// let app: Router = Router::new().route("/mail", mail);
/// ```
///
/// It is a token bucket: `burst` requests may arrive at once, and the bucket refills at the rate.
/// One bucket applies to all clients, all loops, and all routes with this layer; it is one atomic
/// word, without a lock. With [`each_loop`](Self::each_loop) each loop has its own bucket, and the
/// loops share nothing. For a rate per peer, use [`Limits::peer_rate`](crate::Limits::peer_rate).
///
/// It uses the turn's time ([`turn_time`]) instead of reading the clock, so it may refuse requests
/// for up to a millisecond too long.
#[derive(Debug, Clone)]
#[must_use = "a layer does nothing by itself"]
pub struct RateLimitLayer {
    rate: Rate,
    scope: Scope<Bucket>,
}

#[derive(Debug, Clone, Copy)]
struct Rate {
    requests: u32,
    per: Duration,
    burst: u32,
}

impl Rate {
    fn bucket(self) -> Bucket {
        Bucket::new(self.requests, self.per, self.burst, now())
    }
}

impl RateLimitLayer {
    /// Makes a layer that accepts, on average, `requests` requests per period `per`. All of them
    /// may arrive at once, unless [`burst`](Self::burst) sets another number. 0 requests become 1.
    pub fn new(requests: u32, per: Duration) -> Self {
        let rate = Rate { requests, per, burst: requests };
        Self { rate, scope: Scope::all(rate.bucket()) }
    }

    /// Sets how many requests may arrive at once, at least 1. 0 becomes 1. The default is the
    /// number of requests of [`new`](Self::new).
    pub fn burst(self, requests: u32) -> Self {
        let rate = Rate { burst: requests, ..self.rate };
        match self.scope {
            Scope::AllLoops(_) => Self { rate, scope: Scope::all(rate.bucket()) },
            Scope::EachLoop(_) => Self { rate, scope: Scope::each(move || rate.bucket()) },
        }
    }

    /// Applies the limit to each loop separately.
    pub fn each_loop(self) -> Self {
        let rate = self.rate;
        Self { rate, scope: Scope::each(move || rate.bucket()) }
    }
}

impl<S> Layer<S> for RateLimitLayer {
    type Service = RateLimit<S>;

    fn layer(&self, inner: S) -> RateLimit<S> {
        RateLimit { inner, scope: self.scope.clone() }
    }
}

/// The service of [`RateLimitLayer`].
///
/// # Panics
/// `call` panics if the layer has a limit for [each loop](RateLimitLayer::each_loop) and no loop
/// runs on this thread.
#[derive(Debug, Clone)]
pub struct RateLimit<S> {
    inner: S,
    scope: Scope<Bucket>,
}

impl<S, R, B> Service<Request<R>> for RateLimit<S>
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
        let state = match self.scope.here().take(turn_time()) {
            Ok(()) => State::Allowed { answer: self.inner.call(request) },
            Err(wait) => State::Refused { wait },
        };
        ResponseFuture { state }
    }
}

pin_project! {
    /// The future of [`RateLimit`].
    #[derive(Debug)]
    #[must_use = "futures do nothing unless polled"]
    pub struct ResponseFuture<F> {
        #[pin]
        state: State<F>,
    }
}

pin_project! {
    #[derive(Debug)]
    #[project = StateProjection]
    enum State<F> {
        Allowed { #[pin] answer: F },
        Refused { wait: Duration },
    }
}

impl<F, B, E> Future for ResponseFuture<F>
where
    F: Future<Output = Result<Response<B>, E>>,
    B: Default,
{
    type Output = Result<Response<B>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().state.project() {
            StateProjection::Allowed { answer } => answer.poll(cx),
            StateProjection::Refused { wait } => Poll::Ready(Ok(refused(*wait))),
        }
    }
}

#[cold]
fn refused<B: Default>(wait: Duration) -> Response<B> {
    let seconds = wait.as_nanos().div_ceil(1_000_000_000).max(1);
    let mut response = Response::new(B::default());
    *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
    let seconds = u64::try_from(seconds).unwrap_or(u64::MAX);
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    response
}
