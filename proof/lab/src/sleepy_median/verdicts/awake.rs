//! Claims about servers whose CPUs are held, or that hold CPUs themselves.

use wakeful_load::internals::format;
use wakeful_load::internals::results::Claim;

use super::super::awake::Held;
use super::super::contenders::{HOLD, PARKING, PARKING_AGAIN, SPINNING, TOKIO, TOKIO_AWAKE};
use super::super::found::Found;
use super::super::parts::{AWAKE_AT_1K, AWAKE_AT_10K, AWAKE_AT_100, AWAKE_AT_100K, AWAKE_RATES};
use super::super::unmodified::{REDIS, REDIS_AWAKE};
use super::noise::{noise, with_noise};
use crate::claims::{self, Bound};

/// The bounds for p50 against a loop that spins, by the index of the rate.
const TIMES_SPINNING: [(usize, f64); 4] =
    [(AWAKE_AT_100, 4.0), (AWAKE_AT_1K, 1.25), (AWAKE_AT_10K, 1.25), (AWAKE_AT_100K, 1.35)];
/// The bound for the CPU use against a loop that parks, at all rates.
const TIMES_PARKED_CPU: f64 = 1.05;
/// The bound for p50 under `wakeful awake`, against without it.
const TIMES_WITHOUT: f64 = 0.35;
/// The names under `wakeful awake`, and without it.
const WATCHED: [[&str; 2]; 2] = [[TOKIO_AWAKE, TOKIO], [REDIS_AWAKE, REDIS]];

type Figure = fn(&Held) -> Option<f64>;

const P50: Figure = |held| held.p50;
const CPU: Figure = |held| held.figures.cpu_share;

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
    let at_10k = |what: &str, text: String, pair, figure, bound| {
        let text = format!("{what} at {}: {text}", rate(AWAKE_AT_10K));
        ratio(text, AWAKE_AT_10K, pair, figure, bound)
    };
    // A hold cannot do better than this.
    let spin = ratio(String::new(), AWAKE_AT_10K, [SPINNING, PARKING], P50, Bound::AtMost(1.0));
    let spin = format!("; {SPINNING} / {PARKING} is {}", spin.measured);
    let [one, other] = [PARKING, PARKING_AGAIN].map(|name| figures(AWAKE_AT_10K, name, CPU));
    let noise = noise(&one, &other, seed);
    let watched = WATCHED.into_iter().flat_map(|pair| {
        let [held, without] = pair;
        let text = format!("{held} / {without} is at most {TIMES_WITHOUT}");
        let mut p50 = at_10k("p50", text, pair, P50, Bound::AtMost(TIMES_WITHOUT));
        p50.measured += &spin;
        let text = format!("{held} is not more than {without}, by more than the noise");
        let cpu = at_10k("CPU", text, pair, CPU, Bound::AtMost(noise.unwrap_or(1.0)));
        [p50, with_noise(cpu, noise)]
    });
    p50.into_iter().chain(cpu).chain(watched).collect()
}
