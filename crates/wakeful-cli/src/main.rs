//! The program `wakeful`: a thin shell around the crates.

mod awake;
mod config;
#[cfg(test)]
mod docs;
mod file_size;
mod keeper;
mod lab;
mod load;
mod logging;
mod numbers;
mod passed_sockets;
mod serve;
mod settings_file;
mod stack;
mod stop_signals;
mod upgrade;

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{self, ExitCode};

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use self::settings_file::CommandLine;

/// As clap says it.
const WRONG_USAGE: i32 = 2;

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
    /// Check a settings file of `serve`.
    Config(config::Arguments),
    /// Put load on any server, and measure its latency.
    Load(Box<load::Arguments>),
    /// Upgrade a running server (`serve --workers`) to the program that is installed now.
    Upgrade(upgrade::Arguments),
    /// Keep CPUs from halting while an unmodified server has traffic, so that it wakes in
    /// microseconds.
    Awake(awake::Arguments),
    /// Keep single CPUs from halting, for all programs of this machine that ask.
    Keeper(keeper::Arguments),
    /// Run the experiments behind wakeful's guarantees, beside the systems that had each problem.
    Lab(Box<lab::Arguments>),
}

fn main() -> ExitCode {
    if env::args_os().nth(1).is_some_and(|command| command == "serve") {
        serve::put_off_signals();
    }
    stack::with_room(run)
}

#[inline(never)]
fn run() -> ExitCode {
    // Usage errors end here, with exit code 2.
    let arguments = arguments(env::args_os().collect()).unwrap_or_else(|refusal| refusal.exit());
    let is_master =
        matches!(&arguments.command, Command::Serve(serve) if serve.are_workers_wanted());
    let _logging = logging::start(is_master);
    let result = match arguments.command {
        Command::Serve(arguments) => {
            serve::run(&arguments, || serve_arguments(env::args_os().collect()))
        }
        Command::Upgrade(arguments) => upgrade::run(&arguments),
        Command::Config(arguments) => config::run(&arguments, serve_arguments),
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

/// What a command line says, with its settings file.
fn arguments(words: Vec<OsString>) -> Result<Arguments, Refusal> {
    let command = numbers::take_negative_values(Arguments::command());
    let line = CommandLine::new(&command, words).map_err(Refusal::File)?;
    let matches = command.try_get_matches_from(&line.words);
    matches
        .and_then(|matches| Arguments::from_arg_matches(&matches))
        .map_err(|error| Refusal::Words { file: line.blamed(&error).map(Path::to_owned), error })
}

/// # Errors
/// Lines for the user.
fn serve_arguments(words: Vec<OsString>) -> Result<serve::Arguments, String> {
    match arguments(words).map_err(Refusal::text)?.command {
        Command::Serve(arguments) => Ok(*arguments),
        _ => Err("this is not a command line of `wakeful serve`".to_owned()),
    }
}

/// Why a command line is none.
enum Refusal {
    /// The settings file cannot be read, or is none.
    File(String),
    /// What clap says, also of `--help`; and the settings file, if that is what it is about.
    Words { file: Option<PathBuf>, error: clap::Error },
}

impl Refusal {
    fn text(self) -> String {
        match self {
            Self::File(text) => text,
            Self::Words { file: None, error } => error.to_string(),
            Self::Words { file: Some(file), error } => format!("{}: {error}", file.display()),
        }
    }

    fn exit(self) -> ! {
        match self {
            Self::Words { file: None, error } => error.exit(),
            with_file => {
                logging::say(format_args!("wakeful: {}", with_file.text().trim_end()));
                process::exit(WRONG_USAGE)
            }
        }
    }
}
