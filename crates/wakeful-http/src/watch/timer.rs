//! A connection's one timer, which costs a request nothing: it is armed late, and stays as it is while what is due moves away from it.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use wakeful::time::{Sleep, sleep_until};

/// The timer of one connection.
#[derive(Debug)]
pub(crate) struct Timer {
    sleep: Sleep,
    /// For when it is set, and whom it wakes then.
    armed: Option<(Instant, Waker)>,
}

impl Timer {
    pub(crate) fn new() -> Self {
        // The instant does not count: it is set before the first poll.
        Self { sleep: sleep_until(Instant::now()), armed: None }
    }

    /// Ready when it is `due`, or before: a timer that is set for an earlier moment stays. As long as nothing changes it costs two comparisons. `now` is this turn's.
    #[inline]
    pub(super) fn poll(&mut self, due: Instant, now: Instant, cx: &mut Context<'_>) -> Poll<()> {
        if now >= due {
            // Not the sleep's to say: whoever spends his task's budget in every poll would never hear it.
            self.armed = None;
            return Poll::Ready(());
        }
        let at = match &self.armed {
            Some((at, waker)) if *at <= due => {
                if now < *at && waker.will_wake(cx.waker()) {
                    return Poll::Pending;
                }
                *at
            }
            _ => {
                self.sleep.reset(due);
                due
            }
        };
        let polled = Pin::new(&mut self.sleep).poll(cx);
        let is_set = polled.is_pending() && self.sleep.is_set();
        self.armed = is_set.then(|| (at, cx.waker().clone()));
        polled
    }
}
