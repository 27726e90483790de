//! How many connections a loop, or a worker, has accepted lately. Old accepts count less.
//!
//! It is one word: the count, as the bits of an `f32`, above the millisecond of the last accept. So
//! others read it at any time without a lock.

/// After this time, in milliseconds, an accept counts half.
pub(super) const HALF_LIFE: u32 = 250;

/// How many milliseconds the moment of an accept may be in the future, because another loop wrote
/// it.
const AHEAD: u32 = 10_000;

/// A loop has too many if it is above the mean by both of these together: a number of connections,
/// and a share of the mean.
const SLACK: f64 = 4.0;
const SLACK_SHARE: f64 = 0.125;

/// The count that `word` stands for at this millisecond.
pub(super) fn count(word: u64, now: u32) -> f64 {
    let (count, at) = (f32::from_bits((word >> 32) as u32), word as u32);
    // The difference of two moments in milliseconds, modulo 49 days.
    let passed = now.wrapping_sub(at);
    let passed = if passed > u32::MAX - AHEAD { 0 } else { passed };
    f64::from(count) * 0.5_f64.powf(f64::from(passed) / f64::from(HALF_LIFE))
}

/// The word after one more accept.
pub(super) fn with_one_more(word: u64, now: u32) -> u64 {
    let count = (count(word, now) + 1.0) as f32;
    (u64::from(count.to_bits()) << 32) | u64::from(now)
}

/// The count above which a loop has too many, if this is the mean.
pub(super) fn most(mean: f64) -> f64 {
    mean * (1.0 + SLACK_SHARE) + SLACK
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_accepted_counts_half_after_its_half_life() {
        let word = (0..8).fold(0, |word, _| with_one_more(word, 0));
        assert!((count(word, 0) - 8.0).abs() < 0.01);
        assert!((count(word, HALF_LIFE) - 4.0).abs() < 0.1, "{}", count(word, HALF_LIFE));
        assert!(count(word, 100 * HALF_LIFE) < 0.01);
        // Another loop's clock may be a little behind.
        let word = with_one_more(word, HALF_LIFE);
        assert!(count(word, HALF_LIFE - 2) > 4.0);
    }

    #[test]
    fn what_was_accepted_weeks_ago_does_not_come_back() {
        const DAY: u32 = 24 * 60 * 60 * 1000;
        let word = (0..8).fold(0, |word, _| with_one_more(word, 5));
        for days in 1..49 {
            assert!(count(word, days * DAY) < 0.01, "after {days} days");
        }
    }
}
