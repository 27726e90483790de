//! What `sleepy-median` claims, and what comes of it.
//!
//! "Not worse" allows as much as A differs from A in the same rounds: `wakeful, adaptive` from its twin, and beside the hog `wakeful, parking`
//! from its own.

use wakeful_load::format;
use wakeful_load::results::{Claim, Verdict};
use wakeful_load::series::Figures;
use wakeful_load::statistics::ratio_of_pairs;

use super::Found;
use super::contenders::{
    ADAPTIVE, ADAPTIVE_AGAIN, BURN, CAP, EPOLL_SPIN, FRUGAL, PARKING, PARKING_AGAIN, PATIENT,
    SPINNING, TOKIO,
};
use super::hog::Beside;
use super::rates::{AT_10K, AT_50K, AT_100K, RATES};
use crate::claims::{self, Bound, Figure, RatioClaim};
use crate::interleaved::Measured;

/// The load may fall tenfold.
const INVERSION: f64 = 1.1;
/// Of p50 against the hand-written loop, Tokio, and Tokio that burns.
const TIMES_SPINNING_LOOP: f64 = 1.1;
const TIMES_TOKIO: f64 = 0.25;
const TIMES_BURN: f64 = 1.05;
/// Of a governor that spins for six in ten, against one that never stops.
const FRUGAL_P50: f64 = 1.3;
const FRUGAL_CPU: f64 = 0.7;
const PATIENT_P50: f64 = 1.2;
/// The cap is 0.3, of any second.
const CAP_KEPT: f64 = 0.33;
/// Against parking, with a client that spins on the same CPU.
const BESIDE_CLIENT: f64 = 2.0;
const BACK_WITHIN_MS: f64 = 300.0;
/// A loop whose p50 is not below this share of a parked one's does not spin.
const SPINS_BELOW: f64 = 0.7;

pub(super) fn claims(found: &Found, seed: u64) -> Vec<Claim> {
    let mut claims = Vec::new();
    for against in [AT_50K, AT_100K] {
        let (low, high) = (format::short_rate(RATES[AT_10K]), format::short_rate(RATES[against]));
        let claim = RatioClaim {
            text: format!(
                "{ADAPTIVE}: its p50 at {low} / its p50 at {high} is at most {INVERSION}"
            ),
            subject: ADAPTIVE,
            against: ADAPTIVE,
            figure: |figures| figures.p50,
            bound: Bound::AtMost(INVERSION),
        };
        claims.push(judge(found, &claim, (AT_10K, against), seed));
    }
    let p50 = [
        (AT_10K, EPOLL_SPIN, TIMES_SPINNING_LOOP),
        (AT_50K, EPOLL_SPIN, TIMES_SPINNING_LOOP),
        (AT_10K, TOKIO, TIMES_TOKIO),
        (AT_10K, BURN, TIMES_BURN),
        (AT_50K, BURN, TIMES_BURN),
    ];
    for (load, against, most) in p50 {
        let rate = format::short_rate(RATES[load]);
        let claim = RatioClaim {
            text: format!("p50 at {rate}: {ADAPTIVE} / {against} is at most {most}"),
            subject: ADAPTIVE,
            against,
            figure: |figures| figures.p50,
            bound: Bound::AtMost(most),
        };
        claims.push(judge(found, &claim, (load, load), seed));
    }
    for load in [AT_10K, AT_50K] {
        for against in [EPOLL_SPIN, TOKIO, BURN] {
            let rate = format::short_rate(RATES[load]);
            let bound = noise(found, load, |figures| figures.p90, seed);
            let claim = RatioClaim {
                text: format!(
                    "p90 at {rate}: {ADAPTIVE} is not worse than {against}, by more than the noise"
                ),
                subject: ADAPTIVE,
                against,
                figure: |figures| figures.p90,
                bound: Bound::AtMost(bound),
            };
            claims.push(with_noise(judge(found, &claim, (load, load), seed), bound));
            claims.push(best_p99(found, load, against));
        }
    }
    claims.extend(governed(found, seed));
    claims.extend(neighbours(found, seed));
    claims.push(no_throttling(found));
    claims.push(claims::in_every_round(
        "5 s after the last request, the next 5 s have no system call",
        (ADAPTIVE, &found.silence.figures(ADAPTIVE, |one| Some(one.calls))),
        Bound::AtMost(0.0),
    ));
    claims.push(claims::in_every_round(
        "5 s after the last request, the next 5 s take no CPU time",
        (ADAPTIVE, &found.silence.figures(ADAPTIVE, |one| Some(one.cpu))),
        Bound::AtMost(0.0),
    ));
    claims
}

/// At a rate, round by round.
fn figures(found: &Found, name: &str, load: usize) -> Vec<Figures> {
    let measured = found.rates.judged.get(load);
    measured.map(|at| at.of(name).iter().copied().flatten().collect()).unwrap_or_default()
}

fn judge(
    found: &Found,
    claim: &RatioClaim,
    (subject, against): (usize, usize),
    seed: u64,
) -> Claim {
    let subject = figures(found, claim.subject, subject);
    let against = figures(found, claim.against, against);
    claim.judge(&subject, &against, found.rates.floor.as_ref(), seed)
}

/// By how much A is above A at a rate, or below, at most; at least 1.
fn noise(found: &Found, load: usize, figure: Figure, seed: u64) -> f64 {
    let of = |name| figures(found, name, load).iter().map(figure).collect::<Vec<_>>();
    either_way(&of(ADAPTIVE), &of(ADAPTIVE_AGAIN), seed).unwrap_or(1.0)
}

fn either_way(once: &[Option<f64>], again: &[Option<f64>], seed: u64) -> Option<f64> {
    let pairs: Vec<(f64, f64)> =
        once.iter().zip(again).filter_map(|(once, again)| once.zip(*again)).collect();
    ratio_of_pairs(&pairs, seed).map(|ratio| ratio.high.max(1.0 / ratio.low).max(1.0))
}

fn with_noise(claim: Claim, noise: f64) -> Claim {
    let measured = format!("{}; the noise is {}", claim.measured, format::number(noise));
    Claim { measured, ..claim }
}

/// The lowest p99 of all rounds, which the hypervisor disturbed least.
fn best_p99(found: &Found, load: usize, against: &str) -> Claim {
    let best = |name: &str| {
        let p99s: Vec<f64> = figures(found, name, load).iter().filter_map(|one| one.p99).collect();
        (p99s.len() > 1).then(|| p99s.into_iter().fold(f64::INFINITY, f64::min))
    };
    let (ours, theirs) = (best(ADAPTIVE), best(against));
    let noise =
        ours.zip(best(ADAPTIVE_AGAIN)).map_or(1.0, |(one, other)| (one / other).max(other / one));
    let rate = format::short_rate(RATES[load]);
    let (verdict, measured) = match ours.zip(theirs) {
        None => {
            let missing = if ours.is_none() { ADAPTIVE } else { against };
            (Verdict::CannotTell, format!("there are no two rounds with a p99 of {missing}"))
        }
        Some((ours, theirs)) => (
            if ours <= theirs * noise { Verdict::Holds } else { Verdict::DoesNotHold },
            format!(
                "{} against {}; the noise is {}",
                format::time(ours),
                format::time(theirs),
                format::number(noise)
            ),
        ),
    };
    let claim = format!(
        "best p99 of the rounds at {rate}: {ADAPTIVE} is not worse than {against}, by more than the noise"
    );
    Claim { claim, measured, verdict }
}

/// What settings of the governor come to.
fn governed(found: &Found, seed: u64) -> Vec<Claim> {
    let ratio = |text: String, measured: &Measured<Figures>, subject, figure: Figure, most| {
        claims::ratio(
            &text,
            (subject, &measured.figures(subject, figure)),
            (SPINNING, &measured.figures(SPINNING, figure)),
            Bound::AtMost(most),
            seed,
        )
    };
    let p50: Figure = |figures| figures.p50;
    let frugal = format!("5k/s: {FRUGAL} / {SPINNING}");
    let patient = format!("p50 at 1k/s: {PATIENT} / {SPINNING} is at most {PATIENT_P50}");
    let text = format!("{frugal}, p50, is at most {FRUGAL_P50}");
    let (cap, capped) = CAP;
    let parked = found.cap.figures(PARKING, |one| one.figures.cpu_share);
    let busiest = found.cap.figures(capped, |one| one.busiest_second);
    let spent: Vec<Option<f64>> =
        busiest.into_iter().zip(parked).map(|(busiest, parked)| Some(busiest? - parked?)).collect();
    vec![
        ratio(text, &found.frugality, FRUGAL, p50, FRUGAL_P50),
        ratio(
            format!("{frugal}, CPU, is at most {FRUGAL_CPU}"),
            &found.frugality,
            FRUGAL,
            |figures| figures.cpu_share,
            FRUGAL_CPU,
        ),
        ratio(patient, &found.patience, PATIENT, p50, PATIENT_P50),
        claims::in_every_round(
            &format!(
                "max_cpu {cap} at 10k/s: in the busiest second the server uses at most {CAP_KEPT} of a CPU more than one that parks"
            ),
            (capped, &spent),
            Bound::AtMost(CAP_KEPT),
        ),
    ]
}

fn neighbours(found: &Found, seed: u64) -> Vec<Claim> {
    let p50 = |name| found.client.figures(name, |one| Some(one.p50));
    let client = claims::ratio(
        &format!(
            "p50 with a client that spins on the server's CPU: {ADAPTIVE} / {PARKING} is at most {BESIDE_CLIENT}"
        ),
        (ADAPTIVE, &p50(ADAPTIVE)),
        (PARKING, &p50(PARKING)),
        Bound::AtMost(BESIDE_CLIENT),
        seed,
    );
    let beside = |text: &str, figure: fn(&Beside) -> Option<f64>, bound: fn(f64) -> Bound| {
        let of = |name| found.hog.figures(name, figure);
        let noise = either_way(&of(PARKING), &of(PARKING_AGAIN), seed).unwrap_or(1.0);
        let (ours, parked) = (of(ADAPTIVE), of(PARKING));
        let claim = claims::ratio(text, (ADAPTIVE, &ours), (PARKING, &parked), bound(noise), seed);
        with_noise(claim, noise)
    };
    vec![
        client,
        beside(
            &format!(
                "the share of a hog on the server's CPU: beside {ADAPTIVE} not less than beside {PARKING}, by more than the noise"
            ),
            |one| one.hog,
            |noise| Bound::AtLeast(1.0 / noise),
        ),
        beside(
            &format!(
                "p99 beside a hog on the server's CPU: {ADAPTIVE} is not worse than {PARKING}, by more than the noise"
            ),
            |one| one.figures.p99,
            Bound::AtMost,
        ),
        comeback(found),
    ]
}

fn comeback(found: &Found) -> Claim {
    let parked = found.comeback.figures(PARKING, |one| Some(one.as_ref()?.settled));
    let rounds = found.comeback.of(ADAPTIVE).iter().zip(&parked);
    let back: Vec<Option<f64>> = rounds
        .map(|(round, parked)| {
            let (found, parked) = (round.as_ref()?, (*parked)?);
            let spins = found.as_ref().filter(|found| found.settled < SPINS_BELOW * parked);
            // It did not come back as long as was looked.
            let never = super::HOG_IS_GONE.as_nanos() as f64;
            Some(spins.map_or(never, |found| found.back_after) / 1e6)
        })
        .collect();
    claims::in_every_round(
        &format!(
            "milliseconds from the end of a hog until {ADAPTIVE} is as fast as without: at most {BACK_WITHIN_MS}"
        ),
        (ADAPTIVE, &back),
        Bound::AtMost(BACK_WITHIN_MS),
    )
}

fn no_throttling(found: &Found) -> Claim {
    let periods = |name| found.quota.figures(name, |one| Some(one.periods));
    let more: Vec<Option<f64>> = periods(ADAPTIVE)
        .into_iter()
        .zip(periods(PARKING))
        .map(|(adaptive, parking)| Some(adaptive? - parking?))
        .collect();
    claims::in_every_round(
        &format!(
            "with 20 % of a CPU as quota: {ADAPTIVE} is not throttled more often than {PARKING}"
        ),
        (ADAPTIVE, &more),
        Bound::AtMost(0.0),
    )
}

/// For the reader: what nothing differs by.
pub(super) fn notes(found: &Found, seed: u64) -> Vec<String> {
    let mut notes = Vec::new();
    for (load, rate) in RATES.into_iter().enumerate() {
        let of = |name| figures(found, name, load).iter().map(|one| one.p50).collect::<Vec<_>>();
        if let Some(noise) = either_way(&of(ADAPTIVE), &of(ADAPTIVE_AGAIN), seed) {
            let rate = format::short_rate(rate);
            notes.push(format!(
                "A against A at {rate}: the p50 of {ADAPTIVE} and its twin differ by a factor of up to {}.",
                format::number(noise)
            ));
        }
    }
    notes
}
