//! wakeful's reference services. `wakeful serve` starts them, and the project's experiments measure
//! them.
//!
//! * [`http`]: an axum router with health, metrics, and endpoints for tests.
//! * [`echo`]: length-prefixed frames over TCP or a Unix socket.
//! * [`kv`]: keys and values in memory, for Redis clients.
//! * [`proxy`]: forwards HTTP requests to backends.
//! * [`rpc`]: gRPC, unary and streaming.
//! * [`admin`]: pages for operators of an HTTP service, separate from its clients.
//! * [`options`]: settings that all services have.

pub mod admin;
mod buffers;
mod connections;
pub mod echo;
mod for_requests;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
pub mod http;
pub mod kv;
mod log;
pub mod options;
mod patience;
pub mod proxy;
pub mod rpc;
mod scrape;
mod shared_answer;

pub use admin::RunningService;
pub use options::ServeOptions;
pub use wakeful_http::client::{HttpVersion, InvalidTarget, Target};
pub use wakeful_http::{DrainPlan, Limits, MaxAge, PeerRate, tls};
