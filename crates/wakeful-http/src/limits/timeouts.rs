//! How short and how long a limit of time may be.

use std::time::Duration;

/// Below it, timers would do nothing else.
pub(crate) const SHORTEST_TIMEOUT: Duration = Duration::from_millis(1);
/// Nobody lives to see it, and a clock can hold it: `Duration::MAX` from now on is beyond every
/// clock.
pub(crate) const LONGEST_TIMEOUT: Duration = Duration::from_secs(30 * 365 * 24 * 3600);
