//! Several sockets on one port (`SO_REUSEPORT`). The kernel chooses one of them for each
//! connection.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::bind_error;
use super::holders::Holders;
use super::reuse_port;
use super::shared_listener::SharedListener;
use crate::net::ListenAddr;

impl SharedListener {
    /// Listens on `addr` with `SO_REUSEPORT`, so that [`bind_again`](Self::bind_again) can open
    /// more sockets there.
    ///
    /// This is for a process that opens the sockets of several servers, and passes them on: see
    /// [`from_sockets`](Self::from_sockets). A single server needs no such call: with
    /// [`AcceptStrategy::ReusePort`](super::AcceptStrategy::ReusePort) it opens its loops' sockets
    /// itself.
    ///
    /// # Errors
    /// The same as for [`bind_beside`](Self::bind_beside); or `addr` is the address of a Unix
    /// socket.
    pub fn bind_first<'a>(
        addr: &ListenAddr,
        others: impl IntoIterator<Item = &'a ListenAddr>,
    ) -> io::Result<Self> {
        let local = reuse_port::internet_address(addr)?;
        let holders = Holders::of_new_socket()?;
        Self::tcp(local, holders, crate::net::listen_first_tcp)
            .map_err(|error| bind_error::explain(addr, error))
            .map_err(|error| bind_error::explain_beside(addr, others, &error))
    }

    /// Opens another socket on the address of this one, which
    /// [`bind_first`](Self::bind_first) has made. From now on the kernel chooses one of the sockets
    /// for each connection.
    ///
    /// # Errors
    /// Another user's process listens on the address; no descriptors are left; or this is a Unix
    /// socket.
    pub fn bind_again(&self) -> io::Result<Self> {
        let local = reuse_port::internet_address(self.local_addr())?;
        let holders = Holders::of_new_socket()?;
        Self::tcp(local, holders, crate::net::listen_tcp_beside)
            .map_err(|error| bind_error::explain(self.local_addr(), error))
    }

    /// Like [`from_socket`](Self::from_socket), for several sockets on the same address, one for
    /// each loop of the server. The server needs
    /// [`AcceptStrategy::ReusePort`](super::AcceptStrategy::ReusePort), which is the default for
    /// such a listener.
    ///
    /// # Errors
    /// `sockets` is empty; the sockets have different addresses; or one of them is refused, as by
    /// `from_socket`.
    pub fn from_sockets(sockets: impl IntoIterator<Item = OwnedFd>) -> io::Result<Self> {
        Self::of_each_loop(sockets.into_iter().map(Self::from_socket))
    }

    /// Like [`from_sockets`](Self::from_sockets), for a process that is to serve several listeners
    /// of a master. It is no error if other code has shut a socket down, as for
    /// [`from_master`](Self::from_master).
    ///
    /// # Errors
    /// `sockets` is empty; the sockets have different addresses; or one of them is refused, as by
    /// `from_master`.
    pub fn from_sockets_of_master(sockets: impl IntoIterator<Item = OwnedFd>) -> io::Result<Self> {
        Self::of_each_loop(sockets.into_iter().map(Self::from_master))
    }

    fn of_each_loop(mut all: impl Iterator<Item = io::Result<Self>>) -> io::Result<Self> {
        let invalid = |what| io::Error::new(io::ErrorKind::InvalidInput, what);
        let mut first = all.next().ok_or_else(|| invalid("no socket for any loop"))??;
        let others = all.collect::<io::Result<Vec<_>>>()?;
        if others.iter().any(|other| other.local_addr() != first.local_addr()) {
            return Err(invalid("the sockets for the loops have different addresses"));
        }
        first.others = Some(others.into_iter().map(|other| other.fd).collect());
        Ok(first)
    }

    /// Does each loop have a socket of its own here?
    pub(super) fn is_for_each_loop(&self) -> bool {
        self.others.is_some()
    }

    /// The sockets in the order of the loops, if each loop has its own.
    pub(super) fn of_loops(&self) -> Option<Vec<Arc<OwnedFd>>> {
        self.is_for_each_loop().then(|| self.sockets().cloned().collect())
    }
}
