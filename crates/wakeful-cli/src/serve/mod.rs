//! `wakeful serve`: a subcommand with options of its own for each service.

mod activity;
mod admin;
mod common;
mod echo;
mod http;
mod idle;
mod kv;
mod lifecycle;
mod limits;
mod proxy;
mod rpc;
mod site;
mod size;
mod tls;

use std::process::ExitCode;

use clap::{Args, Subcommand};

/// As clap says it of everything that can be seen from the flags alone.
const WRONG_USAGE: u8 = 2;

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    service: Option<Service>,

    /// Without a service it is http.
    #[command(flatten)]
    http: http::HttpArguments,
}

#[derive(Debug, Subcommand)]
enum Service {
    /// An axum router: /, /healthz, /readyz, /metrics, /echo, /sleep/MS, /bytes/N, /ws; files with --root. The default.
    Http(http::HttpArguments),
    /// Length-prefixed frames: 4 bytes, big-endian, then the payload, at most 16 MiB.
    Echo(echo::EchoArguments),
    /// Keys and values in memory, for Redis clients (RESP2). Sharded over the loops: with several, MSET and other commands of many keys are not atomic.
    Kv(kv::KvArguments),
    /// gRPC: wakeful.echo.v1.Echo with Unary, ServerStream, ClientStream and BidiStream; health and reflection.
    Rpc(rpc::RpcArguments),
    /// A reverse proxy for HTTP/1.1 and HTTP/2: requests go on to the backends that --to names, to the less busy of two. Those that can be understood in two ways are refused: two Hosts, or Content-Length beside Transfer-Encoding.
    Proxy(Box<proxy::ProxyArguments>),
}

/// # Errors
/// A line for the user.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, String> {
    if let Err(line) = check(arguments) {
        eprintln!("wakeful: {line}");
        return Ok(ExitCode::from(WRONG_USAGE));
    }
    match &arguments.service {
        None => http::serve(&arguments.http),
        Some(Service::Http(arguments)) => http::serve(arguments),
        Some(Service::Echo(arguments)) => echo::serve(arguments),
        Some(Service::Kv(arguments)) => kv::serve(arguments),
        Some(Service::Rpc(arguments)) => rpc::serve(arguments),
        Some(Service::Proxy(arguments)) => proxy::serve(arguments),
    }
    .map(|()| ExitCode::SUCCESS)
}

/// # Errors
/// Options that have no meaning together.
fn check(arguments: &Arguments) -> Result<(), String> {
    match &arguments.service {
        None => arguments.http.check(),
        Some(Service::Http(arguments)) => arguments.check(),
        Some(Service::Echo(arguments)) => arguments.common.check().and_then(|()| arguments.check()),
        Some(Service::Kv(arguments)) => arguments.common.check(),
        Some(Service::Rpc(arguments)) => arguments.check(),
        Some(Service::Proxy(arguments)) => arguments.check(),
    }
}
