//! Tokio's clock, which the loop's timers use, too (feature `test-util`).

use std::time::{Duration, Instant};

use ::tokio::runtime::{EnterGuard, Handle};
use ::tokio::time;

use super::runtime::enter;

/// The clock of a loop's runtime.
#[derive(Debug)]
pub(crate) struct GuestClock(Handle);

impl GuestClock {
    pub(crate) fn new(runtime: Handle) -> Self {
        Self(runtime)
    }

    /// Enters the runtime, because each Tokio runtime has a clock, and Tokio finds it by the
    /// thread's runtime.
    fn enter(&self) -> Option<EnterGuard<'_>> {
        enter(&self.0)
    }

    pub(crate) fn now(&self) -> Instant {
        let entered = self.enter();
        if entered.is_none() { Instant::now() } else { time::Instant::now().into_std() }
    }

    /// Is the clock paused? Tokio does not say. Two readings of a running clock differ, unless the
    /// machine's clock is coarse. So a caller must do no harm if the clock runs.
    pub(crate) fn stands_still(&self) -> bool {
        self.now() == self.now()
    }

    #[track_caller]
    pub(crate) fn pause(&self) {
        let _entered = self.enter();
        time::pause();
    }

    #[track_caller]
    pub(crate) fn resume(&self) {
        let _entered = self.enter();
        time::resume();
    }
}

/// Advances the clock of the runtime that polls this, and lets Tokio check its timers.
pub(crate) async fn advance(duration: Duration) {
    time::advance(duration).await;
}
