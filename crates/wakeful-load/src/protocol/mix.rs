//! Chooses the next of several requests in a run, and its key. The choice depends only on the seed
//! and on how many were chosen before. So two servers under the same plan get the same requests in
//! the same order.

/// One of the requests of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Kind {
    /// The name of the request in reports.
    pub(crate) name: String,
    /// How often this kind is drawn, relative to the weights of the other kinds.
    pub(crate) weight: u32,
}

/// The request that comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Draw {
    /// The index of the request among those that were prepared.
    pub kind: usize,
    /// The key that is written where the request has a place for one.
    pub key: u64,
}

/// Draws kinds by their weight and keys evenly.
#[derive(Debug, Clone)]
pub(crate) struct Drawing {
    random: fastrand::Rng,
    /// Each kind has a range of numbers. These are the ends of the ranges, in the order of the
    /// kinds. Numbers are drawn below the last end.
    ends: Vec<u64>,
    keys: u64,
}

impl Drawing {
    /// Draws from `kinds`, and from the keys below `keys`. If `kinds` is empty, there is only one
    /// request.
    pub(crate) fn new(kinds: &[Kind], keys: u64, seed: u64) -> Self {
        let ends = kinds.iter().scan(0, |end, kind| {
            *end += u64::from(kind.weight);
            Some(*end)
        });
        // A schedule with this seed draws the gaps between requests. With the same numbers, what a
        // request is would depend on the gap before it.
        let random = fastrand::Rng::with_seed(seed).fork();
        Self { random, ends: ends.collect(), keys }
    }

    pub(crate) fn next(&mut self) -> Draw {
        let kind = match self.ends[..] {
            [] | [_] => 0,
            [.., last] => {
                let number = self.random.u64(..last.max(1));
                self.ends.iter().position(|end| number < *end).unwrap_or(0)
            }
        };
        let key = if self.keys > 1 { self.random.u64(..self.keys) } else { 0 };
        Draw { kind, key }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::Schedule;

    fn drawn(weights: &[u32], keys: u64, seed: u64) -> Vec<Draw> {
        let kind = |&weight: &u32| Kind { name: String::new(), weight };
        let kinds: Vec<Kind> = weights.iter().map(kind).collect();
        let mut drawing = Drawing::new(&kinds, keys, seed);
        (0..40_000).map(|_| drawing.next()).collect()
    }

    #[test]
    fn kinds_are_as_frequent_as_they_weigh() {
        let of = |draws: &[Draw], kind| draws.iter().filter(|draw| draw.kind == kind).count();
        let draws = drawn(&[3, 1], 1, 1);
        // The limit is about five standard deviations.
        assert!(of(&draws, 0).abs_diff(30_000) < 450, "{}", of(&draws, 0));
        assert_eq!(of(&draws, 0) + of(&draws, 1), draws.len());
        assert_eq!(of(&drawn(&[0, 1], 1, 1), 1), draws.len(), "a weight of none is never drawn");
        assert_eq!(of(&drawn(&[], 1, 1), 0), draws.len());
    }

    /// Otherwise a queue would be longer for one kind than for another one, or never build up.
    #[test]
    fn a_kind_does_not_depend_on_when_the_request_is_due() {
        let (mut counts, mut gaps, mut before) = ([0_u64; 2], [0_u64; 2], 0);
        let due = Schedule::Poisson(1e4).arrivals(1);
        for (due, draw) in due.zip(drawn(&[1, 1], 1, 1)) {
            counts[draw.kind] += 1;
            gaps[draw.kind] += due - before;
            before = due;
        }
        // The mean gap is 100 µs. The limit is more than five standard deviations.
        let means = [0, 1].map(|kind| gaps[kind] / counts[kind]);
        assert!(means.iter().all(|mean| mean.abs_diff(100_000) < 4_000), "{means:?}");
    }

    #[test]
    fn every_key_comes_up_and_none_beyond() {
        let mut times = [0_u32; 8];
        for draw in drawn(&[], 8, 1) {
            times[usize::try_from(draw.key).unwrap()] += 1;
        }
        assert!(times.iter().all(|times| times.abs_diff(5_000) < 350), "{times:?}");
    }

    #[test]
    fn a_seed_repeats_what_is_drawn() {
        assert_eq!(drawn(&[3, 1], 100, 7), drawn(&[3, 1], 100, 7));
        assert_ne!(drawn(&[3, 1], 100, 7), drawn(&[3, 1], 100, 8));
    }
}
