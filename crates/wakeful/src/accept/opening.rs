//! What one loop accepts from, on its way there.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::holders::Holders;
use super::shared_listener::SharedListener;
use crate::net::{DetachedListener, Listener};

/// What one loop accepts from, on its way there.
#[derive(Debug)]
pub(super) enum Opening {
    /// Other loops, or other processes, accept from it too.
    Shared(SharedListener),
    /// This loop's alone.
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
