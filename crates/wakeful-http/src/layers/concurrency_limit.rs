//! How many requests may be in their handlers at a time.

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

/// Lets so many requests at a time into the services that it makes; others wait, and are let in in
/// the order in which they came.
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
/// The limit is one for all loops, and for all routes that the layer is given to. While there is
/// room, a request costs two atomic operations and no lock; one that waits, and one that ends while
/// another waits, lock a list for a moment. With [`each_loop`](Self::each_loop) a loop shares
/// nothing with others.
///
/// A request holds its place until its response's head, until its handler's future is dropped (the
/// client has gone, a timeout further out), or until it panics. A response's body holds none.
///
/// Waiting is done in `poll_ready`, so tower's `load_shed` in front of it refuses instead: see
/// [the module](super#refusing-at-once). A [`TimeoutLayer`](super::TimeoutLayer) bounds the wait if
/// it is further out and the wait is within its call, as between two layers of one router.
#[derive(Debug, Clone)]
#[must_use = "a layer does nothing by itself"]
pub struct ConcurrencyLimitLayer {
    max: usize,
    scope: Scope<Permits>,
}

impl ConcurrencyLimitLayer {
    /// At most `max` requests at a time, on all loops together. With 0, all wait for ever.
    pub fn new(max: usize) -> Self {
        Self { max, scope: Scope::all(Permits::new(max)) }
    }

    /// As many on each loop. (A limit of `max` for `n` loops is one of `max / n` for each only if
    /// connections spread evenly: see [`Server::moves`](crate::Server::moves).)
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
/// `poll_ready` with [`each_loop`](ConcurrencyLimitLayer::each_loop), where no loop runs; `call`
/// before `poll_ready` was ready.
pub struct ConcurrencyLimit<S> {
    inner: S,
    scope: Scope<Permits>,
    place: Place,
}

/// Of the request to come.
#[derive(Debug)]
enum Place {
    None,
    Awaited(Acquire),
    Held(Permit),
}

impl<S: Clone> Clone for ConcurrencyLimit<S> {
    /// The clone has no place yet.
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
    /// The future of [`ConcurrencyLimit`]. Dropped, it gives its place back.
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
