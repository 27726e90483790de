//! The range of time limits.

use std::time::Duration;

/// With shorter limits, the loop would do nothing but run timers.
pub(crate) const SHORTEST_TIMEOUT: Duration = Duration::from_millis(1);
/// Practically unlimited, but a clock can represent it. `Duration::MAX` from now on cannot be
/// represented.
pub(crate) const LONGEST_TIMEOUT: Duration = Duration::from_secs(30 * 365 * 24 * 3600);
