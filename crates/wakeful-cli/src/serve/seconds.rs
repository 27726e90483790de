//! Options that are numbers of seconds.

use std::time::Duration;

/// # Errors
/// A text that says what is expected.
pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    parse_seconds(text)
        .ok_or_else(|| "expected a number of seconds, 0 or more, as 10 or 0.5".to_owned())
}

/// # Errors
/// The same as for [`seconds`]. 0 is refused, too.
pub(super) fn positive_seconds(text: &str) -> Result<Duration, String> {
    parse_seconds(text)
        .filter(|duration| !duration.is_zero())
        .ok_or_else(|| "expected a number of seconds, more than 0, as 10 or 0.5".to_owned())
}

/// # Errors
/// The same as for [`seconds`]. Less than 1 is refused, too.
pub(super) fn one_second_or_more(text: &str) -> Result<Duration, String> {
    parse_seconds(text)
        .filter(|duration| *duration >= Duration::from_secs(1))
        .ok_or_else(|| "expected a number of seconds, 1 or more, as 10 or 1.5".to_owned())
}

fn parse_seconds(text: &str) -> Option<Duration> {
    Duration::try_from_secs_f64(text.parse().ok()?).ok()
}
