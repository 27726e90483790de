//! Claims about servers that have their CPU to themselves.

use wakeful_load::internals::format;
use wakeful_load::internals::results::{Claim, Verdict};
use wakeful_load::internals::series::Figures;

use super::super::contenders::{
    ADAPTIVE, ADAPTIVE_AGAIN, BURN, CAP, EPOLL_SPIN, FRUGAL, PARKING, PATIENT, SPINNING, TOKIO,
};
use super::super::found::Found;
use super::super::rates::{AT_10K, AT_50K, AT_100K, RATES};
use super::noise::{noise, with_noise};
use crate::claims::{self, Bound, Figure, RatioClaim};
use crate::interleaved::Measured;

/// The bound for p50 with a tenth of the load.
const INVERSION: f64 = 1.1;
/// The bounds for p50 against the hand-written loop, against Tokio, and against Tokio that burns.
const TIMES_SPINNING_LOOP: f64 = 1.1;
const TIMES_TOKIO: f64 = 0.25;
const TIMES_BURN: f64 = 1.05;
/// The bounds for a governor that spins for six in ten, against one that never stops.
const FRUGAL_P50: f64 = 1.3;
const FRUGAL_CPU: f64 = 0.7;
const PATIENT_P50: f64 = 1.2;
/// The bound for the CPU use with the cap of 0.3, in any second.
const CAP_KEPT: f64 = 0.33;

const P50: Figure = |figures| figures.p50;

/// Returns the claims about given rates.
pub(super) fn rates(found: &Found, seed: u64) -> Vec<Claim> {
    let mut claims = Vec::new();
    for against in [AT_50K, AT_100K] {
        let (low, high) = (format::short_rate(RATES[AT_10K]), format::short_rate(RATES[against]));
        let text =
            format!("{ADAPTIVE}: its p50 at {low} / its p50 at {high} is at most {INVERSION}");
        let claim = claim(text, ADAPTIVE, P50, INVERSION);
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
        let text = format!("p50 at {rate}: {ADAPTIVE} / {against} is at most {most}");
        claims.push(judge(found, &claim(text, against, P50, most), (load, load), seed));
    }
    let p90: Figure = |figures| figures.p90;
    for (load, against) in [AT_10K, AT_50K]
        .into_iter()
        .flat_map(|load| [EPOLL_SPIN, TOKIO, BURN].map(|against| (load, against)))
    {
        let rate = format::short_rate(RATES[load]);
        let noise = noise_at(found, load, p90, seed);
        let text = format!(
            "p90 at {rate}: {ADAPTIVE} is not worse than {against}, by more than the noise"
        );
        let claim = claim(text, against, p90, noise.unwrap_or(1.0));
        claims.push(with_noise(judge(found, &claim, (load, load), seed), noise));
        claims.push(best_p99(found, load, against));
    }
    claims
}

fn claim(text: String, against: &'static str, figure: Figure, most: f64) -> RatioClaim {
    RatioClaim { text, subject: ADAPTIVE, against, figure, bound: Bound::AtMost(most) }
}

/// Returns the figures of a contender at a rate, round by round.
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

fn noise_at(found: &Found, load: usize, figure: Figure, seed: u64) -> Option<f64> {
    let of = |name| figures(found, name, load).iter().map(figure).collect::<Vec<_>>();
    noise(&of(ADAPTIVE), &of(ADAPTIVE_AGAIN), seed)
}

/// Returns the noise of p50 by rate, for the rates where it is known.
pub(super) fn noise_of_p50(found: &Found, seed: u64) -> impl Iterator<Item = (f64, f64)> {
    let rates = RATES.into_iter().enumerate();
    rates.filter_map(move |(load, rate)| Some((rate, noise_at(found, load, P50, seed)?)))
}

/// Judges the lowest p99 of all rounds, which the hypervisor disturbed least.
fn best_p99(found: &Found, load: usize, against: &str) -> Claim {
    let best = |name: &str| {
        let p99s: Vec<f64> = figures(found, name, load).iter().filter_map(|one| one.p99).collect();
        (p99s.len() > 1).then(|| p99s.into_iter().fold(f64::INFINITY, f64::min))
    };
    let (ours, theirs) = (best(ADAPTIVE), best(against));
    let noise =
        ours.zip(best(ADAPTIVE_AGAIN)).map(|(one, other)| (one / other).max(other / one).max(1.0));
    let rate = format::short_rate(RATES[load]);
    let text = format!(
        "best p99 of the rounds at {rate}: {ADAPTIVE} is not worse than {against}, by more than the noise"
    );
    let Some((ours, theirs)) = ours.zip(theirs) else {
        let missing = if ours.is_none() { ADAPTIVE } else { against };
        let measured = format!("there are no two rounds with a p99 of {missing}");
        return Claim { claim: text, measured, verdict: Verdict::CannotTell };
    };
    let verdict = match ours <= theirs * noise.unwrap_or(1.0) {
        true => Verdict::Holds,
        false => Verdict::DoesNotHold,
    };
    let measured = format!("{} against {}", format::time(ours), format::time(theirs));
    with_noise(Claim { claim: text, measured, verdict }, noise)
}

/// Judges a figure of a server against that of a loop that spins.
fn against_spinning(
    text: &str,
    measured: &Measured<Figures>,
    subject: &str,
    figure: Figure,
    most: f64,
    seed: u64,
) -> Claim {
    claims::ratio(
        text,
        (subject, &measured.figures(subject, figure)),
        (SPINNING, &measured.figures(SPINNING, figure)),
        Bound::AtMost(most),
        seed,
    )
}

pub(super) fn frugal(found: &Found, seed: u64) -> Vec<Claim> {
    let of = |what: &str, figure: Figure, most: f64| {
        let text = format!("{what} at 5k/s: {FRUGAL} / {SPINNING} is at most {most}");
        against_spinning(&text, &found.frugality, FRUGAL, figure, most, seed)
    };
    vec![of("p50", P50, FRUGAL_P50), of("CPU", |figures| figures.cpu_share, FRUGAL_CPU)]
}

pub(super) fn patient(found: &Found, seed: u64) -> Claim {
    let text = format!("p50 at 1k/s: {PATIENT} / {SPINNING} is at most {PATIENT_P50}");
    against_spinning(&text, &found.patience, PATIENT, P50, PATIENT_P50, seed)
}

pub(super) fn capped(found: &Found) -> Claim {
    let (cap, capped) = CAP;
    let parked = found.cap.figures(PARKING, |one| one.figures.cpu_share);
    let busiest = found.cap.figures(capped, |one| one.busiest_second);
    let rounds = busiest.into_iter().zip(parked);
    let more: Vec<Option<f64>> = rounds.map(|(most, parked)| Some(most? - parked?)).collect();
    claims::in_every_round(
        &format!(
            "max_cpu {cap} at 10k/s: in its busiest second the server uses at most {CAP_KEPT} of a CPU more than one that parks"
        ),
        (capped, &more),
        Bound::AtMost(CAP_KEPT),
    )
}
