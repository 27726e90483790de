//! The servers of `wakeful lab herd`: several workers, one shared Unix socket, and one short answer
//! for each connection. They differ only in how a worker waits for the next connection.
//!
//! All except wakeful's are preforking servers, with threads instead of processes: a worker takes
//! one connection, answers it with blocking calls, closes it, and waits again. The answer to `GET
//! /counts` has the counters of each worker, as JSON.

mod counts;
mod exchange;
mod on_wakeful;
mod worker;

use std::process::ExitCode;

use anyhow::{Result, bail};
use peer_common::{Args, Listen, Service, cli, version};

use crate::worker::Wait;

const NAME: &str = "herd";

#[derive(Debug, Clone, Copy)]
enum Variant {
    Worker(Wait),
    Wakeful(&'static str),
}

const VARIANTS: &[(&str, Variant)] = &[
    ("exclusive", Variant::Worker(Wait::Exclusive)),
    ("epoll", Variant::Worker(Wait::Epoll)),
    ("select", Variant::Worker(Wait::Poll)),
    ("wakeful-park", Variant::Wakeful("park")),
    ("wakeful-adaptive", Variant::Wakeful("adaptive")),
];

fn main() -> ExitCode {
    let (args, variant) = cli::parse(NAME, version::RUSTIX, &[Service::Http], VARIANTS);
    cli::exit_code(NAME, run(&args, variant))
}

fn run(args: &Args, variant: Variant) -> Result<()> {
    let Listen::Unix(path) = &args.listen else {
        bail!("--listen {}: only unix:PATH; with TCP the workers share no socket", args.listen);
    };
    match variant {
        Variant::Worker(wait) => worker::run(args, wait),
        Variant::Wakeful(idle) => on_wakeful::run(path, args.workers, idle),
    }
}
