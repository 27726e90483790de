use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

use super::Listener;
use crate::driver::door::Doors;
use crate::driver::home::Home;
use crate::net::{ListenAddr, TcpListener, UnixListener};

/// One listening socket for several loops.
///
/// Each loop that accepts has an [`attach`](Self::attach)ed [`Listener`] of its own, watched level-triggered with
/// EPOLLEXCLUSIVE (Linux 4.5): a connection wakes one sleeping loop, and none sits on a connection that another one could take. A loop that was woken and does not
/// accept after all (its `accept` was dropped, say) has another one woken. The kernel gives most connections to the loop that began to wait first;
/// [`ConnectionServer`](super::ConnectionServer) evens that out.
///
/// *Threads*: `Clone`, `Send` and `Sync`; clones share the socket, which closes with the last of them and of their
/// listeners. The file of a Unix socket is removed with the last clone.
#[derive(Debug, Clone)]
pub struct SharedListener {
    pub(super) fd: Arc<OwnedFd>,
    addr: ListenAddr,
    file: Option<Arc<SocketFile>>,
    /// Of all loops that watch it.
    doors: Arc<Doors>,
}

/// Removes the socket file with its last user, unless that is a copy in a forked child: the parent still listens.
#[derive(Debug)]
pub(super) struct SocketFile {
    path: PathBuf,
    home: Home,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if !self.home.is_elsewhere() {
            // Somebody else may have removed it; there is nobody to tell otherwise.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

impl SharedListener {
    /// Listens on `addr`. A Unix socket's file that is left over from a server that is gone (nobody answers on it) is
    /// replaced; one that somebody listens on is an error.
    ///
    /// # Errors
    /// The address is in use, not one of this host, or needs a privilege; no descriptors left.
    pub fn bind(addr: &ListenAddr) -> io::Result<Self> {
        match addr {
            ListenAddr::Tcp(addr) => {
                let fd = crate::net::listen_tcp(*addr)?;
                // With the port that the kernel chose.
                let local = socket2::SockRef::from(&fd).local_addr()?;
                let addr = local.as_socket().unwrap_or(*addr).into();
                Ok(Self { fd: Arc::new(fd), addr, file: None, doors: Arc::default() })
            }
            ListenAddr::Unix(path) => {
                let fd = match crate::net::listen_unix(path) {
                    Err(error)
                        if error.kind() == io::ErrorKind::AddrInUse && is_left_over(path) =>
                    {
                        std::fs::remove_file(path)?;
                        crate::net::listen_unix(path)?
                    }
                    result => result?,
                };
                let file = SocketFile { path: path.clone(), home: Home::here()? };
                let file = Some(Arc::new(file));
                Ok(Self { fd: Arc::new(fd), addr: addr.clone(), file, doors: Arc::default() })
            }
        }
    }

    /// A listener on the same socket for this thread's loop.
    ///
    /// # Errors
    /// No loop runs here; `max_user_watches` is reached.
    pub fn attach(&self) -> io::Result<Listener> {
        Ok(match self.addr {
            ListenAddr::Tcp(_) => Listener::Tcp(TcpListener::attach(self.fd.clone(), &self.doors)?),
            ListenAddr::Unix(_) => {
                Listener::Unix(UnixListener::attach(self.fd.clone(), &self.doors)?)
            }
        })
    }

    /// Keeps the socket file, if there is one, without keeping the socket open.
    pub(super) fn file(&self) -> Option<Arc<SocketFile>> {
        self.file.clone()
    }

    /// Where it listens, with the port that the kernel chose if 0 was asked for.
    #[must_use]
    pub fn local_addr(&self) -> &ListenAddr {
        &self.addr
    }

    /// The internet address that it listens on, if it is one.
    #[must_use]
    pub fn socket_addr(&self) -> Option<SocketAddr> {
        match self.addr {
            ListenAddr::Tcp(addr) => Some(addr),
            ListenAddr::Unix(_) => None,
        }
    }
}

/// A socket file on which nobody listens.
fn is_left_over(path: &std::path::Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
    let refused = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
    is_socket && std::os::unix::net::UnixStream::connect(path).err().is_some_and(refused)
}

impl AsFd for SharedListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
