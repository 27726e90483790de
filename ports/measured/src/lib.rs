//! A layer counts requests by path, method and status, and `/metrics` shows them.

use std::time::Duration;

use axum::Router;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum_prometheus::PrometheusMetricLayer;

async fn wait(Path(milliseconds): Path<u64>) -> StatusCode {
    tokio::time::sleep(Duration::from_millis(milliseconds)).await;
    StatusCode::NO_CONTENT
}

pub fn router() -> Router {
    let (layer, metrics) = PrometheusMetricLayer::pair();
    Router::new()
        .route("/fast", get(async || "fast").post(async || StatusCode::CREATED))
        .route("/wait/{milliseconds}", post(wait))
        .route("/metrics", get(async move || metrics.render()))
        .layer(layer)
}
