//! A connection that another one may replace ([`WhenFull::Replace`](wakeful::accept::WhenFull)): it
//! ends at once when its place is asked for, whatever it is doing.
//!
//! A connection can be asked at any time, from its accept to the end of its close. So no client
//! keeps a place by being slow: not before its request, nor in the middle of its header, nor while
//! it reads the answer.

use std::cell::OnceCell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::{Duration, Instant};

use wakeful::accept::{Draining, GivesWay, Standing};
use wakeful::time::{now, turn_time};

use crate::connection::ConnectionState;
use crate::counts::Refusal;
use crate::loop_state::LoopState;

/// A connection that has been silent for this long is replaced before all others. A client that
/// wants to send a request has done so by then, unless it is far away.
const SILENCE: Duration = Duration::from_millis(50);

/// What is known of the connection.
pub(super) struct Replaceable {
    arrived: Instant,
    /// Set when the connection's first bytes have come.
    state: OnceCell<Rc<ConnectionState>>,
}

impl Replaceable {
    pub(super) fn new() -> Rc<Self> {
        Rc::new(Self { arrived: now(), state: OnceCell::new() })
    }

    /// Called when the connection's first bytes have come.
    pub(super) fn begins(&self, state: &Rc<ConnectionState>) {
        // This is called only once for each connection.
        let _ = self.state.set(state.clone());
    }

    /// Runs `serving` until it ends, or must make room.
    pub(super) async fn serve(
        self: Rc<Self>,
        serving: impl Future<Output = ()>,
        draining: &Draining,
        loop_state: &LoopState,
    ) {
        let mut serving = pin!(serving);
        let mut asked = pin!(draining.started_or_asked(self));
        poll_fn(|cx| {
            // The connection is polled first, so that it reads what has come.
            if serving.as_mut().poll(cx).is_ready() {
                return Poll::Ready(());
            }
            // The connection itself learns of a drain.
            if draining.is_started() || asked.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            loop_state.refuse(Refusal::GaveWay);
            Poll::Ready(())
        })
        .await;
    }
}

impl GivesWay for Replaceable {
    fn standing(&self) -> Standing {
        let silent_since = match self.state.get() {
            Some(state) => state.silent_since(),
            None => Some(self.arrived),
        };
        let is_silent = |since: &Instant| turn_time().saturating_duration_since(*since) >= SILENCE;
        silent_since.filter(is_silent).map_or(Standing::Open(self.arrived), Standing::Idle)
    }
}
