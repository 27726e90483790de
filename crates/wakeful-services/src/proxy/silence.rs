//! How long nothing may go on.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use wakeful::time::{Deadline, seen_until};

use super::request_body::Progress;

/// `future`'s output; `None`: for so long neither that nor a piece of the request went on.
pub(super) async fn within<F: Future>(
    silence: Duration,
    progress: &Progress,
    mut future: Pin<&mut F>,
) -> Option<F::Output> {
    let until = || progress.last().checked_add(silence);
    let Some(first) = until() else { return Some(future.await) };
    let mut deadline = Deadline::at(first);
    poll_fn(|cx| {
        if let Poll::Ready(output) = future.as_mut().poll(cx) {
            return Poll::Ready(Some(output));
        }
        while Pin::new(&mut deadline).poll(cx).is_ready() {
            match until() {
                Some(later) if later > seen_until() => deadline.reset(later),
                _ => return Poll::Ready(None),
            }
        }
        Poll::Pending
    })
    .await
}
