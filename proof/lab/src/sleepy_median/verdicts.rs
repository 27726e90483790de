//! The claims of `sleepy-median`, and their verdicts.
//!
//! "Not worse" allows as much as A differs from itself in the same rounds. The noise is that of
//! `wakeful, adaptive` and its twin, and beside the hog that of `wakeful, parking` and its twin.

mod alone;
mod awake;
mod beside;
mod noise;

use wakeful_load::internals::format;
use wakeful_load::internals::results::Claim;

use super::contenders::{ADAPTIVE, HOLD};
use super::found::Found;
use super::parts::{AWAKE, CAP, CLIENT, COMEBACK, FRUGALITY, HOG, PATIENCE, QUOTA, RATE, SILENCE};
use super::silence::Silence;
use crate::claims::{self, Bound};

/// Returns all claims, each with the part that decides it.
pub(super) fn claims(found: &Found, seed: u64) -> Vec<(&'static str, Claim)> {
    let rates = alone::rates(found, seed);
    let of = |part, claims: Vec<Claim>| claims.into_iter().map(move |claim| (part, claim));
    of(RATE, rates)
        .chain(of(FRUGALITY, alone::frugal(found, seed)))
        .chain(of(PATIENCE, vec![alone::patient(found, seed)]))
        .chain(of(CAP, vec![alone::capped(found)]))
        .chain(of(HOG, beside::hog(found, seed)))
        .chain(of(CLIENT, vec![beside::client(found, seed)]))
        .chain(of(COMEBACK, vec![beside::comeback(found)]))
        .chain(of(QUOTA, vec![beside::no_throttling(found)]))
        .chain(of(SILENCE, silence(found)))
        .chain(of(AWAKE, awake::claims(found, seed)))
        .collect()
}

fn silence(found: &Found) -> Vec<Claim> {
    let of = |(server, what, figure): (&str, &str, fn(&Silence) -> f64)| {
        let figures = found.silence.figures(server, |one| Some(figure(one)));
        let text = format!("from 5 s after the last request on, {server} {what} for 5 s");
        claims::in_every_round(&text, (server, &figures), Bound::AtMost(0.0))
    };
    [ADAPTIVE, HOLD]
        .into_iter()
        .flat_map(|server| {
            [
                (server, "makes no system call", (|one| one.calls) as fn(&Silence) -> f64),
                (server, "uses no CPU time", |one| one.cpu),
            ]
        })
        .map(of)
        .collect()
}

/// Returns notes for the reader: the noise.
pub(super) fn notes(found: &Found, seed: u64) -> Vec<String> {
    alone::noise_of_p50(found, seed)
        .map(|(rate, noise)| {
            format!(
                "A against A at {}: the p50 of {ADAPTIVE} and that of its twin differ by a factor of up to {}.",
                format::short_rate(rate),
                format::number(noise)
            )
        })
        .collect()
}

#[cfg(test)]
mod tests;
