//! The program `wakeful`: a thin shell around the crates.

mod awake;
mod file_size;
mod keeper;
mod lab;
mod load;
mod logging;
mod numbers;
mod passed_sockets;
mod serve;
mod stack;
mod stop_signals;
mod upgrade;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

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
    /// Upgrade a server of several processes to the program that its file has now.
    Upgrade(upgrade::Arguments),
    /// Keep CPUs from halting while any server, unmodified, has traffic: a wake takes microseconds.
    Awake(awake::Arguments),
    /// Hold CPUs awake for all programs of the machine that ask for it: the one process that may.
    Keeper(keeper::Arguments),
    /// Run experiments: the public cases behind wakeful's guarantees, beside the systems they
    /// happened to.
    Lab(Box<lab::Arguments>),
}

fn main() -> ExitCode {
    stack::with_room(run)
}

#[inline(never)]
fn run() -> ExitCode {
    // Usage errors end here, with exit code 2.
    let command = numbers::take_negative_values(Arguments::command());
    let arguments =
        Arguments::from_arg_matches(&command.get_matches()).unwrap_or_else(|error| error.exit());
    let is_master =
        matches!(&arguments.command, Command::Serve(serve) if serve.are_workers_wanted());
    let _logging = logging::start(is_master);
    let result = match arguments.command {
        Command::Serve(arguments) => serve::run(&arguments),
        Command::Upgrade(arguments) => upgrade::run(&arguments),
        Command::Load(arguments) => load::run(&arguments),
        Command::Awake(arguments) => awake::run(&arguments),
        Command::Keeper(arguments) => keeper::run(arguments),
        Command::Lab(arguments) => lab::run(&arguments),
    };
    match result {
        Ok(code) => code,
        Err(message) => {
            logging::say(format_args!("wakeful: {message}"));
            ExitCode::FAILURE
        }
    }
}
