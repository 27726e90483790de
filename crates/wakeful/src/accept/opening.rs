//! The sockets that one loop will accept from, before they are attached to it.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::holders::Holders;
use super::shared_listener::SharedListener;
use crate::net::{DetachedListener, Listener};

/// A socket that one loop will accept from, before it is attached to the loop.
#[derive(Debug)]
pub(super) enum Opening {
    /// A socket from which other loops, or other processes, accept too.
    Shared(SharedListener),
    /// A socket of this loop alone.
    Own(DetachedListener, Holders),
}

impl Opening {
    pub(super) fn socket(&self) -> &Arc<OwnedFd> {
        match self {
            Self::Shared(listener) => &listener.fd,
            Self::Own(listener, _) => listener.socket(),
        }
    }

    pub(super) fn holders(&self) -> &Holders {
        match self {
            Self::Shared(listener) => &listener.holders,
            Self::Own(_, holders) => holders,
        }
    }

    pub(super) fn attach(self) -> io::Result<Listener> {
        match self {
            Self::Shared(listener) => listener.attach_to_server(),
            Self::Own(listener, _) => Ok(listener.attach()?),
        }
    }
}
