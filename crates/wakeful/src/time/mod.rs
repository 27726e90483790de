//! Timers for futures: [`sleep`], [`interval`], [`timeout`].
//!
//! Deadlines are monotonic ([`std::time::Instant`], so changes of the wall clock do not matter) and
//! have nanosecond resolution. A timer is never early. If the loop sleeps, the timer is late by the
//! delay of the kernel's timer (about 17 µs on the project's machine) and of the thread's wake. If
//! the loop is busy, the timer is late by the rest of the running turn. Kernels before Linux 5.11
//! have no `epoll_pwait2`. There, a sleeping loop rounds the time of its next timer up to a whole
//! millisecond.
//!
//! A test may pause the clock of its loop. Waiting then takes no time: see `pause` (feature
//! `test-util`).
//!
//! The futures are `Send` and `Sync`, for frameworks that require this, although the timer itself
//! belongs to the loop that polls it.

mod deadline;
mod interval;
#[cfg(feature = "test-util")]
mod paused;
mod sleep;
mod timeout;

pub use self::deadline::Deadline;
pub use self::interval::{Interval, MissedTickBehavior, interval, interval_at};
#[cfg(feature = "test-util")]
#[cfg_attr(docsrs, doc(cfg(feature = "test-util")))]
pub use self::paused::{advance, pause, resume};
pub use self::sleep::{Sleep, sleep, sleep_until};
pub use self::timeout::{Elapsed, Timeout, timeout, timeout_at};

use std::time::{Duration, Instant};

use crate::event_loop::{Inner, of_current};

/// Returns the time on the clock of this loop's timers. It returns the same as [`Instant::now`], at
/// the same cost, unless a test has paused that clock (`wakeful::time::pause`, with the feature
/// `test-util`).
///
/// Use it in code that computes deadlines or measures elapsed time, if tests run that code with a
/// paused clock. Where no loop runs, it calls [`Instant::now`].
///
/// ```
/// use std::time::Duration;
/// use wakeful::time::{now, sleep_until};
///
/// wakeful::block_on(async {
///     let deadline = now() + Duration::from_micros(300);
///     sleep_until(deadline).await;
///     assert!(now() >= deadline);
/// });
/// ```
#[must_use]
#[inline]
pub fn now() -> Instant {
    #[cfg(feature = "test-util")]
    return crate::event_loop::current().map_or_else(Instant::now, |inner| inner.clock().now());
    #[cfg(not(feature = "test-util"))]
    Instant::now()
}

/// Returns the last reading of the loop's clock, at almost no cost. If that reading is more than a
/// millisecond old, the call reads the clock again. The result is never later than [`now`], and
/// never earlier than the deadline of a [`Sleep`] that has woken a task in this turn. Where no loop
/// runs, it is [`Instant::now`].
///
/// Use it for work that needs the time for each event, such as idle timeouts of connections: a turn
/// that handles a hundred events reads the clock once for all of them, and a turn that takes longer
/// than a millisecond reads it about once per millisecond. So a task that blocks the loop does not
/// make other connections look idle.
///
/// ```
/// use std::time::Instant;
///
/// wakeful::block_on(async {
///     let seen = wakeful::time::turn_time();
///     assert!(seen <= Instant::now());
///     assert!(seen <= wakeful::time::turn_time());
/// });
/// ```
#[must_use]
pub fn turn_time() -> Instant {
    of_current(Inner::turn_time).unwrap_or_else(Instant::now)
}

/// Returns a moment up to which this loop has seen all events: every socket that was readable at
/// that moment has woken its task. The result may be earlier than the last such moment, but never
/// later. Where no loop runs, the result is [`Instant::now`].
///
/// Use it in code that compares deadlines itself instead of awaiting a [`Deadline`]. Treat a
/// deadline as expired only if it is not later than this moment.
#[must_use]
pub fn seen_until() -> Instant {
    of_current(Inner::seen_until).unwrap_or_else(Instant::now)
}

/// `now + duration`, or a moment thirty years ahead if that cannot be represented.
pub(crate) fn deadline_after(now: Instant, duration: Duration) -> Instant {
    const THIRTY_YEARS: Duration = Duration::from_secs(60 * 60 * 24 * 365 * 30);
    now.checked_add(duration).unwrap_or_else(|| now + THIRTY_YEARS)
}
