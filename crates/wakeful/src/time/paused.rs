use std::future::poll_fn;
use std::rc::Rc;
use std::time::Duration;

use super::{now, sleep_until};
use crate::event_loop::{Inner, current, explain_missing};

/// Stops the clock of this loop's timers, for tests: [`now`] returns the same time until something
/// moves the clock.
///
/// # What moves it
/// When nothing is ready and the loop would sleep, the clock jumps to the next timer instead. So
/// code that waits for an hour is done at once, and everything runs in the same order as without
/// the pause. [`advance`] moves the clock explicitly.
///
/// Ready work runs before a jump: woken tasks, callbacks, messages of other threads, and sockets
/// that the kernel reports ready. While blocking work of this loop is in flight
/// ([`spawn_blocking`](crate::task::spawn_blocking), name lookups), the clock does not jump, and
/// the loop sleeps until that work is over. Other waits do not stop the clock: the clock jumps even
/// if a task waits for a socket, or for a message that another thread has not sent yet. So a time
/// limit on an answer from outside this loop expires at once.
///
/// # What it stops
/// It stops the clock of one loop, and so all code that uses [`wakeful::time`](crate::time) there,
/// including servers and clients that run on it. [`std::time::Instant::now`] continues. So does
/// everything that measures the machine: metrics, idle policies, the budget of turns, the wait of
/// [`EventLoop::turn`](crate::EventLoop::turn), the time limits of threads that wait for a loop.
///
/// If Tokio is the loop's guest, both have one clock: this function is then `tokio::time::pause`,
/// and the timers of Tokio and of the loop fire in one order. Tokio's clock jumps by whole
/// milliseconds.
///
/// If you call [`turn`](crate::EventLoop::turn) yourself, the clock jumps when a turn would wait,
/// whatever the limit of its wait. A turn with a limit of zero never moves the clock. The clock
/// also jumps when [`prepare_to_park`](crate::EventLoop::prepare_to_park) finds nothing ready: it
/// then returns `false`, so take a turn.
///
/// ```
/// use std::time::Duration;
/// use wakeful::time::{interval, now, pause, timeout};
///
/// wakeful::block_on(async {
///     pause();
///     let start = now();
///     let mut daily = interval(Duration::from_secs(86_400));
///     let week = async {
///         for _ in 0..=7 {
///             daily.tick().await;
///         }
///     };
///     assert!(timeout(Duration::from_secs(86_400 * 8), week).await.is_ok());
///     assert_eq!(now() - start, Duration::from_secs(86_400 * 7));
/// });
/// ```
///
/// # Panics
/// If the clock is already paused, or if no loop runs on this thread.
#[track_caller]
pub fn pause() {
    // There is no closure here or below, because a closure would be the caller that a panic names.
    if let Err(refusal) = this_loop().pause_clock() {
        panic!("{refusal}");
    }
}

/// Lets the clock of this loop's timers continue from its current time. It keeps its difference
/// from the machine's clock.
///
/// ```
/// use std::time::{Duration, Instant};
/// use wakeful::time::{advance, now, pause, resume, sleep};
///
/// wakeful::block_on(async {
///     pause();
///     advance(Duration::from_secs(60)).await;
///     resume();
///     let (start, real) = (now(), Instant::now());
///     sleep(Duration::from_millis(1)).await;
///     assert!(now() - start >= Duration::from_millis(1));
///     assert!(real.elapsed() >= Duration::from_millis(1));
/// });
/// ```
///
/// # Panics
/// If the clock is not paused, or if no loop runs on this thread.
#[track_caller]
pub fn resume() {
    if let Err(refusal) = this_loop().resume_clock() {
        panic!("{refusal}");
    }
}

/// Moves the paused clock of this loop's timers by `duration`, in one jump.
///
/// All timers that are then due expire, the earliest first. The tasks that wait for them run before
/// this call completes, within the budget of a turn. All of them see the clock at its new time, so
/// an [`interval`](super::interval) may miss ticks. If each timer should see its own time, use
/// [`sleep`](super::sleep) instead.
///
/// ```
/// use std::time::Duration;
/// use wakeful::time::{advance, pause, sleep};
///
/// wakeful::block_on(async {
///     pause();
///     let task = wakeful::spawn(sleep(Duration::from_secs(60)));
///     advance(Duration::from_secs(59)).await;
///     assert!(!task.is_finished());
///     advance(Duration::from_secs(1)).await;
///     assert!(task.is_finished());
/// });
/// ```
///
/// # Cancel safety
/// The clock moves in the first poll. Dropping the future after that does not move it back.
///
/// # Panics
/// When it is polled, if the clock is not paused, if no loop runs on this thread, or if the new
/// time is more than 584 years after the loop was built.
pub async fn advance(duration: Duration) {
    match this_loop().advance_clock(duration) {
        Ok(true) => {}
        Ok(false) => by_tokio(duration).await,
        Err(refusal) => panic!("{refusal}"),
    }
    // This timer fires after all that are due, because timers of the same moment fire in the order
    // in which they were set.
    let mut last = sleep_until(now());
    poll_fn(|cx| last.poll_fired(cx)).await;
}

#[cfg(feature = "tokio")]
async fn by_tokio(duration: Duration) {
    crate::guest::advance(duration).await;
    this_loop().clock_changed();
}

#[cfg(not(feature = "tokio"))]
async fn by_tokio(_: Duration) {}

#[track_caller]
fn this_loop() -> Rc<Inner> {
    let Some(inner) = current() else {
        let missing = explain_missing(
            "no event loop runs on this thread, whose clock this could be: call this within \
             `wakeful::block_on` or a task of a loop",
        );
        panic!("{missing}")
    };
    inner
}
