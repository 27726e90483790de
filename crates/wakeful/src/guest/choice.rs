//! Which Tokio runtime a loop's tasks find.

use std::io;

use ::tokio::runtime::{EnterGuard, Handle, RuntimeFlavor};

use super::runtime::{Settings, enter};

/// The `tokio` setting of a loop.
#[derive(Debug, Clone)]
pub(crate) enum Choice {
    None,
    /// A runtime of the loop's own, on its thread.
    Guest(Settings),
    /// The user's runtime, on threads of its own.
    Beside(Handle),
}

impl Choice {
    pub(crate) fn guest() -> Self {
        Self::Guest(Settings::default())
    }

    pub(crate) fn is_guest(&self) -> bool {
        matches!(self, Self::Guest(_))
    }

    /// The setting for each of `loops` loops of a group.
    pub(crate) fn for_each_of(self, loops: usize) -> Self {
        match self {
            Self::Guest(_) => Self::Guest(Settings::for_each_of(loops)),
            other => other,
        }
    }

    /// Takes the settings of the guest, if the loop should have one.
    ///
    /// # Errors
    /// The runtime beside the loop cannot work.
    pub(crate) fn take_guest(&mut self) -> io::Result<Option<Settings>> {
        match self {
            Self::Beside(handle) if handle.runtime_flavor() != RuntimeFlavor::MultiThread => {
                Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    "this Tokio runtime has no threads of its own, so nothing would run its timers and sockets beside the loops: \
                     give `tokio_handle` one of `Builder::new_multi_thread`, or have Tokio as a guest (`tokio`)",
                ))
            }
            Self::Guest(_) => match std::mem::replace(self, Self::None) {
                Self::Guest(settings) => Ok(Some(settings)),
                Self::None | Self::Beside(_) => Ok(None),
            },
            Self::None | Self::Beside(_) => Ok(None),
        }
    }

    /// Makes the runtime beside the loop this thread's runtime, until the guard is dropped.
    #[inline]
    pub(crate) fn enter_beside(&self) -> Option<EnterGuard<'_>> {
        match self {
            Self::Beside(handle) => enter(handle),
            Self::None | Self::Guest(_) => None,
        }
    }
}
