//! Tasks of the infrastructure survive a panic of user code that they call, or of a log line's
//! subscriber.

use std::future::{Future, poll_fn};
use std::task::Poll;
use std::time::{Duration, Instant};

use crate::sys::panics;
use crate::time::sleep;

/// The pause after the first panic. It doubles with each further one, so that a task that panics at
/// once does not spin.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// After a task has run for this long without a panic, its pause starts again from the first one.
const SOUND: Duration = Duration::from_secs(10);

/// Runs the future that `make` returns, and starts it again if it panics. Returns the future's
/// output.
///
/// Use it for a task that others rely on, such as one that accepts connections. Each panic is
/// logged as an error that names `what`. Before the next start it pauses for 10 ms, and for twice
/// as long after each further panic, up to 1 s. A panic of `make` counts as one of the future.
///
/// # Cancel safety
/// Dropping it drops the future, which is not started again.
pub(crate) async fn supervise<F, M>(what: &'static str, mut make: M) -> F::Output
where
    M: FnMut() -> F,
    F: Future,
{
    let mut pause = FIRST_PAUSE;
    loop {
        let started = Instant::now();
        if let Some(output) = run(&mut make).await {
            return output;
        }
        if started.elapsed() > SOUND {
            pause = FIRST_PAUSE;
        }
        // The subscriber itself may have panicked before.
        panics::log!(error, what, ?pause, "a task panicked and is started again");
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// `None`: the future panicked, and was dropped.
async fn run<F: Future>(make: impl FnOnce() -> F) -> Option<F::Output> {
    let mut future = None;
    panics::contain(|| future = Some(Box::pin(make())));
    let mut future = future?;
    let output = poll_fn(|cx| {
        let mut polled = Poll::Ready(None);
        panics::contain(|| polled = future.as_mut().poll(cx).map(Some));
        polled
    })
    .await;
    panics::contain(|| drop(future));
    output
}

#[cfg(all(test, not(wakeful_loom), not(miri)))] // Miri has no epoll.
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::block_on;

    #[test]
    fn a_task_that_panics_is_started_again_wherever_it_panicked() {
        let starts = Cell::new(0);
        let make = || {
            starts.set(starts.get() + 1);
            assert!(starts.get() > 1, "before there is a future, on purpose");
            async {
                assert!(starts.get() > 3, "in the future, on purpose");
                starts.get()
            }
        };
        assert_eq!(block_on(supervise("a test", make)), 4);
    }

    #[test]
    fn the_pause_grows_so_that_a_task_that_panics_at_once_does_not_spin() {
        let (starts, began) = (Cell::new(0), Instant::now());
        let pauses = block_on(supervise("a test", || async {
            starts.set(starts.get() + 1);
            assert!(starts.get() > 4, "on purpose");
            began.elapsed()
        }));
        let least = FIRST_PAUSE * (1 + 2 + 4 + 8);
        assert!(pauses >= least, "{pauses:?} is less than {least:?}");
    }
}
