//! The few statistics that a paired comparison needs.

/// How often the bootstrap draws a new sample.
const RESAMPLES: usize = 5000;

/// The same seed every time: the same measurements give the same interval.
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

/// The median, which one disturbed block does not move.
///
/// # Panics
///
/// If there are no values.
#[must_use]
pub fn median(values: &[f64]) -> f64 {
    let sorted = sorted(values);
    let middle = sorted.len() / 2;
    if sorted.len().is_multiple_of(2) {
        f64::midpoint(sorted[middle - 1], sorted[middle])
    } else {
        sorted[middle]
    }
}

/// The smallest and the largest value.
///
/// # Panics
///
/// If there are no values.
#[must_use]
pub fn range(values: &[f64]) -> (f64, f64) {
    let sorted = sorted(values);
    (sorted[0], sorted[sorted.len() - 1])
}

/// The 95 % bootstrap interval of the median: the middle 95 % of the medians of
/// samples drawn from `values` with replacement.
///
/// # Panics
///
/// If there are no values.
#[must_use]
pub fn median_interval(values: &[f64]) -> (f64, f64) {
    let mut random = XorShift(SEED);
    let medians: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            let sample: Vec<f64> =
                values.iter().map(|_| values[random.below(values.len())]).collect();
            median(&sample)
        })
        .collect();
    let medians = sorted(&medians);
    let tail = RESAMPLES / 40;
    (medians[tail], medians[RESAMPLES - 1 - tail])
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// Marsaglia's xorshift64: plenty for drawing indices.
struct XorShift(u64);

impl XorShift {
    /// A number from 0 to `bound` - 1.
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        // The high half of the product is below the bound, without a modulo and
        // without the low bits, which are the weak ones.
        let high = (u128::from(self.0) * bound as u128) >> 64;
        usize::try_from(high).expect("it is below a usize")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(left: f64, right: f64) -> bool {
        (left - right).abs() < 1e-12
    }

    #[test]
    fn the_median_of_odd_and_even_counts() {
        assert!(close(median(&[3.0, 1.0, 2.0]), 2.0));
        assert!(close(median(&[4.0, 1.0, 2.0, 3.0]), 2.5));
    }

    #[test]
    fn the_interval_lies_within_the_range_and_repeats() {
        let values = [1.0, 1.1, 0.9, 1.05, 0.95, 1.2, 0.8];
        let (low, high) = median_interval(&values);
        let (min, max) = range(&values);
        assert!(min <= low && low <= median(&values));
        assert!(median(&values) <= high && high <= max);
        assert_eq!((low, high), median_interval(&values));
    }

    #[test]
    fn the_interval_of_equal_values_is_that_value() {
        let (low, high) = median_interval(&[2.0; 7]);
        assert!(close(low, 2.0) && close(high, 2.0));
    }

    #[test]
    fn draws_are_in_bounds_and_reach_every_index() {
        let mut random = XorShift(SEED);
        let mut seen = [0; 7];
        for _ in 0..7000 {
            seen[random.below(7)] += 1;
        }
        assert!(seen.iter().all(|&count| count > 800));
    }
}
