//! How much CPU time spinning may use: a token bucket, in nanoseconds of spinning.

/// How much unused time a loop may save up, in nanoseconds at the full rate. In any second,
/// spinning takes at most the rate plus a fiftieth of it. This is a fifth of the period of a cgroup
/// quota, so that saved time does not use up a whole period.
const SAVED: u64 = 20_000_000;

/// The token bucket. See the [module](self).
#[derive(Debug, Clone)]
pub(super) struct Allowance {
    /// The rate as a share of a CPU, 0 to 1.
    share: f64,
    level: f64,
    at: u64,
}

impl Allowance {
    pub(super) fn new(share: f64) -> Self {
        Self { share, level: share * SAVED as f64, at: 0 }
    }

    pub(super) fn set_share(&mut self, now: u64, share: f64) {
        self.refill(now);
        self.share = share;
        self.level = self.level.min(share * SAVED as f64);
    }

    /// How long a spin may last that should last for `wanted`: all of it, or nothing, because half
    /// a window only wastes CPU time. A window that is longer than can be saved up is shortened.
    pub(super) fn grant(&mut self, now: u64, wanted: u64) -> u64 {
        if self.share >= 1.0 {
            return wanted;
        }
        self.refill(now);
        let possible = wanted.min((self.share * SAVED as f64) as u64);
        if self.level >= possible as f64 { possible } else { 0 }
    }

    /// Takes the time of a spin away. A spin is granted no more than there is. If it took far
    /// longer, it was stopped, or had lost its CPU, so the debt is limited.
    pub(super) fn spend(&mut self, spun: u64) {
        self.level = (self.level - spun as f64).max(-self.share * SAVED as f64);
    }

    fn refill(&mut self, now: u64) {
        let passed = now.saturating_sub(self.at) as f64;
        self.level = (self.level + passed * self.share).min(self.share * SAVED as f64);
        self.at = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn over_any_second_spinning_is_at_most_its_share_and_a_fiftieth() {
        let mut allowance = Allowance::new(0.3);
        let (mut now, mut spins) = (0_u64, Vec::new());
        while now < 5_000_000_000 {
            let granted = allowance.grant(now, 200_000);
            allowance.spend(granted);
            spins.push((now, granted));
            now += granted.max(20_000);
        }
        for (start, _) in spins.iter().step_by(1000) {
            let within = start..&(start + 1_000_000_000);
            let spun: u64 = spins.iter().filter(|(at, _)| within.contains(&at)).map(|s| s.1).sum();
            assert!(spun <= 307_000_000, "{spun} ns in the second from {start} on");
        }
        let all: u64 = spins.iter().map(|spin| spin.1).sum();
        assert!(all >= 5 * 290_000_000, "what is allowed is used: {all}");
    }

    #[test]
    fn nothing_is_granted_of_nothing_and_all_of_all() {
        assert_eq!(Allowance::new(0.0).grant(1, 1_000), 0);
        assert_eq!(Allowance::new(1.0).grant(1, u64::MAX), u64::MAX);
    }

    #[test]
    fn a_spin_that_was_stopped_for_long_leaves_no_debt() {
        let mut allowance = Allowance::new(0.1);
        assert_eq!(allowance.grant(1, 500_000), 500_000);
        let stopped = 10_000_000_000;
        allowance.spend(stopped);
        assert_eq!(allowance.grant(1 + stopped, 500_000), 500_000);
    }

    #[test]
    fn a_window_that_cannot_be_saved_up_for_is_shortened() {
        assert_eq!(Allowance::new(0.01).grant(1, 5_000_000), 200_000);
    }
}
