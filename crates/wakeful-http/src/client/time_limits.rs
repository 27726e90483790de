//! The time limits of a request: until the head of its response, and in total.

use std::pin::pin;
use std::time::Duration;

use wakeful::time::now;

use super::OutgoingBody;
use super::body::Deadline;
use super::error::ClientError;
use super::host_pool::Pool;
use super::retry::SendFailure;
use crate::in_time::{QUARTERS, with_most_used};

impl<B: OutgoingBody> Pool<B> {
    /// Awaits `answered`, the head of the response to a request that begins now. Also returns when
    /// the whole response must be complete.
    pub(super) async fn head_in_time<T>(
        &self,
        answered: impl Future<Output = Result<T, SendFailure<B>>>,
    ) -> Result<(T, Option<Deadline>), SendFailure<B>> {
        let (head, total) = (self.settings.head_timeout, self.settings.total_timeout);
        let begun = total.map(|_| now());
        let (limit, is_total) = match (head, total) {
            (Some(head), Some(total)) => (Some(head.min(total)), total < head),
            (head, total) => (head.or(total), head.is_none()),
        };
        let (answer, most_used) = match limit {
            None => (answered.await?, Duration::ZERO),
            Some(after) => match with_most_used(after, pin!(answered)).await {
                Ok((answered, most_used)) => (answered?, most_used),
                Err(_) => {
                    let target = self.label.clone();
                    let error = if is_total {
                        ClientError::TotalTimeout { target, after }
                    } else {
                        ClientError::HeadTimeout { target, after }
                    };
                    return Err(error.into());
                }
            },
        };
        let deadline = begun.zip(total).and_then(|(begun, after)| {
            let now = now();
            let left = left(after, now.saturating_duration_since(begun), most_used);
            Some(Deadline { end: wakeful::time::Deadline::at(now.checked_add(left)?), after })
        });
        Ok((answer, deadline))
    }
}

/// How much of `total` is left for the body, if the head came after `passed`. A pause counts as a
/// quarter. After one, at least a quarter is left.
fn left(total: Duration, passed: Duration, most_used: Duration) -> Duration {
    if passed <= most_used {
        return total.saturating_sub(passed);
    }
    total.saturating_sub(most_used).max(total / QUARTERS)
}
