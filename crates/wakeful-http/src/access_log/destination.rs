//! The destination of the access log: opening it, reopening it after a rotation, and the note that
//! replaces missing lines.

use std::borrow::Cow;
use std::cell::Cell;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use wakeful::log::{self, OncePerSecond};

use super::format;
use super::settings::{Destination, Format};
use crate::foreign_code;

#[derive(Debug)]
pub(super) struct Sink {
    format: Format,
    target: Target,
    /// Set when the file should be opened again.
    reopen: Arc<AtomicBool>,
    /// The file could not be opened again. That was logged, and is tried again before each write.
    is_left_over: bool,
    /// Limits how often failures are logged, because a disk that is almost full fails and works by
    /// turns.
    failures: OncePerSecond,
    /// Limits how often dropped lines are logged: each write to a slow reader may follow some.
    drops: OncePerSecond,
    /// How many of them were not logged yet.
    untold: Cell<u64>,
}

#[derive(Debug)]
enum Target {
    Stdout(io::Stdout),
    Stderr(io::Stderr),
    File { path: PathBuf, file: File },
}

impl Sink {
    pub(super) fn open(
        format: Format,
        destination: Destination,
        reopen: Arc<AtomicBool>,
    ) -> io::Result<Self> {
        let target = match destination {
            Destination::Stdout => Target::Stdout(io::stdout()),
            Destination::Stderr => Target::Stderr(io::stderr()),
            Destination::File(path) => match append(&path) {
                Ok(file) => Target::File { path, file },
                Err(error) => {
                    let text = format!("cannot write the access log {}: {error}", path.display());
                    return Err(io::Error::new(error.kind(), text));
                }
            },
        };
        let (failures, drops) = (OncePerSecond::new(), OncePerSecond::new());
        let (is_left_over, untold) = (false, Cell::new(0));
        Ok(Self { format, target, reopen, is_left_over, failures, drops, untold })
    }

    fn path(&self) -> Cow<'_, str> {
        match &self.target {
            Target::Stdout(_) => "/dev/stdout".into(),
            Target::Stderr(_) => "/dev/stderr".into(),
            Target::File { path, .. } => path.to_string_lossy(),
        }
    }

    /// Logs how many lines were dropped, if it may be now.
    fn tell_dropped(&self) {
        if self.untold.get() > 0 && self.drops.pass().is_some() {
            self.tell_dropped_at_once();
        }
    }

    fn tell_dropped_at_once(&self) {
        let lines = self.untold.take();
        if lines > 0 {
            let path = self.path();
            foreign_code::log!(warn, %path, lines, "lines of the access log were dropped");
        }
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.tell_dropped_at_once();
    }
}

impl log::Destination for Sink {
    fn fd(&self) -> BorrowedFd<'_> {
        match &self.target {
            Target::Stdout(stdout) => stdout.as_fd(),
            Target::Stderr(stderr) => stderr.as_fd(),
            Target::File { file, .. } => file.as_fd(),
        }
    }

    fn reopen(&mut self) -> bool {
        // This is called before each write, so what could not be told yet may be due.
        self.tell_dropped();
        let Target::File { path, file } = &mut self.target else { return false };
        let is_asked = self.reopen.swap(false, Ordering::Acquire);
        if !is_asked && !self.is_left_over {
            return false;
        }
        match append(path) {
            Ok(anew) => {
                // A file that was not rotated may end in the middle of a line, so it does not count
                // as another file. One that is empty does. (A pipe always looks empty.)
                let is_another = match (anew.metadata(), file.metadata()) {
                    (Ok(anew), Ok(old)) => {
                        let is_empty = anew.is_file() && anew.len() == 0;
                        is_empty || (anew.dev(), anew.ino()) != (old.dev(), old.ino())
                    }
                    _ => true,
                };
                *file = anew;
                if std::mem::take(&mut self.is_left_over) && !is_asked {
                    let path = path.display();
                    foreign_code::log!(info, %path, "the access log is reopened after all");
                }
                is_another
            }
            Err(error) => {
                self.is_left_over = true;
                if is_asked {
                    let path = path.display();
                    foreign_code::log!(error, %path, %error, "cannot reopen the access log: it continues in the old file, and is tried again with the next lines");
                }
                false
            }
        }
    }

    fn note(&self, lines: u64) -> Vec<u8> {
        let mut text = Vec::new();
        format::write_dropped(&mut text, self.format, SystemTime::now(), lines);
        text
    }

    fn noted(&self, lines: u64) {
        self.untold.set(self.untold.get() + lines);
        self.tell_dropped();
    }

    fn flushed(&self) {
        self.tell_dropped_at_once();
    }

    fn failed(&self, error: &io::Error) {
        if let Some(count) = self.failures.pass() {
            let path = self.path();
            foreign_code::log!(error, %path, %error, count, "cannot write the access log: lines are dropped");
        }
    }
}

/// Opens the log for appending. A FIFO is opened for reading too: otherwise opening it would wait
/// for a reader, and a restart of the reader would lose lines. So is a regular file if that is
/// permitted: its end shows whether an earlier process was cut off in a line. Anything but a
/// regular file is non-blocking, because a write that waits for a reader would never notice that
/// the log should be opened again.
fn append(path: &Path) -> io::Result<File> {
    let kind = fs::metadata(path).map(|file| file.file_type());
    let is_fifo = kind.as_ref().is_ok_and(FileTypeExt::is_fifo);
    let is_special = kind.is_ok_and(|kind| !kind.is_file());
    let open = |reads| OpenOptions::new().append(true).create(!is_fifo).read(reads).open(path);
    let file = match open(is_fifo || !is_special) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied && !is_special => {
            open(false)?
        }
        opened => opened?,
    };
    if is_special {
        rustix::io::ioctl_fionbio(&file, true)?;
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    use wakeful::log::Destination as _;

    use super::*;

    /// A line that was cut in the middle needs its end before the next one.
    #[test]
    fn only_an_empty_file_or_one_with_another_identity_is_another_one() {
        let dir = tempfile::tempdir().unwrap();
        let (pipe, file) = (dir.path().join("pipe"), dir.path().join("file"));
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        fs::write(&file, "a line without its e").unwrap();
        for path in [pipe, file] {
            let reopen = Arc::<AtomicBool>::default();
            let destination = Destination::File(path.clone());
            let mut sink = Sink::open(Format::Json, destination, reopen.clone()).unwrap();
            reopen.store(true, Ordering::Release);
            assert!(!sink.reopen(), "{path:?}");
            fs::remove_file(&path).unwrap();
            fs::write(&path, "of somebody else").unwrap();
            reopen.store(true, Ordering::Release);
            assert!(sink.reopen(), "{path:?}");
            fs::write(&path, "").unwrap();
            reopen.store(true, Ordering::Release);
            assert!(sink.reopen(), "{path:?} was emptied");
        }
    }
}
