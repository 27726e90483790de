//! The services on tokio's current-thread runtime: a thread for each worker, each with its own
//! runtime, listening socket and connections.

use std::process::ExitCode;

use anyhow::{Context, Result};
use peer_common::{Args, Service, cli, version};
use tokio::runtime::{Builder, LocalOptions};
use tokio_service::{Work, serve};

const NAME: &str = "tokio-current-thread";

#[derive(Clone, Copy, PartialEq, Eq)]
enum Variant {
    /// tokio's defaults.
    Default,
    /// `max_io_events_per_tick` 4, `event_interval` 61 and a task for each
    /// worker that always yields: the runtime never sleeps.
    Burn,
    /// `event_interval` 7, `max_io_events_per_tick` 1024.
    Interval7,
    /// `event_interval` 1, `max_io_events_per_tick` 1024.
    Interval1,
}

const VARIANTS: &[(&str, Variant)] = &[
    ("default", Variant::Default),
    ("burn", Variant::Burn),
    ("interval7", Variant::Interval7),
    ("interval1", Variant::Interval1),
];

fn main() -> ExitCode {
    let (args, variant) = cli::parse_with_backend(NAME, version::TOKIO, Service::ALL, VARIANTS);
    cli::exit_code(NAME, run(&args, variant))
}

fn run(args: &Args, variant: Variant) -> Result<()> {
    let work = Work { service: args.service, backend: args.backend };
    cli::run_workers(args, move |socket, ready| {
        let mut builder = Builder::new_current_thread();
        builder.enable_all();
        match variant {
            Variant::Default => &mut builder,
            Variant::Burn => builder.max_io_events_per_tick(4).event_interval(61),
            Variant::Interval7 => builder.max_io_events_per_tick(1024).event_interval(7),
            Variant::Interval1 => builder.max_io_events_per_tick(1024).event_interval(1),
        };
        let runtime =
            builder.build_local(LocalOptions::default()).context("cannot build the runtime")?;
        runtime.block_on(async {
            if variant == Variant::Burn {
                tokio::task::spawn_local(burn());
            }
            serve(socket, work, ready).await
        })
    })
}

/// Keeps the runtime from ever going to sleep.
async fn burn() {
    loop {
        tokio::task::yield_now().await;
    }
}
