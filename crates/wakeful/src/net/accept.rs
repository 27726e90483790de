//! The next connection of a listener, TCP or Unix: the system call, and the wait for it.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::SocketFlags;

use crate::driver::registered::Registered;
use crate::driver::source::Direction;
use crate::sys::failures;

/// Of connections that are gone, [`try_next`] passes over so many.
const MOST_GONE: usize = 64;

/// Waits for the next connection. Several tasks may wait at once. One that its peer gave up before
/// is passed over.
///
/// *Cancel-safe*: a call that has not returned has taken no connection.
pub(super) async fn next(
    listener: &Registered<Arc<OwnedFd>>,
) -> io::Result<(OwnedFd, Option<SocketAddr>)> {
    let accept = |socket: &Arc<OwnedFd>| accept(socket, listener.is_lent());
    let accepted = super::shared(listener, Direction::Read, accept).await;
    let accepted = accepted.map_err(crate::sys::limits::explain_call_error("accept4"))?;
    listener.one_taken(crate::task::ready_here());
    Ok(accepted)
}

/// The next connection, if there is one.
pub(super) fn try_next(
    listener: &Registered<Arc<OwnedFd>>,
) -> io::Result<Option<(OwnedFd, Option<SocketAddr>)>> {
    let mut gone = 0;
    loop {
        match accept(listener.io(), listener.is_lent()) {
            Ok(accepted) => return Ok(Some(accepted)),
            Err(Errno::AGAIN) => return Ok(None),
            Err(Errno::INTR) => {}
            Err(Errno::CONNABORTED) if gone < MOST_GONE => gone += 1,
            Err(error) => return Err(crate::sys::limits::explain_call("accept4")(error)),
        }
    }
}

/// One system call, and another one if the socket is somebody else's too: he may have made it
/// block. `CONNABORTED`: the connection is gone, whatever the kernel calls it.
fn accept(listener: &Arc<OwnedFd>, is_lent: bool) -> Result<(OwnedFd, Option<SocketAddr>), Errno> {
    failures::at(failures::Call::Accept)?;
    if is_lent {
        // Refused, it is as it was.
        let _ = rustix::io::ioctl_fionbio(listener, true);
    }
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    match rustix::net::acceptfrom_with(&**listener, flags) {
        Ok((fd, peer)) => Ok((fd, peer.and_then(|peer| SocketAddr::try_from(peer).ok()))),
        // accept(2): errors of the connection, not of the listener.
        Err(
            Errno::PROTO
            | Errno::NETDOWN
            | Errno::HOSTDOWN
            | Errno::HOSTUNREACH
            | Errno::NETUNREACH
            | Errno::NONET
            | Errno::NOPROTOOPT,
        ) => Err(Errno::CONNABORTED),
        Err(error) => Err(error),
    }
}
