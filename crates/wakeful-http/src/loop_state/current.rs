//! The server of this thread's loop, for services that do not see their connection.

use std::cell::RefCell;

use super::server_state::ServerState;
#[cfg(feature = "files")]
use crate::counts::Refusal;
#[cfg(feature = "grpc")]
use crate::drain::Readiness;

thread_local! {
    /// A loop of a server's group is that server's alone.
    static HERE: RefCell<Option<(ServerState, usize)>> = const { RefCell::new(None) };
}

/// That of the server whose loop this thread runs; `None` on any other thread.
#[cfg(feature = "grpc")]
pub(crate) fn readiness() -> Option<Readiness> {
    HERE.with_borrow(|here| here.as_ref().map(|(server, _)| server.readiness.clone()))
}

/// Counts a refusal for the loop that this thread runs, if it is a server's. For services that do
/// not see their connection.
#[cfg(feature = "files")]
pub(crate) fn refuse_here(refusal: Refusal) {
    HERE.with_borrow(|here| {
        if let Some((server, number)) = here {
            server.counts.of(*number).refuse(refusal);
        }
    });
}

/// From now on this thread's loop is the server's, with this number.
pub(super) fn set(server: ServerState, number: usize) {
    HERE.set(Some((server, number)));
}
