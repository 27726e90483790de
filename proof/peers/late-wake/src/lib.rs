//! What the probes of the experiment `late-wake` share, so that they differ only in the runtime:
//! the flags, the thread that posts, the marks that the loop leaves, and the line of JSON.
//!
//! A probe is one process with two threads. The loop has one CPU. The poster has another, and never
//! sleeps while it measures. [`post`] measures many posts one by one. [`deferred`] is the public
//! case: work that a post queues on the loop itself.

pub mod clock;
pub mod deferred;
pub mod options;
pub mod post;
pub mod thread;
mod times;

use std::process::{self, ExitCode};

pub use anyhow::{Context, Error, Result, bail};
pub use options::{Measure, Options};
pub use peer_common::version;

/// Reads the command line, and runs the probe. The probe itself ends the process when it has
/// measured.
///
/// `variants` are the ways to run the probe, each with what it can measure. The first one is the
/// default.
pub fn main(
    name: &'static str,
    version: &str,
    variants: &[(&str, &[Measure])],
    run: impl FnOnce(&Options) -> Result<()>,
) -> ExitCode {
    let options = options::parse(name, version, variants);
    let outcome = run(&options).and_then(|()| bail!("the loop ended before all was measured"));
    peer_common::cli::exit_code(name, outcome)
}

/// Makes an error from a text, for errors that cannot be sent to other threads.
#[must_use]
pub fn error(text: String) -> Error {
    Error::msg(text)
}

/// Prints the line, or the reason why there is none, and ends the process.
fn finish(name: &str, outcome: Result<String>) -> ! {
    match outcome {
        Ok(line) => {
            println!("{line}");
            process::exit(0);
        }
        Err(error) => {
            eprintln!("{name}: {}", format!("{error:#}").replace('\n', " "));
            process::exit(1);
        }
    }
}
