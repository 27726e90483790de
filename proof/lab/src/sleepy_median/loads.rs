//! What most parts load their servers with.

use std::time::Duration;

use wakeful_load::internals::bench::{BenchError, Load};
use wakeful_load::{Plan, Protocol, Requests, Target, Template};

use crate::lab::{Lab, LabError};

/// 1 KiB each way, in frames.
pub(super) const BYTES: usize = 1024;

pub(super) const CONNECTIONS: usize = 32;

/// A loop that adapts has measured what a sleep costs by then, and seen some traffic.
pub(super) const WARM_UP: Duration = Duration::from_millis(200);

/// The same load in RESP: `ECHO` of as many bytes.
pub(super) fn resp(load: &Load) -> Result<Load, LabError> {
    spoken(load, Protocol::Resp, &Template::of_size(BYTES))
}

/// The same load of HTTP/1.1, a request at a time on each connection.
pub(super) fn http(load: &Load, path: &str) -> Result<Load, LabError> {
    spoken(load, Protocol::Http1, &Template::http("GET", "localhost", path))
}

fn spoken(load: &Load, protocol: Protocol, template: &Template) -> Result<Load, LabError> {
    let requests = Requests::new(protocol, template).map_err(BenchError::from)?;
    let load = load.clone();
    Ok(Load { plan: load.plan.requests(requests).in_flight(None), ..load })
}

/// So many requests a second over 32 connections.
pub(super) fn load(lab: &Lab<'_>, rate: f64, duration: Duration) -> Result<Load, LabError> {
    // Each block puts its server in the target's place.
    let nowhere = Target::Unix("/".into());
    let requests = Requests::new(Protocol::Frames, &Template::of_size(BYTES));
    let plan = Plan::new(nowhere)
        .requests(requests.map_err(BenchError::from)?)
        .rate(rate)
        .connections(CONNECTIONS)
        .seed(lab.seed)
        .warm_up(WARM_UP)
        .duration(duration)
        .patience(Duration::from_secs(1));
    Ok(Load { plan, slow_clients: 0 })
}
