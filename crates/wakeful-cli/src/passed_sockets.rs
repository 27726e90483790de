//! The sockets that systemd has made and passes (`LISTEN_FDS`).

use std::env;
use std::io;
use std::os::fd::{OwnedFd, RawFd};

use rustix::io::Errno;
use rustix::net::sockopt::socket_acceptconn;
use wakeful::internals::duplicate;
use wakeful_workers::KEPT;

/// The lowest number of a descriptor that is passed (sd_listen_fds(3)).
const FIRST: RawFd = 3;

/// The sockets, in their order, without those that a master has given systemd to keep.
///
/// # Errors
/// A line for the user: the sockets cannot be used, or do not listen.
pub(crate) fn passed_sockets() -> Result<Vec<OwnedFd>, String> {
    let failed = |error: io::Error| format!("the sockets that systemd passes: {error}");
    let passed = sd_notify::listen_fds_with_names()
        .map_err(|error| missing(&error).unwrap_or_else(|| failed(error)))?;
    let passed = passed.filter(|(_, name)| !name.starts_with(KEPT));
    // This does not use pidfd_getfd(2), which the filters of services and containers usually
    // refuse.
    let own = |number| listening(number, duplicate(number).map_err(failed)?);
    passed.map(|(number, _)| own(number)).collect()
}

/// Says which descriptor does not exist, if one is missing.
fn missing(error: &io::Error) -> Option<String> {
    let is_missing = |error: &io::Error| Errno::from_io_error(error) == Some(Errno::BADF);
    let first = is_missing(error).then(|| {
        (FIRST..).find(|number| duplicate(*number).is_err_and(|error| is_missing(&error)))
    })??;
    Some(wrong(first, "is not open"))
}

/// Checks that the socket listens. If too few descriptors were passed, this one may be a descriptor
/// that the program itself has opened.
fn listening(number: RawFd, socket: OwnedFd) -> Result<OwnedFd, String> {
    match socket_acceptconn(&socket) {
        Ok(false) | Err(Errno::NOTSOCK) => Err(wrong(number, "is not a listening socket")),
        _ => Ok(socket),
    }
}

fn wrong(number: RawFd, is: &str) -> String {
    let given = env::var("LISTEN_FDS").unwrap_or_default();
    format!(
        "LISTEN_FDS is {given}, but descriptor {number} {is}: LISTEN_FDS has to be the number of \
         sockets that are passed, which begin with descriptor {FIRST}. A .socket unit of systemd \
         sees to that"
    )
}
