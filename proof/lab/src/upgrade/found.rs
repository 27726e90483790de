//! Everything that is measured.

use std::collections::BTreeMap;
use std::time::Duration;

use wakeful_load::internals::bench::Block;
use wakeful_load::internals::validity;

use super::master::Act;
use crate::interleaved::Measured;

/// How many characters of a reason a verdict shows. A note has all, with the server's last words.
const SHOWN: usize = 100;

/// A server under load while its operator acted.
#[derive(Debug, Clone, Default)]
pub(super) struct Served {
    /// How long each act took.
    pub(super) acts: Vec<Duration>,
    /// The number of requests that were due.
    pub(super) requests: u64,
    /// The due requests that were not answered, by cause.
    pub(super) lost: BTreeMap<String, u64>,
    /// The number of connects that were refused.
    pub(super) refused: u64,
    /// The number of connections that were opened again.
    pub(super) reopened: u64,
    /// The response times in nanoseconds.
    pub(super) p50: Option<f64>,
    pub(super) p999: Option<f64>,
    pub(super) longest: f64,
}

impl Served {
    pub(super) fn of(block: &Block, acts: Vec<Duration>) -> Self {
        let (measurement, recording) = (&block.measurement, &block.measurement.recording);
        let at = |quantile: f64| {
            validity::has_enough_beyond(&recording.response, quantile)
                .then(|| recording.response.value_at_quantile(quantile) as f64)
        };
        Self {
            acts,
            requests: recording.offered,
            lost: measurement.failures.clone(),
            refused: measurement.refused,
            reopened: measurement.reconnected,
            p50: at(0.5),
            p999: at(0.999),
            longest: recording.response.max() as f64,
        }
    }

    pub(super) fn count_lost(&self) -> u64 {
        self.lost.values().sum()
    }

    /// Returns the median time of an act in nanoseconds.
    pub(super) fn act(&self) -> Option<f64> {
        let mut sorted = self.acts.clone();
        sorted.sort_unstable();
        sorted.get(sorted.len() / 2).map(|act| act.as_nanos() as f64)
    }
}

/// What was measured for each act and kind of client.
#[derive(Debug, Default)]
pub(super) struct Found(Vec<(Act, &'static str, Measured<Served>)>);

impl Found {
    pub(super) fn add(&mut self, act: Act, client: &'static str, served: Measured<Served>) {
        self.0.push((act, client, served));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(|(_, _, served)| served.is_empty())
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &(Act, &'static str, Measured<Served>)> {
        self.0.iter().filter(|(_, _, served)| !served.is_empty())
    }

    /// Returns the figures of a server for an act, with those of all clients one after the other.
    pub(super) fn figures(
        &self,
        act: Act,
        name: &str,
        figure: fn(&Served) -> f64,
    ) -> Vec<Option<f64>> {
        let figures = |served: &Measured<Served>| served.figures(name, |one| Some(figure(one)));
        self.of(act).flat_map(|(_, served)| figures(served)).collect()
    }

    /// Returns with which clients a server failed or did no act, and how it failed.
    pub(super) fn failure(&self, act: Act, name: &str) -> Option<String> {
        self.of(act).find_map(|(client, served)| {
            let did_nothing = |one: &Served| one.acts.is_empty();
            match served.failure(name) {
                Some(why) => {
                    let first_line = why.chars().take_while(|one| *one != '\n');
                    let shown: String = first_line.take(SHOWN).collect();
                    Some(format!("with {client} it failed: {shown}"))
                }
                None if served.of(name).iter().flatten().any(did_nothing) => {
                    Some(format!("with {client} no {} was over in time", act.name()))
                }
                None => None,
            }
        })
    }

    /// Returns the first clients with which a server was not measured.
    pub(super) fn missing(&self, act: Act, name: &str) -> Option<&'static str> {
        let is_missing = |served: &Measured<Served>| served.of(name).iter().all(Option::is_none);
        self.of(act).find_map(|(client, served)| is_missing(served).then_some(client))
    }

    /// Returns what was measured for an act, with each kind of client.
    fn of(&self, act: Act) -> impl Iterator<Item = (&'static str, &Measured<Served>)> {
        let of_act = self.0.iter().filter(move |(one, _, _)| *one == act);
        of_act.map(|(_, client, served)| (*client, served))
    }
}
