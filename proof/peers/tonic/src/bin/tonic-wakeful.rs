//! The gRPC service, over HTTP/2, with tonic on wakeful, as its documentation shows it. With
//! `--variant park` its loops sleep whenever they have nothing to do.

use std::process::ExitCode;

use anyhow::Result;
use peer_common::{Args, Listen, Service, cli, version};
use tonic::service::Routes;
use wakeful::net::ListenAddr;
use wakeful::{EventLoop, IdlePolicy, LoopGroup};

const NAME: &str = "tonic-wakeful";

const VARIANTS: &[(&str, IdlePolicy)] =
    &[("default", IdlePolicy::ADAPTIVE), ("park", IdlePolicy::Park)];

fn main() -> ExitCode {
    let (args, idle) = cli::parse(NAME, version::WAKEFUL, &[Service::Http], VARIANTS);
    cli::exit_code(NAME, run(&args, idle))
}

fn run(args: &Args, idle: IdlePolicy) -> Result<()> {
    let addr = match &args.listen {
        Listen::Tcp(addr) => ListenAddr::Tcp(*addr),
        Listen::Unix(path) => ListenAddr::Unix(path.clone()),
    };
    let event_loop = EventLoop::builder().idle(idle);
    let server = wakeful_http::Server::bind(addr)?
        .group(LoopGroup::builder().loops(args.workers).event_loop(event_loop));
    if let Some(ListenAddr::Tcp(addr)) = server.local_addrs().next() {
        cli::announce(&Listen::Tcp(*addr));
    } else {
        cli::announce(&args.listen);
    }
    Ok(server.serve(Routes::new(peer_tonic::service()).prepare().into_axum_router())?)
}
