//! What the command lines here have in common.

use std::process::ExitCode;
use std::time::Duration;

/// Turns the outcome of `program` into its exit code. An error is printed with
/// its whole chain of causes in one line.
#[must_use]
pub fn exit_code(program: &str, outcome: anyhow::Result<()>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{program}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Reads a length of time given in seconds, such as `0.5`.
pub fn seconds(text: &str) -> anyhow::Result<Duration> {
    Ok(Duration::try_from_secs_f64(text.parse()?)?)
}
