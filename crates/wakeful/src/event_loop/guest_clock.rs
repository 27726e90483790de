//! How a paused Tokio knows what its host, the loop, waits for (features `test-util` and `tokio`).
//!
//! Tokio's clock jumps to the next of Tokio's timers when Tokio has nothing to do. So the loop's
//! next deadline is a timer of Tokio's too, and blocking work of the loop is blocking work of
//! Tokio's, during which the clock does not jump. Tokio does not report when its clock is paused,
//! so both are done also while the clock runs. A test can afford what they cost.

use std::cell::RefCell;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use ::tokio::time::{Instant, Sleep, sleep_until};

use super::inner::Inner;
use crate::task::InFlight;

/// What the loop has told Tokio.
#[derive(Debug, Default)]
pub(super) struct Told {
    next: RefCell<Option<Pin<Box<Sleep>>>>,
    /// Whether one of Tokio's threads waits for the loop's blocking work.
    holds: Arc<AtomicBool>,
}

impl Inner {
    /// Called when the loop has nothing to do: tells Tokio what the loop waits for. Ready: a timer
    /// is due. Must be called in the root future.
    pub(super) fn tell_guest(&self, told: &Told, cx: &mut Context<'_>) -> Poll<()> {
        if self.in_flight.any() && !told.holds.swap(true, Ordering::AcqRel) {
            let (in_flight, holds) = (self.in_flight.clone(), told.holds.clone());
            ::tokio::task::spawn_blocking(move || hold_until_none(&in_flight, &holds));
        }
        let mut next = told.next.borrow_mut();
        let Some(deadline) = self.next_moment().map(|next| self.clock.instant(next)) else {
            *next = None;
            return Poll::Pending;
        };
        let deadline = Instant::from_std(deadline);
        let sleep = next.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        if sleep.deadline() != deadline {
            sleep.as_mut().reset(deadline);
        }
        sleep.as_mut().poll(cx)
    }
}

/// Waits until no blocking work is in flight. Runs on one of Tokio's threads for blocking work.
fn hold_until_none(in_flight: &InFlight, holds: &AtomicBool) {
    loop {
        in_flight.wait_until_none();
        holds.store(false, Ordering::Release);
        // From here on, work that begins finds that no thread holds the clock, and starts one. But
        // work that began a moment earlier relies on this thread: then the thread continues.
        if !in_flight.any() || holds.swap(true, Ordering::AcqRel) {
            return;
        }
    }
}
