//! Of servers whose CPUs are held, or which hold them.

use wakeful_load::internals::format;
use wakeful_load::internals::results::Claim;

use super::super::contenders::{HOLD, PARKING, PARKING_AGAIN, SPINNING, TOKIO, TOKIO_AWAKE};
use super::super::found::Found;
use super::super::parts::AWAKE_RATES;
use super::noise::{noise, with_noise};
use crate::claims::{self, Bound, Figure};

/// p50 against a loop that spins, by the place of the rate.
const TIMES_SPINNING: [(usize, f64); 4] = [(0, 4.0), (1, 1.25), (AT_10K, 1.25), (4, 1.35)];
/// CPU against a loop that parks, at all rates.
const TIMES_PARKED_CPU: f64 = 1.05;
/// Tokio's p50 under `wakeful awake` against without.
const TIMES_TOKIO: f64 = 0.35;
const AT_10K: usize = 2;

const P50: Figure = |figures| figures.p50;
const CPU: Figure = |figures| figures.cpu_share;

pub(super) fn claims(found: &Found, seed: u64) -> Vec<Claim> {
    let figures = |place: usize, name: &str, figure: Figure| {
        found.awake.get(place).map(|at| at.figures(name, figure)).unwrap_or_default()
    };
    let ratio = |text: String, place, [subject, against]: [&str; 2], figure, bound| {
        let (of, to) = (figures(place, subject, figure), figures(place, against, figure));
        claims::ratio(&text, (subject, &of), (against, &to), bound, seed)
    };
    let rate = |place: usize| format::short_rate(AWAKE_RATES[place]);
    let p50 = TIMES_SPINNING.map(|(place, most)| {
        let text = format!("p50 at {}: {HOLD} / {SPINNING} is at most {most}", rate(place));
        ratio(text, place, [HOLD, SPINNING], P50, Bound::AtMost(most))
    });
    let cpu = TIMES_SPINNING.map(|(place, _)| {
        let most = TIMES_PARKED_CPU;
        let text = format!("CPU at {}: {HOLD} / {PARKING} is at most {most}", rate(place));
        ratio(text, place, [HOLD, PARKING], CPU, Bound::AtMost(most))
    });
    let text = format!("p50 at {}: {TOKIO_AWAKE} / {TOKIO} is at most {TIMES_TOKIO}", rate(AT_10K));
    let tokio = ratio(text, AT_10K, [TOKIO_AWAKE, TOKIO], P50, Bound::AtMost(TIMES_TOKIO));
    let [one, other] = [PARKING, PARKING_AGAIN].map(|name| figures(AT_10K, name, CPU));
    let noise = noise(&one, &other, seed);
    let text = format!(
        "CPU at {}: {TOKIO_AWAKE} is not more than {TOKIO}, by more than the noise",
        rate(AT_10K)
    );
    let bound = Bound::AtMost(noise.unwrap_or(1.0));
    let tokio_cpu = with_noise(ratio(text, AT_10K, [TOKIO_AWAKE, TOKIO], CPU, bound), noise);
    p50.into_iter().chain(cpu).chain([tokio, tokio_cpu]).collect()
}
