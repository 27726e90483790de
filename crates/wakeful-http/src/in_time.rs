//! Time limits for exchanges with a peer: connection attempts, handshakes, requests.
//!
//! They are measured in quarters. A pause of the process, or of its loop, counts as one quarter,
//! however long it was. So after the pause there is time to read what had arrived, to send, and to
//! get the answer.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use wakeful::time::{Elapsed, timeout};

pub(crate) const QUARTERS: u32 = 4;

/// Like [`timeout`], but with a timer for each quarter of the limit.
pub(crate) async fn in_time<F: Future>(
    limit: Duration,
    future: Pin<&mut F>,
) -> Result<F::Output, Elapsed> {
    with_most_used(limit, future).await.map(|(output, _)| output)
}

/// Like [`in_time`], and also returns the end of the quarter in which the future was ready: no more
/// of the limit is used. If more time has passed, the process was stopped.
pub(crate) async fn with_most_used<F: Future>(
    limit: Duration,
    mut future: Pin<&mut F>,
) -> Result<(F::Output, Duration), Elapsed> {
    let quarter = limit / QUARTERS;
    for number in 1..QUARTERS {
        if let Ok(output) = timeout(quarter, future.as_mut()).await {
            return Ok((output, number * quarter));
        }
    }
    timeout(quarter, future).await.map(|output| (output, limit))
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::thread;
    use std::time::Instant;

    use wakeful::time::sleep;

    use super::*;

    const LIMIT: Duration = Duration::from_millis(80);

    #[test]
    fn what_is_said_behind_a_pause_has_its_time() {
        wakeful::block_on(async {
            let spoken = pin!(async {
                thread::sleep(2 * LIMIT);
                sleep(LIMIT / 8).await;
            });
            assert_eq!(in_time(LIMIT, spoken).await, Ok(()));
        });
    }

    #[test]
    fn without_a_pause_it_is_the_whole_time_and_not_more_than_that() {
        wakeful::block_on(async {
            let (begun, never) = (Instant::now(), pin!(std::future::pending::<()>()));
            assert!(in_time(LIMIT, never).await.is_err());
            assert!(begun.elapsed() >= LIMIT);
            let soon = pin!(sleep(Duration::from_millis(1)));
            assert_eq!(in_time(Duration::MAX, soon).await, Ok(()));
        });
    }
}
