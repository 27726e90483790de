//! Wrong usage, and its exit code.
//!
//! The rule for all commands: the exit code is 2 if the command line, with its settings file, would
//! be wrong on any machine. It is 1 if something else fails, for example a file, a socket or a
//! server.

use std::fmt::Display;
use std::process::ExitCode;

use crate::logging::say;

/// The exit code for wrong usage, also clap's.
pub(crate) const WRONG_USAGE: u8 = 2;

/// Why a command does not begin.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// The command line is wrong.
    WrongUsage(String),
    /// Something that the command line names cannot be used.
    Error(String),
}

impl From<String> for Refusal {
    fn from(line: String) -> Self {
        Self::Error(line)
    }
}

impl Refusal {
    #[cfg(test)]
    pub(crate) fn line(self) -> String {
        match self {
            Self::WrongUsage(line) | Self::Error(line) => line,
        }
    }
}

/// Prints the line. Returns the exit code.
pub(crate) fn wrong_usage(line: impl Display) -> ExitCode {
    say(format_args!("wakeful: {line}"));
    ExitCode::from(WRONG_USAGE)
}
