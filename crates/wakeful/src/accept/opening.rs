//! The sockets that one loop will accept from, before they are attached to it.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::holders::Holders;
use super::shared_listener::SharedListener;
use crate::driver::membership::Joining;
use crate::net::{DetachedListener, Listener};

/// A socket that one loop will accept from, before it is attached to the loop.
#[derive(Debug)]
pub(super) enum Opening {
    /// A socket from which other loops, or other processes, accept too.
    Shared(SharedListener),
    /// A socket of this loop alone.
    Own(DetachedListener, Holders),
    /// A socket of this loop alone, which does not listen yet. epoll reports such a socket as
    /// closed (HUP), and that is noted for good. Nothing reads it of listeners.
    Bound(DetachedListener, Holders),
}

impl Opening {
    pub(super) fn socket(&self) -> &Arc<OwnedFd> {
        match self {
            Self::Shared(listener) => &listener.fd,
            Self::Own(listener, _) | Self::Bound(listener, _) => listener.socket(),
        }
    }

    pub(super) fn holders(&self) -> &Holders {
        match self {
            Self::Shared(listener) => &listener.holders,
            Self::Own(_, holders) | Self::Bound(_, holders) => holders,
        }
    }

    /// The socket, if it does not listen yet. It has to listen when all loops have started.
    pub(super) fn bound(&self) -> Option<Arc<OwnedFd>> {
        match self {
            Self::Shared(_) | Self::Own(..) => None,
            Self::Bound(listener, _) => Some(listener.socket().clone()),
        }
    }

    pub(super) fn attach(self) -> io::Result<Listener> {
        match self {
            Self::Shared(listener) => listener.attach_to_server(Joining::AtFirstWait),
            Self::Own(listener, _) | Self::Bound(listener, _) => Ok(listener.attach()?),
        }
    }
}
