//! The tick of a busy connection checks each request in flight, the writes, and whether the client
//! is still there.

use std::time::{Duration, Instant};

use wakeful::time::turn_time;

use super::phase::Act;
use super::protocol::Protocol;
use super::state::ConnectionState;
use super::tunnels::Check;
use crate::counts::Refusal;
use crate::foreign_code;

/// How often a driver checks whether its connection is still busy.
pub(super) const TICK: Duration = Duration::from_secs(1);

impl ConnectionState {
    /// Is the connection busy with something that this state does not see? Nothing reports the end
    /// of it, so the driver polls.
    pub(super) fn needs_polling(&self) -> bool {
        !self.requests().is_in_flight() && !self.writes().is_blocked()
    }

    /// How long the process was stopped since the last tick. If a tick comes later than the next
    /// one should have, the process did not read. The client is not to blame for that time.
    pub(super) fn stopped(&self, now: Instant) -> Duration {
        let is_http1 = self.protocol() == Protocol::Http1;
        let Some(tick) = self.loop_state().limits().tick().or(is_http1.then_some(TICK)) else {
            // The ticks are not regular.
            return Duration::ZERO;
        };
        now.saturating_duration_since(self.clock.ticked()).saturating_sub(2 * tick)
    }

    /// Notes whether the socket takes nothing more. If so, and if a tick is due, finds out how much
    /// the client has `taken` of all that was written. (The poll that ends with the tick comes here
    /// first, because hyper tries again to write.)
    #[inline]
    pub(crate) fn waits_for_socket(&self, is_blocked: bool, taken: impl FnOnce(u64) -> i64) {
        self.writes().waits(is_blocked);
        if is_blocked && self.is_tick_due() {
            self.writes().client_has(taken(self.writes().written()));
        }
    }

    /// Is the time of the next tick here? It measures nothing if there is no minimum rate.
    fn is_tick_due(&self) -> bool {
        let limits = self.loop_state().limits();
        limits
            .min_rate
            .and(limits.tick())
            .is_some_and(|tick| turn_time() >= self.clock.ticked() + tick)
    }

    /// Checks all that is in flight.
    pub(super) fn tick(&self, now: Instant) -> Option<Act> {
        let limits = self.loop_state().limits();
        // The next tick polls hyper first.
        self.check_client();
        let stopped = self.stopped(now);
        let passed = self.clock.tick(now) - stopped;
        if let Some(rate) = limits.min_rate
            && self.writes().is_too_slow(rate, passed)
        {
            self.loop_state().refuse(Refusal::SlowResponse);
            return Some(Act::End(Refusal::SlowResponse));
        }
        let is_stalled =
            limits.min_rate.is_some_and(|rate| self.writes().are_streams_too_slow(rate, passed));
        if is_stalled && self.needs_polling() {
            // All data is in h2, and the client gives no room for it.
            self.loop_state().refuse(Refusal::SlowResponse);
            return Some(Act::End(Refusal::SlowResponse));
        }
        if self.protocol() == Protocol::Http1
            && !self.requests().is_responding()
            && self.requests().is_last_late(limits.request_timeout, now, stopped)
            && self.writes().is_blocked()
        {
            // All of the response is in hyper, and the client takes it too slowly. Another request
            // may have come meanwhile: hyper does not answer it before that.
            self.loop_state().refuse(Refusal::RequestTimeout);
            return Some(Act::End(Refusal::RequestTimeout));
        }
        if !self.needs_polling() {
            self.last_body().is_waited_for();
        } else if self.last_body().stands_still(now, stopped) >= limits.idle_timeout {
            // Nobody may ever read the body, and hyper reads no other request before its end.
            self.loop_state().refuse(Refusal::IdleTimeout);
            return Some(Act::End(Refusal::IdleTimeout));
        }
        let window = limits.min_rate.map_or(Duration::MAX, |rate| rate.window);
        let rate = limits.min_rate.filter(|_| self.protocol() == Protocol::Http2);
        let streams = self.streams();
        let mut act = None;
        let mut wake = Vec::new();
        self.requests().for_each(|request| {
            request.spare(stopped);
            let looked = request.look(limits, now, passed);
            let looked = looked.or_else(|| request.look_at_response(now, window, is_stalled));
            let looked = looked.or_else(|| {
                request.look_at_window(passed, rate?, |number| streams.sent_without_room(number))
            });
            let Some(refusal) = looked else { return };
            self.loop_state().refuse(refusal);
            // With HTTP/1 a request can only be aborted by ending its connection.
            act = match act {
                Some(Act::End(_)) => act,
                _ if request.is_aborted() && self.protocol() == Protocol::Http1 => {
                    Some(Act::End(refusal))
                }
                _ => Some(Act::PollAgain),
            };
            wake.extend(request.waker.take());
        });
        let slow_tunnels = rate.map_or_else(Vec::new, |rate| {
            let check = Check { now, passed, stopped, rate, is_stalled };
            self.requests().take_slow_tunnels(check, |number| streams.sent_without_room(number))
        });
        drop(streams);
        wake.into_iter().for_each(foreign_code::wake);
        for tunnel in slow_tunnels {
            self.loop_state().refuse(Refusal::SlowResponse);
            tunnel.cut();
        }
        if self.needs_polling() {
            return Some(Act::PollAgain);
        }
        act
    }
}
