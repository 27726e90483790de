//! A limit on the number of requests that are in their handlers at a time.

use std::fmt;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;

use super::permits::{Acquire, Permit, Permits};
use super::scope::Scope;

/// Limits the number of concurrent requests in the services that it makes. Further requests wait,
/// and start in the order of their arrival.
///
/// ```
/// use axum::{Router, routing::get};
/// use wakeful_http::layers::ConcurrencyLimitLayer;
///
/// let one_at_a_time = ConcurrencyLimitLayer::new(1);
/// let report = get(|| async { "a report" }).layer(one_at_a_time);
/// let app: Router = Router::new().route("/report", report);
/// ```
///
/// One limit applies to all loops and all routes with this layer together. Below the limit, a
/// request costs two atomic operations and no lock. A request that waits, or that ends while
/// another one waits, briefly locks a list. With [`each_loop`](Self::each_loop) each loop has its
/// own limit, and the loops share nothing. A shared limit gives its places to requests in the order
/// of their arrival, also to those of a loop that a handler blocks. So that loop can keep other
/// loops' requests waiting until the handler returns.
///
/// A request counts until the head of its response is ready, until its handler's future is dropped
/// (the client has gone, or an outer timeout has passed), or until it panics. The body of a
/// response does not count.
///
/// Requests wait in `poll_ready`, so tower's `load_shed` around this layer refuses them instead:
/// see [the module](super#refusing-at-once). An outer [`TimeoutLayer`](super::TimeoutLayer) also
/// limits the wait, if the wait is part of its call. That is so if both layers belong to one
/// router.
#[derive(Debug, Clone)]
#[must_use = "a layer does nothing by itself"]
pub struct ConcurrencyLimitLayer {
    max: usize,
    scope: Scope<Permits>,
}

impl ConcurrencyLimitLayer {
    /// Makes a layer that allows at most `max` requests at a time, on all loops together. With 0,
    /// all requests wait for ever.
    pub fn new(max: usize) -> Self {
        Self { max, scope: Scope::all(Permits::new(max)) }
    }

    /// Applies the limit to each loop separately. (For `n` loops, a limit of `max / n` on each is
    /// the same as a shared limit of `max` only if connections spread evenly: see
    /// [`Server::moves`](crate::Server::moves).)
    pub fn each_loop(self) -> Self {
        let max = self.max;
        Self { max, scope: Scope::each(move || Permits::new(max)) }
    }
}

impl<S> Layer<S> for ConcurrencyLimitLayer {
    type Service = ConcurrencyLimit<S>;

    fn layer(&self, inner: S) -> ConcurrencyLimit<S> {
        ConcurrencyLimit { inner, scope: self.scope.clone(), place: Place::None }
    }
}

/// The service of [`ConcurrencyLimitLayer`].
///
/// # Panics
/// `poll_ready` panics if the layer has a limit for [each loop](ConcurrencyLimitLayer::each_loop)
/// and no loop runs on this thread. `call` panics if `poll_ready` has not returned ready before.
pub struct ConcurrencyLimit<S> {
    inner: S,
    scope: Scope<Permits>,
    place: Place,
}

/// The place of the next request.
#[derive(Debug)]
enum Place {
    None,
    Awaited(Acquire),
    Held(Permit),
}

impl<S: Clone> Clone for ConcurrencyLimit<S> {
    /// Returns a clone that does not count towards the limit yet.
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), scope: self.scope.clone(), place: Place::None }
    }
}

impl<S: fmt::Debug> fmt::Debug for ConcurrencyLimit<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConcurrencyLimit")
            .field("inner", &self.inner)
            .field("scope", &self.scope)
            .finish_non_exhaustive()
    }
}

impl<S, R> Service<R> for ConcurrencyLimit<S>
where
    S: Service<R>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = ResponseFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        if matches!(self.place, Place::None) {
            self.place = Place::Awaited(Acquire::new(self.scope.here()));
        }
        if let Place::Awaited(acquire) = &mut self.place {
            self.place = Place::Held(ready!(Pin::new(acquire).poll(cx)));
        }
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: R) -> Self::Future {
        let Place::Held(permit) = mem::replace(&mut self.place, Place::None) else {
            panic!("a `ConcurrencyLimit` was called before its `poll_ready` was ready");
        };
        ResponseFuture { inner: self.inner.call(request), permit: Some(permit) }
    }
}

pin_project! {
    /// The future of [`ConcurrencyLimit`]. When it is dropped, its request no longer counts.
    #[derive(Debug)]
    #[must_use = "futures do nothing unless polled"]
    pub struct ResponseFuture<F> {
        #[pin]
        inner: F,
        permit: Option<Permit>,
    }
}

impl<F: Future> Future for ResponseFuture<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let answer = ready!(this.inner.poll(cx));
        *this.permit = None;
        Poll::Ready(answer)
    }
}
