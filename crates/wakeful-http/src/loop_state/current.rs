//! The server of this thread's loop, for services that do not see their connection.

use std::cell::RefCell;

use super::server_state::ServerState;
#[cfg(feature = "files")]
use crate::counts::Refusal;
#[cfg(feature = "grpc")]
use crate::drain::Readiness;

thread_local! {
    /// The server of this thread's loop, and the loop's number. A loop of a server's group belongs
    /// to that server alone.
    static HERE: RefCell<Option<(ServerState, usize)>> = const { RefCell::new(None) };
}

/// The readiness of the server whose loop this thread runs. `None` on any other thread.
#[cfg(feature = "grpc")]
pub(crate) fn readiness() -> Option<Readiness> {
    HERE.with_borrow(|here| here.as_ref().map(|(server, _)| server.readiness.clone()))
}

/// Counts a refusal for the loop that this thread runs, if it belongs to a server. It is for
/// services that do not see their connection.
#[cfg(feature = "files")]
pub(crate) fn refuse_here(refusal: Refusal) {
    HERE.with_borrow(|here| {
        if let Some((server, number)) = here {
            server.counts.of(*number).refuse(refusal);
        }
    });
}

/// Notes that this thread's loop belongs to `server`, with this number.
pub(super) fn set(server: ServerState, number: usize) {
    HERE.set(Some((server, number)));
}
