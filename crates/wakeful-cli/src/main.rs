//! The program `wakeful`: a thin shell around the crates.

mod lab;
mod load;
mod serve;

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tracing_subscriber::EnvFilter;

/// An event-loop runtime for Linux servers: a ready event never waits.
#[derive(Debug, Parser)]
#[command(name = "wakeful", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run one of the reference services.
    Serve(Box<serve::Arguments>),
    /// Load a server and measure its latency honestly, whatever it is built on.
    Load(Box<load::Arguments>),
    /// Run experiments: the public cases behind wakeful's guarantees, beside the systems they happened to.
    Lab(lab::Arguments),
}

fn main() -> ExitCode {
    // Usage errors end here, with exit code 2.
    let arguments = Arguments::parse();
    log_to_stderr();
    let result = match arguments.command {
        Command::Serve(arguments) => serve::run(&arguments),
        Command::Load(arguments) => load::run(&arguments),
        Command::Lab(arguments) => lab::run(&arguments),
    };
    match result {
        Ok(code) => code,
        Err(message) => {
            eprintln!("wakeful: {message}");
            ExitCode::FAILURE
        }
    }
}

/// As `RUST_LOG` says, else from `info` on: without h2's warnings of what single clients do, with which these could fill a disk; `wakeful_http_refused_total` has what comes of it.
fn log_to_stderr() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|error| {
        if std::env::var_os(EnvFilter::DEFAULT_ENV).is_some_and(|value| !value.is_empty()) {
            eprintln!("wakeful: RUST_LOG is not understood, and ignored: {error}");
        }
        EnvFilter::new("info,h2=error")
    });
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
}
