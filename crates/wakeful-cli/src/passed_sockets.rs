//! The sockets that systemd has made and passes (`LISTEN_FDS`).

use std::os::fd::OwnedFd;

use wakeful::internals::duplicate;
use wakeful_workers::KEPT;

/// The sockets, in their order, without those that a master gave it to keep.
///
/// # Errors
/// They cannot be had.
pub(crate) fn passed_sockets() -> Result<Vec<OwnedFd>, String> {
    let failed = |error: std::io::Error| format!("the sockets that systemd passes: {error}");
    let passed = sd_notify::listen_fds_with_names().map_err(failed)?;
    let passed = passed.filter(|(_, name)| !name.starts_with(KEPT));
    // Not by pidfd_getfd(2), which the filters of services and containers mostly refuse.
    passed.map(|(number, _)| duplicate(number).map_err(failed)).collect()
}
