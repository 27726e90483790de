//! Whether a file is still the one that its answer describes.

use std::error::Error;
use std::fmt;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::thread;
use std::time::Duration;

/// The kernel sets the time of a write that appends before the new length. Between the two the file
/// looks as if it had been rewritten.
const PAUSE: Duration = Duration::from_millis(20);

/// The time of the last change and the length of a file. The time of its last status change is no
/// part of this: it also changes when the file gets another name or loses it, and a file that a
/// deployment has replaced must be sent to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Version {
    size: u64,
    modified: (i64, i64),
}

impl Version {
    pub(super) fn of(metadata: &Metadata) -> Self {
        let modified = (metadata.mtime(), metadata.mtime_nsec());
        Self { size: metadata.size(), modified }
    }

    /// Blocks.
    ///
    /// # Errors
    /// The file was rewritten in place, or only its time was set. (If it is longer now, it counts
    /// as one that has grown, like a log file. Then the part that is sent is assumed to be the
    /// same.)
    pub(super) fn check(self, file: &File) -> io::Result<()> {
        let now = Self::of(&file.metadata()?);
        if now == self || now.size > self.size {
            return Ok(());
        }
        if now.size == self.size {
            thread::sleep(PAUSE);
            if Self::of(&file.metadata()?).size > self.size {
                return Ok(());
            }
        }
        Err(io::Error::other(Rewritten))
    }
}

#[derive(Debug)]
struct Rewritten;

impl fmt::Display for Rewritten {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the file was rewritten while it was sent")
    }
}

impl Error for Rewritten {}

/// Does the error say that the file was rewritten?
pub(super) fn is_rewritten(error: &io::Error) -> bool {
    error.get_ref().and_then(|inner| inner.downcast_ref::<Rewritten>()).is_some()
}
