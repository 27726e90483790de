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

    /// `torn`: what was written before ends in the middle of a line.
    fn write(&mut self, bytes: &[u8], torn: &mut bool) -> io::Result<()> {
        match self {
            Self::Stdout => {
                let mut stdout = io::stdout().lock();
                write_all(&mut stdout, bytes, torn)?;
                stdout.flush()
            }
            Self::Stderr => write_all(io::stderr().lock(), bytes, torn),
            Self::File { file, .. } => write_all(file, bytes, torn),
        }
    }

    fn reopen(&mut self, torn: &mut bool) {
        let Self::File { path, file } = self else { return };
        match append(path) {
            Ok(anew) => {
                *torn &= anew.metadata().is_ok_and(|file| file.len() > 0);
                *file = anew;
            }
            Err(error) => {
                let path = path.display();
                tracing::error!(%path, %error, "the access log cannot be reopened: it goes on in the old file");
            }
        }
    }
}

/// As [`Write::write_all`], which does not tell how far it came.
fn write_all(mut out: impl Write, mut bytes: &[u8], torn: &mut bool) -> io::Result<()> {
    while !bytes.is_empty() {
        match out.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => {
                *torn = bytes[count - 1] != b'\n';
                bytes = &bytes[count..];
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
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
    /// It came as far as the middle of a line.
    torn: bool,
}

impl Writer {
    pub(super) fn new(format: Format, sink: Sink, counters: Arc<Counters>) -> Self {
        Self { format, sink, counters, told: 0, fails: false, torn: false }
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
            self.sink.reopen(&mut self.torn);
        }
        match message {
            Message::Lines { bytes, lines } => self.write(&bytes, lines),
            Message::Tell(written) => drop(written.try_send(())),
            Message::LookAround => {}
        }
    }

    /// Nothing is written behind a part of a line: neither could be read.
    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.torn {
            self.sink.write(b"\n", &mut self.torn)?;
        }
        self.sink.write(bytes, &mut self.torn)
    }

    fn write(&mut self, bytes: &[u8], lines: u64) {
        match self.put(bytes) {
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
        let _ = self.put(&text);
        self.told = dropped;
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::fd::OwnedFd;

    use super::*;

    /// A pipe stands for a disk: it is full in the middle of a line, and then has room again.
    #[test]
    fn a_part_of_a_line_stays_alone() {
        let (mut reader, writer) = io::pipe().unwrap();
        let file = File::from(OwnedFd::from(writer));
        rustix::io::ioctl_fionbio(&file, true).unwrap();
        let sink = Sink::File { path: PathBuf::new(), file };
        let mut writer = Writer::new(Format::Common, sink, Arc::default());
        let line = "x".repeat(46) + "\n";
        writer.write(line.repeat(4096).as_bytes(), 4096);
        assert!(writer.fails && writer.torn);
        let mut drained = vec![0; 64 * 1024];
        reader.read_exact(&mut drained).unwrap();
        assert!(!drained.ends_with(b"\n"));
        for line in ["one\n", "two\n"] {
            writer.write(line.as_bytes(), 1);
        }
        drop(writer);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "\none\n# 4096 lines dropped\ntwo\n");
    }
}
