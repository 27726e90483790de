//! The process at the other end of a Unix socket.

use std::io;
use std::os::fd::AsFd;

use super::unix::UnixStream;
use super::unix_datagram::UnixDatagram;
use super::unix_seqpacket::UnixSeqpacket;

/// The user, the group and the process at the other end of a Unix socket (`SO_PEERCRED`, unix(7)).
///
/// The kernel records them when the process at the other end calls `connect` or `listen`, or makes
/// the pair. Later changes do not count.
///
/// ```
/// use wakeful::net::UnixStream;
///
/// fn is_of_this_program(stream: &UnixStream) -> std::io::Result<bool> {
///     Ok(stream.peer_cred()?.pid() == i32::try_from(std::process::id()).ok())
/// }
/// # fn main() -> std::io::Result<()> {
/// # wakeful::block_on(async {
/// assert!(is_of_this_program(&UnixStream::pair()?.0)?);
/// # Ok(())
/// # })
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct UCred {
    uid: u32,
    gid: u32,
    pid: Option<i32>,
}

impl UCred {
    /// Returns the effective user id.
    #[must_use]
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// Returns the effective group id.
    #[must_use]
    pub fn gid(&self) -> u32 {
        self.gid
    }

    /// Returns the id of the process, or `None` if the process is in a pid namespace that this
    /// process cannot see. The peer may have ended since, and the id may belong to another process
    /// now.
    #[must_use]
    pub fn pid(&self) -> Option<i32> {
        self.pid
    }
}

/// The id that the kernel returns if it does not know the peer.
const NOBODY: u32 = u32::MAX;

fn peer_cred(socket: impl AsFd) -> io::Result<UCred> {
    let libc::ucred { pid, uid, gid } = crate::sys::peer_cred::peer_cred(socket.as_fd())?;
    if uid == NOBODY {
        return Err(io::Error::new(
            io::ErrorKind::NotConnected,
            "the kernel knows the peer's credentials only for connections and pairs",
        ));
    }
    Ok(UCred { uid, gid, pid: (pid != 0).then_some(pid) })
}

macro_rules! peer_cred_methods {
    ($($type:ident),*) => { $(
        impl $type {
            /// Returns the credentials of the peer. See [`UCred`].
            ///
            /// # Errors
            /// `NotConnected`: the socket is neither connected nor one of a pair. Kernel errors.
            pub fn peer_cred(&self) -> io::Result<UCred> {
                peer_cred(self)
            }
        }
    )* };
}

peer_cred_methods!(UnixStream, UnixDatagram, UnixSeqpacket);
