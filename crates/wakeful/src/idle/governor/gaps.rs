//! The length of the gaps between the end of work and the next event, estimated from spins, most of
//! which end before the gap does.
//!
//! A spin that met an event shows how long the gap was. A spin that ended first shows only that the
//! gap was longer. The Kaplan-Meier estimator combines both: for each bucket it takes the share of
//! the gaps still open at its start that end within it. The product of the remaining shares is the
//! share of gaps that are longer. Windows of different lengths mix without bias.

/// Buckets for each doubling. A window ends where a bucket does, so that a spin that ended without
/// an event has watched whole buckets.
const PER_OCTAVE: u64 = 8;
/// 2^10: all gaps under a microsecond are in one bucket.
const FIRST: u32 = 10;
/// 2^24 ns, a little over 16.7 ms: the end of the last bucket but one. The last bucket has no end.
const LAST: u32 = 24;
const BUCKETS: usize = ((LAST - FIRST) as usize) * PER_OCTAVE as usize + 2;

/// The longest gap that can be distinguished from a longer one, in nanoseconds.
pub(super) const LONGEST: u64 = 1 << LAST;

/// After about this many samples, old ones count half.
const MEMORY: f32 = 512.0;

/// Windows are equally good if they differ by no more than this part of an event's worth. An
/// estimate from a few hundred samples is not more exact, and with the longer window fewer sleeps
/// are needed.
const AS_GOOD: f32 = 256.0;

/// The estimate of the gaps. It forgets old gaps as it learns new ones. See the [module](self).
#[derive(Debug, Clone)]
pub(super) struct Gaps {
    /// For each bucket, gaps that ended in it.
    closed: [f32; BUCKETS],
    /// For each bucket, gaps that were not watched to their end. They were longer than the start of
    /// the bucket.
    open: [f32; BUCKETS],
    samples: f32,
}

impl Gaps {
    pub(super) fn new() -> Self {
        Self { closed: [0.0; BUCKETS], open: [0.0; BUCKETS], samples: 0.0 }
    }

    /// A spin met an event after `ns` nanoseconds.
    pub(super) fn closed_after(&mut self, ns: u64) {
        self.closed[bucket(ns)] += 1.0;
        self.count();
    }

    /// A spin ended after `ns` nanoseconds without an event.
    pub(super) fn open_after(&mut self, ns: u64) {
        self.open[bucket(ns)] += 1.0;
        self.count();
    }

    fn count(&mut self) {
        self.samples += 1.0;
        if self.samples >= MEMORY {
            self.forget_half();
        }
    }

    /// From now on, what was learnt counts half.
    pub(super) fn forget_half(&mut self) {
        self.fade_to(self.samples * 0.5);
    }

    /// From now on, what was learnt counts as at most this many samples.
    pub(super) fn fade_to(&mut self, samples: f32) {
        if self.samples <= samples {
            return;
        }
        let left = samples / self.samples;
        for count in self.closed.iter_mut().chain(&mut self.open) {
            *count *= left;
        }
        self.samples = samples;
    }

    /// Computes what windows would have met, and which one to use.
    pub(super) fn windows(&self, wanted: Wanted) -> Windows {
        let Wanted { share, least, most, worth } = wanted;
        let mut found = Windows { meets: None, best: 0, met: 0.0 };
        let mut at_risk = self.samples;
        // For the present window: the share of gaps that are longer, and the spinning that it
        // costs. For the best window so far: how much more than its cost its events are worth.
        let (mut longer, mut cost, mut gain) = (1.0, 0.0, 0.0);
        for (bucket, (closed, open)) in self.closed.iter().zip(&self.open).enumerate() {
            let end = start(bucket + 1);
            if start(bucket) >= most {
                break;
            }
            // Open gaps of this bucket, most of which ended at its start, were not watched to its
            // end. But those of the last bucket were watched until `most`.
            if end < most {
                at_risk -= open;
            }
            let is_known = at_risk > f32::EPSILON;
            if !is_known && start(bucket) >= least {
                break;
            }
            let closed_here = if is_known { (closed / at_risk).min(1.0) } else { 0.0 };
            let still = longer * (1.0 - closed_here);
            let window = end.min(most);
            cost += (longer + still) / 2.0 * (window - start(bucket)) as f32;
            if window >= least {
                if found.meets.is_none() && 1.0 - still >= share {
                    found.meets = Some(window);
                }
                let value = (1.0 - still) * worth - cost;
                if value > 0.0 && value >= gain - worth / AS_GOOD {
                    found.best = window;
                }
                gain = value.max(gain);
            }
            longer = still;
            at_risk -= closed;
        }
        found.met = 1.0 - longer;
        found
    }
}

/// The parameters of [`Gaps::windows`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Wanted {
    /// The share of the events that the window should meet.
    pub(super) share: f32,
    /// The shortest and the longest window.
    pub(super) least: u64,
    pub(super) most: u64,
    /// How many nanoseconds of waiting awake an event is worth.
    pub(super) worth: f32,
}

/// The result of [`Gaps::windows`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Windows {
    /// The shortest window that would have met the wanted share of the events.
    pub(super) meets: Option<u64>,
    /// The window whose events are worth most beyond what they cost. Of nearly equal windows it is
    /// the longest. 0: no window is worth its cost.
    pub(super) best: u64,
    /// The share that the longest window would have met.
    pub(super) met: f32,
}

fn bucket(ns: u64) -> usize {
    let ns = ns.min(LONGEST);
    if ns < 1 << FIRST {
        return 0;
    }
    let octave = ns.ilog2();
    let part = (ns >> (octave - PER_OCTAVE.ilog2())) & (PER_OCTAVE - 1);
    1 + ((octave - FIRST) as usize) * PER_OCTAVE as usize + part as usize
}

fn start(bucket: usize) -> u64 {
    let Some(bucket) = bucket.checked_sub(1) else { return 0 };
    let (octave, part) = (bucket as u64 / PER_OCTAVE, bucket as u64 % PER_OCTAVE);
    (PER_OCTAVE + part) << (octave + u64::from(FIRST - PER_OCTAVE.ilog2()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A random number, uniform in (0, 1). The sequence is always the same.
    fn uniform(seed: &mut u64) -> f64 {
        *seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((*seed >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    fn find(gaps: &Gaps, share: f32, most: u64) -> Windows {
        gaps.windows(Wanted { share, least: 0, most, worth: 2.0 * most as f32 })
    }

    #[test]
    fn every_bucket_starts_in_itself_and_behind_the_one_before() {
        for index in 0..BUCKETS {
            assert_eq!(bucket(start(index)), index);
            assert!(index == 0 || bucket(start(index) - 1) == index - 1);
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn without_a_sample_no_window_is_known_to_pay() {
        assert_eq!(find(&Gaps::new(), 0.9, LONGEST), Windows { meets: None, best: 0, met: 0.0 });
    }

    /// Exponential gaps, most of which are watched only for a short while. The estimate must be
    /// that of the whole distribution.
    #[test]
    fn short_windows_do_not_bias_the_estimate() {
        let (mean, mut seed) = (200_000.0, 7);
        let mut gaps = Gaps::new();
        for sample in 0..4_000 {
            let gap = (-mean * uniform(&mut seed).ln()) as u64;
            let window = if sample % 4 == 0 { 2_000_000 } else { 100_000 };
            if gap <= window {
                gaps.closed_after(gap);
            } else {
                gaps.open_after(window);
            }
        }
        let found = find(&gaps, 0.6, 2_000_000);
        let known = -mean * f64::ln(0.4);
        let window = found.meets.unwrap() as f64;
        assert!((window / known - 1.0).abs() < 0.15, "{window} for {known}");
        assert!(found.met > 0.99, "{}", found.met);
    }

    #[test]
    fn what_is_longer_than_any_window_pays_for_none() {
        let mut gaps = Gaps::new();
        for _ in 0..100 {
            gaps.open_after(1_000_000);
        }
        assert_eq!(find(&gaps, 0.5, 1_000_000), Windows { meets: None, best: 0, met: 0.0 });
    }

    /// The longest window ends within a bucket. A spin that lasted to the end of the window counts
    /// for that bucket.
    #[test]
    fn the_last_bucket_counts_those_that_nothing_ended() {
        let mut gaps = Gaps::new();
        (0..90).for_each(|_| gaps.open_after(1_000_000));
        (0..10).for_each(|_| gaps.closed_after(990_000));
        let found = find(&gaps, 0.5, 1_000_000);
        assert!(found.meets.is_none() && (found.met - 0.1).abs() < 0.01, "{found:?}");
    }

    /// Half of the gaps are short, and of the others few end within the longest window.
    #[test]
    fn the_best_window_leaves_what_is_not_worth_it() {
        let mut gaps = Gaps::new();
        for sample in 0..200_u64 {
            gaps.closed_after(20_000);
            if sample % 10 == 0 { gaps.closed_after(900_000) } else { gaps.open_after(1_000_000) }
        }
        let found = find(&gaps, 0.9, 1_000_000);
        assert!(found.meets.is_none() && (20_000..50_000).contains(&found.best), "{found:?}");
        assert!((found.met - 0.55).abs() < 0.01, "{found:?}");
    }

    #[test]
    fn a_window_that_has_a_least_length_pays_for_it() {
        let mut gaps = Gaps::new();
        for sample in 0..200_u64 {
            if sample % 2 == 0 { gaps.closed_after(20_000) } else { gaps.closed_after(LONGEST) }
        }
        let wanted = Wanted { share: 0.9, least: 0, most: 2_000_000, worth: 300_000.0 };
        let found = gaps.windows(wanted);
        assert!(found.meets.is_none() && found.best > 0 && found.best < 200_000, "{found:?}");
        // Half of the events are worth 150 µs each, and meeting the others costs half a millisecond
        // each.
        let found = gaps.windows(Wanted { least: 1_000_000, ..wanted });
        assert_eq!((found.meets, found.best), (None, 0));
        let found = gaps.windows(Wanted { least: 1_000_000, worth: 2e6, ..wanted });
        assert!((1_000_000..1_200_000).contains(&found.best), "{found:?}");
    }

    /// The estimate ends before the least length.
    #[test]
    fn a_least_length_behind_all_that_is_known_meets_all_of_it() {
        let mut gaps = Gaps::new();
        (0..100).for_each(|_| gaps.closed_after(20_000));
        let (least, most) = (1_000_000, 2_000_000);
        let found = gaps.windows(Wanted { share: 0.9, least, most, worth: 1e6 });
        assert!(
            found.meets.is_some_and(|window| (least..1_200_000).contains(&window)),
            "{found:?}"
        );
    }

    #[test]
    fn old_samples_fade() {
        let mut gaps = Gaps::new();
        (0..2_000).for_each(|_| gaps.closed_after(500_000));
        (0..2_000).for_each(|_| gaps.closed_after(10_000));
        let found = find(&gaps, 0.9, 1_000_000);
        assert!(found.meets.unwrap() < 20_000, "{found:?}");
    }
}
