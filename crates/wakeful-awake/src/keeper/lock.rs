//! One keeper on a machine: the process that has the lock file's `flock`. The kernel releases it
//! with the process, however it dies. The file stays.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use rustix::io::{Errno, retry_on_intr};

use super::start_error::KeeperStartError;

/// Held as long as the value lives.
#[derive(Debug)]
pub(super) struct Lock {
    _file: File,
}

impl Lock {
    /// # Errors
    /// Another keeper runs, or the file cannot be made.
    pub(super) fn take(path: &Path) -> Result<Self, KeeperStartError> {
        let failed = |error| KeeperStartError::Lock(path.to_owned(), error);
        let opened = File::options().read(true).write(true).create(true).truncate(false).open(path);
        let mut file = opened.map_err(failed)?;
        match retry_on_intr(|| flock(&file, FlockOperation::NonBlockingLockExclusive)) {
            Err(Errno::WOULDBLOCK) => {
                let other = fs::read_to_string(path).unwrap_or_default();
                let pid = other.trim().parse().ok();
                return Err(KeeperStartError::Running { lock: path.to_owned(), pid });
            }
            result => result.map_err(io::Error::from).map_err(failed)?,
        }
        // The number is only for that message. A full file system must not keep the keeper from
        // starting.
        let _ = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
        Ok(Self { _file: file })
    }
}
