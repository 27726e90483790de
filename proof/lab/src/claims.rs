//! Claims: a ratio of two contenders' figures with a bound, and the verdict on it.
//!
//! The ratio is taken round by round. The 99 % bootstrap interval of its median decides. A claim
//! holds if the whole interval is on its side of the bound. It does not hold if the whole interval
//! is on the other side. Otherwise this machine cannot tell. A claim about something other than a
//! ratio ([`in_every_round`]) holds if every round keeps the bound.

use wakeful_load::internals::format;
use wakeful_load::internals::results::{Claim, Floor, Verdict};
use wakeful_load::internals::series::Figures;
use wakeful_load::internals::statistics::{Ratio, median, ratio_of_pairs};

/// A figure of a block, if the block has it.
pub type Figure = fn(&Figures) -> Option<f64>;

/// The bound that a ratio has to keep.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Bound {
    /// The ratio is at most this.
    AtMost(f64),
    /// The ratio is at least this.
    AtLeast(f64),
}

/// A claim about one contender's figure, compared with another's in the same rounds.
#[derive(Debug, Clone)]
pub struct RatioClaim {
    /// The claim in one sentence, which names the bound.
    pub text: String,
    /// The contender whose figure the claim is about.
    pub subject: &'static str,
    /// The contender that it is compared with.
    pub against: &'static str,
    /// The figure.
    pub figure: Figure,
    /// The bound that the ratio has to keep.
    pub bound: Bound,
}

impl RatioClaim {
    /// Returns the verdict. Figures of the same round have the same index in both slices. The
    /// measured text has a mark if the median response time of one of the two is less than twice
    /// the floor's. Then the ratio depends more on the generator and the kernel than on the two.
    #[must_use]
    pub fn judge(
        &self,
        subject: &[Figures],
        against: &[Figures],
        floor: Option<&Floor>,
        seed: u64,
    ) -> Claim {
        let of = |figures: &[Figures]| figures.iter().map(self.figure).collect::<Vec<_>>();
        let (of_subject, of_against) = (of(subject), of(against));
        let (subject_named, against_named) =
            ((self.subject, &of_subject[..]), (self.against, &of_against[..]));
        let claim = ratio(&self.text, subject_named, against_named, self.bound, seed);
        let floor = floor.and_then(|floor| floor.response.p50);
        let least = median_p50(subject).zip(median_p50(against)).map(|(one, other)| one.min(other));
        if floor.zip(least).is_some_and(|(floor, least)| least < 2.0 * floor as f64) {
            Claim { measured: claim.measured + format::FLOOR_MARK, ..claim }
        } else {
            claim
        }
    }
}

fn median_p50(figures: &[Figures]) -> Option<f64> {
    let p50s: Vec<f64> = figures.iter().filter_map(|figures| figures.p50).collect();
    (!p50s.is_empty()).then(|| median(&p50s))
}

/// Returns the verdict on a ratio of two contenders' figures, each with its name. Figures of the
/// same round have the same index in both slices. A round that lacks one of them does not count.
#[must_use]
pub fn ratio(
    text: &str,
    subject: (&str, &[Option<f64>]),
    against: (&str, &[Option<f64>]),
    bound: Bound,
    seed: u64,
) -> Claim {
    let pairs = against.1.iter().zip(subject.1);
    let pairs: Vec<(f64, f64)> =
        pairs.filter_map(|(against, subject)| against.zip(*subject)).collect();
    let (verdict, measured) = match ratio_of_pairs(&pairs, seed) {
        None => {
            let is_missing = subject.1.iter().all(Option::is_none);
            let missing = if is_missing { subject.0 } else { against.0 };
            (Verdict::CannotTell, format!("there are no figures of {missing}"))
        }
        Some(ratio) => {
            let measured = format!(
                "{} ({} to {}) in {}",
                format::number(ratio.median),
                format::number(ratio.low),
                format::number(ratio.high),
                rounds(pairs.len())
            );
            // With one round, the interval is a point, whatever the machine did.
            let verdict = if pairs.len() > 1 { bound.verdict(ratio) } else { Verdict::CannotTell };
            (verdict, measured)
        }
    };
    Claim { claim: text.to_owned(), measured, verdict }
}

/// Returns the verdict on a figure that has to keep its bound in each round: a count, or a ratio to
/// something within the same run.
#[must_use]
pub fn in_every_round(text: &str, of: (&str, &[Option<f64>]), bound: Bound) -> Claim {
    let figures: Vec<f64> = of.1.iter().copied().flatten().collect();
    let least = figures.iter().copied().reduce(f64::min);
    let Some((least, most)) = least.zip(figures.iter().copied().reduce(f64::max)) else {
        let measured = format!("there are no figures of {}", of.0);
        return Claim { claim: text.to_owned(), measured, verdict: Verdict::CannotTell };
    };
    let (least_text, most_text) = (format::number(least), format::number(most));
    let range =
        if least_text == most_text { least_text } else { format!("{least_text} to {most_text}") };
    let keeps = match bound {
        Bound::AtMost(bound) => most <= bound,
        Bound::AtLeast(bound) => least >= bound,
    };
    Claim {
        claim: text.to_owned(),
        measured: format!("{range} in {}", rounds(figures.len())),
        verdict: if keeps { Verdict::Holds } else { Verdict::DoesNotHold },
    }
}

fn rounds(count: usize) -> String {
    format!("{count} {}", if count == 1 { "round" } else { "rounds" })
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
    use wakeful_load::{Percentiles, Validity};

    use super::*;

    fn figures(p50s: &[f64]) -> Vec<Figures> {
        let figures = |&p50| Figures {
            p50: Some(p50),
            p90: None,
            p99: None,
            p999: None,
            max: p50,
            cpu_per_request: None,
            cpu_share: None,
            throughput: 1.0,
        };
        p50s.iter().map(figures).collect()
    }

    fn claim(bound: Bound) -> RatioClaim {
        RatioClaim {
            text: String::new(),
            subject: "a",
            against: "b",
            figure: |figures| figures.p50,
            bound,
        }
    }

    fn verdict(subject: &[f64], against: &[f64], bound: Bound) -> Verdict {
        claim(bound).judge(&figures(subject), &figures(against), None, 1).verdict
    }

    #[test]
    fn what_is_under_twice_the_floor_is_marked() {
        let mut response = Percentiles::default();
        response.p50 = Some(10);
        let floor = Floor {
            rate: 1e4,
            response,
            send_lag: Percentiles::default(),
            gaps: None,
            validity: Validity::Valid,
        };
        let is_marked = |subject: &[f64], against: &[f64]| {
            let (subject, against) = (figures(subject), figures(against));
            let claim = claim(Bound::AtMost(1.0)).judge(&subject, &against, Some(&floor), 1);
            claim.measured.ends_with('*')
        };
        assert!(!is_marked(&[20.0, 21.0], &[50.0, 50.0]));
        assert!(is_marked(&[19.0, 19.0], &[50.0, 50.0]));
        assert!(is_marked(&[50.0, 50.0], &[19.0, 19.0]), "whichever of the two it is");
        assert!(!is_marked(&[19.0], &[]), "nothing was measured");
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
    fn what_every_round_has_to_keep_fails_with_one() {
        let verdict = |figures: &[Option<f64>], bound| in_every_round("", ("a", figures), bound);
        let parks = [Some(0.0), None, Some(0.0)];
        let claim = verdict(&parks, Bound::AtMost(0.0));
        assert_eq!((claim.verdict, claim.measured.as_str()), (Verdict::Holds, "0 in 2 rounds"));
        let claim = verdict(&[Some(0.0), Some(1.0)], Bound::AtMost(0.0));
        assert_eq!(claim.verdict, Verdict::DoesNotHold);
        assert_eq!(claim.measured, "0 to 1.00 in 2 rounds");
        assert_eq!(verdict(&[Some(1.0)], Bound::AtLeast(1.0)).verdict, Verdict::Holds);
        assert_eq!(verdict(&[None], Bound::AtLeast(1.0)).verdict, Verdict::CannotTell);
    }

    #[test]
    fn a_round_that_lacks_a_figure_does_not_count() {
        let (subject, against) = ([Some(1.0), None, Some(1.0)], [Some(2.0), Some(9.0), None]);
        let claim = ratio("", ("a", &subject), ("b", &against), Bound::AtMost(0.6), 1);
        assert_eq!(claim.measured, "0.500 (0.500 to 0.500) in 1 round");
        assert_eq!(claim.verdict, Verdict::CannotTell, "one round is not enough");
        let claim = ratio("", ("a", &subject), ("b", &[None; 3]), Bound::AtMost(0.6), 1);
        assert_eq!(claim.measured, "there are no figures of b");
    }

    #[test]
    fn a_missing_contender_leaves_a_claim_open() {
        assert_eq!(verdict(&[], &[1.0], Bound::AtMost(1.0)), Verdict::CannotTell);
        assert_eq!(verdict(&[1.0], &[], Bound::AtMost(1.0)), Verdict::CannotTell);
    }
}
