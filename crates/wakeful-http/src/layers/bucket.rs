//! A bucket of tokens that fills at a rate, in one word: the moment at which it will be full.
//!
//! A token moves that moment away by the time in which one token comes (the generic cell rate
//! algorithm). The further it is away, the emptier is the bucket.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;

#[derive(Debug)]
pub(super) struct Bucket {
    begun: Instant,
    /// The time in which one token comes, in nanoseconds.
    interval: u64,
    /// How far in the future the moment may be before a token is taken, in nanoseconds.
    most: u64,
    /// In nanoseconds from `begun`.
    full_at: CachePadded<AtomicU64>,
}

impl Bucket {
    /// A full bucket with `burst` tokens. Another `tokens` come in each `per`.
    pub(super) fn new(tokens: u32, per: Duration, burst: u32, now: Instant) -> Self {
        // A token takes at most 36 years, so that no sum below overflows within a century.
        let longest = u64::MAX / 16;
        let interval = per.as_nanos() / u128::from(tokens.max(1));
        let interval = u64::try_from(interval).map_or(longest, |it| it.clamp(1, longest));
        let most = interval.saturating_mul(u64::from(burst.max(1) - 1)).min(longest);
        Self { begun: now, interval, most, full_at: CachePadded::default() }
    }

    /// Takes a token.
    ///
    /// # Errors
    /// There is no token. The value is how long it takes until there is one, if nobody else takes
    /// it.
    pub(super) fn take(&self, now: Instant) -> Result<(), Duration> {
        let now = now.saturating_duration_since(self.begun).as_nanos() as u64;
        let take = |full_at: u64| {
            let full_at = full_at.max(now);
            (full_at - now <= self.most).then_some(full_at + self.interval)
        };
        let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
        match self.full_at.fetch_update(set, fetch, take) {
            Ok(_) => Ok(()),
            Err(full_at) => Err(Duration::from_nanos(full_at - now - self.most)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_burst_then_the_rate_and_it_is_said_how_long_to_wait() {
        let now = Instant::now();
        let bucket = Bucket::new(10, SECOND, 3, now);
        for _ in 0..3 {
            assert_eq!(bucket.take(now), Ok(()));
        }
        let token = SECOND / 10;
        assert_eq!(bucket.take(now), Err(token));
        assert_eq!(bucket.take(now + token / 2), Err(token / 2), "who is refused takes nothing");
        assert_eq!(bucket.take(now + token), Ok(()));
        assert_eq!(bucket.take(now + token), Err(token));
        let later = now + 100 * SECOND;
        assert!((0..3).all(|_| bucket.take(later).is_ok()), "it holds no more than a burst");
        assert!(bucket.take(later).is_err());
    }

    #[test]
    fn odd_settings_are_the_nearest_that_make_sense() {
        let now = Instant::now();
        let at_once = Bucket::new(u32::MAX, Duration::ZERO, u32::MAX, now);
        assert!((0..1000).all(|_| at_once.take(now).is_ok()));
        let never = Bucket::new(0, Duration::MAX, 0, now);
        assert_eq!(never.take(now), Ok(()));
        assert!(never.take(now + SECOND).is_err_and(|wait| wait > 365 * 24 * 3600 * SECOND));
        // The time of a loop's turn may be before the bucket was made.
        let young = Bucket::new(1, SECOND, 1, now + SECOND);
        assert_eq!(young.take(now), Ok(()));
    }

    #[test]
    fn threads_share_it_to_the_token() {
        let now = Instant::now();
        let bucket = Bucket::new(1, SECOND, 1000, now);
        let taken: usize = thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| scope.spawn(|| (0..1000).filter(|_| bucket.take(now).is_ok()).count()))
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(taken, 1000);
    }

    proptest! {
        /// In any period, no more tokens are taken than a burst, plus those that came meanwhile.
        #[test]
        fn never_more_than_burst_and_rate(
            (tokens, burst) in (1_u32..50, 1_u32..20),
            steps in proptest::collection::vec(0_u64..200, 1..200),
        ) {
            let start = Instant::now();
            let bucket = Bucket::new(tokens, SECOND, burst, start);
            let (mut now, mut taken) = (start, 0_u32);
            for step in steps {
                now += Duration::from_millis(step);
                taken += u32::from(bucket.take(now).is_ok());
                // Rounding may add a nanosecond for each token.
                let come = (now - start + Duration::from_nanos(u64::from(taken))).as_secs_f64();
                prop_assert!(f64::from(taken) <= f64::from(burst) + come * f64::from(tokens) + 1e-3);
            }
        }
    }
}
