//! The claims of `herd`, and their verdicts.
//!
//! "Not above plain EPOLLEXCLUSIVE" is decided by the ranges of the rounds. The range of plain
//! EPOLLEXCLUSIVE has both of its runs. Ratios cannot be used, because in some cases both figures
//! are 0. One wake in a thousand connections counts as no difference: when a busy loop falls
//! silent, the alarm by which another loop would take over is still set, and wakes one loop once.

use wakeful_load::internals::format;
use wakeful_load::internals::results::{Claim, Verdict};

use super::block::Served;
use super::case::{CASES, Case, ONE, PUBLIC, SATURATED};
use super::contenders::{
    ADAPTIVE, AGAIN, EPOLL, EXCLUSIVE, PARK, SELECT, UNICORN, WORKERS_ADAPTIVE, WORKERS_PARK,
};
use super::found::Found;
use super::parts::{LOOPS, PROCESSES};
use crate::claims::{self, Bound};

/// The connections of the busiest worker, divided by the mean.
const SPREAD: f64 = 1.25;
/// The wakes in vain per connection.
const IN_VAIN: f64 = 0.01;
/// This many more wakes per connection are no difference.
const ONCE: f64 = 0.001;
/// The number of workers that a connection wakes: all eight, except those that have not yet fallen
/// asleep.
const HERD: f64 = 6.0;
/// Nearly all connections go to the same one of eight workers.
const PILE_UP: f64 = 7.0;
/// The share of the wakes in vain that the program notices.
const NOTICED: f64 = 0.5;
/// The bound for the time of the public case, in which it was 2.5 s / 3.4 s.
const FASTER: f64 = 0.9;
/// The ratio that the public case had.
const AS_MUCH_FASTER: f64 = 0.735;

/// Returns the claims, each with its part of the experiment.
pub(super) fn claims(found: &Found, seed: u64) -> Vec<(&'static str, Claim)> {
    let loops = of_loops(found, seed).into_iter().map(|claim| (LOOPS, claim));
    let processes = of_processes(found, seed).into_iter().map(|claim| (PROCESSES, claim));
    loops.chain(processes).collect()
}

/// Returns the claims about loops. They include those about the plain servers, whose workers are
/// threads, too.
fn of_loops(found: &Found, seed: u64) -> Vec<Claim> {
    let mut claims = Vec::new();
    for name in [SELECT, EPOLL] {
        let text = format!("a connection to {name} wakes at least {HERD} workers");
        claims.push(every(found, &ONE, name, &text, Served::wakes, Bound::AtLeast(HERD)));
    }
    let text = format!("of the wakes in vain of {SELECT}, the program notices at most {NOTICED}");
    claims.push(every(found, &ONE, SELECT, &text, noticed, Bound::AtMost(NOTICED)));
    claims.push(in_vain(found, &ONE, EXCLUSIVE));
    let text = format!("the busiest worker of {EXCLUSIVE} has at least {PILE_UP} times the mean");
    claims.push(every(found, &ONE, EXCLUSIVE, &text, Served::spread, Bound::AtLeast(PILE_UP)));
    claims.push(faster(found, EXCLUSIVE, SELECT, FASTER, seed));
    for name in [PARK, ADAPTIVE] {
        claims.extend(no_herd(found, name, "loop"));
    }
    claims
}

fn of_processes(found: &Found, seed: u64) -> Vec<Claim> {
    let mut claims = Vec::new();
    for name in [WORKERS_PARK, WORKERS_ADAPTIVE] {
        claims.extend(no_herd(found, name, "worker"));
        // UNICORN is the server of the story, with the work that it does for a request.
        for than in [SELECT, UNICORN] {
            claims.push(faster(found, name, than, AS_MUCH_FASTER, seed));
        }
    }
    claims
}

/// Returns what is promised of each way to run wakeful.
fn no_herd(found: &Found, name: &str, worker: &str) -> [Claim; 4] {
    let spread = format!("the busiest {worker} of {name} has at most {SPREAD} times the mean");
    let bound = Bound::AtMost(SPREAD);
    [
        in_vain(found, &ONE, name),
        in_vain(found, &SATURATED, name),
        every(found, &SATURATED, name, &spread, Served::spread, bound),
        not_above(found, name),
    ]
}

/// Judges the time of the public case.
fn faster(found: &Found, name: &str, than: &str, bound: f64, seed: u64) -> Claim {
    let seconds = |name| found.of(&PUBLIC).figures(name, |one| Some(one.seconds));
    claims::ratio(
        &format!("{}, time: {name} / {than} is at most {bound}", PUBLIC.name),
        (name, &seconds(name)),
        (than, &seconds(than)),
        Bound::AtMost(bound),
        seed,
    )
}

/// Judges a figure that has to keep its bound in every round of a case.
fn every(
    found: &Found,
    case: &Case,
    name: &str,
    text: &str,
    figure: fn(&Served) -> Option<f64>,
    bound: Bound,
) -> Claim {
    let figures = found.of(case).figures(name, figure);
    claims::in_every_round(&format!("{}: {text}", case.name), (name, &figures), bound)
}

fn in_vain(found: &Found, case: &Case, name: &str) -> Claim {
    let text = format!("{name} has at most {IN_VAIN} wakes in vain a connection");
    every(found, case, name, &text, Served::in_vain, Bound::AtMost(IN_VAIN))
}

/// Returns the share of the wakes in vain that the program notices as a failed accept.
fn noticed(served: &Served) -> Option<f64> {
    let in_vain = served.in_vain().filter(|in_vain| *in_vain > 0.0)?;
    Some(served.refused()? / in_vain)
}

/// Judges the wakes in vain in each case, against plain EPOLLEXCLUSIVE in the same run. The worst
/// cases decide, and are named.
fn not_above(found: &Found, name: &str) -> Claim {
    let against = CASES.iter().map(|case| against_plain(found, case, name));
    let against: Vec<(Verdict, String)> = against.collect();
    let of = |verdict| {
        let texts = against.iter().filter(|(one, _)| *one == verdict).map(|(_, text)| &text[..]);
        texts.collect::<Vec<_>>().join("; ")
    };
    let worst = [Verdict::DoesNotHold, Verdict::CannotTell];
    let worst = worst.into_iter().map(|verdict| (verdict, of(verdict)));
    let (verdict, measured) = worst
        .into_iter()
        .find(|(_, texts)| !texts.is_empty())
        .unwrap_or_else(|| (Verdict::Holds, format!("in {} cases", CASES.len())));
    let claim = format!("in every case, {name} has not more wakes in vain than {EXCLUSIVE}");
    Claim { claim, measured, verdict }
}

fn against_plain(found: &Found, case: &Case, name: &str) -> (Verdict, String) {
    let range = |names: &[&str]| {
        let of = |name: &&str| found.of(case).figures(name, Served::in_vain);
        let figures: Vec<f64> = names.iter().flat_map(of).flatten().collect();
        let least = figures.iter().copied().reduce(f64::min);
        least.zip(figures.iter().copied().reduce(f64::max))
    };
    let Some((ours, plain)) = range(&[name]).zip(range(&[EXCLUSIVE, AGAIN])) else {
        return (Verdict::CannotTell, format!("{}: there are no figures", case.name));
    };
    let verdict = match () {
        () if ours.1 <= plain.1 + ONCE => Verdict::Holds,
        () if ours.0 > plain.1 + ONCE => Verdict::DoesNotHold,
        () => Verdict::CannotTell,
    };
    let text = |(least, most)| format!("{} to {}", format::number(least), format::number(most));
    (verdict, format!("{}: {}, against {}", case.name, text(ours), text(plain)))
}

#[cfg(test)]
mod tests {
    use super::super::woken::Woken;
    use super::*;
    use crate::interleaved::Measured;

    /// Makes figures for 1,000 connections: the wakes, those in vain, the failed accepts, and the
    /// connections of the busiest of 8 workers.
    fn served(wakes: u64, in_vain: u64, refused: f64, busiest: f64, seconds: f64) -> Vec<Served> {
        let woken = Woken { wakes, for_accept: wakes - in_vain, ..Woken::default() };
        let one = |factor: f64| Served {
            connections: 1e3,
            workers: 8.0,
            seconds: seconds * factor,
            woken: Some(woken),
            busiest: Some(busiest),
            refused: Some(refused),
        };
        [0.99, 1.01].map(one).to_vec()
    }

    /// Makes figures as they should be, with those of wakeful's parking loops from a test.
    fn found(loops: &dyn Fn(&Case) -> Vec<Served>) -> Found {
        found_with(loops, &|_| served(1_000, 4, 0.0, 130.0, 2.4))
    }

    /// Like [`found`], but with the figures of wakeful's parking processes, too.
    fn found_with(
        loops: &dyn Fn(&Case) -> Vec<Served>,
        processes: &dyn Fn(&Case) -> Vec<Served>,
    ) -> Found {
        let of = |case: &Case| {
            Measured::canned(vec![
                (SELECT, served(8_000, 7_000, 100.0, 200.0, 3.4)),
                (EPOLL, served(8_000, 7_000, 100.0, 200.0, 3.4)),
                (EXCLUSIVE, served(1_000, 4, 0.0, 999.0, 2.5)),
                (AGAIN, served(1_000, 5, 0.0, 999.0, 2.5)),
                (PARK, loops(case)),
                (ADAPTIVE, served(1_000, 4, 0.0, 130.0, 2.5)),
                (UNICORN, served(8_000, 7_000, 100.0, 200.0, 7.0)),
                (WORKERS_PARK, processes(case)),
                (WORKERS_ADAPTIVE, served(1_000, 4, 0.0, 130.0, 2.4)),
            ])
        };
        Found(CASES.iter().map(of).collect())
    }

    fn fails(found: &Found) -> Vec<usize> {
        let verdicts = claims(found, 1).into_iter().enumerate();
        let failed = verdicts.filter(|(_, (_, claim))| claim.verdict == Verdict::DoesNotHold);
        failed.map(|(index, _)| index).collect()
    }

    #[test]
    fn what_is_as_it_should_be_holds() {
        for (_, claim) in claims(&found(&|_| served(1_000, 5, 0.0, 150.0, 2.5)), 1) {
            assert_eq!(claim.verdict, Verdict::Holds, "{claim:?}");
        }
    }

    #[test]
    fn each_claim_about_wakeful_can_fail() {
        let of = |which: &'static Case, in_vain, busiest| {
            fails(&found(&move |case: &Case| {
                let (in_vain, busiest) =
                    if case == which { (in_vain, busiest) } else { (0, 125.0) };
                served(1_000, in_vain, 0.0, busiest, 2.5)
            }))
        };
        assert_eq!(
            of(&ONE, 11, 125.0),
            [6, 9],
            "a wake in a hundred, and more than plain EPOLLEXCLUSIVE"
        );
        assert_eq!(of(&ONE, 7, 999.0), [9], "where it is idle, it need not spread");
        assert_eq!(of(&SATURATED, 0, 160.0), [8]);
        assert_eq!(of(&SATURATED, 11, 125.0), [7, 9]);
        assert_eq!(of(&PUBLIC, 7, 999.0), [9]);
        assert!(of(&PUBLIC, 6, 999.0).is_empty(), "one in a thousand more");
    }

    #[test]
    fn each_claim_about_processes_can_fail() {
        let first = of_loops(&Found::none(), 1).len();
        let of = |which: &'static Case, in_vain, busiest, seconds| {
            let loops = |_: &Case| served(1_000, 0, 0.0, 125.0, 2.5);
            let found = found_with(&loops, &move |case: &Case| match case == which {
                true => served(1_000, in_vain, 0.0, busiest, seconds),
                false => served(1_000, 0, 0.0, 125.0, 2.4),
            });
            fails(&found).into_iter().map(|index| index - first).collect::<Vec<_>>()
        };
        assert_eq!(of(&ONE, 11, 999.0, 2.4), [0, 3]);
        assert_eq!(of(&SATURATED, 11, 125.0, 2.4), [1, 3]);
        assert_eq!(of(&SATURATED, 0, 160.0, 2.4), [2]);
        assert_eq!(of(&PUBLIC, 7, 999.0, 2.4), [3]);
        assert_eq!(of(&PUBLIC, 0, 999.0, 2.6), [4], "of 3.4 s");
        assert_eq!(of(&PUBLIC, 0, 999.0, 5.3), [4, 5], "of 7 s as well");
    }

    #[test]
    fn each_claim_about_the_others_can_fail() {
        let mut changed = found(&|_| served(1_000, 0, 0.0, 125.0, 2.5));
        let all = |one: &dyn Fn() -> Vec<Served>| {
            Found(
                CASES
                    .iter()
                    .map(|_| {
                        Measured::canned(vec![(SELECT, one()), (EPOLL, one()), (EXCLUSIVE, one())])
                    })
                    .collect(),
            )
        };
        assert!(fails(&changed).is_empty());
        changed = all(&|| served(2_000, 1_000, 900.0, 125.0, 3.0));
        assert_eq!(fails(&changed), [0, 1, 2, 3, 4, 5]);
    }

    #[test]
    fn without_a_trace_claims_of_wakes_are_open() {
        let untraced = |_: &Case| {
            let mut served = served(1_000, 0, 0.0, 125.0, 2.5);
            served.iter_mut().for_each(|one| one.woken = None);
            served
        };
        let claims = claims(&found(&untraced), 1);
        assert_eq!(claims[6].1.verdict, Verdict::CannotTell);
        assert_eq!(
            claims[8].1.verdict,
            Verdict::Holds,
            "the workers counted connections themselves"
        );
        assert_eq!(claims[9].1.verdict, Verdict::CannotTell);
        assert_eq!(super::claims(&Found::none(), 1).len(), claims.len());
    }
}
