//! The tick of a busy connection: a look at each request in flight, at the writes, and at the
//! client's presence.

use std::time::{Duration, Instant};

use super::phase::Act;
use super::protocol::Protocol;
use super::state::ConnectionState;
use crate::counts::Refusal;
use crate::foreign_code;

/// How often a driver looks whether its connection is still busy.
pub(super) const TICK: Duration = Duration::from_secs(1);

impl ConnectionState {
    /// Returns whether it is busy with nothing that is seen here. Nobody says when that is over:
    /// its driver looks.
    pub(super) fn needs_polling(&self) -> bool {
        !self.requests().is_in_flight() && !self.writes().is_blocked()
    }

    /// Looks at all that is in flight.
    pub(super) fn tick(&self, now: Instant) -> Option<Act> {
        let limits = self.loop_state().limits();
        // The next tick polls hyper first.
        self.check_client();
        let passed = self.clock.tick(now);
        // A tick that is later than another one would have been: the process was stopped, and did
        // not read. The client is not to blame.
        let stopped = passed.saturating_sub(2 * limits.tick().unwrap_or(TICK));
        let passed = passed - stopped;
        if let Some(rate) = limits.min_rate
            && self.writes().is_too_slow(rate, passed)
        {
            self.loop_state().refuse(Refusal::SlowResponse);
            return Some(Act::End(Refusal::SlowResponse));
        }
        let is_stalled =
            limits.min_rate.is_some_and(|rate| self.writes().are_streams_too_slow(rate, passed));
        if is_stalled && self.needs_polling() {
            // All that is left is with h2, and the client gives no room for it.
            self.loop_state().refuse(Refusal::SlowResponse);
            return Some(Act::End(Refusal::SlowResponse));
        }
        if !self.requests().is_in_flight()
            && self.last_body().stands_still(now, stopped) >= limits.idle_timeout
        {
            // Nobody may ever read it, and hyper reads no other request before its end.
            self.loop_state().refuse(Refusal::IdleTimeout);
            return Some(Act::End(Refusal::IdleTimeout));
        }
        let window = limits.min_rate.map_or(Duration::MAX, |rate| rate.window);
        let mut act = None;
        let mut wake = Vec::new();
        self.requests().for_each(|request| {
            request.spare(stopped);
            let looked = request.look(limits, now, passed);
            let looked = looked.or_else(|| request.look_at_response(now, window, is_stalled));
            let Some(refusal) = looked else { return };
            self.loop_state().refuse(refusal);
            // HTTP/1 has nothing else to abort than the connection.
            act = match act {
                Some(Act::End(_)) => act,
                _ if request.is_aborted() && self.protocol() == Protocol::Http1 => {
                    Some(Act::End(refusal))
                }
                _ => Some(Act::PollAgain),
            };
            wake.extend(request.waker.take());
        });
        wake.into_iter().for_each(foreign_code::wake);
        if self.needs_polling() {
            return Some(Act::PollAgain);
        }
        act
    }
}
