//! From the start of a service to its end: what is logged, what signals do, what the exit code says.

use std::fmt::Display;
use std::io;
use std::time::Duration;

use wakeful::ShutdownError;
use wakeful::accept::Serving;
use wakeful::net::ListenAddr;
use wakeful::signal;
use wakeful_services::{DrainPlan, RunningService, ServeOptions};

/// A service that runs.
pub(super) struct Started<F> {
    addrs: Vec<ListenAddr>,
    admin_addrs: Vec<ListenAddr>,
    loops: usize,
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
        shutdown: move |grace| serving.shutdown(grace),
    }
}

/// As [`serving`], of a server of HTTP, which goes on for `pre_drain` while it says that it is not ready.
pub(super) fn running(
    service: RunningService,
    pre_drain: Duration,
) -> Started<impl FnOnce(Duration) -> io::Result<usize> + Send + 'static> {
    Started {
        addrs: service.local_addrs().to_vec(),
        admin_addrs: service.admin_addrs().to_vec(),
        loops: service.server().handles().len(),
        shutdown: move |grace| {
            service.drain(DrainPlan { pre_drain, grace, ..DrainPlan::default() })
        },
    }
}

/// Serves until TERM or Ctrl-C, and drains.
///
/// # Errors
/// A line for the user.
pub(super) fn until_terminated<F, E>(
    options: &ServeOptions,
    start: impl FnOnce() -> io::Result<Started<F>>,
) -> Result<(), String>
where
    F: FnOnce(Duration) -> Result<usize, E> + Send + 'static,
    E: Display,
{
    let grace = options.grace;
    let started = || {
        let service = start()?;
        let scheme = if options.tls.is_some() { "https://" } else { "" };
        for addr in &service.admin_addrs {
            tracing::info!("admin on {addr}");
        }
        for addr in &service.addrs {
            tracing::info!(
                "listening on {scheme}{addr}, loops {}, idle {}",
                service.loops,
                options.idle
            );
        }
        Ok(service)
    };
    let shutdown =
        move |service: Started<F>| (service.shutdown)(grace).map_err(|error| error.to_string());
    let drained = signal::run_until_terminated(started, shutdown);
    match drained.map_err(|error| format!("cannot serve: {error}"))? {
        Some(Ok(0)) => {
            tracing::info!("drained");
            Ok(())
        }
        Some(Ok(aborted)) => {
            tracing::warn!(aborted, "ended with connections still open");
            Ok(())
        }
        Some(Err(message)) => Err(message),
        None => Err("stopped at once by a second signal".to_owned()),
    }
}
