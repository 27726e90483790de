//! `wakeful config check`: would a server start with that settings file?

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};

use crate::logging::say;
use crate::serve;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Check whether `wakeful serve --config FILE` would start: whether it knows each setting, and
    /// can use the files that the settings name. No socket is opened, no file is left behind,
    /// and none is changed.
    #[command(after_help = "Exit code: 0 if it would start; 1 if not, and the output says why.")]
    Check {
        /// The settings file.
        file: PathBuf,

        /// Further words of the command line of `wakeful serve`, the service first.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTION")]
        more: Vec<OsString>,
    },
}

/// Checks the file. `read` parses a command line.
///
/// # Errors
/// Lines for the user.
pub(crate) fn run(
    arguments: &Arguments,
    read: impl FnOnce(Vec<OsString>) -> Result<serve::Arguments, String>,
) -> Result<ExitCode, String> {
    let Command::Check { file, more } = &arguments.command;
    let line = ["wakeful", "serve"].map(OsString::from).into_iter().chain(more.iter().cloned());
    let line = line.chain(["--config".into(), file.into()]).collect();
    let name = file.display().to_string();
    let arguments = read(line).map_err(|problem| match more.is_empty() {
        _ if problem.starts_with(&name) => problem,
        true => format!("{name}: {problem}"),
        false => format!("the words after {name}: {problem}"),
    })?;
    serve::try_out(&arguments).map_err(|problem| format!("{name}: {problem}"))?;
    say(format_args!("{name}: a server would start with these settings"));
    Ok(ExitCode::SUCCESS)
}
