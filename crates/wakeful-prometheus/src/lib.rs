//! wakeful's counters as Prometheus text. The crate has collectors for a registry of
//! [`prometheus_client`], which read the counters only when the registry is encoded.
//!
//! | function | what it registers | docs of the counters |
//! |---|---|---|
//! | [`register_server`] | counters of a `wakeful-http` server and its loops: `register_loops` and `register_http`, but neither TLS nor logs | |
//! | [`register_loops`] | turns, polls, sleeps and connections of each loop | [`LoopMetrics`](wakeful::LoopMetrics), [`Counts`](wakeful::accept::Counts) |
//! | [`register_http`] | requests, responses and refusals | [`HttpCounts`](wakeful_http::HttpCounts) |
//! | [`register_tls`] | handshakes and reloads | [`TlsCounts`](wakeful_http::tls::TlsCounts) |
//! | [`register_log`], [`register_access_log`] | lines written and dropped | [`LossyWriter`](wakeful::log::LossyWriter), [`AccessLog`](wakeful_http::access_log::AccessLog) |
//!
//! The repository's `docs/metrics.md` lists every metric, what to graph, and when to alert.
//!
//! The server needs the router before it starts, but the collectors can be registered only after
//! the start. So the router reads the registry from a [`OnceLock`](std::sync::OnceLock):
//!
//! ```
//! use std::sync::{Arc, OnceLock};
//!
//! use axum::{Router, http::header::CONTENT_TYPE, routing::get};
//! use prometheus_client::{encoding::text::encode, registry::Registry};
//!
//! fn main() -> std::io::Result<()> {
//!     let registry = Arc::new(OnceLock::new());
//!     let metrics = {
//!         let registry = registry.clone();
//!         async move || {
//!             let mut text = String::new();
//!             if let Some(registry) = registry.get() {
//!                 encode(&mut text, registry).expect("a String takes all that is written");
//!             }
//!             ([(CONTENT_TYPE, "application/openmetrics-text; version=1.0.0")], text)
//!         }
//!     };
//!     let app = Router::new().route("/metrics", get(metrics));
//!     let running = wakeful_http::Server::bind("127.0.0.1:0")?.start(app)?;
//!     let mut counts = Registry::default();
//!     wakeful_prometheus::register_server(&mut counts, &running);
//!     registry.set(counts).expect("it is set once");
//! #   running.drain(wakeful_http::DrainPlan::new())?;
//!     Ok(())
//! }
//! ```
//!
//! If the server has several processes, answer with the [`TextSum`] of their texts.
//!
//! The content type tells Prometheus that this is text in the OpenMetrics format. With another
//! content type, Prometheus may refuse the text or read it as another format.

#[cfg(feature = "http")]
mod http;
mod logs;
mod loops;
mod sum;
#[cfg(feature = "http")]
mod tls;

#[cfg(feature = "http")]
pub use self::http::{register_http, register_server};
#[cfg(feature = "http")]
pub use self::logs::register_access_log;
pub use self::logs::register_log;
pub use self::loops::register_loops;
pub use self::sum::TextSum;
#[cfg(feature = "http")]
pub use self::tls::register_tls;
