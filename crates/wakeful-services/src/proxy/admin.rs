//! What operators look at, apart from what clients reach.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use wakeful::LoopGroup;
use wakeful::accept::SharedListener;
use wakeful_http::{Running, Server};

use super::counts::Counts;
use super::metrics::OfBackends;

pub(super) fn start(
    listeners: Vec<SharedListener>,
    proxy: &Running,
    counts: Arc<Counts>,
    is_draining: Arc<AtomicBool>,
) -> io::Result<Running> {
    let mut registry = crate::metrics::registry(proxy.handles(), proxy.counts(), proxy.loads());
    registry.register_collector(Box::new(OfBackends(counts)));
    let registry = Arc::new(registry);
    let router = Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(move || async move { ready(&is_draining) }))
        .route("/metrics", get(move || async move { render(&registry) }));
    Server::from_listeners(listeners).group(LoopGroup::builder().loops(1)).start(router)
}

fn ready(is_draining: &AtomicBool) -> (StatusCode, &'static str) {
    if is_draining.load(Ordering::Relaxed) {
        (StatusCode::SERVICE_UNAVAILABLE, "draining\n")
    } else {
        (StatusCode::OK, "ready\n")
    }
}

fn render(registry: &Registry) -> Response {
    let mut text = String::new();
    match encode(&mut text, registry) {
        Ok(()) => {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            ([(header::CONTENT_TYPE, kind)], text).into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}
