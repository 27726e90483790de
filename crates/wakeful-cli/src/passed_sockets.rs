//! The sockets that systemd has made and passes (`LISTEN_FDS`).

use std::os::fd::OwnedFd;

use wakeful::internals::duplicate;

/// The sockets, in their order.
///
/// # Errors
/// They cannot be had.
pub(crate) fn passed_sockets() -> Result<Vec<OwnedFd>, String> {
    let failed = |error: std::io::Error| format!("the sockets that systemd passes: {error}");
    let passed = sd_notify::listen_fds().map_err(failed)?;
    // Not by pidfd_getfd(2), which the filters of services and containers mostly refuse.
    passed.map(|number| duplicate(number).map_err(failed)).collect()
}
