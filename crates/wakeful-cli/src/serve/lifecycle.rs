//! A service from its start to its end: its log lines, its signals, and its exit code.

use std::cell::Cell;
use std::fmt::Display;
use std::future::{Future, pending};
use std::io;
use std::pin::Pin;
use std::time::Duration;

use wakeful::ShutdownError;
use wakeful::accept::Serving;
use wakeful::net::ListenAddr;
use wakeful::signal;
use wakeful_services::tls::ServerTls;
use wakeful_services::{DrainPlan, RunningService};
use wakeful_workers::MasterIsGone;

use super::common::CommonArguments;
use super::other_signals::unblock_term;
use super::start::Start;

/// How clients name the addresses that a service listens on.
#[derive(Debug, Clone, Copy)]
pub(super) enum Scheme {
    /// By the address alone.
    Plain,
    Https,
}

impl Scheme {
    pub(super) fn of(tls: Option<&ServerTls>) -> Self {
        tls.map_or(Self::Plain, |_| Self::Https)
    }

    fn name(self, addr: &ListenAddr) -> String {
        match (self, addr) {
            (Self::Plain, _) => addr.to_string(),
            (Self::Https, ListenAddr::Tcp(_)) => format!("https://{addr}"),
            // A Unix socket has no URL.
            (Self::Https, _) => format!("{addr}, TLS"),
        }
    }
}

/// Completes when the service has failed.
type Failure = Pin<Box<dyn Future<Output = io::Error> + Send>>;

/// A service that runs.
pub(super) struct Started<F> {
    addrs: Vec<ListenAddr>,
    admin_addrs: Vec<ListenAddr>,
    loops: usize,
    failure: Option<Failure>,
    /// Returns how many connections were aborted.
    shutdown: F,
}

pub(super) fn serving(
    serving: Serving,
) -> Started<impl FnOnce(Duration) -> Result<usize, ShutdownError> + Send + 'static> {
    Started {
        addrs: serving.local_addrs().to_vec(),
        admin_addrs: Vec::new(),
        loops: serving.handles().len(),
        failure: Some(Box::pin(serving.failure())),
        shutdown: move |grace| serving.shutdown(grace),
    }
}

/// Like [`serving`], for an HTTP server, which reports for `pre_drain` that it is not ready while
/// it continues to serve.
pub(super) fn running(
    service: RunningService,
    pre_drain: Duration,
) -> Started<impl FnOnce(Duration) -> io::Result<usize> + Send + 'static> {
    Started {
        addrs: service.local_addrs().to_vec(),
        admin_addrs: service.admin_addrs().to_vec(),
        loops: service.server().handles().len(),
        failure: Some(Box::pin(service.server().failure())),
        shutdown: move |grace| service.drain(DrainPlan::new().pre_drain(pre_drain).grace(grace)),
    }
}

/// Serves until TERM or Ctrl-C, PWR or XCPU, or until no listener accepts any more, and drains. HUP
/// does what `reloaded` names ("reopening the access log").
///
/// # Errors
/// A line for the user.
pub(super) fn until_terminated<F, E>(
    common: &CommonArguments,
    scheme: Scheme,
    start_with: Start,
    reloaded: Vec<&'static str>,
    start: impl FnOnce() -> io::Result<Started<F>>,
) -> Result<(), String>
where
    F: FnOnce(Duration) -> Result<usize, E> + Send + 'static,
    E: Display,
{
    let (grace, idle) = (common.grace(), common.idle_policy()?);
    let Start { caught, worker, .. } = start_with;
    let draining = caught.draining();
    let failure = Cell::new(None);
    let started = || {
        unblock_term()?;
        let mut service = start()?;
        failure.set(service.failure.take());
        caught.log(reloaded)?;
        for addr in &service.admin_addrs {
            tracing::info!("admin on {addr}");
        }
        for addr in &service.addrs {
            tracing::info!(
                "listening on {}, loops {}, idle {idle}",
                scheme.name(addr),
                service.loops
            );
        }
        Ok(service)
    };
    let shutdown = move |service: Started<F>| {
        draining.begins();
        (service.shutdown)(grace).map_err(|error| error.to_string())
    };
    let failed = |_: &_| failure.take().unwrap_or_else(|| Box::pin(pending()));
    let drained = match worker {
        Some(worker) => worker.serve(started, failed, shutdown),
        None => signal::run_until_terminated_or_failed(started, failed, shutdown),
    };
    let drained = drained.map_err(|error| match error.get_ref() {
        Some(orphaned) if orphaned.is::<MasterIsGone>() => {
            format!("this worker has drained and ends, because {orphaned}")
        }
        _ => format!("cannot serve: {error}"),
    })?;
    match drained {
        Some(Ok(0)) => {
            tracing::info!("drained");
            Ok(())
        }
        Some(Ok(aborted)) => {
            tracing::warn!(
                aborted,
                "the grace period (--grace) is over: ended with connections still open"
            );
            Ok(())
        }
        Some(Err(message)) => Err(message),
        None => Err("stopped at once by a second signal".to_owned()),
    }
}
