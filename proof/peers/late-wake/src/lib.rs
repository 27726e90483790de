//! What the probes of the experiment `late-wake` share, so that nothing but the runtime differs
//! between them: the flags, the thread that posts, the marks that the loop leaves, and the line of
//! JSON.
//!
//! A probe is one process with two threads: the loop on one CPU, and the poster, which never sleeps
//! while it measures, on another. [`post`] measures many posts one by one; [`deferred`] is the
//! public case: work that a post queues on the loop itself.

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

/// Reads the command line and runs the probe, which ends the process itself once it has measured.
///
/// `variants` are the ways to run it, the first one by default, each with what it can measure.
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

/// An error of words, for those that cannot be sent to other threads.
#[must_use]
pub fn error(text: String) -> Error {
    Error::msg(text)
}

/// Prints the line and ends the process, or says why there is none.
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
