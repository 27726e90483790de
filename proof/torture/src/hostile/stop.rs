//! Stops the process for a moment and continues it.

use std::process::{Command, Stdio};

/// Starts a shell that stops and continues its parent. If there is no shell, or no process for it,
/// nothing happens.
pub(crate) fn stop_for(milliseconds: u64) -> bool {
    let seconds = format!("{}.{:03}", milliseconds / 1000, milliseconds % 1000);
    let script = format!("kill -STOP $PPID; sleep {seconds}; kill -CONT $PPID");
    let mut command = Command::new("sh");
    command.args(["-c", &script]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
