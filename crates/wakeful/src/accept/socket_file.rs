//! The file of a Unix socket: made by `bind`, removed by the server that made it.
//!
//! Another process may have put another file in its place meanwhile: a successor that found no
//! listener, or that renamed its own socket file over this one. So a file is removed only if it has
//! the device and the inode that `bind` made. A listening socket keeps its inode in use, so its
//! number is not given to another file as long as the socket is open: remove the file before the
//! socket closes.
//!
//! A successor that was given the socket did not see the `bind`. It connects to the file once, and
//! asks the kernel which process called `listen` for the socket that answers (`SO_PEERCRED`,
//! unix(7)). If that is not the process that made the successor's own socket listen, the file
//! belongs to another server.
//!
//! A gap remains: Linux has no call that removes a file only if it is a certain one. A file that
//! replaces ours between the check and the removal, two consecutive system calls, is removed. And
//! between its `bind` and its `listen` a server looks as if it had ended, because nobody answers on
//! its file yet.

use std::fs::Metadata;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::sys::fork_check::Process;
use crate::sys::peer_cred::peer_cred;

/// Removes the socket file when its last user drops this. It leaves the file alone in a forked
/// child, because the parent still listens, and if the file is another server's.
#[derive(Debug)]
pub(super) struct SocketFile {
    path: PathBuf,
    /// `None`: when the socket came from a predecessor, the file was another server's, or gone.
    identity: Option<Identity>,
    process: Process,
    is_left: AtomicBool,
}

impl SocketFile {
    fn new(path: &Path, identity: Option<Identity>, process: Process) -> Self {
        Self { path: path.to_owned(), identity, process, is_left: AtomicBool::new(false) }
    }

    /// The file of a `socket` that another process has bound. The file stays unless it is
    /// [taken](Self::take).
    ///
    /// # Errors
    /// Forks cannot be watched for.
    pub(super) fn of_predecessor(path: &Path, socket: BorrowedFd<'_>) -> io::Result<Self> {
        let process = Process::current()?;
        let identity = Identity::of_socket(path).filter(|_| may_lead_to(path, socket));
        let file = Self::new(path, identity, process);
        file.leave();
        Ok(file)
    }

    /// # Errors
    /// A client that connects to the file does not reach this socket. The error's text says why.
    pub(super) fn check(&self) -> io::Result<()> {
        let (kind, what) = match std::fs::symlink_metadata(&self.path) {
            Ok(file) if self.identity.is_some_and(|own| own.is_that_of(&file)) => return Ok(()),
            Ok(_) => (io::ErrorKind::AddrInUse, "is not this server's any more"),
            Err(error) if error.kind() == io::ErrorKind::NotFound => (error.kind(), "is gone"),
            // Perhaps the file is there, but the directory may not be read.
            Err(_) => return Ok(()),
        };
        let path = self.path.display();
        let text = format!(
            "the socket's file {path} {what}, so new clients do not reach this server. Restart \
             it: an upgrade or a reload keeps the socket, and does not create the file"
        );
        Err(io::Error::new(kind, text))
    }

    /// From now on the last user removes the file.
    pub(super) fn take(&self) {
        self.is_left.store(false, Ordering::Relaxed);
    }

    /// From now on the file stays.
    pub(super) fn leave(&self) {
        self.is_left.store(true, Ordering::Relaxed);
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if let Some(identity) = self.identity
            && !self.process.is_forked()
            && !*self.is_left.get_mut()
        {
            remove_if(&self.path, identity);
        }
    }
}

/// Listens on `path`. It replaces a file that a server left there.
///
/// # Errors
/// A server listens on the path, or the file is not a socket (`AddrInUse`); the directory allows no
/// new file.
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
    Ok((fd, SocketFile::new(path, Some(identity), process)))
}

/// Identifies a file, whatever its name is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
}

impl Identity {
    /// `None` if there is no file, or one that is not a socket.
    fn of_socket(path: &Path) -> Option<Self> {
        let file = std::fs::symlink_metadata(path).ok()?;
        file.file_type().is_socket().then(|| Self::of(&file))
    }

    fn of(file: &Metadata) -> Self {
        Self { device: file.dev(), inode: file.ino() }
    }

    fn is_that_of(self, file: &Metadata) -> bool {
        file.file_type().is_socket() && Self::of(file) == self
    }
}

fn remove_if(path: &Path, identity: Identity) {
    if Identity::of_socket(path) == Some(identity) {
        // Another process may remove the file in the same moment, and there is nobody to report
        // another error to.
        let _ = std::fs::remove_file(path);
    }
}

/// The socket file at `path`, if nobody listens on it.
fn left_over(path: &Path, addr: &SocketAddrUnix) -> Option<Identity> {
    let identity = Identity::of_socket(path)?;
    let is_refused = connect(addr).is_err_and(|error| error == Errno::CONNREFUSED);
    is_refused.then_some(identity)
}

/// Does a client that connects to `path` reach `socket`, which listens? `false` only if it
/// certainly does not.
fn may_lead_to(path: &Path, socket: BorrowedFd<'_>) -> bool {
    let Ok(addr) = SocketAddrUnix::new(path) else { return true };
    // The credentials of the process that called listen(2).
    let listener = |socket: BorrowedFd<'_>| peer_cred(socket).ok().map(|of| (of.pid, of.uid));
    match connect(&addr) {
        Ok(client) => listener(client.as_fd()) == listener(socket),
        // The backlog of the listener at `path` is full. If `socket` is that listener, a connection
        // waits for it.
        Err(Errno::AGAIN) => somebody_waits(socket),
        Err(error) => !matches!(error, Errno::CONNREFUSED | Errno::NOENT),
    }
}

/// Does a connection wait for `socket`? An error says nothing, so it counts as yes.
fn somebody_waits(socket: BorrowedFd<'_>) -> bool {
    let mut fd = [PollFd::from_borrowed_fd(socket, PollFlags::IN)];
    poll(&mut fd, Some(&Timespec::default())) != Ok(0)
}

/// Connects without waiting. A server whose backlog is full is alive, and a blocking connect would
/// wait for it.
fn connect(addr: &SocketAddrUnix) -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, addr)?;
    Ok(socket)
}
