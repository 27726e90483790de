//! Moments that can be written as dates.

use std::time::{Duration, SystemTime};

/// 9999-12-31T23:59:59Z: the last second for which `httpdate` and `humantime` have a text. For
/// later times, and for times before 1970, one of them panics and the other fails.
const LAST: Duration = Duration::from_secs(253_402_300_799);

/// `time`, or the nearest moment that has a date. A wall clock may be set to any time, and a
/// request must not fail because of it.
pub(crate) fn writable(time: SystemTime) -> SystemTime {
    time.clamp(SystemTime::UNIX_EPOCH, SystemTime::UNIX_EPOCH + LAST)
}

/// The date in the form of a header (RFC 9110, 5.6.7).
pub(crate) fn of_header(time: SystemTime) -> String {
    httpdate::fmt_http_date(writable(time))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_far_off_still_has_a_date() {
        let epoch = SystemTime::UNIX_EPOCH;
        let day = Duration::from_secs(86_400);
        for (time, text) in [
            (epoch, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (epoch - day, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (epoch + LAST, "Fri, 31 Dec 9999 23:59:59 GMT"),
            (epoch + LAST + day, "Fri, 31 Dec 9999 23:59:59 GMT"),
        ] {
            assert_eq!(of_header(time), text);
        }
    }
}
