//! The claims of `late-wake`, and their verdicts.
//!
//! The best peer is the one with the lowest median over all rounds of the same run, which favours
//! the peers. "Not worse" allows as much as the bare eventfd differs from itself in the same
//! rounds.

use wakeful_load::internals::results::Claim;
use wakeful_load::internals::statistics::ratio_of_pairs;

use super::contenders::{
    self, CHANNEL, EVENTFD, EVENTFD_AGAIN, INTERNAL, NEXT_TURN, POST, TASK, THIS_TURN,
};
use super::found::{Deferred, Found, Posts};
use super::parts::{DEFERRED, PARKED, SPINNING};
use crate::claims::{self, Bound};
use crate::interleaved::Measured;

/// With a few posts in a round, medians scatter. This bound promises no speed, only that nothing
/// waits.
const DEFERRED_BOUND: f64 = 1.25;
const PARKED_BOUND: f64 = 1.1;
const SPINNING_BOUND: f64 = 0.05;
/// The timer is set a moment before the posts.
const AS_LATE_AS_THE_TIMER: f64 = 0.99;

/// Returns the claims without verdicts.
pub(super) fn texts() -> Vec<String> {
    let empty = Found {
        deferred: Measured::canned(Vec::new()),
        cold: Measured::canned(Vec::new()),
        parked: Measured::canned(Vec::new()),
        spinning: Measured::canned(Vec::new()),
    };
    claims(&empty, 0).into_iter().map(|claim| claim.claim).collect()
}

pub(super) fn claims(found: &Found, seed: u64) -> Vec<Claim> {
    let Found { deferred, parked, spinning, .. } = found;
    let p50 = |one: &Posts| Some(one.latency.p50);
    let mut claims = vec![
        no_park(deferred),
        late_as_the_timer(deferred, "the queued work", |one| Some(one.local.p50 / one.timer_left)),
        late_as_the_timer(deferred, "post #2", |one| Some(one.second.p50 / one.timer_left)),
        against_best(deferred, "the queued work", |one| Some(one.local.p50), seed),
        against_best(deferred, "post #2", |one| Some(one.second.p50), seed),
    ];
    let eventfd = parked.figures(EVENTFD, p50);
    claims.push(claims::ratio(
        &format!("p50 of a post to a parked loop: {POST} / {EVENTFD} is at most {PARKED_BOUND}"),
        (POST, &parked.figures(POST, p50)),
        (EVENTFD, &eventfd),
        Bound::AtMost(PARKED_BOUND),
        seed,
    ));
    claims.push(claims::ratio(
        &format!(
            "p50 of a post by {POST}: to a spinning loop / by {EVENTFD} to a parked one is at most {SPINNING_BOUND}"
        ),
        (POST, &spinning.figures(POST, p50)),
        (EVENTFD, &eventfd),
        Bound::AtMost(SPINNING_BOUND),
        seed,
    ));
    for (part, measured) in [(PARKED, parked), (SPINNING, spinning)] {
        for subject in [POST, CHANNEL] {
            claims.push(not_worse(part, measured, subject, seed));
        }
    }
    claims
}

/// Judges the parks of all three ways, by the most in each round. A round in which one of them was
/// not measured counts only if another one parked.
fn no_park(deferred: &Measured<Deferred>) -> Claim {
    let ways = [TASK, THIS_TURN, NEXT_TURN];
    let parks = ways.map(|way| deferred.figures(way, |one| one.parks));
    let rounds = parks.iter().map(Vec::len).max().unwrap_or_default();
    let most = |round: usize| {
        let of_all = parks.each_ref().map(|way| way.get(round).copied().flatten());
        let most = of_all.iter().copied().flatten().reduce(f64::max);
        most.filter(|most| *most > 0.0 || of_all.iter().all(Option::is_some))
    };
    let most: Vec<Option<f64>> = (0..rounds).map(most).collect();
    let never_measured = ways.iter().zip(&parks).find(|(_, way)| way.iter().all(Option::is_none));
    claims::in_every_round(
        "wakeful parks not once between post #1 and the end of both the work that it queued and post #2",
        (never_measured.map_or("all three ways at once", |(way, _)| way), &most),
        Bound::AtMost(0.0),
    )
}

fn late_as_the_timer(
    deferred: &Measured<Deferred>,
    what: &str,
    figure: impl Fn(&Deferred) -> Option<f64>,
) -> Claim {
    claims::in_every_round(
        &format!(
            "the public case: with {INTERNAL}, {what} waits for the timer: it takes at least {AS_LATE_AS_THE_TIMER} of what was left of it"
        ),
        (INTERNAL, &deferred.figures(INTERNAL, figure)),
        Bound::AtLeast(AS_LATE_AS_THE_TIMER),
    )
}

fn against_best(
    deferred: &Measured<Deferred>,
    what: &str,
    figure: impl Fn(&Deferred) -> Option<f64>,
    seed: u64,
) -> Claim {
    let peers = contenders::peers(DEFERRED);
    let best = deferred.lowest(peers.iter().map(String::as_str), &figure);
    let against = best.unwrap_or(BEST);
    with_best(
        claims::ratio(
            &format!("{what}, p50: {TASK} / the best peer is at most {DEFERRED_BOUND}"),
            (TASK, &deferred.figures(TASK, &figure)),
            (against, &deferred.figures(against, &figure)),
            Bound::AtMost(DEFERRED_BOUND),
            seed,
        ),
        best,
    )
}

/// Stands for the best peer if there is none.
const BEST: &str = "any peer";

fn with_best(mut claim: Claim, best: Option<&str>) -> Claim {
    if let Some(best) = best {
        claim.measured = format!("{}; the best is {best}", claim.measured);
    }
    claim
}

fn not_worse(part: &str, measured: &Measured<Posts>, subject: &str, seed: u64) -> Claim {
    let p50 = |one: &Posts| Some(one.latency.p50);
    let peers = contenders::peers(part);
    let best = measured.lowest(peers.iter().map(String::as_str), p50);
    let against = best.unwrap_or(BEST);
    let bound = noise_of(measured, seed).map_or(1.0, |(_, _, high)| high.max(1.0));
    with_best(
        claims::ratio(
            &format!(
                "{part}, p50: {subject} is not worse than the best peer, by more than the noise"
            ),
            (subject, &measured.figures(subject, p50)),
            (against, &measured.figures(against, p50)),
            Bound::AtMost(bound),
            seed,
        ),
        best,
    )
}

/// Returns the ratio of the bare eventfd's median to itself, and its interval.
fn noise_of(measured: &Measured<Posts>, seed: u64) -> Option<(f64, f64, f64)> {
    let p50 = |one: &Posts| Some(one.latency.p50);
    let (once, again) = (measured.figures(EVENTFD, p50), measured.figures(EVENTFD_AGAIN, p50));
    let pairs: Vec<(f64, f64)> =
        once.iter().zip(&again).filter_map(|(once, again)| once.zip(*again)).collect();
    ratio_of_pairs(&pairs, seed).map(|ratio| (ratio.median, ratio.low, ratio.high))
}

/// Returns a note for the reader: the noise.
pub(super) fn noise(found: &Found, seed: u64) -> String {
    let of = |measured| {
        noise_of(measured, seed).map_or_else(
            || "not known".to_owned(),
            |(median, low, high)| format!("{median:.3} ({low:.3} to {high:.3})"),
        )
    };
    format!(
        "A against A: p50 of {EVENTFD_AGAIN} / {EVENTFD} is {} for a parked loop and {} for a spinning one.",
        of(&found.parked),
        of(&found.spinning)
    )
}

#[cfg(test)]
mod tests {
    use wakeful_load::internals::results::Verdict;

    use super::*;
    use crate::probes::Times;

    fn times(p50: f64) -> Times {
        Times { count: 10, min: p50, p50, p90: p50, p99: None, max: p50 }
    }

    fn deferred(local: f64, parks: Option<f64>) -> Vec<Deferred> {
        let one = |factor: f64| Deferred {
            local: times(local * factor),
            second: times(local * factor / 10.0),
            timer_left: 2e9,
            sleeps: parks.unwrap_or_default(),
            parks,
        };
        [0.99, 1.0, 1.01].map(one).to_vec()
    }

    fn posts(p50: f64) -> Vec<Posts> {
        let one = |factor: f64| Posts {
            latency: times(p50 * factor),
            cost: times(p50 / 4.0),
            sleeps_per_post: 1.0,
        };
        [0.99, 1.0, 1.01].map(one).to_vec()
    }

    /// Makes figures of wakeful as they should be, with what a test changes.
    fn found(parks: f64, internal: f64, run: f64, spinning: f64) -> Found {
        let mut late = deferred(internal, None);
        late.iter_mut().for_each(|one| one.second.p50 = internal);
        Found {
            deferred: Measured::canned(vec![
                (TASK, deferred(60e3, Some(0.0))),
                (THIS_TURN, deferred(60e3, Some(parks))),
                (NEXT_TURN, deferred(60e3, Some(0.0))),
                ("tokio, current-thread", deferred(62e3, None)),
                (INTERNAL, late),
            ]),
            cold: Measured::canned(Vec::new()),
            parked: Measured::canned(vec![
                (EVENTFD, posts(50e3)),
                (EVENTFD_AGAIN, posts(50.5e3)),
                (POST, posts(run)),
                (CHANNEL, posts(51e3)),
                ("tokio, mpsc", posts(52e3)),
                ("monoio, a channel", posts(70e3)),
            ]),
            spinning: Measured::canned(vec![
                (EVENTFD, posts(1e3)),
                (EVENTFD_AGAIN, posts(1e3)),
                (POST, posts(spinning)),
                (CHANNEL, posts(900.0)),
                ("tokio+burn, mpsc", posts(1.1e3)),
            ]),
        }
    }

    fn verdicts(found: &Found) -> Vec<Verdict> {
        claims(found, 1).into_iter().map(|claim| claim.verdict).collect()
    }

    const ALL: usize = 11;

    #[test]
    fn what_is_as_it_should_be_holds() {
        let claims = claims(&found(0.0, 2.01e9, 50.2e3, 700.0), 1);
        assert_eq!(claims.len(), ALL);
        for claim in &claims {
            assert_eq!(claim.verdict, Verdict::Holds, "{claim:?}");
        }
        assert!(claims[3].measured.ends_with("the best is tokio, current-thread"), "{claims:?}");
        assert!(claims[7].measured.ends_with("the best is tokio, mpsc"), "{claims:?}");
    }

    #[test]
    fn each_claim_can_fail() {
        let fails = |found: &Found| -> Vec<usize> {
            let verdicts = verdicts(found).into_iter().enumerate();
            verdicts
                .filter(|(_, verdict)| *verdict == Verdict::DoesNotHold)
                .map(|(index, _)| index)
                .collect()
        };
        assert_eq!(fails(&found(1.0, 2.01e9, 50e3, 700.0)), [0]);
        assert_eq!(fails(&found(0.0, 90e3, 50e3, 700.0)), [1, 2]);
        assert_eq!(fails(&found(0.0, 2.01e9, 60e3, 700.0)), [5, 7]);
        assert_eq!(fails(&found(0.0, 2.01e9, 50e3, 4e3)), [6, 9]);
        let mut slow = found(0.0, 2.01e9, 50e3, 700.0);
        slow.deferred = Measured::canned(vec![
            (TASK, deferred(90e3, Some(0.0))),
            ("tokio, current-thread", deferred(62e3, None)),
        ]);
        assert_eq!(fails(&slow), [3, 4]);
    }

    #[test]
    fn a_round_counts_only_with_all_three_ways_unless_one_parked() {
        let claim = |parks: f64, this_turn: usize, next_turn: usize| {
            let deferreds = |name, rounds: usize, parks| {
                (name, deferred(60e3, Some(parks)).into_iter().take(rounds).collect())
            };
            no_park(&Measured::canned(vec![
                deferreds(TASK, 3, parks),
                deferreds(THIS_TURN, this_turn, 0.0),
                deferreds(NEXT_TURN, next_turn, 0.0),
            ]))
        };
        let some = claim(0.0, 2, 3);
        assert_eq!((some.verdict, some.measured.as_str()), (Verdict::Holds, "0 in 2 rounds"));
        let none = claim(0.0, 3, 0);
        assert_eq!(none.verdict, Verdict::CannotTell);
        assert!(none.measured.ends_with(NEXT_TURN), "{}", none.measured);
        assert_eq!(claim(1.0, 0, 0).verdict, Verdict::DoesNotHold, "it parked, whoever is missing");
    }

    #[test]
    fn what_is_missing_leaves_its_claims_open() {
        let mut some = found(0.0, 2.01e9, 50e3, 700.0);
        some.deferred = Measured::canned(Vec::new());
        let verdicts = verdicts(&some);
        assert_eq!(verdicts[..5], [Verdict::CannotTell; 5]);
        assert!(verdicts[5..].iter().all(|verdict| *verdict == Verdict::Holds));
        assert_eq!(texts().len(), ALL);
        assert!(noise(&some, 1).contains("1.010"), "{}", noise(&some, 1));
    }
}
