//! The program `wakeful`: a thin shell around the crates.

mod awake;
mod config;
#[cfg(test)]
mod docs;
mod file_size;
mod ignored_signals;
mod keeper;
mod lab;
mod load;
mod logging;
mod numbers;
mod passed_sockets;
mod registration;
mod serve;
mod settings_file;
mod stack;
mod stop_signals;
mod upgrade;
mod usage;

use std::env;
use std::ffi::OsString;
use std::process::{self, ExitCode};

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use wakeful_workers::is_executed_worker;

use self::settings_file::CommandLine;
use self::usage::WRONG_USAGE;

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
    /// Keep single CPUs from halting, for every program on this machine that asks.
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
    // An executed worker begins without a thread, like a forked one.
    let _logging = logging::start(is_master || is_executed_worker());
    let result = match arguments.command {
        Command::Serve(arguments) if is_executed_worker() => {
            serve::run_worker(*arguments, |words| serve_only(parse(words).map_err(Refusal::words)))
        }
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

/// Parses a command line together with its settings file.
fn arguments(words: Vec<OsString>) -> Result<Arguments, Refusal> {
    let command = numbers::take_negative_values(Arguments::command());
    let line = CommandLine::new(&command, words).map_err(Refusal::File)?;
    parse(line.words.clone()).map_err(|error| match line.missed(&error) {
        Some(text) => Refusal::File(text),
        None => Refusal::Words {
            file: line
                .blamed(&error)
                .map(|(path, line)| format!("{}, line {line}", path.display())),
            error,
        },
    })
}

/// Parses a command line that already contains all of its settings file.
fn parse(words: Vec<OsString>) -> Result<Arguments, clap::Error> {
    let command = numbers::take_negative_values(Arguments::command());
    let mut arguments = Arguments::from_arg_matches(&command.try_get_matches_from(&words)?)?;
    if let Command::Serve(serve) = &mut arguments.command {
        serve.set_words(words);
    }
    Ok(arguments)
}

/// # Errors
/// Lines for the user.
fn serve_arguments(words: Vec<OsString>) -> Result<serve::Arguments, String> {
    serve_only(arguments(words))
}

/// # Errors
/// Lines for the user.
fn serve_only(arguments: Result<Arguments, Refusal>) -> Result<serve::Arguments, String> {
    match arguments.map_err(Refusal::text)?.command {
        Command::Serve(arguments) => Ok(*arguments),
        _ => Err("this is not a command line of `wakeful serve`".to_owned()),
    }
}

/// Why a command line is refused.
enum Refusal {
    /// The settings file cannot be read, is malformed, or lacks something.
    File(String),
    /// clap's message, or the text of `--help`. `file` is the settings file and its line, if the
    /// message is about one of its settings.
    Words { file: Option<String>, error: clap::Error },
}

impl Refusal {
    fn words(error: clap::Error) -> Self {
        Self::Words { file: None, error }
    }

    fn text(self) -> String {
        match self {
            Self::File(text) => text,
            Self::Words { file: None, error } => error.to_string(),
            Self::Words { file: Some(file), error } => format!("{file}: {error}"),
        }
    }

    fn exit(self) -> ! {
        match self {
            Self::Words { file: None, error } => error.exit(),
            with_file => {
                logging::say(format_args!("wakeful: {}", with_file.text().trim_end()));
                process::exit(WRONG_USAGE.into())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Also where a running server reads its file again.
    #[test]
    fn what_a_settings_file_lacks_is_named_with_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("settings.toml");
        let file = path.to_str().unwrap();
        let line = ["wakeful", "serve", "http", "--pid-file", "server.pid", "--config", file];
        let arguments = || serve_arguments(line.map(Into::into).to_vec());
        std::fs::write(&path, "workers = 2\n").unwrap();
        assert!(arguments().unwrap().are_workers_wanted());
        std::fs::write(&path, "workers = 2\ngrace = 'x'\n").unwrap();
        let error = arguments().unwrap_err();
        assert!(error.starts_with(&format!("{file}, line 2: error: invalid value 'x'")), "{error}");
        std::fs::write(&path, "grace = 2\n").unwrap();
        let error = arguments().unwrap_err();
        let expected = format!(
            "{file}: --workers <N|auto> is needed, and stands neither on the command line nor in \
             this file: add workers to this file"
        );
        assert_eq!(error, expected);
    }
}
