//! The thread that writes, and what it writes to. It may be held up by a disk or a reader as long as they like: the loops drop and count.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender};
use std::thread;
use std::time::SystemTime;

use super::{Destination, Format, format};

/// What loops tell the writer.
#[derive(Debug)]
pub(super) enum Message {
    Lines {
        bytes: Vec<u8>,
        lines: u64,
    },
    /// Everything before is written.
    Tell(SyncSender<()>),
    /// A flag was set.
    LookAround,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) dropped: AtomicU64,
    pub(super) written: AtomicU64,
    pub(super) reopen: AtomicBool,
}

#[derive(Debug)]
pub(super) enum Sink {
    Stdout,
    Stderr,
    File { path: PathBuf, file: File },
}

impl Sink {
    pub(super) fn open(destination: Destination) -> io::Result<Self> {
        match destination {
            Destination::Stdout => Ok(Self::Stdout),
            Destination::Stderr => Ok(Self::Stderr),
            Destination::File(path) => match append(&path) {
                Ok(file) => Ok(Self::File { path, file }),
                Err(error) => {
                    let text = format!("cannot write the access log {}: {error}", path.display());
                    Err(io::Error::new(error.kind(), text))
                }
            },
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Stdout => {
                let mut stdout = io::stdout().lock();
                stdout.write_all(bytes)?;
                stdout.flush()
            }
            Self::Stderr => io::stderr().lock().write_all(bytes),
            Self::File { file, .. } => file.write_all(bytes),
        }
    }

    fn reopen(&mut self) {
        let Self::File { path, file } = self else { return };
        match append(path) {
            Ok(anew) => *file = anew,
            Err(error) => {
                let path = path.display();
                tracing::error!(%path, %error, "the access log cannot be reopened: it goes on in the old file");
            }
        }
    }
}

fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).open(path)
}

#[derive(Debug)]
pub(super) struct Writer {
    format: Format,
    sink: Sink,
    counters: Arc<Counters>,
    /// Dropped lines of which the log says already.
    told: u64,
    /// The last write failed.
    fails: bool,
}

impl Writer {
    pub(super) fn new(format: Format, sink: Sink, counters: Arc<Counters>) -> Self {
        Self { format, sink, counters, told: 0, fails: false }
    }

    /// Runs until nobody is left who could send.
    pub(super) fn start(mut self, messages: Receiver<Message>) -> io::Result<()> {
        let run = move || {
            for message in messages {
                self.take(message);
            }
        };
        thread::Builder::new().name("access-log".to_owned()).spawn(run).map(drop)
    }

    fn take(&mut self, message: Message) {
        if self.counters.reopen.swap(false, Ordering::Acquire) {
            self.sink.reopen();
        }
        match message {
            Message::Lines { bytes, lines } => self.write(&bytes, lines),
            Message::Tell(written) => drop(written.try_send(())),
            Message::LookAround => {}
        }
    }

    fn write(&mut self, bytes: &[u8], lines: u64) {
        match self.sink.write(bytes) {
            Ok(()) => {
                self.counters.written.fetch_add(lines, Ordering::Relaxed);
                self.fails = false;
                self.tell();
            }
            Err(error) => {
                // It may have been written in part: a line too many beats one that nobody misses.
                self.counters.dropped.fetch_add(lines, Ordering::Relaxed);
                if !self.fails {
                    tracing::error!(%error, "the access log cannot be written: lines are dropped");
                }
                self.fails = true;
            }
        }
    }

    /// That lines are missing, once there is somewhere to say it.
    fn tell(&mut self) {
        let dropped = self.counters.dropped.load(Ordering::Relaxed);
        let lines = dropped - self.told;
        if lines == 0 {
            return;
        }
        tracing::warn!(lines, "lines of the access log were dropped");
        let mut text = Vec::new();
        format::write_dropped(&mut text, self.format, SystemTime::now(), lines);
        // If this fails, the next one will, and says so.
        let _ = self.sink.write(&text);
        self.told = dropped;
    }
}
