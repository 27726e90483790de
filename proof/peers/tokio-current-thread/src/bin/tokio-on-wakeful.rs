//! Exactly the same services, on Tokio as the guest of wakeful's loops.

use std::process::ExitCode;

use anyhow::Result;
use peer_common::{Args, Service, cli, version};
use tokio_service::{Work, serve};
use wakeful::{EventLoop, IdlePolicy};

const NAME: &str = "tokio-on-wakeful";

const VARIANTS: &[(&str, IdlePolicy)] =
    &[("default", IdlePolicy::ADAPTIVE), ("park", IdlePolicy::Park), ("spin", IdlePolicy::Spin)];

fn main() -> ExitCode {
    let (args, idle) = cli::parse(NAME, version::WAKEFUL, Service::ALL, VARIANTS);
    cli::exit_code(NAME, run(&args, idle))
}

fn run(args: &Args, idle: IdlePolicy) -> Result<()> {
    let work = Work { service: args.service, backend: None };
    cli::run_workers(args, move |socket, ready| {
        let mut event_loop = EventLoop::builder().idle(idle).tokio().build()?;
        event_loop.block_on(serve(socket, work, ready))?
    })
}
