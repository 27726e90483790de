//! When a stream has to end because its server drains: told, and some time later.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use send_wrapper::SendWrapper;
use tonic::Status;
use wakeful::accept::DrainingStarted;
use wakeful::time::{Sleep, sleep};

/// Waits for the drain, and then for `linger`. What never polls it costs nothing.
#[derive(Debug)]
pub(super) struct Told {
    linger: Duration,
    state: State,
}

#[derive(Debug)]
enum State {
    Unasked,
    /// tonic asks its bodies to be `Send`; they stay on their loop.
    Waiting(SendWrapper<DrainingStarted>),
    Lingering(Sleep),
}

impl Told {
    pub(super) fn after(linger: Duration) -> Self {
        Self { linger, state: State::Unasked }
    }

    /// Ready with what the peer is told.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Status> {
        loop {
            match &mut self.state {
                State::Unasked => match crate::draining() {
                    Some(draining) => {
                        self.state = State::Waiting(SendWrapper::new(draining.started()));
                    }
                    None => return Poll::Pending,
                },
                State::Waiting(started) => {
                    ready!(Pin::new(&mut **started).poll(cx));
                    self.state = State::Lingering(sleep(self.linger));
                }
                State::Lingering(sleep) => {
                    return Pin::new(sleep).poll(cx).map(|()| is_draining());
                }
            }
        }
    }
}

/// Clients may try it again elsewhere.
pub(super) fn is_draining() -> Status {
    Status::unavailable("the server is draining")
}
