//! How a new master shows that it serves, although its old master has died.
//!
//! The new master has the writing end of a pipe, from which the old one reads. It writes a byte
//! when its workers accept, and closes its end. This command has the pipe open, too. It reads
//! nothing, because the byte is for the old master. If that one dies first, the byte stays.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};

use procfs::ProcResult;
use procfs::process::{FDInfo, FDPermissions, FDTarget, Process};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;

/// The ends that a process has of pipes: their descriptors, by the numbers of the pipes.
pub(super) type Ends = BTreeMap<u64, i32>;

/// What is known of a new master's report.
pub(super) enum Report {
    Pipe {
        successor: i32,
        pipe: File,
        inode: u64,
    },
    /// The new master had closed its end before this command looked.
    Closed,
    /// The new master may not be looked at.
    Unknown,
}

/// What the pipe shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shows {
    /// The report is there, and the old master has not read it.
    Accepts,
    NotYet,
    /// The new master has closed its end. If it has reported, the old master has read that.
    Closed,
    Nothing,
}

impl Report {
    /// Looks at a new master. The pipe is none of those to which the old master wrote `before` it
    /// was asked, because it makes a new one. The old master may have ended.
    pub(super) fn of(master: i32, successor: i32, before: &Ends) -> Self {
        let Ok(mut ends) = writes_to(successor) else { return Self::Unknown };
        let own = ends_of(successor, FDPermissions::READ).unwrap_or_default();
        ends.retain(|inode, _| !before.contains_key(inode) && !own.contains_key(inode));
        // A script may have made another one.
        let read = ends_of(master, FDPermissions::READ).unwrap_or_default();
        let Some((&inode, &number)) =
            ends.iter().min_by_key(|(inode, _)| !read.contains_key(inode))
        else {
            return Self::Closed;
        };
        match open(successor, number) {
            // Another file may have the number by now.
            Ok(pipe) if pipe.metadata().is_ok_and(|pipe| pipe.ino() == inode) => {
                Self::Pipe { successor, pipe, inode }
            }
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Self::Unknown,
            _ => Self::Closed,
        }
    }

    pub(super) fn look(&self) -> Shows {
        match self {
            Self::Pipe { successor, pipe, inode } => {
                // This comes first: the new master writes before it closes.
                let is_open = writes_to(*successor).is_ok_and(|ends| ends.contains_key(inode));
                let mut fds = [PollFd::new(pipe, PollFlags::IN)];
                let _ = poll(&mut fds, Some(&Timespec::default()));
                if fds[0].revents().contains(PollFlags::IN) {
                    Shows::Accepts
                } else if is_open {
                    Shows::NotYet
                } else {
                    Shows::Closed
                }
            }
            Self::Closed => Shows::Closed,
            Self::Unknown => Shows::Nothing,
        }
    }
}

fn open(process: i32, number: i32) -> io::Result<File> {
    let without_waiting = OFlags::NONBLOCK.bits().cast_signed();
    let path = format!("/proc/{process}/fd/{number}");
    OpenOptions::new().read(true).custom_flags(without_waiting).open(path)
}

pub(super) fn writes_to(process: i32) -> ProcResult<Ends> {
    ends_of(process, FDPermissions::WRITE)
}

/// Without standard input and output.
fn ends_of(process: i32, direction: FDPermissions) -> ProcResult<Ends> {
    let all = Process::new(process)?.fd()?.flatten();
    let all = all.filter(|fd: &FDInfo| fd.fd > 2 && fd.mode().contains(direction));
    let ends = all.filter_map(|fd| match fd.target {
        FDTarget::Pipe(inode) => Some((inode, fd.fd)),
        _ => None,
    });
    Ok(ends.collect())
}
