//! The timer that ends a connection that was unused for too long.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use wakeful::time::{Sleep, now, sleep_until};

/// The timer is not reset by each request. When it fires, it checks since when the connection is
/// unused.
pub(super) struct UnusedTimer {
    timeout: Duration,
    sleep: Sleep,
}

impl UnusedTimer {
    pub(super) fn new(timeout: Duration) -> Self {
        Self { timeout, sleep: sleep_until(now() + timeout) }
    }

    /// Completes when `unused_since` is as long ago as the timeout. `None`: the connection is in
    /// use.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        unused_since: impl Fn() -> Option<Instant>,
    ) -> Poll<()> {
        while Pin::new(&mut self.sleep).poll(cx).is_ready() {
            let unused = unused_since();
            if unused.is_some_and(|since| since + self.timeout <= now()) {
                return Poll::Ready(());
            }
            self.sleep.reset(unused.unwrap_or_else(now) + self.timeout);
        }
        Poll::Pending
    }
}
