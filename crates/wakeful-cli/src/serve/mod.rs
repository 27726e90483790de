//! `wakeful serve`: a subcommand with options of its own for each service.

mod activity;
mod admin;
mod common;
mod divide;
mod echo;
mod executed;
mod given;
mod handed;
mod http;
mod idle;
mod kv;
mod lifecycle;
mod limits;
mod other_signals;
mod proxy;
mod rpc;
mod seconds;
mod site;
mod size;
mod stalls;
mod start;
mod tls;
mod workers;
mod writable;

use std::ffi::OsString;
use std::mem;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use wakeful::accept::Descriptors;
use wakeful_services::proxy::headers::Pseudonym;
use wakeful_services::tls::TicketSecret;

use crate::file_size;
use crate::usage::wrong_usage;

use self::admin::AdminArguments;
use self::common::CommonArguments;
use self::divide::Divided;
pub(crate) use self::executed::run_worker;
use self::handed::Handed;
use self::limits::DrainArguments;
use self::other_signals::Caught;
pub(crate) use self::other_signals::put_off_signals;
use self::start::Start;
use self::workers::keep;

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, after_help = other_signals::HELP)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    service: Option<Service>,

    /// Without a service it is http.
    #[command(flatten)]
    http: http::HttpArguments,

    /// The whole command line, with what its settings file says.
    #[arg(skip)]
    words: Vec<OsString>,
}

#[derive(Debug, Subcommand)]
enum Service {
    /// An axum router: /, /healthz, /readyz, /metrics, /echo, /sleep/MS, /cpu/US, /bytes/N, /ws;
    /// with --root also files. The default.
    Http(http::HttpArguments),
    /// An echo of frames: 4 bytes of length, big-endian, then the payload, at most 16 MiB.
    Echo(echo::EchoArguments),
    /// Keys and values in memory, for Redis clients (RESP2). Keys are sharded over the loops: with
    /// several loops, a command with many keys (MSET) is not atomic. It is one process: --workers
    /// cannot be used.
    Kv(kv::KvArguments),
    /// gRPC: wakeful.echo.v1.Echo with Unary, ServerStream, ClientStream and BidiStream; health and
    /// reflection.
    Rpc(rpc::RpcArguments),
    /// A reverse proxy for HTTP/1.1 and HTTP/2. For each request it takes two backends of --to at
    /// random, and forwards to the less busy one. It refuses ambiguous requests: two Hosts, or
    /// Content-Length beside Transfer-Encoding.
    Proxy(Box<proxy::ProxyArguments>),
}

impl Arguments {
    /// Should this process become a master, which must not start a thread?
    pub(crate) fn are_workers_wanted(&self) -> bool {
        self.common().workers().are_given()
    }

    pub(crate) fn set_words(&mut self, words: Vec<OsString>) {
        self.words = words;
    }

    fn common_mut(&mut self) -> &mut CommonArguments {
        match &mut self.service {
            None => &mut self.http.common,
            Some(Service::Http(arguments)) => &mut arguments.common,
            Some(Service::Echo(arguments)) => &mut arguments.common,
            Some(Service::Kv(arguments)) => &mut arguments.common,
            Some(Service::Rpc(arguments)) => &mut arguments.common,
            Some(Service::Proxy(arguments)) => &mut arguments.common,
        }
    }

    /// The arguments of services that speak HTTP.
    fn http_arguments(&self) -> Option<(&DrainArguments, &AdminArguments)> {
        match &self.service {
            None => Some((&self.http.drain, &self.http.admin)),
            Some(Service::Http(arguments)) => Some((&arguments.drain, &arguments.admin)),
            Some(Service::Rpc(arguments)) => Some((&arguments.drain, &arguments.admin)),
            Some(Service::Proxy(arguments)) => Some((&arguments.drain, &arguments.admin)),
            Some(Service::Echo(_) | Service::Kv(_)) => None,
        }
    }

    fn http_arguments_mut(&mut self) -> Option<(&mut DrainArguments, &mut AdminArguments)> {
        match &mut self.service {
            None => Some((&mut self.http.drain, &mut self.http.admin)),
            Some(Service::Http(arguments)) => Some((&mut arguments.drain, &mut arguments.admin)),
            Some(Service::Rpc(arguments)) => Some((&mut arguments.drain, &mut arguments.admin)),
            Some(Service::Proxy(arguments)) => Some((&mut arguments.drain, &mut arguments.admin)),
            Some(Service::Echo(_) | Service::Kv(_)) => None,
        }
    }

    fn pre_drain(&self) -> Duration {
        self.http_arguments().map_or(Duration::ZERO, |(drain, _)| drain.pre_drain)
    }

    fn common(&self) -> &CommonArguments {
        match &self.service {
            None => &self.http.common,
            Some(Service::Http(arguments)) => &arguments.common,
            Some(Service::Echo(arguments)) => &arguments.common,
            Some(Service::Kv(arguments)) => &arguments.common,
            Some(Service::Rpc(arguments)) => &arguments.common,
            Some(Service::Proxy(arguments)) => &arguments.common,
        }
    }
}

/// `again` reads the command line and its settings file once more.
///
/// # Errors
/// A line for the user.
pub(crate) fn run(
    arguments: &Arguments,
    again: impl FnOnce() -> Result<Arguments, String>,
) -> Result<ExitCode, String> {
    // A master handles signals itself, and its workers begin with default actions.
    let caught = if arguments.are_workers_wanted() { None } else { Some(Caught::from_now_on()?) };
    if let Err(line) = check(arguments) {
        return Ok(wrong_usage(line));
    }
    file_size::survive_limits();
    raise_descriptor_limit();
    // The secret is made before the fork, so that all workers have it, and a client can resume its
    // session with any of them.
    let tickets = arguments.are_workers_wanted().then(TicketSecret::random).flatten();
    // So that a proxy recognises its own requests, whichever worker has forwarded them.
    let pseudonym = Pseudonym::unique();
    let divided = divide::divide(
        arguments.common(),
        arguments.http_arguments().map(|(_, admin)| admin),
        arguments.pre_drain(),
        || Handed::bytes(&arguments.words, tickets.as_ref(), pseudonym),
    )?;
    let (worker, passed, of_worker) = match divided {
        Divided::Whole(passed) => (None, passed, None),
        Divided::Worker(worker) if arguments.common().has_file() => {
            (Some(worker), Vec::new(), Some(of_worker(arguments, again()?)?))
        }
        Divided::Worker(worker) => (Some(worker), Vec::new(), None),
        Divided::Ended(code) => return Ok(code),
    };
    let arguments = of_worker.as_ref().unwrap_or(arguments);
    let caught = caught.map_or_else(Caught::from_now_on, Ok)?;
    serve(arguments, Start { caught, worker, passed, tickets, pseudonym })
}

/// # Errors
/// A line for the user.
fn serve(arguments: &Arguments, start: Start) -> Result<ExitCode, String> {
    match &arguments.service {
        None => http::serve(&arguments.http, start),
        Some(Service::Http(arguments)) => http::serve(arguments, start),
        Some(Service::Echo(arguments)) => echo::serve(arguments, start),
        Some(Service::Kv(arguments)) => kv::serve(arguments, start),
        Some(Service::Rpc(arguments)) => rpc::serve(arguments, start),
        Some(Service::Proxy(arguments)) => proxy::serve(arguments, start),
    }
    .map(|()| ExitCode::SUCCESS)
}

/// The settings of a new worker. The settings file may have changed since its master started.
///
/// # Errors
/// A line for the user.
fn of_worker(masters: &Arguments, mut new: Arguments) -> Result<Arguments, String> {
    let service = |arguments: &Arguments| arguments.service.as_ref().map(mem::discriminant);
    if service(&new) != service(masters) {
        return Err("cannot serve: the settings file names another service now. Stop this server and start it again".to_owned());
    }
    let mut kept = new.common_mut().keep(masters.common());
    if let (Some(new), Some(masters)) = (new.http_arguments_mut(), masters.http_arguments()) {
        kept.extend(keep(&mut new.0.pre_drain, &masters.0.pre_drain, "--pre-drain"));
        kept.extend(new.1.keep(masters.1));
    }
    if !kept.is_empty() {
        tracing::warn!(
            "the settings file differs in settings that only an upgrade (USR2) changes: {}",
            kept.join(", ")
        );
    }
    check(&new)?;
    Ok(new)
}

/// Checks whether the service would start, as far as that can be known without a socket.
///
/// # Errors
/// A line for the user.
pub(crate) fn try_out(arguments: &Arguments) -> Result<(), String> {
    check(arguments)?;
    arguments.common().workers().try_out()?;
    match &arguments.service {
        None => arguments.http.try_out(),
        Some(Service::Http(arguments)) => arguments.try_out(),
        Some(Service::Echo(_) | Service::Kv(_)) => Ok(()),
        Some(Service::Rpc(arguments)) => arguments.try_out(),
        Some(Service::Proxy(arguments)) => arguments.try_out(),
    }
}

/// Raises the soft limit of descriptors, because each connection needs one. The soft limit is often
/// 1,024, for programs that use select(2). The hard limit is what the administrator allows.
fn raise_descriptor_limit() {
    if let Err(error) = Descriptors::raise_limit() {
        tracing::warn!(%error, soft = Descriptors::limit(), "cannot raise the limit of open descriptors (RLIMIT_NOFILE)");
    }
}

/// # Errors
/// Options that have no meaning together.
pub(crate) fn check(arguments: &Arguments) -> Result<(), String> {
    match &arguments.service {
        None => arguments.http.check(),
        Some(Service::Http(arguments)) => arguments.check(),
        Some(Service::Echo(arguments)) => arguments.common.check().and_then(|()| arguments.check()),
        Some(Service::Kv(arguments)) => arguments.common.check().and_then(|()| arguments.check()),
        Some(Service::Rpc(arguments)) => arguments.check(),
        Some(Service::Proxy(arguments)) => arguments.check(),
    }
}
