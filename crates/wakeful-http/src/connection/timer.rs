//! A connection's only timer. It costs a request nothing, because it stays armed as it is while the
//! next deadline moves to a later time.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use wakeful::time::{Deadline, now};

/// The timer of one connection.
#[derive(Debug)]
pub(crate) struct Timer {
    deadline: Deadline,
    /// The time for which the timer is set, and the waker that it will wake.
    armed: Option<(Instant, Waker)>,
}

impl Timer {
    pub(crate) fn new() -> Self {
        // The time does not matter, because the timer is set before the first poll.
        Self { deadline: Deadline::at(now()), armed: None }
    }

    /// Is the timer set for `due` or an earlier moment, which has not come yet, and will it wake
    /// this task?
    #[inline]
    pub(super) fn is_set_until(&self, due: Instant, now: Instant, cx: &Context<'_>) -> bool {
        let is_it =
            |(at, waker): &(Instant, Waker)| now < *at && *at <= due && waker.will_wake(cx.waker());
        self.armed.as_ref().is_some_and(is_it)
    }

    /// Ready when it is `due`. A timer that is set for an earlier moment stays set. `seen` is the
    /// moment up to which the loop has seen what arrived: after a pause, the clock alone must not
    /// end a connection whose bytes are still in the kernel. `now` is the turn's time.
    pub(super) fn poll(
        &mut self,
        due: Instant,
        seen: Instant,
        now: Instant,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        if seen >= due {
            // This does not ask the sleep, because in a task that spends its budget in every poll
            // the sleep would never be ready.
            self.armed = None;
            return Poll::Ready(());
        }
        let at = match &self.armed {
            Some((at, waker)) if *at <= due && seen < *at => {
                // The timer may have fired before the loop had seen everything. Then it is set
                // again.
                if now < *at && waker.will_wake(cx.waker()) {
                    return Poll::Pending;
                }
                *at
            }
            _ => {
                self.deadline.reset(due);
                due
            }
        };
        let polled = Pin::new(&mut self.deadline).poll(cx);
        let is_set = polled.is_pending() && self.deadline.is_set();
        self.armed = is_set.then(|| (at, cx.waker().clone()));
        polled
    }
}
