//! A connection's one timer, which costs a request nothing: it is armed late, and stays as it is
//! while what is due moves away from it.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use wakeful::time::{Deadline, now};

/// The timer of one connection.
#[derive(Debug)]
pub(crate) struct Timer {
    deadline: Deadline,
    /// For when it is set, and whom it wakes then.
    armed: Option<(Instant, Waker)>,
}

impl Timer {
    pub(crate) fn new() -> Self {
        // The instant does not count: it is set before the first poll.
        Self { deadline: Deadline::at(now()), armed: None }
    }

    /// Is it set for a moment that has not come, `due` or an earlier one, and does it wake this
    /// task?
    #[inline]
    pub(super) fn is_set_until(&self, due: Instant, now: Instant, cx: &Context<'_>) -> bool {
        let is_it =
            |(at, waker): &(Instant, Waker)| now < *at && *at <= due && waker.will_wake(cx.waker());
        self.armed.as_ref().is_some_and(is_it)
    }

    /// Ready when it is `due`. A timer that is set for an earlier moment stays until then. `seen`
    /// is until when the loop has seen what arrived: after a pause, the clock alone must not end a
    /// connection whose bytes are still in the kernel. `now` is the turn's time.
    pub(super) fn poll(
        &mut self,
        due: Instant,
        seen: Instant,
        now: Instant,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        if seen >= due {
            // Not the sleep's to say: whoever spends his task's budget in every poll would never
            // hear it.
            self.armed = None;
            return Poll::Ready(());
        }
        let at = match &self.armed {
            Some((at, waker)) if *at <= due && seen < *at => {
                // It may have fired though not all is seen, and is set again then.
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
