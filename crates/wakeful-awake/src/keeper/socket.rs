//! The socket to which clients connect. It is made here, or passed by systemd.
//!
//! It is made under another name, with its mode and group, and then renamed. So it never has a
//! wrong mode or group, and the file of a dead keeper is replaced in one step. The file of a living
//! keeper is not replaced: it is recognised because a connection to it is answered.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::io::{Errno, ioctl_fionbio};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen,
    socket_with, sockopt,
};

use super::start_error::KeeperStartError;

/// The mode: root and the group may connect.
const MODE: u32 = 0o660;
/// How many clients may wait to be let in.
const BACKLOG: i32 = 64;

/// See the [module](self). Its file is removed with it, if it was made here.
#[derive(Debug)]
pub(super) struct Listener {
    socket: OwnedFd,
    file: Option<(PathBuf, Identity)>,
}

/// Identifies the file, whatever its name is.
type Identity = (u64, u64);

impl Listener {
    /// # Errors
    /// Another program's file or socket is at the path, or the directory does not allow a new file.
    pub(super) fn bind(path: &Path, group: Option<u32>) -> Result<Self, KeeperStartError> {
        match fs::symlink_metadata(path) {
            Ok(file) if !file.file_type().is_socket() => {
                return Err(KeeperStartError::NotASocket(path.to_owned()));
            }
            Ok(_) if is_answered(path) => {
                return Err(KeeperStartError::SocketInUse(path.to_owned()));
            }
            _ => {}
        }
        let made = make(path, group);
        let (socket, identity) =
            made.map_err(|error| KeeperStartError::Socket(path.to_owned(), error))?;
        Ok(Self { socket, file: Some((path.to_owned(), identity)) })
    }

    /// Makes it from a descriptor that another program has made to listen.
    ///
    /// # Errors
    /// It is another kind of socket.
    pub(super) fn passed(socket: OwnedFd) -> Result<Self, KeeperStartError> {
        let fits = sockopt::socket_domain(&socket) == Ok(AddressFamily::UNIX)
            && sockopt::socket_type(&socket) == Ok(SocketType::SEQPACKET)
            && sockopt::socket_acceptconn(&socket) == Ok(true)
            && ioctl_fionbio(&socket, true).is_ok();
        if fits { Ok(Self { socket, file: None }) } else { Err(KeeperStartError::Listener) }
    }

    /// Accepts the next client. `None`: there is none.
    ///
    /// # Errors
    /// No descriptor or memory is left.
    pub(super) fn accept(&self) -> io::Result<Option<OwnedFd>> {
        match accept_with(&self.socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            Ok(socket) => Ok(Some(socket)),
            // The client is gone again.
            Err(Errno::AGAIN | Errno::CONNABORTED | Errno::INTR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some((path, identity)) = &self.file
            && fs::symlink_metadata(path).is_ok_and(|file| (file.dev(), file.ino()) == *identity)
        {
            // There is nobody to report an error to.
            let _ = fs::remove_file(path);
        }
    }
}

fn new_socket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

/// A keeper whose queue is full is alive, too.
fn is_answered(path: &Path) -> bool {
    let connected = || connect(new_socket()?, &SocketAddrUnix::new(path)?);
    !matches!(connected(), Err(Errno::CONNREFUSED | Errno::NOENT))
}

fn make(path: &Path, group: Option<u32>) -> io::Result<(OwnedFd, Identity)> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let new = PathBuf::from(new);
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let socket = new_socket()?;
    bind(&socket, &SocketAddrUnix::new(&new)?)?;
    let listening = || {
        std::os::unix::fs::chown(&new, None, group)?;
        fs::set_permissions(&new, fs::Permissions::from_mode(MODE))?;
        listen(&socket, BACKLOG)?;
        let file = fs::symlink_metadata(&new)?;
        fs::rename(&new, path)?;
        Ok((file.dev(), file.ino()))
    };
    let identity = listening().inspect_err(|_: &io::Error| drop(fs::remove_file(&new)))?;
    Ok((socket, identity))
}
