//! The router that both programs serve.

use axum::Router;
use axum::body::Bytes;
use axum::routing::{any, get};

/// `GET /` is answered with six bytes. `/echo` answers with the body when all of it has come.
pub fn router() -> Router {
    Router::new().route("/", get(async || "hello\n")).route("/echo", any(async |body: Bytes| body))
}
