//! Timers for futures: [`sleep`], [`interval`], [`timeout`].
//!
//! Deadlines are monotonic ([`std::time::Instant`]: the wall clock's jumps do not matter) and have
//! nanosecond resolution. A timer is never early. It is late by what the kernel's timer and the
//! thread's wake take (on the project's machine about 17 µs for the timer), or by the rest of the
//! turn that is running. Where the kernel has no `epoll_pwait2` (before Linux 5.11), a parked
//! loop's timers round up to the next millisecond.
//!
//! A test may pause the clock of its loop, and then takes no time for what waits: see `pause` and
//! the feature `test-util`.
//!
//! The futures are `Send` and `Sync`, so that they fit where a framework asks for that, although
//! the timer itself belongs to the loop that polls it.

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

use crate::event_loop::current;

/// The time on the clock of this loop's timers. It is [`Instant::now`], and costs as much, unless a
/// test has paused that clock (`wakeful::time::pause`, with the feature `test-util`).
///
/// For code that computes deadlines, or looks how much time has passed, and that is to be tested
/// with a paused clock. Where no loop runs it is [`Instant::now`].
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
    return current().map_or_else(Instant::now, |inner| inner.clock().now());
    #[cfg(not(feature = "test-util"))]
    Instant::now()
}

/// The time as this loop's turn has read it, which costs next to nothing: at most a millisecond
/// old, never in the future of [`now`], and never behind the deadline of a [`Sleep`] that has woken
/// somebody in this turn. Where no loop runs it is [`Instant::now`].
///
/// For what needs a time for each event, such as idle timeouts of connections: a turn that handles
/// a hundred reads the clock once for them, or once a millisecond if it takes longer: a task that
/// blocks its loop is not taken for the idleness of others.
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
    current().map_or_else(Instant::now, |inner| inner.turn_time())
}

/// The moment until which this loop has seen what arrived: everything that was readable then has
/// been given to its tasks. It may be earlier than that moment, never later. Where no loop runs it
/// is [`Instant::now`].
///
/// For code that compares deadlines itself instead of awaiting a [`Deadline`]: one that is later
/// than this must not strike yet.
#[must_use]
pub fn seen_until() -> Instant {
    current().map_or_else(Instant::now, |inner| inner.seen_until())
}

/// `now + duration`, or a deadline that nobody lives to see.
pub(crate) fn deadline_after(now: Instant, duration: Duration) -> Instant {
    const THIRTY_YEARS: Duration = Duration::from_secs(60 * 60 * 24 * 365 * 30);
    now.checked_add(duration).unwrap_or_else(|| now + THIRTY_YEARS)
}
