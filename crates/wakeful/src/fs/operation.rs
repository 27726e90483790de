//! Operations on an open file that a thread of the pool runs, and their results.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};

use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, retry_on_intr};

use crate::sys::once_per_second::OncePerSecond;
use crate::sys::panics;

/// An operation on an open file.
#[derive(Debug)]
pub(super) enum Operation {
    /// Reads up to this many bytes.
    Read(usize),
    Write(Vec<u8>),
    Seek(SeekFrom),
    SetLen(u64),
    SyncAll,
    SyncData,
    /// Only does what comes before each operation: see `ahead` in [`Operation::run`].
    Settle,
}

/// The result of an operation.
#[derive(Debug)]
pub(super) enum Outcome {
    Read(io::Result<Vec<u8>>),
    Written(Untold),
    Sought(SeekFrom, Result<u64, Untold>),
    Done(Untold),
}

impl Outcome {
    fn written(done: io::Result<()>) -> Self {
        Self::Written(Untold(done.err()))
    }

    fn done(done: io::Result<()>) -> Self {
        Self::Done(Untold(done.err()))
    }
}

/// The result of an operation, and what became of the bytes that had been read ahead.
#[derive(Debug)]
pub(super) struct Finished {
    pub(super) outcome: Outcome,
    /// Whether the file was moved back to the reader's position. If so, the bytes will be read
    /// again.
    pub(super) rewound: bool,
}

impl Operation {
    /// `ahead` is the number of bytes that were read and not handed out. All operations except a
    /// read first move the file back by this number. If the file cannot be moved (a terminal, a
    /// FIFO, some devices), these bytes are kept for the reader.
    pub(super) fn run(self, mut file: &File, ahead: usize) -> Finished {
        let rewound = match self {
            Self::Read(_) => Ok(false),
            _ => rewind(file, ahead),
        };
        let (rewound, error) = match rewound {
            Ok(rewound) => (rewound, None),
            Err(error) => (false, Some(error)),
        };
        let go_on = move || error.map_or(Ok(()), Err);
        let outcome = match self {
            Self::Read(most) => Outcome::Read(read(file, most)),
            Self::Write(bytes) => Outcome::written(go_on().and_then(|()| write_all(file, &bytes))),
            Self::Seek(to) => {
                let sought = go_on().and_then(|()| file.seek(to));
                Outcome::Sought(to, sought.map_err(Untold::from))
            }
            Self::SetLen(length) => Outcome::done(go_on().and_then(|()| file.set_len(length))),
            Self::SyncAll => Outcome::done(go_on().and_then(|()| file.sync_all())),
            Self::SyncData => Outcome::done(go_on().and_then(|()| file.sync_data())),
            Self::Settle => Outcome::done(go_on()),
        };
        Finished { outcome, rewound }
    }
}

fn rewind(mut file: &File, ahead: usize) -> io::Result<bool> {
    if ahead == 0 {
        return Ok(false);
    }
    let back = -i64::try_from(ahead).map_err(io::Error::other)?;
    let moved = file.stream_position().and_then(|before| {
        // Some devices count no position, and move nowhere without an error.
        let Some(to) = before.checked_add_signed(back) else { return Ok(false) };
        Ok(file.seek(SeekFrom::Current(back))? == to)
    });
    match moved {
        Err(error) if Errno::from_io_error(&error) == Some(Errno::SPIPE) => Ok(false),
        moved => moved,
    }
}

fn read(file: &File, most: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // If there is no memory, only this read fails, and the process continues.
    bytes.try_reserve_exact(most).map_err(|_| Errno::NOMEM)?;
    patiently(file, PollFlags::IN, || rustix::io::read(file, spare_capacity(&mut bytes)))?;
    Ok(bytes)
}

fn write_all(file: &File, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match patiently(file, PollFlags::OUT, || rustix::io::write(file, bytes))? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            written => bytes = &bytes[written..],
        }
    }
    Ok(())
}

/// Waits until the file is ready if `operation` would block. Other code with the same open file may
/// have set `O_NONBLOCK`, as some programs do to a terminal.
fn patiently<R>(
    file: &File,
    ready: PollFlags,
    mut call: impl FnMut() -> rustix::io::Result<R>,
) -> rustix::io::Result<R> {
    loop {
        match retry_on_intr(&mut call) {
            Err(Errno::AGAIN) => {}
            done => return done,
        }
        retry_on_intr(|| poll(&mut [PollFd::new(file, ready)], None))?;
    }
}

/// The error of an operation other than a read, until it is reported. If it never is, because the
/// operation was cancelled or was a write, it is logged.
#[derive(Debug, Default)]
pub(super) struct Untold(Option<io::Error>);

impl Untold {
    pub(super) fn tell(&mut self) -> io::Result<()> {
        self.0.take().map_or(Ok(()), Err)
    }
}

impl From<io::Error> for Untold {
    fn from(error: io::Error) -> Self {
        Self(Some(error))
    }
}

impl Drop for Untold {
    fn drop(&mut self) {
        let Some(error) = &self.0 else { return };
        static LIMIT: OncePerSecond = OncePerSecond::new();
        if let Some(count) = LIMIT.pass() {
            panics::log!(error, %error, count, "an operation on a file failed, and the file was dropped before a call returned the error: after a write or a sync, data may be lost");
        }
    }
}

#[cfg(all(test, not(wakeful_loom), not(miri)))]
mod tests {
    use std::sync::{Arc, Mutex};

    use rustix::pipe::{PipeFlags, pipe_with};

    use super::*;

    #[test]
    fn only_a_file_that_has_moved_counts_as_rewound() {
        // Its seeks are no errors, and move nothing.
        let device = File::open("/dev/urandom").unwrap();
        assert!(!Operation::Settle.run(&device, 8).rewound);
        let mut file = File::open("/proc/self/exe").unwrap();
        file.seek(SeekFrom::Start(10)).unwrap();
        assert!(Operation::Settle.run(&file, 8).rewound);
        assert_eq!(file.stream_position().unwrap(), 2);
    }

    struct Log(Arc<Mutex<String>>);

    impl io::Write for Log {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().push_str(&String::from_utf8_lossy(line));
            Ok(line.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn an_error_of_a_sync_that_no_call_returned_is_logged() {
        // A pipe has no disk.
        let (_reads, writes) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        let pipe = File::from(writes);
        let lines = Arc::new(Mutex::new(String::new()));
        let writer = lines.clone();
        let log = tracing_subscriber::fmt().with_writer(move || Log(writer.clone())).finish();
        tracing::subscriber::with_default(log, || drop(Operation::SyncAll.run(&pipe, 0)));
        let lines = lines.lock().unwrap();
        assert!(lines.contains("an operation on a file failed"), "{lines}");
    }
}
