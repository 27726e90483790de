//! The orderly end of an HTTP/2 connection: a GOAWAY, and then the wait for the client to leave.
//!
//! It begins when the server drains (at SIGTERM, after [`DrainPlan::pre_drain`]) or needs the
//! connection's place; after the last request that the connection may have; and when the connection
//! is idle for too long, or too old. All but the first two reasons come from
//! [`Closing`](crate::connection::ConnectionState::closing). hyper then sends GOAWAY twice, with a
//! PING in between, so that a request that is on its way is answered. `connection::deadlines` says
//! how long to wait for the client of an idle connection to leave. After that the connection is
//! ended.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::Context;
use std::time::Duration;

use hyper::rt::{Read, Write};
use wakeful::accept::{Draining, DrainingStarted};
use wakeful::time::timeout;

use crate::connection::ConnectionState;
#[cfg(doc)]
use crate::drain::DrainPlan;
use crate::lingering_close;

/// The time limit for writing the last frame.
const PATIENCE: Duration = Duration::from_secs(2);

/// Whether the client must be told that the connection ends, and whether it was told.
#[derive(Debug)]
pub(super) struct Shutdown {
    drain: DrainingStarted,
    is_announced: bool,
}

impl Shutdown {
    pub(super) fn new(draining: &Draining, state: &Rc<ConnectionState>) -> Self {
        let drain = draining.started_or_asked(state.clone());
        Self { drain, is_announced: false }
    }

    /// Begins to close when the server drains, or asks for the connection's place.
    pub(super) fn poll_drain(
        &mut self,
        draining: &Draining,
        state: &ConnectionState,
        cx: &mut Context<'_>,
    ) {
        if !state.closing().has_begun() && Pin::new(&mut self.drain).poll(cx).is_ready() {
            state.closing().begin_by(draining, state.loop_state());
        }
    }

    /// Returns whether the connection closes and its client does not know yet.
    pub(super) fn is_due(&self, state: &ConnectionState) -> bool {
        state.closing().has_begun() && !self.is_announced
    }

    /// Like [`is_due`](Self::is_due), for the caller that tells the client now. Returns `true`
    /// once.
    pub(super) fn takes_announcement(&mut self, state: &ConnectionState) -> bool {
        let is_due = self.is_due(state);
        self.is_announced |= is_due;
        is_due
    }

    /// Returns whether the client was told.
    pub(super) fn is_announced(&self) -> bool {
        self.is_announced
    }
}

/// Writes the last frame, if there is room for it.
pub(super) async fn say_last_word<I: Read + Write + Unpin>(mut io: I, word: [u8; 17]) {
    let written = poll_fn(|cx| Pin::new(&mut io).poll_write(cx, &word));
    if let Ok(Ok(_)) = timeout(PATIENCE, written).await {
        lingering_close::linger(&mut io).await;
    }
}
