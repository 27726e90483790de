//! docs/own-service.md: the program without a master, as the test `own_service` runs it.

use super::program::sqlx;

use std::cell::OnceCell;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;
use std::{env, io};

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use sqlx::postgres::{PgPool, PgPoolOptions};
use wakeful::accept::Descriptors;
use wakeful::log::{LossyWriter, report_panics};
use wakeful::signal::run_until_terminated_or_failed;
use wakeful::{EventLoop, IdlePolicy, LoopGroup, PerLoop};
use wakeful_http::access_log::{AccessLog, Destination, Format, Query};
use wakeful_http::observe::Observe;
use wakeful_http::{DrainPlan, Limits, Running, Server};
use wakeful_prometheus::{register_access_log, register_log, register_server};

fn main() -> Result<(), Box<dyn Error>> {
    let log = LossyWriter::new(io::stderr());
    report_panics(&log);
    let _flush = log.flush_on_drop(Duration::from_secs(1));
    let writer = log.clone();
    let lines = tracing_subscriber::fmt().with_ansi(false).log_internal_errors(false);
    lines.with_writer(move || writer.clone()).init();
    Descriptors::raise_limit()?;

    // A line of JSON for each request.
    let requests = AccessLog::new(Format::Json, Destination::Stdout, Query::Omit)?;
    let mut registry = Registry::default();
    register_log(&mut registry, log);
    register_access_log(&mut registry, requests.clone());

    let parks = EventLoop::builder().idle(IdlePolicy::Park);
    let group = LoopGroup::builder().event_loop(parks).tokio();
    let server = Server::bind(setting("LISTEN")?)?.group(group);
    let (admin, url) = (setting("ADMIN")?, setting("DATABASE_URL")?);
    let plan = DrainPlan::new().pre_drain(Duration::from_secs(5)).grace(Duration::from_secs(20));
    let drained = run_until_terminated_or_failed(
        || {
            let running = start(server, url, requests)?;
            register_server(&mut registry, &running);
            let operators = operators(&running, &admin, registry)?;
            Ok((running, operators))
        },
        |(running, _)| running.failure(),
        move |(running, _operators)| running.drain(plan), // The pages answer until it has drained.
    )?;
    drained.ok_or("a signal has ended the start, or a second one the drain")??;
    Ok(())
}

fn setting(name: &str) -> io::Result<String> {
    env::var(name).map_err(|error| io::Error::other(format!("{name}: {error}")))
}

/// The pool of each loop: empty until the loop has opened it.
type Pools = PerLoop<OnceCell<PgPool>>;

fn start(server: Server, url: String, requests: AccessLog) -> io::Result<Running> {
    let limits = Limits::new()
        .max_connections(2_000)
        .max_header_size(16 * 1024)
        .max_requests(64)
        .max_body(1 << 20)
        .request_timeout(Duration::from_secs(10)); // shorter than the drain's grace
    let pools: Pools = PerLoop::new(OnceCell::new);
    let app = Router::new().route("/notes/{id}", get(note)).with_state(pools.clone());
    server
        .limits(limits)
        .observe(Observe::new().access_log(requests))
        .on_each_loop(move || {
            let (pools, url) = (pools.get(), url.clone());
            async move {
                let pool = PgPoolOptions::new().max_connections(5).connect(&url).await;
                pools.set(pool.map_err(io::Error::other)?).expect("opened once");
                Ok(())
            }
        })
        .start(app)
}

async fn note(State(pools): State<Pools>, Path(id): Path<i64>) -> Result<String, StatusCode> {
    let pool = pools.with(|pool| pool.get().cloned()).expect("opened before the loop accepts");
    let note = sqlx::query_scalar("SELECT text FROM notes WHERE id = $1").bind(id);
    match note.fetch_optional(&pool).await {
        Ok(Some(text)) => Ok(text),
        Ok(None) => Err(StatusCode::NOT_FOUND),
        Err(_) => Err(StatusCode::SERVICE_UNAVAILABLE),
    }
}

/// Pages for the kubelet and for operators, on a loop of their own.
fn operators(running: &Running, addr: &str, registry: Registry) -> io::Result<Running> {
    let (readiness, registry) = (running.readiness(), Arc::new(registry));
    let readyz = async move || match readiness.is_ready() {
        true => (StatusCode::OK, "ready\n"),
        false => (StatusCode::SERVICE_UNAVAILABLE, "draining\n"),
    };
    let metrics = async move || {
        let mut text = String::new();
        encode(&mut text, &registry).expect("a String takes all that is written");
        ([(CONTENT_TYPE, "application/openmetrics-text; version=1.0.0")], text)
    };
    let pages = Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics));
    let parks = EventLoop::builder().idle(IdlePolicy::Park);
    Server::bind(addr)?.group(LoopGroup::builder().loops(1).event_loop(parks)).start(pages)
}

pub(crate) fn run() -> Result<(), Box<dyn Error>> {
    main()
}
