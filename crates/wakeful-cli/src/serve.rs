//! `wakeful serve`.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};
use wakeful::accept::{AcceptStrategy, Placement, Serving};
use wakeful::net::{InvalidListenAddr, ListenAddr};
use wakeful::signal;
use wakeful_services::kv::{self, KvOptions};
use wakeful_services::options::Pinning;
use wakeful_services::{ServeOptions, echo, http};

use crate::activity::ActivityArguments;
use crate::idle::IdleArguments;
use crate::size;

/// As clap says it of everything that can be seen from the flags alone.
const WRONG_USAGE: u8 = 2;

/// The words of a command are values too.
const SMALLEST_MAX_VALUE: usize = 64;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Which service.
    #[arg(value_enum, default_value_t = Service::Http)]
    service: Service,

    // Not a doc comment: rustdoc takes the brackets for a link.
    #[arg(
        long,
        value_name = "ADDR",
        default_value = "127.0.0.1:8080",
        help = "Where to listen: 127.0.0.1:8080, [::1]:8080, unix:PATH. May be repeated"
    )]
    listen: Vec<String>,

    /// How many loops, each on a thread of its own; 0 is one for each CPU that may be used.
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    loops: u16,

    /// Pin each loop's thread to a CPU: in turn, if there are more loops than CPUs.
    #[arg(long)]
    pin: bool,

    // Not a doc comment: rustdoc takes the brackets for a link.
    #[arg(
        long,
        value_name = "ADDR",
        help = "echo: pass each frame on to the echo service that listens there, and its answer back. Each connection has one of its own \
                to it. 127.0.0.1:8081, [::1]:8081, unix:PATH"
    )]
    backend: Option<String>,

    /// How connections reach the loops: the loop that is first takes one, each loop has a socket of its own, or the first loop hands them out.
    #[arg(long, value_enum, default_value_t = Accept::Exclusive)]
    accept: Accept,

    /// With --accept dispatch, which of the active loops (all, with --spread) gets the next one: round-robin, random, least-loaded, power-of-two. [default: power-of-two]
    #[arg(long, value_name = "PLACEMENT")]
    placement: Option<Placement>,

    /// kv: what keys, values and what holds them may take, on all loops together; beyond it what needs more is refused [default: 1GiB]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    max_memory: Option<usize>,

    /// kv: the longest key or value, 64 to 512MiB; a command may have 1 MiB more in all [default: 16MiB]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    max_value: Option<usize>,

    #[command(flatten)]
    activity: ActivityArguments,

    #[command(flatten)]
    idle: IdleArguments,

    /// Seconds that open connections may take to finish after TERM or Ctrl-C. A second signal stops at once.
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds, allow_negative_numbers = true)]
    grace: Duration,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Service {
    /// An axum router: /, /healthz, /readyz, /metrics, /echo, /sleep/MS, /bytes/N.
    Http,
    /// Length-prefixed frames: 4 bytes, big-endian, then the payload, at most 16 MiB.
    Echo,
    /// Keys and values in memory, for Redis clients (RESP2). Sharded over the loops: with several, MSET and other commands of many keys are not atomic.
    Kv,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Accept {
    /// One socket for all loops: a connection wakes one of them.
    Exclusive,
    /// A socket for each loop on the same port: the kernel chooses by a hash. TCP only.
    ReusePort,
    /// The first loop accepts for all.
    Dispatch,
}

impl Arguments {
    fn strategy(&self) -> Result<AcceptStrategy, String> {
        match (self.accept, self.placement) {
            (Accept::Dispatch, placement) => {
                Ok(AcceptStrategy::Dispatch(placement.unwrap_or_default()))
            }
            (_, Some(_)) => Err("--placement is for --accept dispatch".to_owned()),
            (Accept::Exclusive, None) => Ok(AcceptStrategy::Exclusive),
            (Accept::ReusePort, None) => Ok(AcceptStrategy::ReusePort),
        }
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let expected = || "expected a number of seconds, as 10 or 0.5".to_owned();
    let seconds: f64 = text.parse().map_err(|_| expected())?;
    Duration::try_from_secs_f64(seconds).map_err(|_| expected())
}

/// # Errors
/// A line for the user.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, String> {
    if let Err(line) = check(arguments) {
        eprintln!("wakeful: {line}");
        return Ok(ExitCode::from(WRONG_USAGE));
    }
    serve(arguments).map(|()| ExitCode::SUCCESS)
}

/// # Errors
/// Options that have no meaning together.
fn check(arguments: &Arguments) -> Result<(), String> {
    arguments.strategy()?;
    arguments.idle.policy()?;
    kv_options(arguments)?;
    let activity = arguments.activity.given();
    match (arguments.service, &arguments.backend, activity) {
        (Service::Http | Service::Kv, Some(_), _) => {
            Err("--backend is for the service echo".to_owned())
        }
        (Service::Kv, _, Some(option)) => {
            Err(format!("{option} is for the services http and echo: kv always uses all loops"))
        }
        (Service::Echo, Some(_), Some("--moves")) => {
            Err("--moves: connections that pass frames on to a backend never move".to_owned())
        }
        _ => Ok(()),
    }
}

fn serve(arguments: &Arguments) -> Result<(), String> {
    // Parsed here and not by clap: an address that cannot be had is one line and exit code 1, for
    // whatever reason.
    let parse = |addr: &String| -> Result<ListenAddr, String> {
        addr.parse().map_err(|e: InvalidListenAddr| e.to_string())
    };
    let options = ServeOptions {
        listen: arguments.listen.iter().map(parse).collect::<Result<_, _>>()?,
        loops: arguments.loops.into(),
        pinning: if arguments.pin { Pinning::Pinned } else { Pinning::Free },
        accept: arguments.strategy()?,
        concentrate: arguments.activity.targets(),
        moves: arguments.activity.moves(),
        idle: arguments.idle.policy()?,
        grace: arguments.grace,
    };
    let backend = arguments.backend.as_ref().map(parse).transpose();
    let backend = backend.map_err(|error| format!("--backend: {error}"))?;
    let kv_options = kv_options(arguments)?;
    let listeners = options.bind()?;
    match arguments.service {
        Service::Http => until_terminated(
            &options,
            || http::start(&options, listeners),
            |server| (server.local_addrs().to_vec(), server.handles().len()),
            |server, grace| server.shutdown(grace).map_err(|e| e.to_string()),
        ),
        Service::Echo => until_terminated(
            &options,
            || match &backend {
                Some(backend) => echo::start_frontend(&options, listeners, backend),
                None => echo::start(&options, listeners),
            },
            |server| (server.local_addrs().to_vec(), server.handles().len()),
            |server: Serving, grace| server.shutdown(grace).map_err(|e| e.to_string()),
        ),
        Service::Kv => until_terminated(
            &options,
            || kv::start(&options, kv_options, listeners),
            |server| (server.local_addrs().to_vec(), server.handles().len()),
            |server: Serving, grace| server.shutdown(grace).map_err(|e| e.to_string()),
        ),
    }
}

/// # Errors
/// They are given for another service, or too large.
fn kv_options(arguments: &Arguments) -> Result<KvOptions, String> {
    let given = arguments.max_memory.is_some() || arguments.max_value.is_some();
    if given && !matches!(arguments.service, Service::Kv) {
        return Err("--max-memory and --max-value are for the service kv".to_owned());
    }
    let default = KvOptions::default();
    let options = KvOptions {
        max_memory: arguments.max_memory.unwrap_or(default.max_memory),
        max_value: arguments.max_value.unwrap_or(default.max_value),
    };
    if !(SMALLEST_MAX_VALUE..=kv::LARGEST_VALUE).contains(&options.max_value) {
        return Err("--max-value is at least 64 and at most 512MiB".to_owned());
    }
    Ok(options)
}

fn until_terminated<S: Send + 'static>(
    options: &ServeOptions,
    start: impl FnOnce() -> std::io::Result<S>,
    describe: fn(&S) -> (Vec<ListenAddr>, usize),
    shutdown: fn(S, Duration) -> Result<usize, String>,
) -> Result<(), String> {
    let grace = options.grace;
    let started = || {
        let server = start()?;
        let (addrs, loops) = describe(&server);
        for addr in &addrs {
            tracing::info!("listening on {addr}, loops {loops}, idle {}", options.idle);
        }
        Ok(server)
    };
    let drained = signal::run_until_terminated(started, move |server| shutdown(server, grace));
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
