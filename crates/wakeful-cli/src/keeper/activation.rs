//! The socket that systemd has made and passes (`LISTEN_FDS`).

use std::os::fd::OwnedFd;

use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};

/// The socket, if one is passed.
///
/// # Errors
/// It is more than one, or cannot be had.
pub(super) fn passed_socket() -> Result<Option<OwnedFd>, String> {
    let failed = |error: std::io::Error| format!("the socket that systemd passes: {error}");
    let mut passed = sd_notify::listen_fds().map_err(failed)?;
    let Some(number) = passed.next() else { return Ok(None) };
    if passed.next().is_some() {
        return Err("systemd passes several sockets: one is expected".to_owned());
    }
    // A number is no descriptor that the compiler can follow: this makes one that is ours.
    let own = || {
        let this_process = pidfd_open(getpid(), PidfdFlags::empty())?;
        pidfd_getfd(&this_process, number, PidfdGetfdFlags::empty())
    };
    own().map(Some).map_err(|error| failed(error.into()))
}
