//! Writing lines to a descriptor, and knowing how many of them got there.
//!
//! A write may end in the middle of a line: the disk is full, a file has reached `RLIMIT_FSIZE`, a
//! pipe has no reader. The lines before the cut count as written. The rest of the cut line is lost;
//! a line feed ends its first part before the next line is written, so that only one line is
//! damaged.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, OFlags, fcntl_getfl, fstat};
use rustix::io::Errno;
use rustix::net::SendFlags;
use std::thread;
use std::time::Duration;

use super::Destination;
use super::counts::Counts;
use crate::sys::open_anew::{is_terminal, open_anew};
use crate::sys::panics::contain;

/// A pipe that poll(2) calls writable takes this much at once, and never a part of it (`PIPE_BUF`).
const AT_ONCE: usize = 4096;

/// The pause after an EAGAIN if poll(2) then reports room. Without it, a descriptor that always
/// reports both would use all of a CPU.
const PAUSE: Duration = Duration::from_millis(1);

/// How often the destination is asked to reopen while there is no room. Otherwise a pipe without a
/// reader that was replaced would block the log until that reader reads.
const LOOK_AROUND: Duration = Duration::from_millis(250);

/// How long a process may take for the rest of a write before its line counts as cut off.
const IN_BETWEEN: Duration = Duration::from_millis(10);

/// What to do when the destination has no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WhenFull {
    Wait,
    Fail,
}

#[derive(Debug)]
pub(super) struct Failed {
    pub(super) error: io::Error,
    /// The number of lines that were written completely before the failure.
    pub(super) lines: u64,
}

#[derive(Debug)]
pub(super) struct Output<D> {
    pub(super) destination: D,
    /// Whether the last write failed in the middle of a line. Perhaps an earlier process made it.
    is_torn: bool,
    kind: FileType,
    counts: Arc<Counts>,
    /// How many writes have ended so far.
    writes: u64,
}

impl<D: Destination> Output<D> {
    pub(super) fn new(destination: D, counts: Arc<Counts>) -> Self {
        let fd = destination.fd();
        let kind = kind(fd);
        let is_torn = kind.is_file() && is_torn(fd);
        Self { destination, is_torn, kind, counts, writes: 0 }
    }

    /// Has the destination reopen. Returns whether lines now go to another file.
    pub(super) fn reopen(&mut self) -> bool {
        let is_another = self.destination.reopen();
        if is_another {
            self.is_torn = false;
            self.kind = kind(self.destination.fd());
        }
        is_another
    }

    /// Reports that the next write waits for room, until the result is dropped.
    pub(super) fn waits(&self) -> Waiting {
        let waiting = Waiting(Some(self.counts.clone()));
        waiting.for_write(self.writes + 1);
        waiting
    }

    /// Writes all of `bytes`, after the end of a line that an earlier failure cut.
    pub(super) fn write(&mut self, bytes: &[u8], when_full: WhenFull) -> Result<(), Failed> {
        if !self.is_torn {
            return self.write_from_a_line_on(bytes, when_full);
        }
        // The line feed and the line are one write. If there were room for one byte only, nothing
        // would be left for the line.
        let with_end = [b"\n", bytes].concat();
        self.write_from_a_line_on(&with_end, when_full).map_err(|failed| {
            let lines = failed.lines.saturating_sub(1);
            Failed { lines, ..failed }
        })
    }

    fn write_from_a_line_on(&mut self, bytes: &[u8], when_full: WhenFull) -> Result<(), Failed> {
        match self.put(bytes, when_full) {
            Ok(()) => {
                self.is_torn = false;
                Ok(())
            }
            Err((error, written)) => {
                let (before, after) = bytes.split_at(written);
                if let Some(last) = before.last() {
                    self.is_torn = *last != b'\n';
                }
                // The next write begins with a line feed. If that completes the line that was cut,
                // the line counts as written.
                let is_whole = written > 0 && self.is_torn && after.first() == Some(&b'\n');
                Err(Failed { error, lines: line_feeds(before) + u64::from(is_whole) })
            }
        }
    }

    /// Writes `bytes`. An error comes with the number of bytes that were written before it.
    fn put(&mut self, bytes: &[u8], when_full: WhenFull) -> Result<(), (io::Error, usize)> {
        // A write to a file does not count as waiting, because a disk may pause for longer than a
        // reader, and flushes wait for it all the same.
        let may_wait = when_full == WhenFull::Wait && !self.kind.is_file();
        let waiting = Waiting(may_wait.then(|| self.counts.clone()));
        let mut written = 0;
        while written < bytes.len() {
            waiting.for_write(self.writes + 1);
            let result = self.write_some(&bytes[written..], when_full);
            self.writes += u64::from(!matches!(result, Err(Errno::INTR | Errno::AGAIN)));
            match result {
                Ok(0) => return Err((io::ErrorKind::WriteZero.into(), written)),
                Ok(count) => written += count,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if when_full == WhenFull::Wait => {
                    self.is_writable(LOOK_AROUND);
                    thread::sleep(PAUSE);
                    let mut is_another = false;
                    contain(|| is_another = self.reopen());
                    if is_another {
                        self.writes += 1;
                        written = start_of_line(bytes, written);
                    }
                }
                Err(error) => return Err((error.into(), written)),
            }
        }
        Ok(())
    }

    /// Does not use `std::io::Stderr`, whose lock would be held for the whole write, so that
    /// `eprintln!` would block.
    fn write_some(&self, bytes: &[u8], when_full: WhenFull) -> rustix::io::Result<usize> {
        if when_full == WhenFull::Fail && !self.is_writable(Duration::ZERO) {
            return Err(Errno::AGAIN);
        }
        let few = match (self.kind.is_fifo(), when_full) {
            (true, _) => whole_lines(bytes),
            (false, WhenFull::Wait) => bytes,
            (false, WhenFull::Fail) => &bytes[..bytes.len().min(AT_ONCE)],
        };
        // If the destination panics, these lines fail, and are counted.
        let mut written = Err(Errno::BADF);
        contain(|| {
            let fd = self.destination.fd();
            written = match when_full {
                WhenFull::Wait => rustix::io::write(fd, few),
                WhenFull::Fail => write_at_once(fd, few),
            };
        });
        written
    }

    /// Whether the destination would take something within `timeout`. A descriptor that failed
    /// counts as writable, because the write reports how it failed. A destination that panics does
    /// not.
    pub(super) fn is_writable(&self, timeout: Duration) -> bool {
        let mut is_writable = false;
        contain(|| is_writable = Self::has_room(self.destination.fd(), timeout));
        is_writable
    }

    fn has_room(fd: BorrowedFd<'_>, timeout: Duration) -> bool {
        let mut fds = [PollFd::new(&fd, PollFlags::OUT)];
        let timeout = Timespec::try_from(timeout).ok();
        loop {
            match poll(&mut fds, timeout.as_ref()) {
                Ok(ready) => return ready > 0,
                Err(Errno::INTR) => {}
                Err(_) => return true,
            }
        }
    }
}

/// Reports which write waits, until it is dropped.
pub(super) struct Waiting(Option<Arc<Counts>>);

impl Waiting {
    fn for_write(&self, number: u64) {
        if let Some(counts) = &self.0 {
            counts.waiting.store(number, Ordering::Relaxed);
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.for_write(0);
    }
}

/// Writes what fits now, after poll(2) has found room. Another process may take that room
/// meanwhile. The open file may belong to other processes, too, so its flags stay as they are.
///
/// Nothing is kept: the descriptor may refer to another file the next time, and a forked child
/// would keep the pipe or the terminal open.
fn write_at_once(fd: BorrowedFd<'_>, bytes: &[u8]) -> rustix::io::Result<usize> {
    let stat = fstat(fd)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Fifo => match open_anew(fd, OFlags::WRONLY) {
            Err(Errno::NXIO) => Err(Errno::PIPE),
            own => write_by(own, fd, bytes),
        },
        // poll(2) calls it writable if it takes one byte, and a write waits until it takes all.
        FileType::CharacterDevice if is_terminal(fd, &stat) => {
            write_by(open_anew(fd, OFlags::WRONLY), fd, bytes)
        }
        FileType::Socket => rustix::net::send(fd, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL),
        _ => rustix::io::write(fd, bytes),
    }
}

/// Without `/proc`, or if it is another user's, poll(2) has to be enough.
fn write_by(
    own: rustix::io::Result<OwnedFd>,
    fd: BorrowedFd<'_>,
    bytes: &[u8],
) -> rustix::io::Result<usize> {
    own.map_or_else(|_| rustix::io::write(fd, bytes), |own| rustix::io::write(own, bytes))
}

fn kind(fd: BorrowedFd<'_>) -> FileType {
    fstat(fd).map_or(FileType::Unknown, |stat| FileType::from_raw_mode(stat.st_mode))
}

/// Does the file end in the middle of a line? If the descriptor cannot read, that is not known, and
/// counts as no.
fn is_torn(fd: BorrowedFd<'_>) -> bool {
    let size_if_torn = || {
        let size = u64::try_from(fstat(fd).ok()?.st_size).ok()?;
        let mut last = [0];
        let read = rustix::io::pread(fd, &mut last, size.checked_sub(1)?).ok()?;
        (read == 1 && last != *b"\n").then_some(size)
    };
    let Some(size) = size_if_torn() else { return false };
    // Otherwise lines do not come at the end.
    let appends = fcntl_getfl(fd).is_ok_and(|flags| flags.contains(OFlags::APPEND));
    appends && {
        // Another process may be in the middle of a write.
        thread::sleep(IN_BETWEEN);
        size_if_torn() == Some(size)
    }
}

/// As many lines as a pipe takes in one piece. Other processes may write to the pipe as well, and
/// their writes would cut a line in two otherwise. If the first line is longer, only a part of it.
fn whole_lines(bytes: &[u8]) -> &[u8] {
    let few = &bytes[..bytes.len().min(AT_ONCE)];
    let end = few.iter().rposition(|byte| *byte == b'\n').map_or(few.len(), |last| last + 1);
    &few[..end]
}

/// Where the line begins in which the first `written` bytes end. A new file gets all of that line.
/// A line feed at the very beginning has ended a line in the old file.
fn start_of_line(bytes: &[u8], written: usize) -> usize {
    let before = bytes.get(..written).unwrap_or(bytes);
    let start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    if start == 0 && bytes.first() == Some(&b'\n') { 1 } else { start }
}

/// How many lines end in `bytes`.
pub(super) fn line_feeds(bytes: &[u8]) -> u64 {
    bytes.iter().filter(|byte| **byte == b'\n').count() as u64
}

#[cfg(all(test, not(wakeful_loom), not(miri)))] // Miri has no pipes.
mod tests {
    use std::io::Read;
    use std::os::fd::AsFd;

    use super::*;

    struct End(io::PipeWriter);

    impl Destination for End {
        fn fd(&self) -> BorrowedFd<'_> {
            self.0.as_fd()
        }
    }

    #[test]
    fn a_pipe_gets_whole_lines_in_one_piece() {
        let lines = |many: usize| [b"0123456789\n".repeat(many), b"a part".to_vec()].concat();
        assert_eq!(whole_lines(&lines(2)).len(), 22);
        assert_eq!(whole_lines(&lines(1_000)).len(), AT_ONCE / 11 * 11);
        assert_eq!(whole_lines(&[b'x'; 3 * AT_ONCE]).len(), AT_ONCE);
        assert_eq!(whole_lines(b"a part"), b"a part");
    }

    /// Two processes write to one pipe, as workers write their access log.
    #[test]
    fn what_two_write_to_one_pipe_is_not_cut() {
        const LINES: usize = 20_000;
        let (mut reader, writer) = io::pipe().unwrap();
        let write = |letter: u8, writer: io::PipeWriter| {
            move || {
                let line = [vec![letter; 99], vec![b'\n']].concat();
                let mut output = Output::new(End(writer), Arc::default());
                output.write(&line.repeat(LINES), WhenFull::Wait).unwrap();
            }
        };
        let other = writer.try_clone().unwrap();
        let writers = [thread::spawn(write(b'a', writer)), thread::spawn(write(b'b', other))];
        let mut all = Vec::new();
        reader.read_to_end(&mut all).unwrap();
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        assert_eq!(all.len(), 2 * LINES * 100);
        assert!(all.chunks(100).all(|line| line[..99] == [line[0]; 99] && line[99] == b'\n'));
    }
}
