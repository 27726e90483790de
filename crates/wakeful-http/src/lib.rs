//! HTTP on wakeful's event loops: axum routers, and any other tower service, without a tokio
//! runtime.
//!
//! ```no_run
//! use axum::{Router, routing::get};
//!
//! fn main() -> std::io::Result<()> {
//!     let app = Router::new().route("/", get(|| async { "hello" }));
//!     wakeful_http::Server::bind("127.0.0.1:8080")?.serve(app)
//! }
//! ```
//!
//! Every listener serves HTTP/1.1 and HTTP/2, through hyper. It recognises HTTP/2 by the first
//! bytes of a connection ("prior knowledge"). The server runs on a
//! [`LoopGroup`](wakeful::LoopGroup), and each of its loops serves the connections that reach it.
//! Between two requests, an HTTP/1.1 connection may move to another loop: if its loop has much more
//! to do than the others, or is no longer active ([`Server::moves`]). An HTTP/2 connection stays on
//! its first loop.
//!
//! # TLS
//! [`Server::bind_tls`] and [`Server::tls`] use rustls: see [`tls`]. The handshake negotiates
//! HTTP/2. A TLS connection stays on its first loop.
//!
//! # Services that are not `Send`
//! [`Server::serve_with`] takes a closure that makes the service on each loop. The service may hold
//! `Rc`s.
//!
//! # Handlers that need a tokio runtime
//! A library that calls `tokio::spawn`, or tokio's timers or sockets, needs a tokio runtime around
//! it. With the feature `tokio`, `Server::tokio` runs one on each loop's own thread (the example
//! `tokio_guest`), and `Server::tokio_handle` uses an existing runtime beside the loops. Without
//! that feature, call a separate runtime through its handle: the example `tokio_side_runtime` shows
//! how.
//!
//! # Layers
//! axum's own middleware works, and so do tower-http's layers (`tests/tower_http.rs` runs these):
//! `trace`, `cors`, `compression-*` and `decompression-*`, `catch-panic`, `limit`,
//! `normalize-path`, `request-id`, `propagate-header`, `sensitive-headers`, `set-header`,
//! `validate-request`, `auth`, `add-extension`, `csrf`, `redirect`, `set-status`, `map-*`. They
//! need only tokio's traits. This table lists what does not work without a tokio runtime, and the
//! replacement:
//!
//! | | needs | instead |
//! |---|---|---|
//! | tower-http's `timeout`, tower's `timeout` | tokio's timers: a panic, and 500, in each request | [`layers::TimeoutLayer`] |
//! | tower's `limit` | tokio's timers, in the rate limit | [`layers::ConcurrencyLimitLayer`], [`layers::RateLimitLayer`]; for the whole server [`Limits`] |
//! | tower-http's `fs` (`ServeDir`, `ServeFile`) | tokio's blocking pool | `files::ServeDir`, `files::ServeFile` (feature `files`) |
//! | tower-http's `metrics` | tokio's timers | [`Running::http_counts`], `counts`, `loads` and `handles`: the crate `wakeful-prometheus` exports them as Prometheus text, and its docs show a router for that |
//! | tower's `buffer`, `spawn-ready`, `retry`, `hedge`, `load`, `balance` | tokio's timers or `spawn` | |
//! | axum's `Sse::keep_alive` | tokio's timers | [`sse::KeepAlive`] |
//! | axum's `axum::serve` | tokio's sockets | [`Server`] |
//! | axum's `ConnectInfo` | axum's feature `tokio` (only at compile time) | [`Peer`], or [`Server::serve_make_service`] |
//!
//! tower's `load-shed` needs no runtime, and works well with the limits: see [`layers`].
//!
//! ```
//! use std::time::Duration;
//! use axum::{Router, routing::get};
//! use wakeful_http::layers::{ConcurrencyLimitLayer, TimeoutLayer};
//!
//! // The outer layer is the last one: the time counts while a request waits for its place.
//! let app: Router = Router::new()
//!     .route("/", get(|| async { "hello" }))
//!     .layer(ConcurrencyLimitLayer::new(100))
//!     .layer(TimeoutLayer::new(Duration::from_secs(5)));
//! ```
//!
//! # Logs and traces
//! [`Server::observe`] sets the access log, request ids, W3C trace context, and each request's
//! `tracing` span. The example `opentelemetry` exports these without a tokio runtime.
//!
//! A `tracing` subscriber and the panic hook run on the loops. If they write to standard error
//! directly, a full pipe stops the server, and a full disk ends it. Write through a
//! [`LossyWriter`](wakeful::log::LossyWriter). [`wakeful::log`] explains why.
//!
//! ```no_run
//! use std::io::{self, IsTerminal};
//! use std::time::Duration;
//! use axum::{Router, routing::get};
//! use tracing_subscriber::EnvFilter;
//! use wakeful::log::{LossyWriter, report_panics};
//!
//! fn main() -> io::Result<()> {
//!     let log = LossyWriter::new(io::stderr());
//!     report_panics(&log);
//!     // Also after a panic in `main`: axum panics at a malformed route.
//!     let _flush = log.flush_on_drop(Duration::from_secs(1));
//!     let default = |_| EnvFilter::new("info,h2=error");
//!     let filter = EnvFilter::try_from_default_env().unwrap_or_else(default);
//!     tracing_subscriber::fmt()
//!         .with_env_filter(filter)
//!         .with_writer(move || log.clone())
//!         .with_ansi(io::stderr().is_terminal())
//!         .log_internal_errors(false)
//!         .init();
//!     let app = Router::new().route("/", get(|| async { "hello" }));
//!     wakeful_http::Server::bind("127.0.0.1:8080")?.serve(app)
//! }
//! ```
//!
//! # Panics
//! If a handler panics, its request gets a 500 response without a body. Its connection stays open,
//! and the other requests of an HTTP/2 connection continue. `grpc::GrpcLayer` answers a gRPC call
//! with INTERNAL. The panic hook reports the panic, and
//! [`LoopMetrics::panics`](wakeful::metrics::LoopMetrics) counts it. If the handler needed a Tokio
//! runtime, the log says how to provide one. To send another response, use tower-http's
//! `catch-panic`, which catches the panic first.
//!
//! If the body of a response panics after the head was sent, its connection closes (HTTP/2: its
//! stream is reset).
//!
//! # gRPC
//! Services that tonic generates are served like any other router: see `grpc` (feature `grpc`).
//!
//! # WebSockets, and other upgrades
//! See [`upgrade`], and `ws` (feature `ws`).
//!
//! # Where things are
//! [`Server`] serves requests within its [`Limits`], and ends as its [`DrainPlan`] says. [`client`]
//! sends requests to other servers. `files` serves a directory (feature `files`). [`layers`] limits
//! handlers. [`sse`] keeps streams of events alive. [`Peer`] is the sender of a request.
//! [`observe`] and [`access_log`] log and trace requests.

// `server` has the settings, the start and the end of a server, and each connection until its
// protocol is known. `http1` and `http2` drive a connection of each protocol. `request` answers one
// request: admission, the user's service, the bodies. `connection` has the state of a connection:
// its requests in flight, its deadlines, how it closes. `framing` follows where requests of HTTP/1
// begin and end, `loop_state` is what the connections of a loop share, `limits` has the limits,
// `counts` how often they were reached, and `drain` how a server ends.

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod access_log;
pub mod client;
mod connection;
mod counts;
mod dates;
mod drain;
mod error;
#[cfg(feature = "files")]
pub mod files;
mod foreign_code;
mod foreign_error;
mod framing;
mod further_request;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
#[cfg(feature = "grpc")]
pub mod grpc;
mod http1;
mod http2;
mod in_time;
mod joined;
pub mod layers;
mod length_header;
mod limits;
mod lingering_close;
mod loop_state;
#[cfg(any(feature = "grpc", feature = "ws"))]
mod memory;
pub mod observe;
mod own_values;
mod peer;
mod read;
mod read_ration;
mod request;
mod server;
pub mod sse;
pub mod tls;
pub mod upgrade;
#[cfg(feature = "ws")]
pub mod ws;

pub use counts::{HttpCounts, LoopHttpCounts, Refusal};
pub use drain::{DrainBegins, DrainPlan, Readiness, drain_begins};
pub use error::BoxError;
pub use hyper::service::service_fn;
pub use limits::{AmbiguousLength, GrpcCalls, Http2Limits, Limits, MaxAge, MinRate, PeerRate};
pub use peer::Peer;
#[cfg(feature = "axum")]
pub use peer::{NoClientCertificate, NoPeer};
pub use request::RequestBody;
pub use server::{Caller, Running, Server};
pub use tls::security::Security;
