//! When a stream has to end because its server drains: some time after the drain began, or never.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tonic::Status;
use wakeful::time::{Deadline, seen_until};

use crate::drain::{DrainBegins, drain_begins};

/// Waits for the drain, and then for `linger`. A stream that never polls this pays nothing.
#[derive(Debug)]
pub(super) struct Shutdown {
    linger: Duration,
    state: State,
}

#[derive(Debug)]
enum State {
    Never,
    Unasked,
    Waiting(DrainBegins),
    Lingering(Deadline),
}

impl Shutdown {
    pub(super) fn after(linger: Duration) -> Self {
        Self { linger, state: State::Unasked }
    }

    /// For a request that is no call.
    pub(super) fn never() -> Self {
        Self { linger: Duration::ZERO, state: State::Never }
    }

    pub(super) fn is_never(&self) -> bool {
        matches!(self.state, State::Never)
    }

    /// Ready with the status that the peer gets.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Status> {
        loop {
            match &mut self.state {
                State::Never => return Poll::Pending,
                State::Unasked => self.state = State::Waiting(drain_begins()),
                State::Waiting(begins) => {
                    ready!(Pin::new(begins).poll(cx));
                    self.state = State::Lingering(Deadline::after(self.linger));
                }
                // The time has passed, although the task's budget is spent.
                State::Lingering(end) if end.instant() <= seen_until() => {
                    return Poll::Ready(is_draining());
                }
                State::Lingering(end) => {
                    return Pin::new(end).poll(cx).map(|()| is_draining());
                }
            }
        }
    }
}

/// The status of a stream that ends because of the drain. Clients may try again elsewhere.
pub(super) fn is_draining() -> Status {
    Status::unavailable("the server is draining")
}
