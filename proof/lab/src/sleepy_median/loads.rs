//! The loads of most parts.

use std::time::Duration;

use wakeful_load::internals::bench::{BenchError, Load};
use wakeful_load::{Plan, Protocol, Requests, Target, Template};

use crate::lab::{Lab, LabError};

/// The bytes of a frame, which is sent each way.
pub(super) const BYTES: usize = 1024;

pub(super) const CONNECTIONS: usize = 32;

/// By then, an adaptive loop has measured the cost of a sleep, and has seen some traffic.
pub(super) const WARM_UP: Duration = Duration::from_millis(200);

/// Returns the same load in RESP: `ECHO` with as many bytes.
pub(super) fn resp(load: &Load) -> Result<Load, LabError> {
    spoken(load, Protocol::Resp, &Template::of_size(BYTES))
}

/// Returns the same load in HTTP/1.1, with one request at a time on each connection.
pub(super) fn http(load: &Load, path: &str) -> Result<Load, LabError> {
    spoken(load, Protocol::Http1, &Template::http("GET", "localhost", path))
}

fn spoken(load: &Load, protocol: Protocol, template: &Template) -> Result<Load, LabError> {
    let requests = Requests::new(protocol, template).map_err(BenchError::from)?;
    let load = load.clone();
    Ok(Load { plan: load.plan.requests(requests).in_flight(None), ..load })
}

/// Returns a load of `rate` requests per second over 32 connections.
pub(super) fn load(lab: &Lab<'_>, rate: f64, duration: Duration) -> Result<Load, LabError> {
    // Each block replaces the target by its server's address.
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
