//! Tokio's clock, which is then also that of the loop's timers (feature `test-util`).

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

    /// Tokio has one clock for each runtime, and finds it by the runtime of the thread.
    fn enter(&self) -> Option<EnterGuard<'_>> {
        enter(&self.0)
    }

    pub(crate) fn now(&self) -> Instant {
        let entered = self.enter();
        if entered.is_none() { Instant::now() } else { time::Instant::now().into_std() }
    }

    /// Is it paused? Tokio does not say. Two readings of a clock that runs differ, unless the
    /// machine's is coarse: who asks must do no harm where it runs.
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

/// Moves the clock of the runtime that polls this, and lets Tokio look at its timers.
pub(crate) async fn advance(duration: Duration) {
    time::advance(duration).await;
}
