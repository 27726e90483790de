//! One client's connection: one message in, one message out, without ever waiting for the client.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send, sockopt};

use crate::keeper_protocol::{Answer, MOST_REQUEST_BYTES, ProtocolError, Request};

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Client {
    socket: OwnedFd,
    /// The process and the user that connected.
    peer: Option<(i32, u32)>,
}

/// Can the kernel name the processes of clients?
#[derive(Debug, Clone, Copy)]
pub(super) enum Peers {
    Named,
    Unknown,
}

impl Peers {
    /// For a process outside of the keeper's pid namespace the kernel reports id 0 (`unix(7)`),
    /// which rustix's `Pid` cannot represent. In the machine's first pid namespace there is no such
    /// process. That namespace has this inode number (`PROC_PID_INIT_INO`,
    /// `include/linux/proc_ns.h`).
    pub(super) fn of_this_namespace() -> Self {
        let namespace = std::fs::read_link("/proc/self/ns/pid");
        let is_first = namespace.is_ok_and(|name| name.as_os_str() == "pid:[4026531836]");
        if is_first { Self::Named } else { Self::Unknown }
    }
}

/// What a client has sent.
#[derive(Debug)]
pub(super) enum Received {
    /// Nothing yet.
    Nothing,
    /// The client will send nothing more.
    End,
    Request(Result<Request, ProtocolError>),
}

impl Client {
    pub(super) fn new(socket: OwnedFd, peers: Peers) -> Self {
        let peer = match peers {
            Peers::Named => sockopt::socket_peercred(&socket).ok(),
            Peers::Unknown => None,
        };
        let peer = peer.map(|peer| (peer.pid.as_raw_nonzero().get(), peer.uid.as_raw()));
        Self { socket, peer }
    }

    /// `flags` is the result of `poll`, without which an empty message and the end would look the
    /// same.
    pub(super) fn receive(&self, flags: PollFlags) -> Received {
        // The buffer is one byte longer than a request, so a message that fills it is too long.
        let mut bytes = [0; MOST_REQUEST_BYTES + 1];
        match recv(&self.socket, &mut bytes, RecvFlags::DONTWAIT) {
            Err(Errno::AGAIN | Errno::INTR) => Received::Nothing,
            Err(_) => Received::End,
            Ok((0, _)) if flags.intersects(PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR) => {
                Received::End
            }
            Ok((length, _)) => Received::Request(Request::parse(&bytes[..length])),
        }
    }

    /// # Errors
    /// The client's buffer is full, or the client is gone.
    pub(super) fn answer(&self, answer: &Answer) -> io::Result<()> {
        let message = answer.to_message();
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        rustix::io::retry_on_intr(|| send(&self.socket, message.as_bytes(), flags))?;
        Ok(())
    }
}

impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.peer {
            Some((pid, user)) => write!(f, "process {pid} of user {user}"),
            None => f.write_str("a process"),
        }
    }
}
