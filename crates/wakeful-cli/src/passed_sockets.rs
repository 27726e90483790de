//! The sockets that systemd has made and passes (`LISTEN_FDS`).

use std::os::fd::OwnedFd;

use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};

/// The sockets, in their order.
///
/// # Errors
/// They cannot be had.
pub(crate) fn passed_sockets() -> Result<Vec<OwnedFd>, String> {
    let failed = |error: std::io::Error| format!("the sockets that systemd passes: {error}");
    // A number is no descriptor that the compiler can follow: this makes one that is ours.
    let own = |number| {
        let this_process = pidfd_open(getpid(), PidfdFlags::empty())?;
        pidfd_getfd(&this_process, number, PidfdGetfdFlags::empty())
    };
    let passed = sd_notify::listen_fds().map_err(failed)?;
    passed.map(|number| own(number).map_err(|error| failed(error.into()))).collect()
}
