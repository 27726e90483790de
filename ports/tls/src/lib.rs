//! Says which protocol a request came by.

use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::http::Version;
use axum::routing::{get, post};

async fn version(version: Version) -> String {
    tokio::time::sleep(Duration::from_millis(1)).await;
    format!("by {version:?}")
}

pub fn router() -> Router {
    Router::new().route("/", get(version)).route("/echo", post(async |body: Bytes| body))
}
