//! Which loop gets the next connection.

use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::{BuildHasher, Hasher};
use std::str::FromStr;

/// How [`Dispatch`](crate::accept::AcceptStrategy::Dispatch) chooses a loop. A loop's load is the
/// number of its open connections, including those on their way to it.
///
/// All except [`LeastLoaded`](Self::LeastLoaded) choose in constant time. None of them writes to
/// memory that another thread uses (`proof/benches/benches/placement.rs` measures what that saves).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Placement {
    /// Chooses each loop in turn. This is even as long as connections are alike. It ignores that
    /// some connections stay open longer than others.
    RoundRobin,
    /// Chooses a random loop. With n connections on m loops, the busiest loop has about √(2 · n/m ·
    /// ln m) more than the mean. A client cannot predict the next loop.
    Random,
    /// Chooses the loop with the least load, and loops with an equal load in turn. It reads the
    /// load of every loop: O(loops), one cache line each.
    LeastLoaded,
    /// Chooses the less loaded one of two different random loops. This is nearly as even as
    /// [`LeastLoaded`](Self::LeastLoaded), but reads only two loads instead of all.
    #[default]
    PowerOfTwoChoices,
}

const NAMES: [(Placement, &str); 4] = [
    (Placement::RoundRobin, "round-robin"),
    (Placement::Random, "random"),
    (Placement::LeastLoaded, "least-loaded"),
    (Placement::PowerOfTwoChoices, "power-of-two"),
];

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = NAMES.iter().find(|(placement, _)| placement == self).map_or("", |(_, n)| n);
        f.pad(name)
    }
}

impl FromStr for Placement {
    type Err = UnknownPlacement;

    fn from_str(text: &str) -> Result<Self, UnknownPlacement> {
        let found = NAMES.iter().find(|(_, name)| *name == text);
        found.map(|(placement, _)| *placement).ok_or_else(|| UnknownPlacement(text.to_owned()))
    }
}

/// The error of parsing a [`Placement`]: no placement has this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a placement: expected round-robin, random, least-loaded or power-of-two")]
pub struct UnknownPlacement(String);

/// Chooses one of several loops by a [`Placement`]. A server does this itself for connections. Use
/// it to distribute other work.
///
/// ```
/// use wakeful::accept::{Picker, Placement};
///
/// let mut picker = Picker::new(Placement::LeastLoaded, 3);
/// let loads = [7, 2, 5];
/// assert_eq!(picker.pick(|number| loads[number]), 1);
/// ```
///
/// # Threads
/// `Send`. Each thread that picks needs its own.
#[derive(Debug, Clone)]
pub struct Picker {
    placement: Placement,
    among: usize,
    /// The loop after the one that was last chosen in turn.
    next: usize,
    random: Random,
}

impl Picker {
    /// Makes a picker that chooses numbers from 0 to `among` - 1. An `among` of 0 counts as 1.
    #[must_use]
    pub fn new(placement: Placement, among: usize) -> Self {
        Self { placement, among: among.max(1), next: 0, random: Random::new() }
    }

    /// Makes the picker choose numbers from 0 to `among` - 1 from now on. An `among` of 0 counts as
    /// 1.
    pub fn set_among(&mut self, among: usize) {
        self.among = among.max(1);
    }

    /// Returns the number that it chooses next. `load` must return the current load of the loop
    /// with the given number. `RoundRobin` and `Random` do not call it.
    #[inline]
    pub fn pick(&mut self, load: impl Fn(usize) -> usize) -> usize {
        if self.among == 1 {
            return 0;
        }
        match self.placement {
            Placement::RoundRobin => self.in_turn(),
            Placement::Random => self.random.below(self.among),
            Placement::LeastLoaded => {
                // The search starts at another loop each time, because the first of several equal
                // loops would get every connection.
                let first = self.in_turn();
                let numbers = (first..self.among).chain(0..first);
                numbers.min_by_key(|number| load(*number)).unwrap_or(first)
            }
            Placement::PowerOfTwoChoices => {
                let one = self.random.below(self.among);
                let other = self.random.below(self.among - 1);
                let other = if other >= one { other + 1 } else { other };
                if load(other) < load(one) { other } else { one }
            }
        }
    }

    fn in_turn(&mut self) -> usize {
        let this = if self.next < self.among { self.next } else { 0 };
        self.next = this + 1;
        this
    }
}

/// Marsaglia's xorshift64*: three shifts and a multiplication. It spreads well enough, but must not
/// be used for secrets.
#[derive(Debug, Clone)]
struct Random(u64);

impl Random {
    /// The sequence differs for each `Random`.
    fn new() -> Self {
        Self(RandomState::new().build_hasher().finish() | 1)
    }

    /// A number below `bound`, by Lemire's multiplication, which needs no division.
    #[inline]
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let random = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d);
        ((u128::from(random) * bound as u128) >> 64) as usize
    }
}

#[cfg(all(test, not(wakeful_loom)))]
mod tests {
    use super::*;

    const LOOPS: usize = 8;
    const CONNECTIONS: usize = 80_000;

    /// How many connections each loop gets if none ever closes.
    fn spread(placement: Placement) -> [usize; LOOPS] {
        let mut picker = Picker::new(placement, LOOPS);
        let mut open = [0; LOOPS];
        for _ in 0..CONNECTIONS {
            open[picker.pick(|number| open[number])] += 1;
        }
        open
    }

    /// How much more the busiest loop has than the mean.
    fn above(placement: Placement) -> usize {
        spread(placement).into_iter().max().unwrap() - CONNECTIONS / LOOPS
    }

    #[test]
    fn in_turn_and_by_least_load_are_even() {
        assert_eq!(above(Placement::RoundRobin), 0);
        assert_eq!(above(Placement::LeastLoaded), 0);
    }

    #[test]
    fn two_choices_are_nearly_even_and_chance_is_as_even_as_chance_is() {
        let (two, one) = (above(Placement::PowerOfTwoChoices), above(Placement::Random));
        assert!(two <= 10, "{two}");
        // The expected excess is 200. More than ten times the standard deviation of one loop's
        // count (94) is no coincidence.
        assert!((1..=940).contains(&one), "{one}");
    }

    #[test]
    fn who_looks_at_the_load_avoids_a_busy_one() {
        let loads = [0, 0, 1_000, 0];
        for placement in [Placement::LeastLoaded, Placement::PowerOfTwoChoices] {
            let mut picker = Picker::new(placement, loads.len());
            let mut picked = [0; 4];
            for _ in 0..1_000 {
                picked[picker.pick(|number| loads[number])] += 1;
            }
            assert_eq!(picked[2], 0, "{placement}");
            assert!(picked.iter().filter(|count| **count > 100).count() == 3, "{picked:?}");
        }
    }

    #[test]
    fn least_load_among_equal_ones_goes_in_turn() {
        let mut picker = Picker::new(Placement::LeastLoaded, 3);
        let picked: Vec<_> = (0..6).map(|_| picker.pick(|_| 5)).collect();
        assert_eq!(picked, [0, 1, 2, 0, 1, 2]);
    }

    #[test]
    fn one_loop_is_always_the_one() {
        for (placement, _) in NAMES {
            assert_eq!(Picker::new(placement, 1).pick(|_| 0), 0);
        }
    }

    #[test]
    fn two_pickers_have_different_sequences() {
        let sequence = || {
            let mut picker = Picker::new(Placement::Random, 1_000_000);
            (0..10).map(|_| picker.pick(|_| 0)).collect::<Vec<_>>()
        };
        assert_ne!(sequence(), sequence());
    }

    #[test]
    fn placements_read_as_they_print() {
        for (placement, name) in NAMES {
            assert_eq!(name.parse(), Ok(placement));
            assert_eq!(placement.to_string(), name);
        }
        assert!("least".parse::<Placement>().unwrap_err().to_string().contains("least-loaded"));
    }
}
