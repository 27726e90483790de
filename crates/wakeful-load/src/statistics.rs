//! The statistics of a paired comparison, and the rule for when it may claim a difference.
//!
//! A and B are measured in interleaved pairs of blocks. Each pair gives one ratio B / A, so slow
//! drifts cancel out. **The rule:** B is called higher or lower than A only if three things agree.
//! The exact Wilcoxon signed-rank test of the ratios gives p ≤ 0.02. The 99 % bootstrap interval of
//! the median ratio lies wholly on that side of 1. And if A was also measured against itself, the
//! interval does not overlap the noise: the middle 80 % of the bootstrapped medians of A against A.
//! Everything else is "no difference", and so are fewer than [`MIN_PAIRS`] pairs.
//!
//! The rank test is needed because the bootstrap of a median is too sure of itself with so few
//! pairs.

use std::fmt;

use fastrand::Rng;

/// With fewer pairs than this, the rank test cannot reach its level, whatever was measured.
pub const MIN_PAIRS: usize = 7;

/// The confidence of the intervals that [`compare`] uses.
pub const CONFIDENCE: f64 = 0.99;

/// The share of the bootstrapped medians of A against A that counts as noise: the middle 80 %. With
/// 99 % here, too, differences that anyone can see would count as noise.
const NOISE_BAND: f64 = 0.8;

/// The level of the rank test, for both sides together. If A and B are equal, the test finds a
/// difference in at most 1 of 50 comparisons.
const RANK_LEVEL: f64 = 0.02;

/// How many samples the bootstrap draws.
const RESAMPLES: usize = 5000;

/// Returns the median, which one disturbed block hardly changes.
///
/// # Panics
///
/// There are no values.
#[must_use]
pub fn median(values: &[f64]) -> f64 {
    median_of(&mut values.to_vec())
}

/// Returns the bootstrap interval of the median: the middle `confidence` (0 to 1) of the medians of
/// samples drawn from `values` with replacement. The same values and seed give the same interval.
///
/// # Panics
///
/// There are no values.
#[must_use]
pub fn bootstrap_median_interval(values: &[f64], confidence: f64, seed: u64) -> (f64, f64) {
    let mut random = Rng::with_seed(seed);
    let mut sample = vec![0.0; values.len()];
    let mut medians: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            sample.fill_with(|| values[random.usize(..values.len())]);
            median_of(&mut sample)
        })
        .collect();
    medians.sort_by(f64::total_cmp);
    let tail = (1.0 - confidence.clamp(0.0, 1.0)) / 2.0;
    // The index is rounded down, so that the interval is too wide rather than too narrow.
    let cut = ((tail * RESAMPLES as f64) as usize).min(RESAMPLES / 2 - 1);
    (medians[cut], medians[RESAMPLES - 1 - cut])
}

/// Returns the two-sided p of Wilcoxon's signed-rank test that `differences` are symmetric around
/// 0. The test is exact, with mean ranks for ties and without zeros. Returns 1 if only zeros are
/// given.
#[must_use]
pub fn signed_rank_p(differences: &[f64]) -> f64 {
    let mut differences: Vec<f64> =
        differences.iter().copied().filter(|difference| *difference != 0.0).collect();
    differences.sort_by(|left, right| left.abs().total_cmp(&right.abs()));

    // Ranks are doubled, so that the mean of tied ranks is a whole number, too.
    let mut ranks: Vec<usize> = Vec::with_capacity(differences.len());
    for tied in differences.chunk_by(|left, right| left.abs() == right.abs()) {
        let before = ranks.len();
        ranks.resize(before + tied.len(), 2 * before + tied.len() + 1);
    }
    let sum: usize = ranks.iter().sum();
    let positive: usize = ranks
        .iter()
        .zip(&differences)
        .filter_map(|(rank, difference)| (*difference > 0.0).then_some(*rank))
        .sum();
    let smaller = positive.min(sum - positive);

    // The probability of each sum of positive ranks, if each sign is equally likely.
    let mut probability = vec![0.0; sum + 1];
    probability[0] = 1.0;
    let mut reached = 0;
    for rank in ranks {
        for total in (0..=reached).rev() {
            probability[total] /= 2.0;
            probability[total + rank] += probability[total];
        }
        reached += rank;
    }
    (2.0 * probability[..=smaller].iter().sum::<f64>()).min(1.0)
}

/// The result of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Difference {
    /// These pairs show no difference.
    NoDifference,
    /// B is higher than A.
    Higher,
    /// B is lower than A.
    Lower,
}

impl Difference {
    /// Returns the text that [`results::Metric::verdict`](crate::results::Metric::verdict) has.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoDifference => "no difference",
            Self::Higher => "higher",
            Self::Lower => "lower",
        }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

/// The median of the ratios of pairs, and its 99 % interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ratio {
    /// The median of the ratios.
    pub median: f64,
    /// The lower end of the bootstrap interval of the median.
    pub low: f64,
    /// The upper end of that interval.
    pub high: f64,
}

/// A comparison of A with B, and its result.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Compared {
    /// The ratio B / A.
    pub ratio: Ratio,
    /// The ratio A / A, which shows the noise, if it was measured.
    pub noise: Option<Ratio>,
    /// The p of the rank test, from 0 to 1.
    pub p: f64,
    /// What can be claimed.
    pub difference: Difference,
}

/// Compares pairs `(a, b)` of one figure by the module's rule. `noise` has pairs of A against A,
/// from the same run if possible.
///
/// A pair counts only if both figures are positive and finite. Returns `None` if no pair counts.
#[must_use]
pub fn compare(pairs: &[(f64, f64)], noise: Option<&[(f64, f64)]>, seed: u64) -> Option<Compared> {
    let logs = log_ratios(pairs);
    let ratio = self::ratio(&logs, seed)?;
    let noise_logs = noise.map(log_ratios).filter(|logs| !logs.is_empty());
    let band = noise_logs.as_ref().map(|logs| bootstrap_median_interval(logs, NOISE_BAND, seed));
    let noise = noise_logs.and_then(|logs| self::ratio(&logs, seed));
    let p = signed_rank_p(&logs);
    let (floor, ceiling) =
        band.map_or((1.0, 1.0), |(low, high)| (low.exp().min(1.0), high.exp().max(1.0)));
    let difference = if p > RANK_LEVEL {
        Difference::NoDifference
    } else if ratio.low > ceiling {
        Difference::Higher
    } else if ratio.high < floor {
        Difference::Lower
    } else {
        Difference::NoDifference
    };
    Some(Compared { ratio, noise, p, difference })
}

/// Returns the median of the ratios second / first of the pairs, and its 99 % interval. Returns
/// `None` if no pair has two positive, finite figures.
#[must_use]
pub fn ratio_of_pairs(pairs: &[(f64, f64)], seed: u64) -> Option<Ratio> {
    ratio(&log_ratios(pairs), seed)
}

fn ratio(logs: &[f64], seed: u64) -> Option<Ratio> {
    if logs.is_empty() {
        return None;
    }
    let (low, high) = bootstrap_median_interval(logs, CONFIDENCE, seed);
    Some(Ratio { median: median(logs).exp(), low: low.exp(), high: high.exp() })
}

/// Returns the logarithms of the ratios. In them, twice and half are equally far from no
/// difference.
fn log_ratios(pairs: &[(f64, f64)]) -> Vec<f64> {
    let usable = |value: f64| value > 0.0 && value.is_finite();
    pairs.iter().filter(|(a, b)| usable(*a) && usable(*b)).map(|(a, b)| (b / a).ln()).collect()
}

fn median_of(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len().is_multiple_of(2) {
        f64::midpoint(values[middle - 1], values[middle])
    } else {
        values[middle]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(left: f64, right: f64) -> bool {
        (left - right).abs() < 1e-9
    }

    #[test]
    fn the_median_of_odd_and_even_counts() {
        assert!(close(median(&[3.0, 1.0, 2.0]), 2.0));
        assert!(close(median(&[4.0, 1.0, 2.0, 3.0]), 2.5));
    }

    #[test]
    fn the_interval_lies_within_the_range_and_repeats() {
        let values = [1.0, 1.1, 0.9, 1.05, 0.95, 1.2, 0.8];
        let (low, high) = bootstrap_median_interval(&values, 0.95, 1);
        assert!((0.8..=1.0).contains(&low) && (1.0..=1.2).contains(&high), "{low} to {high}");
        assert_eq!((low, high), bootstrap_median_interval(&values, 0.95, 1));
        let (lower, higher) = bootstrap_median_interval(&values, 0.99, 1);
        assert!(lower <= low && high <= higher);
        let (low, high) = bootstrap_median_interval(&[2.0; 7], 0.99, 1);
        assert!(close(low, 2.0) && close(high, 2.0));
    }

    #[test]
    fn the_rank_test_is_that_of_the_tables() {
        // All have the same sign, as in 2 of 2^n cases.
        assert!(close(signed_rank_p(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), 2.0 / 64.0));
        // Only the smallest has the other sign. Sums of at most 1 come from 2 of 2^n cases on each
        // side.
        assert!(close(signed_rank_p(&[-1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]), 4.0 / 256.0));
        // Two are tied and opposite. The p is more than 1 before it is limited.
        assert!(close(signed_rank_p(&[-1.0, 1.0]), 1.0));
        // Zeros do not count.
        assert!(close(signed_rank_p(&[0.0, 1.0, 0.0]), 1.0));
        assert!(close(signed_rank_p(&[]), 1.0));
    }

    #[test]
    fn pairs_without_a_ratio_do_not_count() {
        assert_eq!(compare(&[], None, 1), None);
        assert_eq!(compare(&[(0.0, 1.0), (1.0, f64::NAN), (1.0, 0.0)], None, 1), None);
        let compared = compare(&[(0.0, 1.0), (1.0, 2.0)], None, 1).unwrap();
        assert!(close(compared.ratio.median, 2.0));
        assert_eq!(compared.difference, Difference::NoDifference, "one pair is not enough");
    }

    #[test]
    fn equal_figures_are_no_difference() {
        let pairs = [(5.0, 5.0); 12];
        let compared = compare(&pairs, Some(&pairs), 1).unwrap();
        assert_eq!(compared.difference, Difference::NoDifference);
        assert_eq!(compared.difference.to_string(), "no difference");
    }

    #[test]
    fn min_pairs_is_the_fewest_that_can_tell() {
        let shifted = |count: u8| -> Vec<(f64, f64)> {
            (0..count).map(|i| (1.0, 1.5 + f64::from(i) / 100.0)).collect()
        };
        let verdict = |pairs: &[(f64, f64)]| compare(pairs, None, 1).unwrap().difference;
        assert_eq!(MIN_PAIRS, 7);
        assert_eq!(verdict(&shifted(6)), Difference::NoDifference);
        assert_eq!(verdict(&shifted(7)), Difference::Higher);
        let lower: Vec<_> = shifted(7).into_iter().map(|(a, b)| (b, a)).collect();
        assert_eq!(verdict(&lower), Difference::Lower);
    }

    #[test]
    fn a_difference_within_the_noise_floor_is_none() {
        let pairs: Vec<_> = (0..8).map(|i| (1.0, 1.03 + f64::from(i) / 1000.0)).collect();
        let noise: Vec<_> = (0..8)
            .map(|i| (1.0, if i % 2 == 0 { 0.9 } else { 1.1 } + f64::from(i) / 1e4))
            .collect();
        assert_eq!(compare(&pairs, None, 1).unwrap().difference, Difference::Higher);
        let compared = compare(&pairs, Some(&noise), 1).unwrap();
        assert_eq!(compared.difference, Difference::NoDifference);
        assert!(compared.noise.unwrap().high > compared.ratio.high);
    }

    /// Blocks like those of a real machine: log-normal noise, a drift that A and B share, and now
    /// and then a spoilt block.
    struct Blocks {
        random: Rng,
        noise: f64,
        outliers: f64,
    }

    impl Blocks {
        fn uniform(&mut self) -> f64 {
            self.random.f64()
        }

        fn normal(&mut self) -> f64 {
            // The Box-Muller method. `1 - u` is never 0.
            let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
            radius * (std::f64::consts::TAU * self.uniform()).cos()
        }

        fn block(&mut self, level: f64) -> f64 {
            let spoilt = if self.uniform() < self.outliers { 1.5 } else { 1.0 };
            level * spoilt * (self.noise * self.normal()).exp()
        }

        fn pairs(&mut self, count: usize, ratio: f64) -> Vec<(f64, f64)> {
            (0..count)
                .map(|_| {
                    let level = 1000.0 * (0.1 * self.normal()).exp();
                    (self.block(level), self.block(level * ratio))
                })
                .collect()
        }
    }

    /// Returns the shares of `runs` that claim a difference, without and with a noise floor.
    fn claims(
        runs: u32,
        ratio: f64,
        outliers: f64,
        simulated: impl Fn(u32) -> (usize, f64),
    ) -> (f64, f64) {
        let (mut without, mut with) = (0, 0);
        for run in 0..runs {
            let (count, noise) = simulated(run);
            let mut blocks =
                Blocks { random: Rng::with_seed(u64::from(run) << 20), noise, outliers };
            let pairs = blocks.pairs(count, ratio);
            let floor = blocks.pairs(count, 1.0);
            // There is no claim if the rank test fails. It is quick, so it saves this test most of
            // the intervals.
            if signed_rank_p(&log_ratios(&pairs)) > RANK_LEVEL {
                continue;
            }
            let claimed = |noise| {
                let difference = compare(&pairs, noise, 1).unwrap().difference;
                u32::from(difference != Difference::NoDifference)
            };
            without += claimed(None);
            with += claimed(Some(floor.as_slice()));
        }
        (f64::from(without) / f64::from(runs), f64::from(with) / f64::from(runs))
    }

    #[test]
    fn a_against_itself_is_no_difference_nearly_always() {
        // 8 to 16 pairs, noise of 1 to 10 %.
        let (without, with) = claims(2000, 1.0, 0.05, |run| {
            (8 + run as usize % 9, 0.01 + 0.01 * f64::from(run % 10))
        });
        assert!(
            without <= 0.02 && with <= 0.01,
            "false claims in 2000 runs: {without:.4} without, {with:.4} with a noise floor"
        );
    }

    #[test]
    fn a_shift_of_35_percent_is_found_in_8_pairs() {
        let (without, with) = claims(300, 1.35, 0.0, |_| (8, 0.05));
        assert!(
            without >= 0.99 && with >= 0.95,
            "found in 300 runs: {without:.3} without, {with:.3} with a noise floor"
        );
        let (without, with) = claims(300, 1.35, 0.05, |_| (8, 0.05));
        assert!(
            without >= 0.85 && with >= 0.75,
            "found in 300 runs with spoilt blocks: {without:.3} without, {with:.3} with a noise floor"
        );
    }
}
