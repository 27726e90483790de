//! Claims about servers that share their CPU, or have only a part of it.

use wakeful_load::internals::results::Claim;

use super::super::contenders::{ADAPTIVE, PARKING, PARKING_AGAIN};
use super::super::found::Found;
use super::super::hog::{Beside, HOG_IS_GONE};
use super::noise::{noise, with_noise};
use crate::claims::{self, Bound};

/// The bound for p50 against parking, with a client that spins on the same CPU.
const BESIDE_CLIENT: f64 = 2.0;
/// The bound for the comeback, in milliseconds.
const BACK_WITHIN: f64 = 300.0;
/// A loop spins only if its p50 is below this share of a parked loop's p50.
const SPINS_BELOW: f64 = 0.7;

/// Judges the hog and the server against those of a server that parks.
pub(super) fn hog(found: &Found, seed: u64) -> Vec<Claim> {
    let of = |text: String, figure: fn(&Beside) -> Option<f64>, bound: fn(f64) -> Bound| {
        let of = |name| found.hog.figures(name, figure);
        let (ours, parked) = (of(ADAPTIVE), of(PARKING));
        let noise = noise(&parked, &of(PARKING_AGAIN), seed);
        let bound = bound(noise.unwrap_or(1.0));
        let claim = claims::ratio(&text, (ADAPTIVE, &ours), (PARKING, &parked), bound, seed);
        with_noise(claim, noise)
    };
    vec![
        of(
            format!(
                "the share of a hog on the server's CPU: beside {ADAPTIVE} not less than beside {PARKING}, by more than the noise"
            ),
            |one| one.hog,
            |noise| Bound::AtLeast(1.0 / noise),
        ),
        of(
            format!(
                "p99 beside a hog on the server's CPU: {ADAPTIVE} is not worse than {PARKING}, by more than the noise"
            ),
            |one| one.figures.p99,
            Bound::AtMost,
        ),
    ]
}

pub(super) fn client(found: &Found, seed: u64) -> Claim {
    let p50 = |name| found.client.figures(name, |one| Some(one.p50));
    claims::ratio(
        &format!(
            "p50 with a client that spins on the server's CPU: {ADAPTIVE} / {PARKING} is at most {BESIDE_CLIENT}"
        ),
        (ADAPTIVE, &p50(ADAPTIVE)),
        (PARKING, &p50(PARKING)),
        Bound::AtMost(BESIDE_CLIENT),
        seed,
    )
}

pub(super) fn comeback(found: &Found) -> Claim {
    let parked = found.comeback.figures(PARKING, |one| Some(one.as_ref()?.settled));
    let rounds = found.comeback.of(ADAPTIVE).iter().zip(parked);
    let back: Vec<Option<f64>> = rounds
        .map(|(round, parked)| {
            let (found, parked) = (round.as_ref()?, parked?);
            let spins = found.as_ref().filter(|found| found.settled < SPINS_BELOW * parked);
            // The server did not come back in the observed time.
            let never = HOG_IS_GONE.as_nanos() as f64;
            Some(spins.map_or(never, |found| found.back_after) / 1e6)
        })
        .collect();
    claims::in_every_round(
        &format!(
            "milliseconds from the end of a hog until {ADAPTIVE} is as fast as without: at most {BACK_WITHIN}"
        ),
        (ADAPTIVE, &back),
        Bound::AtMost(BACK_WITHIN),
    )
}

pub(super) fn no_throttling(found: &Found) -> Claim {
    let periods = |name| found.quota.figures(name, |one| Some(one.periods));
    let rounds = periods(ADAPTIVE).into_iter().zip(periods(PARKING));
    let more: Vec<Option<f64>> = rounds.map(|(ours, parked)| Some(ours? - parked?)).collect();
    claims::in_every_round(
        &format!(
            "periods in which {ADAPTIVE}, with 20 % of a CPU as quota, is throttled beyond those of {PARKING}: none"
        ),
        (ADAPTIVE, &more),
        Bound::AtMost(0.0),
    )
}
