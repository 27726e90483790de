//! The budget of a task that awaits a drain. Once the drain has begun, each future that waits for
//! it is ready at once. A task that awaits one after the other must let others run.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, ready};

use wakeful::task::consume_budget;

/// Whether a future that is ready was put off, because its task had spent its budget.
#[derive(Debug, Default)]
pub(super) struct PutOff(bool);

impl PutOff {
    /// Called when the future is ready. Puts it off once at most. In a task that spends its budget
    /// in every poll, the future would otherwise be put off for ever.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.0 {
            self.0 = true;
            ready!(pin!(consume_budget()).poll(cx));
        }
        self.0 = false;
        Poll::Ready(())
    }
}
