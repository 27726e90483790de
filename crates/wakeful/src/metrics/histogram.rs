use std::fmt;

/// Numbers below 2^64 have up to 64 binary digits.
pub(crate) const BUCKETS: usize = 64;

/// A distribution of values: how many values lie between each power of two and the next, and the
/// sum of all values.
///
/// Quantiles are accurate to a factor of two. The mean is exact. Times are in nanoseconds. A
/// reading while the loop runs may miss the last few values, and its sum may include values that
/// its buckets miss.
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// let mut event_loop = wakeful::EventLoop::new()?;
/// let handle = event_loop.handle();
/// event_loop.block_on(wakeful::task::yield_now())?;
/// let polls = handle.metrics().poll_time;
/// assert!(polls.quantile(0.99).is_none(), "`block_on`'s future is no task");
/// assert_eq!(polls.buckets().count(), 0);
/// # Ok(())
/// # }
/// ```
///
/// # Threads
/// It is a copy: `Send` and `Sync`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Histogram {
    /// For each bit n, how many values begin with that bit: the values from 2^n to 2^(n+1) - 1. 0
    /// counts with 1.
    pub(super) buckets: [u64; BUCKETS],
    pub(super) sum: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: [0; BUCKETS], sum: 0 }
    }
}

impl Histogram {
    /// Returns the number of values.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().fold(0, |sum, count| sum.wrapping_add(*count))
    }

    /// Returns the sum of the values.
    #[must_use]
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// Returns the mean of the values, or `None` if there are no values.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        let count = self.count();
        (count > 0).then(|| self.sum as f64 / count as f64)
    }

    /// Returns a number that is not exceeded by this `share` of the values, or `None` if there are
    /// no values. `share` is from 0 to 1: 0.5 gives the median, 1 the maximum. The result is the
    /// upper bound of a bucket, so it may be too large, but less than twice the exact quantile.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Option<u64> {
        let count = self.count();
        // The rank is at least one, and at most the number of values.
        let wanted = ((share * count as f64).ceil() as u64).clamp(1, count.max(1));
        let mut seen: u64 = 0;
        self.buckets().find_map(|(highest, here)| {
            seen += here;
            (seen >= wanted).then_some(highest)
        })
    }

    /// Returns the non-empty buckets, the lowest first: the highest value that the bucket can hold,
    /// and how many values it holds. Bucket 1 holds 0 and 1, bucket 3 holds 2 and 3, bucket 7 holds
    /// 4 to 7, and so on.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let highest = |bit: usize| u64::MAX >> (BUCKETS - 1 - bit);
        let all = self.buckets.iter().enumerate().map(move |(bit, count)| (highest(bit), *count));
        all.filter(|(_, count)| *count > 0)
    }

    /// Adds the values of another histogram.
    pub(super) fn and(&self, other: &Self) -> Self {
        let buckets = std::array::from_fn(|bit| self.buckets[bit].wrapping_add(other.buckets[bit]));
        Self { buckets, sum: self.sum.wrapping_add(other.sum) }
    }

    /// Adds `value`, which is 0 or 1, this many times.
    pub(super) fn and_times(mut self, value: u64, times: u64) -> Self {
        self.buckets[0] += times;
        self.sum += value * times;
        self
    }

    /// Returns the values that were added since `earlier`, an earlier reading of the same loop.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let buckets =
            std::array::from_fn(|bit| self.buckets[bit].wrapping_sub(earlier.buckets[bit]));
        Self { buckets, sum: self.sum.wrapping_sub(earlier.sum) }
    }
}

impl fmt::Debug for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = f.debug_map();
        text.entry(&"sum", &self.sum);
        self.buckets().for_each(|(highest, count)| {
            text.entry(&format_args!("up to {highest}"), &count);
        });
        text.finish()
    }
}

#[cfg(all(test, not(wakeful_loom)))]
mod tests {
    use super::*;

    fn of(values: &[u64]) -> Histogram {
        let mut histogram = Histogram::default();
        for value in values {
            histogram.buckets[(value | 1).ilog2() as usize] += 1;
            histogram.sum += value;
        }
        histogram
    }

    #[test]
    fn buckets_are_named_by_their_highest_number() {
        let histogram = of(&[0, 1, 2, 3, 4, 1023, 1024, 1 << 62]);
        let buckets: Vec<_> = histogram.buckets().collect();
        assert_eq!(buckets, [(1, 2), (3, 2), (7, 1), (1023, 1), (2047, 1), (i64::MAX as u64, 1)]);
        assert_eq!(of(&[u64::MAX - 1]).buckets().next(), Some((u64::MAX, 1)));
        assert_eq!((histogram.count(), histogram.sum()), (8, 2057 + (1 << 62)));
    }

    #[test]
    fn quantiles_are_a_bound_less_than_twice_too_large() {
        let values: Vec<u64> = (1..=1000).collect();
        let histogram = of(&values);
        for (share, exact) in [(0.0, 1), (0.5, 500), (0.99, 990), (1.0, 1000), (7.0, 1000)] {
            let found = histogram.quantile(share).unwrap();
            assert!(found >= exact && found < 2 * exact.max(1), "{share}: {found}");
        }
        assert_eq!(histogram.mean(), Some(500.5));
        assert_eq!((of(&[]).quantile(0.5), of(&[]).mean()), (None, None));
    }

    #[test]
    fn a_difference_is_what_came_in_between() {
        let difference = of(&[1, 5, 9, 9]).since(&of(&[1, 9]));
        assert_eq!(difference, of(&[5, 9]));
    }
}
