//! wakeful's reference services: what `wakeful serve` starts, and what the experiments measure.
//!
//! * [`http`]: an axum router with health, metrics, and endpoints to try things with.
//! * [`http_metrics`]: what a server of HTTP counts, for Prometheus.
//! * [`echo`]: length-prefixed frames over TCP or a Unix socket.
//! * [`kv`]: keys and values in memory, for clients of Redis.
//! * [`options`]: what all are started with.

mod connections;
pub mod echo;
pub mod http;
pub mod http_metrics;
pub mod kv;
pub mod metrics;
pub mod options;

pub use options::ServeOptions;
