//! What operators look at, apart from what clients reach.

use std::io;
use std::sync::Arc;

use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use wakeful::LoopGroup;
use wakeful::accept::SharedListener;
use wakeful_http::tls::ServerTls;
use wakeful_http::{Readiness, Running, Server};

use super::counts::Counts;
use super::metrics::OfBackends;
use crate::http_metrics::HttpMetrics;
use crate::tls_metrics;

pub(super) fn start(
    listeners: Vec<SharedListener>,
    proxy: &Running,
    counts: Arc<Counts>,
    tls: Option<&ServerTls>,
) -> io::Result<Running> {
    let mut registry = crate::metrics::registry(proxy.handles(), proxy.counts(), proxy.loads());
    registry.register_collector(Box::new(HttpMetrics::new(proxy.http_counts())));
    registry.register_collector(Box::new(OfBackends(counts)));
    if let Some(tls) = tls {
        tls_metrics::register(&mut registry, tls.counts());
    }
    let readiness = proxy.readiness();
    let registry = Arc::new(registry);
    let router = Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(move || async move { ready(&readiness) }))
        .route("/metrics", get(move || async move { render(&registry) }));
    Server::from_listeners(listeners).group(LoopGroup::builder().loops(1)).start(router)
}

fn ready(readiness: &Readiness) -> (StatusCode, &'static str) {
    if readiness.is_ready() {
        (StatusCode::OK, "ready\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "draining\n")
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
