//! A limit on the time without progress.
//!
//! It is measured in quarters. A pause of the process, or of its loop, counts as one quarter,
//! however long it was. A request that was about to be sent to a backend when the pause began is
//! sent after it, and should still have its time.
//!
//! The time in which a request waits for a connection does not count, because no backend has the
//! request yet. The client has its own limits for that time.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Poll, ready};
use std::time::{Duration, Instant};

use wakeful::time::Deadline;

use super::request_body::Progress;

const QUARTERS: u32 = 4;

/// The output of `future`. `None`: for `silence`, neither the future nor the request made progress,
/// and the request had a connection. `future` itself notes whether it has one.
pub(super) async fn within<F: Future>(
    silence: Duration,
    progress: &Progress,
    mut future: Pin<&mut F>,
) -> Option<F::Output> {
    let quarter = silence / QUARTERS;
    let mut last = progress.last();
    let Some(first) = last.checked_add(silence).and(last.checked_add(quarter)) else {
        return Some(future.await);
    };
    let mut deadline = Deadline::at(first);
    // The number of quarters that have passed since `last`.
    let mut silent = 0;
    poll_fn(|cx| {
        if let Poll::Ready(output) = future.as_mut().poll(cx) {
            return Poll::Ready(Some(output));
        }
        if progress.awaits_connection() {
            // The poll in which the connection comes continues below.
            return Poll::Pending;
        }
        loop {
            ready!(Pin::new(&mut deadline).poll(cx));
            if last != progress.last() {
                (last, silent) = (progress.last(), 0);
                deadline.reset(last + quarter);
                continue;
            }
            silent += 1;
            if silent == QUARTERS {
                return Poll::Ready(None);
            }
            deadline.reset(Instant::now() + quarter);
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::thread;

    use wakeful::time::sleep;
    use wakeful_http::client::Awaited;

    use super::super::request_body::BufferedRequest;
    use super::*;

    const SILENCE: Duration = Duration::from_millis(80);

    #[test]
    fn what_is_sent_behind_a_pause_has_its_time() {
        wakeful::block_on(async {
            let progress = BufferedRequest::none().progress();
            let exchange = pin!(async {
                // This is as if the process were stopped before the request is written.
                thread::sleep(2 * SILENCE);
                sleep(SILENCE / 8).await;
            });
            assert!(within(SILENCE, &progress, exchange).await.is_some());
        });
    }

    #[test]
    fn it_begins_again_where_the_request_goes_on_and_ends_where_it_does_not() {
        wakeful::block_on(async {
            let progress = BufferedRequest::none().progress();
            let slow = pin!(async {
                for _ in 0..12 {
                    sleep(SILENCE / 8).await;
                    progress.touch();
                }
            });
            assert!(within(SILENCE, &progress, slow).await.is_some());
            let begun = progress.last();
            let never = pin!(std::future::pending::<()>());
            assert!(within(SILENCE, &progress, never).await.is_none());
            assert!(begun.elapsed() >= SILENCE);
        });
    }

    #[test]
    fn a_wait_for_a_connection_is_no_silence() {
        wakeful::block_on(async {
            let progress = BufferedRequest::none().progress();
            let connects = pin!(async {
                for _ in 0..2 {
                    progress.awaits(Awaited::Connection);
                    sleep(2 * SILENCE).await;
                    progress.awaits(Awaited::Response);
                    sleep(SILENCE / 8).await;
                }
            });
            assert!(within(SILENCE, &progress, connects).await.is_some());
            // The smallest limit does not keep the loop busy meanwhile.
            let connects = pin!(async {
                progress.awaits(Awaited::Connection);
                sleep(SILENCE).await;
            });
            assert!(within(Duration::ZERO, &progress, connects).await.is_some());
            let is_silent = pin!(async {
                progress.awaits(Awaited::Connection);
                sleep(SILENCE / 8).await;
                progress.awaits(Awaited::Response);
                std::future::pending::<()>().await;
            });
            assert!(within(SILENCE, &progress, is_silent).await.is_none());
            assert!(progress.last().elapsed() >= SILENCE, "since it had its connection");
        });
    }

    #[test]
    fn a_time_that_no_clock_can_hold_is_never_over() {
        wakeful::block_on(async {
            let progress = BufferedRequest::none().progress();
            let soon = pin!(sleep(Duration::from_millis(1)));
            assert!(within(Duration::MAX, &progress, soon).await.is_some());
        });
    }
}
