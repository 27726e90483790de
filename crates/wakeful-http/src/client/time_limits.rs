//! The time limits of a request: until the head of its response, and in total.

use std::pin::pin;

use wakeful::time::now;

use super::OutgoingBody;
use super::body::Deadline;
use super::error::ClientError;
use super::host_pool::Pool;
use super::retry::SendFailure;
use crate::in_time::in_time;

impl<B: OutgoingBody> Pool<B> {
    /// Awaits `answered`, the head of the response to a request that begins now. Also returns when
    /// the whole response must be complete.
    pub(super) async fn head_in_time<T>(
        &self,
        answered: impl Future<Output = Result<T, SendFailure<B>>>,
    ) -> Result<(T, Option<Deadline>), SendFailure<B>> {
        let (head, total) = (self.settings.head_timeout, self.settings.total_timeout);
        let deadline = total.and_then(|after| Some((now().checked_add(after)?, after)));
        let (limit, is_total) = match (head, total) {
            (Some(head), Some(total)) => (Some(head.min(total)), total < head),
            (head, total) => (head.or(total), head.is_none()),
        };
        let answer = match limit {
            None => answered.await?,
            Some(after) => match in_time(after, pin!(answered)).await {
                Ok(answered) => answered?,
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
        let deadline =
            deadline.map(|(at, after)| Deadline { end: wakeful::time::Deadline::at(at), after });
        Ok((answer, deadline))
    }
}
