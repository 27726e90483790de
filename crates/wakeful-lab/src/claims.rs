//! Claims: a ratio of two contenders' figures with a bound, and the verdict on it.
//!
//! The ratio is taken round by round, and its median with a 99 % bootstrap interval decides: a claim holds if the whole interval is on
//! its side of the bound, does not hold if the whole interval is on the other, and otherwise this machine cannot tell.

use wakeful_load::format;
use wakeful_load::results::{Claim, Verdict};
use wakeful_load::series::Figures;
use wakeful_load::statistics::{Ratio, ratio_of_pairs};

/// A figure of a block, if the block has it.
pub type Figure = fn(&Figures) -> Option<f64>;

/// What a ratio has to keep.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Bound {
    /// At most this.
    AtMost(f64),
    /// At least this.
    AtLeast(f64),
}

/// One contender's figure, against another's in the same rounds.
#[derive(Debug, Clone)]
pub struct RatioClaim {
    /// One sentence, which names the bound.
    pub text: String,
    /// Whose figure.
    pub subject: &'static str,
    /// Against whose.
    pub against: &'static str,
    /// Which figure.
    pub figure: Figure,
    /// What the ratio has to keep.
    pub bound: Bound,
}

impl RatioClaim {
    /// The verdict. Figures of the same round are at the same place in both.
    #[must_use]
    pub fn judge(&self, subject: &[Figures], against: &[Figures], seed: u64) -> Claim {
        let pairs: Vec<(f64, f64)> = against
            .iter()
            .zip(subject)
            .filter_map(|(against, subject)| (self.figure)(against).zip((self.figure)(subject)))
            .collect();
        let (verdict, measured) = match ratio_of_pairs(&pairs, seed) {
            None => {
                let missing = if subject.is_empty() { self.subject } else { self.against };
                (Verdict::CannotTell, format!("there are no figures of {missing}"))
            }
            Some(ratio) => {
                let measured = format!(
                    "{} ({} to {}) in {} rounds",
                    format::number(ratio.median),
                    format::number(ratio.low),
                    format::number(ratio.high),
                    pairs.len()
                );
                (self.bound.verdict(ratio), measured)
            }
        };
        Claim { claim: self.text.clone(), measured, verdict }
    }
}

impl Bound {
    fn verdict(self, ratio: Ratio) -> Verdict {
        let (holds, fails) = match self {
            Self::AtMost(bound) => (ratio.high <= bound, ratio.low > bound),
            Self::AtLeast(bound) => (ratio.low >= bound, ratio.high < bound),
        };
        match (holds, fails) {
            (true, _) => Verdict::Holds,
            (_, true) => Verdict::DoesNotHold,
            _ => Verdict::CannotTell,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(p50s: &[f64]) -> Vec<Figures> {
        let figures = |&p50| Figures {
            p50: Some(p50),
            p90: None,
            p99: None,
            p999: None,
            cpu_per_request: None,
            cpu_share: None,
            throughput: 1.0,
        };
        p50s.iter().map(figures).collect()
    }

    fn verdict(subject: &[f64], against: &[f64], bound: Bound) -> Verdict {
        let claim = RatioClaim {
            text: String::new(),
            subject: "a",
            against: "b",
            figure: |figures| figures.p50,
            bound,
        };
        claim.judge(&figures(subject), &figures(against), 1).verdict
    }

    #[test]
    fn a_claim_holds_only_if_its_whole_interval_does() {
        let tokio = [50.0, 52.0, 51.0];
        assert_eq!(verdict(&[8.0, 9.0, 8.5], &tokio, Bound::AtMost(0.4)), Verdict::Holds);
        assert_eq!(verdict(&[40.0, 41.0, 42.0], &tokio, Bound::AtMost(0.4)), Verdict::DoesNotHold);
        assert_eq!(verdict(&[8.0, 60.0, 8.0], &tokio, Bound::AtMost(0.4)), Verdict::CannotTell);
        assert_eq!(verdict(&[100.0, 110.0, 105.0], &tokio, Bound::AtLeast(1.5)), Verdict::Holds);
        assert_eq!(verdict(&[50.0, 51.0, 50.0], &tokio, Bound::AtLeast(1.5)), Verdict::DoesNotHold);
    }

    #[test]
    fn a_missing_contender_leaves_a_claim_open() {
        assert_eq!(verdict(&[], &[1.0], Bound::AtMost(1.0)), Verdict::CannotTell);
        assert_eq!(verdict(&[1.0], &[], Bound::AtMost(1.0)), Verdict::CannotTell);
    }
}
