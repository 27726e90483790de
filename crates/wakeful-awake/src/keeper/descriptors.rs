//! The process's limit of open descriptors: how many a keeper needs, and errors that name the
//! limit.

use std::io;

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit, setrlimit};

use super::start_error::KeeperStartError;

/// A keeper needs descriptors for the lock, the socket, the state file, a client, and a CPU's file.
const NEEDED: usize = 5;
/// Descriptors that clients do not get: for the keeper's files, and those of the surrounding
/// program.
const OWN: u64 = 32;

/// # Errors
/// Fewer than a keeper needs are free.
pub(super) fn check() -> Result<(), KeeperStartError> {
    let mut open = Vec::with_capacity(NEEDED);
    while open.len() < NEEDED {
        match eventfd(0, EventfdFlags::CLOEXEC) {
            Ok(one) => open.push(one),
            Err(Errno::MFILE) => {
                let (limit, free) = (limit(), open.len());
                return Err(KeeperStartError::Descriptors { limit, free, needed: NEEDED });
            }
            // If the limit is unknown, the calls that follow report errors.
            Err(_) => break,
        }
    }
    Ok(())
}

/// How many clients there may be, and the limit. `None`: there is no limit.
pub(super) fn for_clients() -> Option<(usize, u64)> {
    // Restoring values needs a descriptor, too.
    let limit = limit()?;
    Some((usize::try_from(limit.saturating_sub(OWN).max(1)).ok()?, limit))
}

/// Raises the soft limit to the hard one, if it is lower. It may have been lowered below the number
/// of open descriptors, and held CPUs must be restored. `false`: that does not help.
pub(super) fn raise() -> bool {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current == limit.maximum {
        return false;
    }
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).is_ok()
}

/// Explains an error of a call that makes a descriptor.
pub(super) fn explain(error: io::Error) -> io::Error {
    match Errno::from_io_error(&error) {
        Some(Errno::MFILE) => because(&error, "raise RLIMIT_NOFILE (ulimit -n)"),
        Some(Errno::NFILE) => because(&error, "raise fs.file-max"),
        _ => error,
    }
}

/// Explains an error of `poll` for that many descriptors: the kernel refuses more than the limit
/// allows (poll(2)).
pub(super) fn explain_poll(error: Errno, descriptors: usize) -> io::Error {
    match limit() {
        Some(limit) if error == Errno::INVAL && limit < descriptors as u64 => because(
            &error.into(),
            &format!("RLIMIT_NOFILE (ulimit -n) is {limit}, and {descriptors} are waited for"),
        ),
        _ => error.into(),
    }
}

fn because(error: &io::Error, why: &str) -> io::Error {
    io::Error::new(error.kind(), format!("{error}: {why}"))
}

fn limit() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}
