//! The claims of `blocked-consumer`, and their verdicts.
//!
//! The best of the others is the one with the highest median over all rounds of the same run, which
//! favours the others. "Not slower" allows as much as wakeful's queue differs from itself in the
//! same rounds.

use wakeful_load::internals::results::Claim;
use wakeful_load::internals::statistics::ratio_of_pairs;

use super::contenders::{
    AGAIN, BOXED, COUNTS, DEQUE, KERNEL, OTHERS, READ_WRITE, READY, SERVICE_DEQUE, SERVICE_READY,
    SERVICE_TOKIO, SERVICE_WAKEFUL, SPINLOCK,
};
use super::found::{Found, Priority, Service, Stress};
use super::parts::{ALONE, QUOTA, SERVICE, STEPS, STRESS};
use super::tables;
use crate::claims::{self, Bound};
use crate::interleaved::Measured;

/// The bound for the rate, against the kernel's epoll.
const TIMES_THE_KERNEL: f64 = 8.0;
/// The bound for services, which have more to do than their list.
const SERVICE_BOUND: f64 = 0.95;
/// The bound for the longest drain under a quota, against the mutex, whose drains wait for a
/// period.
const QUOTA_BOUND: f64 = 0.1;

pub(super) fn claims(found: &Found, seed: u64) -> Vec<Claim> {
    let mut claims = Vec::new();
    for ((_, part), measured) in STRESS.iter().zip(&found.stress) {
        claims.push(not_slower(part, measured, seed));
        claims.push(against_kernel(part, measured, seed));
    }
    claims.push(not_slower(ALONE, &found.alone, seed));
    claims.push(against_kernel(ALONE, &found.alone, seed));
    for name in [READY, BOXED, COUNTS] {
        claims.push(waits(found, name, "nobody waits", Bound::AtMost(0.0)));
    }
    for name in [READ_WRITE, SPINLOCK, DEQUE] {
        claims.push(waits(found, name, "somebody waits", Bound::AtLeast(1.0)));
    }
    let longest = |name| found.quota.figures(name, |one| one.worst_drain_us);
    claims.push(claims::ratio(
        &format!("{QUOTA}, longest drain: {READY} / {DEQUE} is at most {QUOTA_BOUND}"),
        (READY, &longest(READY)),
        (DEQUE, &longest(DEQUE)),
        Bound::AtMost(QUOTA_BOUND),
        seed,
    ));
    claims.push(services(&found.service, SERVICE_WAKEFUL, SERVICE_TOKIO, seed));
    claims.push(services(&found.service, SERVICE_READY, SERVICE_DEQUE, seed));
    claims
}

fn rate(one: &Stress) -> Option<f64> {
    Some(one.events_per_ms)
}

/// Stands for the best of the others if there is none.
const BEST: &str = "any other list in user space";

fn not_slower(part: &str, measured: &Measured<Stress>, seed: u64) -> Claim {
    let best = measured.lowest(OTHERS, |one| Some(-one.events_per_ms));
    let against = best.unwrap_or(BEST);
    let bound = noise_of(measured, seed).map_or(1.0, |(_, low, _)| low.min(1.0));
    let mut claim = claims::ratio(
        &format!("{part}, events/ms: {READY} is not slower than {BEST}, by more than the noise"),
        (READY, &measured.figures(READY, rate)),
        (against, &measured.figures(against, rate)),
        Bound::AtLeast(bound),
        seed,
    );
    if let Some(best) = best {
        claim.measured = format!("{}; the best is {best}", claim.measured);
    }
    claim
}

fn against_kernel(part: &str, measured: &Measured<Stress>, seed: u64) -> Claim {
    claims::ratio(
        &format!("{part}, events/ms: {READY} / {KERNEL} is at least {TIMES_THE_KERNEL}"),
        (READY, &measured.figures(READY, rate)),
        (KERNEL, &measured.figures(KERNEL, rate)),
        Bound::AtLeast(TIMES_THE_KERNEL),
        seed,
    )
}

/// Judges the drains and posts that ended only because the stopped producer was released.
fn waits(found: &Found, name: &str, what: &str, bound: Bound) -> Claim {
    let rescued = |one: &Priority| match one.skipped {
        Some(_) => None,
        None => Some(one.drains_rescued + one.posts_rescued),
    };
    let text = format!("{STEPS}: {what} for it in {name}");
    claims::in_every_round(&text, (name, &found.steps.figures(name, rescued)), bound)
}

fn services(measured: &Measured<Service>, subject: &str, against: &str, seed: u64) -> Claim {
    let rate = |one: &Service| Some(one.requests_per_second);
    claims::ratio(
        &format!("{SERVICE}, requests/s: {subject} / {against} is at least {SERVICE_BOUND}"),
        (subject, &measured.figures(subject, rate)),
        (against, &measured.figures(against, rate)),
        Bound::AtLeast(SERVICE_BOUND),
        seed,
    )
}

/// Returns the ratio of the median of wakeful's queue to itself, and its interval.
fn noise_of(measured: &Measured<Stress>, seed: u64) -> Option<(f64, f64, f64)> {
    let (once, again) = (measured.figures(READY, rate), measured.figures(AGAIN, rate));
    let pairs: Vec<(f64, f64)> =
        once.iter().zip(&again).filter_map(|(once, again)| once.zip(*again)).collect();
    ratio_of_pairs(&pairs, seed).map(|ratio| (ratio.median, ratio.low, ratio.high))
}

/// Returns notes for the reader: the noise, and what was not measured.
pub(super) fn notes(found: &Found, seed: u64) -> Vec<String> {
    let parts = STRESS.iter().map(|(_, part)| *part).chain([ALONE]);
    let noise =
        parts.zip(found.stress.iter().chain([&found.alone])).filter_map(|(part, measured)| {
            let (median, low, high) = noise_of(measured, seed)?;
            Some(format!("A against A, {part}: {median:.3} ({low:.3} to {high:.3})."))
        });
    noise.chain(tables::skipped(found)).collect()
}

#[cfg(test)]
mod tests {
    use wakeful_load::internals::results::Verdict;

    use super::*;

    fn stress(rate: f64) -> Vec<Stress> {
        let one = |factor: f64| Stress {
            events_per_ms: rate * factor,
            rings: None,
            allocations_per_event: 0.0,
        };
        [0.99, 1.0, 1.01].map(one).to_vec()
    }

    fn stresses(ready: f64, kernel: f64) -> Measured<Stress> {
        Measured::canned(vec![
            (KERNEL, stress(kernel)),
            (READY, stress(ready)),
            (AGAIN, stress(ready)),
            (DEQUE, stress(30e3)),
            (SPINLOCK, stress(20e3)),
        ])
    }

    fn priority(rescued: f64, longest: f64) -> Vec<Priority> {
        let one = |factor: f64| Priority {
            drains_rescued: rescued,
            worst_drain_us: Some(longest * factor),
            ..Priority::default()
        };
        [0.99, 1.0, 1.01].map(one).to_vec()
    }

    /// Makes figures of wakeful as they should be, with what a test changes.
    fn found(ready: f64, rescued: f64, locked: f64, quota: f64, service: f64) -> Found {
        let requests =
            |rate| [0.99, 1.0, 1.01].map(|f| Service { requests_per_second: rate * f }).to_vec();
        Found {
            stress: STRESS.iter().map(|_| stresses(ready, 4e3)).collect(),
            alone: stresses(ready, 4e3),
            steps: Measured::canned(vec![
                (READY, priority(rescued, 1.0)),
                (BOXED, priority(0.0, 1.0)),
                (COUNTS, priority(0.0, 1.0)),
                (READ_WRITE, priority(locked, 2e4)),
                (SPINLOCK, priority(3.0, 2e4)),
                (DEQUE, priority(3.0, 2e4)),
            ]),
            quota: Measured::canned(vec![
                (READY, priority(0.0, quota)),
                (DEQUE, priority(0.0, 95e3)),
            ]),
            service: Measured::canned(vec![
                (SERVICE_WAKEFUL, requests(service)),
                (SERVICE_TOKIO, requests(100e3)),
                (SERVICE_READY, requests(service)),
                (SERVICE_DEQUE, requests(100e3)),
            ]),
            ..Found::none()
        }
    }

    fn fails(found: &Found) -> Vec<usize> {
        let verdicts = claims(found, 1).into_iter().map(|claim| claim.verdict).enumerate();
        verdicts
            .filter(|(_, verdict)| *verdict == Verdict::DoesNotHold)
            .map(|(index, _)| index)
            .collect()
    }

    #[test]
    fn what_is_as_it_should_be_holds() {
        for claim in claims(&found(40e3, 0.0, 3.0, 50.0, 100e3), 1) {
            assert_eq!(claim.verdict, Verdict::Holds, "{claim:?}");
        }
    }

    #[test]
    fn each_claim_can_fail() {
        let slower: Vec<usize> = (0..12).filter(|index| index % 2 == 0).collect();
        assert!(fails(&found(32.7e3, 0.0, 3.0, 50.0, 100e3)).is_empty());
        let mut slow = found(40e3, 0.0, 3.0, 50.0, 100e3);
        slow.stress = STRESS.iter().map(|_| stresses(28e3, 3e3)).collect();
        slow.alone = stresses(28e3, 3e3);
        assert_eq!(fails(&slow), slower);
        assert_eq!(fails(&found(31e3, 0.0, 3.0, 50.0, 100e3)), [1, 3, 5, 7, 9, 11]);
        assert_eq!(fails(&found(40e3, 1.0, 3.0, 50.0, 100e3)), [12]);
        assert_eq!(fails(&found(40e3, 0.0, 0.0, 50.0, 100e3)), [15]);
        assert_eq!(fails(&found(40e3, 0.0, 3.0, 50e3, 100e3)), [18]);
        assert_eq!(fails(&found(40e3, 0.0, 3.0, 50.0, 80e3)), [19, 20]);
    }

    #[test]
    fn what_was_not_measured_leaves_its_claims_open_and_says_why() {
        let mut without_root = found(40e3, 0.0, 3.0, 50.0, 100e3);
        let skipped = Some("run it as root".to_owned());
        without_root.steps =
            Measured::canned(vec![(READY, vec![Priority { skipped, ..Priority::default() }])]);
        assert_eq!(claims(&without_root, 1)[12].verdict, Verdict::CannotTell);
        assert!(notes(&without_root, 1).last().unwrap().contains("run it as root"));
        assert_eq!(claims(&Found::none(), 0).len(), 21);
    }
}
