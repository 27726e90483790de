//! The file of a Unix socket: made by `bind`, removed by the server that made it.
//!
//! Another process may have put another file in its place meanwhile: a successor that found no
//! listener, or that renamed its own socket file over this one. So a file is removed only if it has
//! the device and the inode that `bind` made. A listening socket keeps its inode in use, so its
//! number is not given to another file as long as the socket is open: remove the file before the
//! socket closes.
//!
//! A gap remains: Linux has no call that removes a file only if it is a certain one. A file that
//! replaces ours between the check and the removal, two consecutive system calls, is removed. A
//! server also looks as if it had ended between its `bind` and its `listen`, when nobody answers on
//! its file yet.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::sys::fork_check::Process;

/// Removes the socket file with its last user, unless that is a copy in a forked child, whose
/// parent still listens, or the file is somebody else's.
#[derive(Debug)]
pub(super) struct SocketFile {
    path: PathBuf,
    identity: Identity,
    process: Process,
    is_left: AtomicBool,
}

impl SocketFile {
    fn new(path: &Path, identity: Identity, process: Process) -> Self {
        Self { path: path.to_owned(), identity, process, is_left: AtomicBool::new(false) }
    }

    /// The file that is there, of a socket that somebody else has bound. It stays unless it is
    /// [taken](Self::take). `None`: there is none.
    ///
    /// # Errors
    /// Forks cannot be watched for.
    pub(super) fn of_predecessor(path: &Path) -> io::Result<Option<Self>> {
        let process = Process::current()?;
        let file = Identity::of_socket(path).map(|identity| Self::new(path, identity, process));
        Ok(file.inspect(Self::leave))
    }

    /// It is removed with its last user.
    pub(super) fn take(&self) {
        self.is_left.store(false, Ordering::Relaxed);
    }

    /// It stays.
    pub(super) fn leave(&self) {
        self.is_left.store(true, Ordering::Relaxed);
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if !self.process.is_forked() && !*self.is_left.get_mut() {
            remove_if(&self.path, self.identity);
        }
    }
}

/// Listens on `path`. A file that a server left behind is replaced.
///
/// # Errors
/// Somebody listens on it, or it is not a socket (`AddrInUse`); the directory refuses it.
pub(super) fn listen(path: &Path) -> io::Result<(OwnedFd, SocketFile)> {
    let addr = SocketAddrUnix::new(path)?;
    let process = Process::current()?;
    let fd = match crate::net::listen_unix(&addr) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            match left_over(path, &addr) {
                Some(identity) => remove_if(path, identity),
                None => return Err(error),
            }
            crate::net::listen_unix(&addr)?
        }
        result => result?,
    };
    let identity = Identity::of_socket(path).ok_or(io::ErrorKind::NotFound)?;
    Ok((fd, SocketFile::new(path, identity, process)))
}

/// Which file it is, whatever its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
}

impl Identity {
    /// `None` if there is no file, or one that is not a socket.
    fn of_socket(path: &Path) -> Option<Self> {
        let file = std::fs::symlink_metadata(path).ok()?;
        let is_socket = file.file_type().is_socket();
        is_socket.then(|| Self { device: file.dev(), inode: file.ino() })
    }
}

fn remove_if(path: &Path, identity: Identity) {
    if Identity::of_socket(path) == Some(identity) {
        // Somebody else may remove it in the same moment. There is nobody to report another error
        // to.
        let _ = std::fs::remove_file(path);
    }
}

/// The socket file at `path`, if nobody listens on it.
fn left_over(path: &Path, addr: &SocketAddrUnix) -> Option<Identity> {
    let identity = Identity::of_socket(path)?;
    // A server whose backlog is full lives: a blocking connect would wait for it.
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).ok()?;
    let refused = rustix::net::connect(&socket, addr) == Err(Errno::CONNREFUSED);
    refused.then_some(identity)
}
