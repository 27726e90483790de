//! What both programs serve.

use axum::Router;
use axum::body::Bytes;
use axum::routing::{any, get};

/// `GET /`, answered with six bytes; and `/echo`, which answers with the body
/// when all of it has come.
pub fn router() -> Router {
    Router::new().route("/", get(async || "hello\n")).route("/echo", any(async |body: Bytes| body))
}
