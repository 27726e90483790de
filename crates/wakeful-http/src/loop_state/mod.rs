//! What the connections of one loop share: the server's limits, this loop's counts, and what all
//! loops count together.
//!
//! A loop of a server's group is that server's alone. So `current` finds the server by a
//! thread-local, for services that do not see their connection (`files`, `grpc`). Connections are
//! given their [`LoopState`]. `server_state` is what the loops share: only counters that a limit
//! asks for, and the times that a drain sets.

mod current;
mod server_state;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

#[cfg(feature = "grpc")]
pub(crate) use self::current::readiness;
#[cfg(feature = "files")]
pub(crate) use self::current::refuse_here;
pub(crate) use self::server_state::ServerState;

use crate::counts::{LoopHttpCounts, Refusal};
use crate::limits::Limits;
use crate::limits::peers::Peers;
use crate::observe::{Observe, Observer};

/// How much hyper reads at a time, by default. h2 reads a quarter of that.
const SCRATCH: usize = 64 * 1024;

/// What the connections of one loop share.
#[derive(Debug)]
pub(crate) struct LoopState {
    number: usize,
    server: ServerState,
    /// A buffer for bytes that are examined on their way to hyper. It is made when it is first
    /// needed.
    scratch: RefCell<Vec<u8>>,
    observer: Rc<Observer>,
}

impl LoopState {
    /// The state of the next loop of `server`, which runs on this thread.
    pub(crate) fn of_next_loop(server: &ServerState, observe: &Observe) -> Rc<Self> {
        let number = server.next_loop();
        current::set(server.clone(), number);
        let observer = observe.on_this_loop();
        Rc::new(Self { number, server: server.clone(), scratch: RefCell::default(), observer })
    }

    /// The observer of the loop's requests.
    pub(crate) fn observer(&self) -> &Rc<Observer> {
        &self.observer
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.server.limits
    }

    pub(crate) fn counts(&self) -> &LoopHttpCounts {
        self.server.counts.of(self.number)
    }

    /// How long a connection that closes waits for a request that may be on its way.
    pub(crate) fn linger(&self) -> Duration {
        self.server.linger()
    }

    /// How long an HTTP/2 client may take to leave once it was told to.
    pub(crate) fn going_away(&self) -> Duration {
        self.server.going_away()
    }

    pub(crate) fn peers(&self) -> Option<&Arc<Peers>> {
        self.server.peers.as_ref()
    }

    pub(crate) fn refuse(&self, refusal: Refusal) {
        self.counts().refuse(refusal);
    }

    /// Counts one more request. `false`: too many are in flight.
    pub(crate) fn begin_request(&self) -> bool {
        let Some(most) = self.limits().max_requests else { return true };
        if self.server.in_flight.fetch_add(1, Ordering::Relaxed) >= most {
            self.server.in_flight.fetch_sub(1, Ordering::Relaxed);
            return false;
        }
        true
    }

    /// Called when a request is over that [`begin_request`](Self::begin_request) has counted.
    pub(crate) fn end_request(&self) {
        if self.limits().max_requests.is_some() {
            self.server.in_flight.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Lends the scratch buffer.
    pub(crate) fn with_scratch<R>(&self, use_it: impl FnOnce(&mut [u8]) -> R) -> R {
        let mut scratch = self.scratch.borrow_mut();
        if scratch.is_empty() {
            scratch.resize(SCRATCH, 0);
        }
        use_it(&mut scratch)
    }
}
