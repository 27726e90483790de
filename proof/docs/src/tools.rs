//! Other people's programs.

use std::env;
use std::process::{Command, Stdio};

/// Whether a program of the system can be started. What needs it is skipped without it, and says
/// so.
///
/// # Panics
/// `CI` is set, as in `.ci/run`, which installs it.
#[must_use]
pub fn is_installed(program: &str) -> bool {
    let mut command = Command::new(program);
    command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let is_installed = command.status().is_ok();
    if !is_installed {
        assert!(env::var_os("CI").is_none(), "{program} is not installed");
        println!("skipped: {program} is not installed");
    }
    is_installed
}
