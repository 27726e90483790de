//! Pages for operators, separate from the clients' paths: `/healthz`, `/readyz`, `/metrics` and
//! `/workers`, on their own listeners.
//!
//! A second server, on a separate loop, serves these pages. So the service's limits do not apply to
//! them, a busy service does not delay them, and they answer until the service has drained. All
//! HTTP services have the same pages. The service `http` also answers `/healthz`, `/readyz` and, if
//! it has no listeners for operators, `/metrics` on its own listeners.

use std::io;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use prometheus_client::registry::Registry;
use wakeful::accept::{Descriptors, SharedListener, WhenFull};
use wakeful::net::ListenAddr;
use wakeful::process::start_thread;
use wakeful::{EventLoop, IdlePolicy, LoopGroup};
use wakeful_http::{DrainPlan, Limits, MaxAge, Readiness, Running, Server};
use wakeful_workers::Reports;

use crate::scrape::Scrape;
use crate::{ServeOptions, log};

/// How many connections operators may have open, if descriptors are not scarce.
const MAX_CONNECTIONS: usize = 16;
/// How many descriptors the operators' loop needs.
const LOOP: usize = 4;
/// How many descriptors a service keeps back for that loop, for the operators' connections, and
/// some more.
const FOR_OPERATORS: usize = MAX_CONNECTIONS + 8;
/// If the limit of descriptors is small, each purpose other than clients' connections gets one part
/// in this many of it.
const SHARE: usize = 8;

/// How long an operator's connection may be silent, because others may wait for its place.
const SILENCE: Duration = Duration::from_secs(2);
/// How often to check whether all operators have their answers.
const AGAIN: Duration = Duration::from_millis(5);
/// How long requests that have just come when the listener closes may take.
const LAST: Duration = Duration::from_millis(100);
/// At twice this age an operator's connection ends, whatever it does. Twice this age is as long as
/// Prometheus waits.
const AGE: Duration = Duration::from_secs(5);

/// The descriptors that a service keeps back. `of_service` is its own need.
pub(crate) fn descriptors(of_service: Descriptors, admin: &[SharedListener]) -> Descriptors {
    of_service.also_spare(kept_for(admin))
}

/// How many of the spare descriptors are for operators.
pub(crate) fn kept_for(admin: &[SharedListener]) -> usize {
    if admin.is_empty() { 0 } else { for_operators(Descriptors::limit()) }
}

fn for_operators(limit: Option<usize>) -> usize {
    limit.map_or(FOR_OPERATORS, |limit| share(limit, FOR_OPERATORS))
}

/// How many connections operators may have open, of the descriptors that are kept back for them: at
/// least one.
fn connections_of_operators(limit: Option<usize>) -> usize {
    for_operators(limit).saturating_sub(LOOP).clamp(1, MAX_CONNECTIONS)
}

/// Returns `wanted`, or less if the process may have few descriptors.
pub(crate) fn share(limit: usize, wanted: usize) -> usize {
    wanted.min(limit / SHARE)
}

/// A running service, with its pages for operators. Dropping it aborts all connections.
#[derive(Debug)]
pub struct RunningService {
    server: Running,
    admin: Option<Running>,
    scrape: Scrape,
}

impl RunningService {
    /// Serves the pages about `server` on `listeners`. Without listeners, nothing is served.
    pub(crate) fn new(
        server: Running,
        listeners: Vec<SharedListener>,
        scrape: Scrape,
    ) -> io::Result<Self> {
        if listeners.is_empty() {
            answer_others(&scrape, &server)?;
            return Ok(Self { server, admin: None, scrape });
        }
        let (readiness, metrics, workers) = (server.readiness(), scrape.clone(), scrape.clone());
        let reports = scrape.reports().cloned();
        let router = Router::new()
            .route("/healthz", get(|| async { "ok\n" }))
            .route(
                "/readyz",
                get(async move || ready_here_or_elsewhere(&readiness, reports.as_ref())),
            )
            .route("/metrics", get(async move || render(&metrics).await))
            .route("/workers", get(async move || list_workers(&workers).await));
        // A scrape is not so urgent that a CPU should spin for it.
        let event_loop = EventLoop::builder().idle(IdlePolicy::Park);
        let group = LoopGroup::builder().loops(1).name("admin").event_loop(event_loop);
        // If operators could keep their connections and send requests all the time, they would shut
        // all others out. A probe or a scrape is a single request, so a new connection for each
        // costs little. One more connection is always let in, and a connection on which nothing
        // comes closes for it. All loops are woken for each connection, because connections are
        // rare, and most answers need all workers anyway. A probe must not wait because the worker
        // that was woken for it is killed.
        listeners.iter().for_each(SharedListener::wake_every_loop);
        let limits = Limits::new()
            .max_connections(connections_of_operators(Descriptors::limit()))
            .when_full(WhenFull::Replace)
            .max_requests_per_connection(1)
            .max_age(MaxAge::new(AGE).grace(AGE))
            .header_timeout(SILENCE)
            .idle_timeout(SILENCE);
        let admin = Server::from_listeners(listeners).group(group).limits(limits).start(router)?;
        answer_others(&scrape, &admin)?;
        Ok(Self { server, admin: Some(admin), scrape })
    }

    /// Returns the addresses for clients.
    #[must_use]
    pub fn local_addrs(&self) -> &[ListenAddr] {
        self.server.local_addrs()
    }

    /// Returns the addresses for operators. There are none if the service was started without
    /// listeners for operators.
    #[must_use]
    pub fn admin_addrs(&self) -> &[ListenAddr] {
        self.admin.as_ref().map_or(&[], Running::local_addrs)
    }

    /// Returns the server for clients.
    #[must_use]
    pub fn server(&self) -> &Running {
        &self.server
    }

    /// Returns the server for clients, and closes the listeners for operators.
    #[must_use]
    pub fn into_server(self) -> Running {
        self.server
    }

    /// Ends the service as `plan` says: see [`Running::drain`]. Returns how many connections were
    /// aborted. Until the end of the drain, `/readyz` for operators answers 503, unless other
    /// workers serve. If another master is in charge, only its workers answer operators from now
    /// on. Blocks the calling thread.
    ///
    /// # Errors
    /// The same as for [`Running::drain`].
    pub fn drain(self, plan: DrainPlan) -> io::Result<usize> {
        let Self { server, mut admin, scrape } = self;
        let reports = scrape.reports();
        let is_elsewhere = |reports: &Reports| reports.is_served_elsewhere().unwrap_or(false);
        let beside = admin.take_if(|_| reports.is_some_and(is_elsewhere)).and_then(end_beside);
        let drained = server.drain(plan);
        scrape.leave();
        if let Some(beside) = beside {
            // A panic there has been logged.
            let _ = beside.join();
        } else if let Some(admin) = admin.filter(|_| reports.is_some()) {
            end_answered(admin);
        }
        // Otherwise nobody waits for the admin server. It is dropped, which aborts its connections.
        drained
    }
}

/// The metrics that every HTTP server has.
pub(crate) fn registry(server: &Running, options: &ServeOptions) -> Registry {
    let mut registry = Registry::default();
    wakeful_prometheus::register_server(&mut registry, server);
    if let Some(tls) = &options.tls {
        wakeful_prometheus::register_tls(&mut registry, tls.counts());
    }
    if let Some(log) = &options.log {
        wakeful_prometheus::register_log(&mut registry, log.clone());
    }
    registry
}

const READY: (StatusCode, &str) = (StatusCode::OK, "ready\n");

/// Ready from the start on, until the server is told to end.
pub(crate) fn ready(readiness: &Readiness) -> (StatusCode, &'static str) {
    if readiness.is_ready() { READY } else { (StatusCode::SERVICE_UNAVAILABLE, "draining\n") }
}

/// Whether this process or another worker is ready: other workers serve while this one drains.
fn ready_here_or_elsewhere(
    readiness: &Readiness,
    reports: Option<&Reports>,
) -> (StatusCode, &'static str) {
    let is_served = |reports: &Reports| reports.is_served_by_others().unwrap_or(false);
    match ready(readiness) {
        (StatusCode::SERVICE_UNAVAILABLE, _) if reports.is_some_and(is_served) => READY,
        answer => answer,
    }
}

pub(crate) async fn render(scrape: &Scrape) -> Response {
    match scrape.metrics().await {
        Ok(text) => {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            ([(header::CONTENT_TYPE, kind)], text).into_response()
        }
        Err(error) => failed(&error),
    }
}

async fn list_workers(scrape: &Scrape) -> Response {
    match scrape.workers().await {
        Ok(text) => ([(header::CONTENT_TYPE, "application/json")], text).into_response(),
        Err(error) => failed(&error),
    }
}

fn failed(error: &io::Error) -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n")).into_response()
}

/// Makes this worker answer the scrapes of other workers, on a loop that runs as long as `server`
/// does.
fn answer_others(scrape: &Scrape, server: &Running) -> io::Result<()> {
    server.handles().first().map_or(Ok(()), |handle| scrape.answer_others(handle))
}

/// Ends the admin server. Operators who have asked this worker get their answers, also those who
/// ask meanwhile. Connections without a request are not awaited.
fn end_answered(admin: Running) {
    let begun = Instant::now();
    while admin.http_counts().in_flight() > 0 && begun.elapsed() < SILENCE {
        thread::sleep(AGAIN);
    }
    end(admin, LAST);
}

/// Ends the admin server, which takes no further connections.
fn end(admin: Running, grace: Duration) {
    if let Err(error) = admin.drain(DrainPlan::new().grace(grace)) {
        log::log!(warn, %error, "cannot drain the connections to --admin: its loop is abandoned");
    }
}

/// Ends the admin server on a separate thread. If none can be started, the connections are aborted.
fn end_beside(admin: Running) -> Option<JoinHandle<()>> {
    start_thread("wakeful-admin-end", move || end(admin, SILENCE))
        .inspect_err(|error| log::log!(warn, %error, "connections to --admin are aborted: cannot start a thread that drains them"))
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_get_an_eighth_of_a_small_limit() {
        for (limit, kept, connections) in
            [(None, 24, 16), (Some(1024), 24, 16), (Some(64), 8, 4), (Some(20), 2, 1)]
        {
            assert_eq!(for_operators(limit), kept);
            assert_eq!(connections_of_operators(limit), connections);
        }
    }
}
