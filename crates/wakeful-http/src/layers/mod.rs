//! tower layers that limit handlers, with the loops' own timers: [`TimeoutLayer`],
//! [`ConcurrencyLimitLayer`], [`RateLimitLayer`]. tower's own `timeout` and `limit`, and
//! tower-http's `timeout`, need tokio's timers.
//!
//! Each is `Clone`, `Send` and `Sync`, so axum's `Router::layer` and `MethodRouter::layer` take it.
//! Each layer answers itself when its limit is reached, with an empty body, so a router needs no
//! `HandleErrorLayer`:
//!
//! | layer | beyond it | for |
//! |---|---|---|
//! | [`TimeoutLayer`] | 503, or another status | each request |
//! | [`ConcurrencyLimitLayer`] | requests wait, the first that came first | all loops together, or [each](ConcurrencyLimitLayer::each_loop) |
//! | [`RateLimitLayer`] | 429 with `retry-after` | all loops together, or [each](RateLimitLayer::each_loop) |
//!
//! The limit of a layer applies to all services that the layer and its clones make together: axum
//! makes one for each route. (tower's `ConcurrencyLimitLayer` has a separate limit for each
//! service.)
//!
//! [`Limits`](crate::Limits) limits a whole server, and each peer, at a lower cost.
//!
//! # Refusing at once
//! tower's `load_shed` needs no tokio runtime. In front of a [`ConcurrencyLimitLayer`], a request
//! that would have to wait gets an error instead, which axum's `HandleErrorLayer` turns into a
//! response (the crate `tower` with the feature `load-shed`):
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
//!
//! `permits` counts what is in flight, `bucket` what may come, `scope` says for which loops.

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
