//! Why a task has no output.

use std::any::Any;
use std::fmt;
use std::sync::Mutex;

use crate::sys::panics;

/// The error of a task that has no output, because the task panicked or was cancelled.
///
/// A task is cancelled if it is aborted, if its loop ends, or if no thread can be started for its
/// [blocking work](crate::task::spawn_blocking).
///
/// # Threads
/// `Send` and `Sync`.
#[derive(thiserror::Error)]
#[error("{}", self.description())]
pub struct JoinError(Reason);

enum Reason {
    Cancelled,
    /// No thread could be started for it.
    Refused(std::io::Error),
    /// The mutex makes the payload `Sync`. There is no contention.
    Panicked(Mutex<Box<dyn Any + Send>>),
}

impl JoinError {
    pub(super) fn cancelled() -> Self {
        Self(Reason::Cancelled)
    }

    pub(super) fn refused(error: std::io::Error) -> Self {
        Self(Reason::Refused(error))
    }

    pub(super) fn panicked(payload: Box<dyn Any + Send>) -> Self {
        Self(Reason::Panicked(Mutex::new(payload)))
    }

    /// Returns whether the task was aborted, its loop ended before it finished, or no thread could
    /// be started for it. Returns `false` if the future panicked while it was dropped.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        matches!(self.0, Reason::Cancelled | Reason::Refused(_))
    }

    /// Returns whether the task panicked, while it ran or while its future was dropped.
    #[must_use]
    pub fn is_panic(&self) -> bool {
        matches!(self.0, Reason::Panicked(_))
    }

    /// Returns the panic's payload, for [`std::panic::resume_unwind`].
    ///
    /// # Errors
    /// The task did not panic. The error returns `self`.
    pub fn try_into_panic(self) -> Result<Box<dyn Any + Send>, Self> {
        match self.0 {
            Reason::Panicked(payload) => {
                Ok(payload.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner))
            }
            Reason::Cancelled | Reason::Refused(_) => Err(self),
        }
    }

    fn description(&self) -> String {
        let payload = match &self.0 {
            Reason::Cancelled => {
                return "the task was cancelled: aborted, or its event loop ended".to_owned();
            }
            Reason::Refused(error) => return format!("the work was refused: {error}"),
            Reason::Panicked(payload) => payload,
        };
        let payload = payload.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        match panics::message(&**payload) {
            Some(message) => format!("the task panicked: {message}"),
            None => "the task panicked".to_owned(),
        }
    }
}

impl From<JoinError> for std::io::Error {
    fn from(error: JoinError) -> Self {
        Self::other(error)
    }
}

impl fmt::Debug for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("JoinError").field(&self.description()).finish()
    }
}
