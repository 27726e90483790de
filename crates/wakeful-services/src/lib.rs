//! wakeful's reference services: what `wakeful serve` starts, and what the experiments measure.
//!
//! * [`http`]: an axum router with health, metrics, and endpoints to try things with.
//! * [`http_metrics`]: what a server of HTTP counts, for Prometheus.
//! * [`echo`]: length-prefixed frames over TCP or a Unix socket.
//! * [`kv`]: keys and values in memory, for clients of Redis.
//! * [`rpc`]: gRPC, unary and streaming.
//! * [`options`]: what all are started with.

mod access_log_metrics;
mod connections;
pub mod echo;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
pub mod http;
pub mod http_metrics;
pub mod kv;
pub mod metrics;
pub mod options;
pub mod rpc;
pub mod tls_metrics;

pub use options::ServeOptions;
pub use wakeful_http::{DrainPlan, Limits, PeerRate, Running, tls};
