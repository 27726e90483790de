//! tower layers that limit handlers, with the loops' own timers: [`TimeoutLayer`],
//! [`ConcurrencyLimitLayer`], [`RateLimitLayer`]. tower's own `timeout` and `limit`, and
//! tower-http's `timeout`, need tokio's timers.
//!
//! Each is `Clone`, `Send` and `Sync`, so axum's `Router::layer` and `MethodRouter::layer` accept
//! it. No layer returns an error, so a router needs no `HandleErrorLayer`. A response that a layer
//! makes has an empty body:
//!
//! | layer | beyond the limit | scope |
//! |---|---|---|
//! | [`TimeoutLayer`] | 503, or another status | each request |
//! | [`ConcurrencyLimitLayer`] | requests wait, in the order of their arrival | all loops together, or [each](ConcurrencyLimitLayer::each_loop) |
//! | [`RateLimitLayer`] | 429 with `retry-after` | all loops together, or [each](RateLimitLayer::each_loop) |
//!
//! axum makes a service of a layer for each route. All services that a layer and its clones make
//! share one limit. (tower's `ConcurrencyLimitLayer` has a separate limit for each service.)
//!
//! [`Limits`](crate::Limits) limits a whole server, and each peer, at a lower cost.
//!
//! # Refusing at once
//! tower's `load_shed` (feature `load-shed`) needs no tokio runtime. With it around a
//! [`ConcurrencyLimitLayer`], a request that would have to wait gets an error instead. axum's
//! `HandleErrorLayer` turns the error into a response:
//!
//! ```
//! use axum::error_handling::HandleErrorLayer;
//! use axum::http::StatusCode;
//! use axum::{BoxError, Router, routing::get};
//! use tower::ServiceBuilder;
//! use tower::load_shed::LoadShedLayer;
//! use wakeful_http::layers::ConcurrencyLimitLayer;
//!
//! let overloaded = |_: BoxError| async { StatusCode::SERVICE_UNAVAILABLE };
//! let shed = ServiceBuilder::new()
//!     .layer(HandleErrorLayer::new(overloaded))
//!     .layer(LoadShedLayer::new())
//!     .layer(ConcurrencyLimitLayer::new(100));
//! let app: Router = Router::new().route("/", get(|| async { "hello" })).layer(shed);
//! ```

// `permits` counts the requests in flight, `bucket` limits a rate, `scope` says for which loops.
// `bound` limits what requests have open, for `files` and for the services of this project.

#[doc(hidden)]
pub mod bound;
mod bucket;
mod concurrency_limit;
mod permits;
mod rate_limit;
mod scope;
mod timeout;

pub use self::concurrency_limit::{
    ConcurrencyLimit, ConcurrencyLimitLayer, ResponseFuture as ConcurrencyLimitFuture,
};
pub use self::rate_limit::{RateLimit, RateLimitLayer, ResponseFuture as RateLimitFuture};
pub use self::timeout::{ResponseFuture as TimeoutFuture, Timeout, TimeoutLayer};
