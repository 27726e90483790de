//! `ready-list`: measures ready lists of many producers and one consumer, all in the same way.
//! Prints one JSON line for each contender.
//!
//! [`list`] says what a list is, and [`lists`] has the contenders. The measurements are
//! [`throughput`], [`sweep`], [`priority`] and [`service`].

#![allow(clippy::cast_precision_loss)] // No count here comes near 2^53.

mod allocations;
mod bell;
mod list;
mod lists;
mod nodes;
mod priority;
mod scheduling;
mod service;
mod sweep;
mod throughput;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand, ValueEnum};
use list::Name;

#[derive(Debug, Parser)]
#[command(
    version,
    about = "Ready lists: throughput, and how long a consumer waits for a stopped producer"
)]
struct Arguments {
    /// The lists to measure, one after the other. By default, all lists.
    #[arg(long, value_enum, value_delimiter = ',', global = true)]
    contender: Vec<Name>,
    #[command(subcommand)]
    mode: Mode,
}

#[derive(Debug, Subcommand)]
enum Mode {
    /// Producers on all CPUs, one consumer: events a millisecond.
    Throughput(throughput::Arguments),
    /// One writer sweeps over the sources of each worker: operations a second.
    Sweep(sweep::Arguments),
    /// A real-time consumer and producers that are stopped in the middle of their push: its longest
    /// wait. Needs root.
    Priority(priority::Arguments),
    /// A service whose replies come from worker threads: requests a second.
    Service(service::Arguments),
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ready-list: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    let all =
        if arguments.contender.is_empty() { Name::value_variants() } else { &arguments.contender };
    let all = match &arguments.mode {
        Mode::Service(arguments) if !arguments.has_contenders() => &all[..1],
        _ => all,
    };
    for &contender in all {
        let line = match &arguments.mode {
            Mode::Throughput(arguments) => {
                serde_json::to_string(&throughput::run(contender, *arguments)?)
            }
            Mode::Sweep(arguments) => serde_json::to_string(&sweep::run(contender, *arguments)?),
            Mode::Service(arguments) => {
                serde_json::to_string(&service::run(contender, *arguments)?)
            }
            Mode::Priority(arguments) => {
                serde_json::to_string(&priority::run(contender, *arguments)?)
            }
        };
        println!("{}", line?);
    }
    Ok(())
}
