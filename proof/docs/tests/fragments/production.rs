//! docs/production.md

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use wakeful::signal::run_until_terminated_or_failed;
use wakeful::{EventLoop, IdlePolicy, LoopGroup};
use wakeful_http::{DrainPlan, Readiness, Running, Server};
use wakeful_prometheus::register_server;

fn app() -> Router {
    Router::new()
}

fn health(_readiness: Readiness) -> Router {
    Router::new()
}

fn main() -> io::Result<()> {
    let plan = DrainPlan::new().pre_drain(Duration::from_secs(5)).grace(Duration::from_secs(25));
    let drained = run_until_terminated_or_failed(
        || {
            let running = Server::bind("0.0.0.0:8080")?.start(app())?;
            let operators = operators(&running)?;
            Ok((running, operators))
        },
        |(running, _)| running.failure(),
        move |(running, _operators)| running.drain(plan),
    )?;
    drained.map_or(Ok(()), |aborted| aborted.map(|_| ()))
}

fn operators(running: &Running) -> io::Result<Running> {
    let mut registry = Registry::default();
    register_server(&mut registry, running);
    let registry = Arc::new(registry);
    let metrics = async move || {
        let mut text = String::new();
        encode(&mut text, &registry).expect("a String takes all that is written");
        ([(CONTENT_TYPE, "application/openmetrics-text; version=1.0.0")], text)
    };
    let pages = health(running.readiness()).route("/metrics", get(metrics));
    let parks = EventLoop::builder().idle(IdlePolicy::Park);
    Server::bind("0.0.0.0:8090")?
        .group(LoopGroup::builder().loops(1).event_loop(parks))
        .start(pages)
}
