//! `lab upgrade`: what do clients lose while an operator upgrades, reloads, scales and kills?
//!
//! The servers consist of processes ([`contenders`]) and have a steady load ([`clients`]). All the
//! while, an operator acts on them ([`operator`]) with the signals of each server ([`master`]).
//! [`starts`] measures what it costs in time and memory to execute workers instead of forking them.
//! [`verdicts`] has the claims.

mod clients;
mod contenders;
mod found;
mod master;
mod operator;
mod starts;
mod tables;
mod verdicts;

use std::time::Duration;

use wakeful_load::internals::bench::Undisturbed;
use wakeful_load::internals::results::Results;

use self::clients::{CLIENTS, Client};
use self::contenders::Server;
use self::found::{Found, Served};
use self::master::Act;
use self::operator::Operator;
use self::starts::START;
use crate::interleaved::{self, Failure, Measured};
use crate::lab::{Experiment, Findings, Lab, LabError, Size};
use crate::probe::Probe;
use crate::scratch::Scratch;

const PARTS: [&str; 5] = {
    let [upgrade, reload, scaling, kill] = Act::NAMES;
    [upgrade, reload, scaling, kill, START]
};

/// The experiment: see the [module](self).
#[derive(Debug)]
pub(crate) struct Upgrade;

impl Experiment for Upgrade {
    fn name(&self) -> &'static str {
        "upgrade"
    }

    fn about(&self) -> &'static str {
        "requests and connects that are lost while a server is upgraded, reloaded, scaled, and its workers are killed"
    }

    fn story(&self) -> &'static str {
        "A preforking server is a master with worker processes on its socket: the master replaces whoever dies, and signals reload it and upgrade its program while it \
         serves. nginx and HAProxy do that too. Servers that are one process refuse connects from the end of the old one to the start of the new one."
    }

    fn claims(&self) -> Vec<String> {
        let claims = verdicts::claims(&Found::default()).into_iter();
        claims.map(|(_, claim)| claim.claim).collect()
    }

    fn parts(&self) -> &'static [&'static str] {
        &PARTS
    }

    /// Returns `false`, because each act takes its own time.
    fn has_blocks(&self) -> bool {
        false
    }

    fn probes(&self) -> Vec<Probe> {
        contenders::programs()
    }

    fn run(&self, lab: &mut Lab<'_>) -> Result<Results, LabError> {
        let repeats = lab.bench.most_repeats;
        if lab.size == Size::Quick {
            lab.bench.limits.settle = Duration::from_millis(100);
            lab.bench.limits.patience = Duration::from_secs(5);
        }
        let servers = contenders::all(lab);
        let extent = Extent::of(lab);
        extent.expect(lab, &servers);
        // A neighbour delays answers, but no answers are lost by that.
        lab.bench.most_repeats = 0;
        let found = extent.measure(lab, &servers)?;
        lab.bench.most_repeats = repeats;
        let starts = if lab.is_wanted(START) { starts::measure(lab)? } else { Measured::default() };
        if found.is_empty() && starts.is_empty() {
            return Err(LabError::Nothing);
        }
        let claims = verdicts::claims(&found).into_iter();
        let claims = claims.filter(|(act, _)| lab.is_wanted(act.name())).map(|(_, claim)| claim);
        let (tables, claims) = (tables::tables(&found, &starts, extent.rate), claims.collect());
        Ok(lab.results(self, Findings { tables, claims, ..Findings::default() }))
    }
}

/// How much is measured of servers under load.
struct Extent {
    wanted: Vec<Act>,
    rounds: usize,
    /// How many times each act is done.
    acts: u32,
    /// The requests per second.
    rate: u32,
}

impl Extent {
    fn of(lab: &Lab<'_>) -> Self {
        // The lower rate is for a machine that is also busy with other work.
        let (acts, rate) = match lab.size {
            Size::Quick => (4, 1_000),
            Size::Full => (20, 10_000),
        };
        let wanted = Act::ALL.into_iter().filter(|act| lab.is_wanted(act.name())).collect();
        Self { wanted, rounds: lab.rounds.unwrap_or(1), acts, rate }
    }

    /// Tells the user how long all acts will take.
    fn expect(&self, lab: &mut Lab<'_>, servers: &[Server]) {
        for act in &self.wanted {
            let able = servers.iter().filter(|server| server.can(*act)).count();
            let each = act.every() * (self.acts + 2) + Duration::from_secs(1);
            lab.bench.progress.expect(able * CLIENTS.len() * self.rounds, each);
        }
        if lab.is_wanted(START) {
            starts::expect(lab);
        }
    }

    fn measure(&self, lab: &mut Lab<'_>, servers: &[Server]) -> Result<Found, LabError> {
        let mut found = Found::default();
        for act in self.wanted.iter().copied() {
            let able: Vec<&Server> = servers.iter().filter(|server| server.can(act)).collect();
            for client in CLIENTS {
                found.add(act, client.name, self.serve(lab, &able, act, client)?);
            }
        }
        Ok(found)
    }

    fn serve(
        &self,
        lab: &mut Lab<'_>,
        servers: &[&Server],
        act: Act,
        client: Client,
    ) -> Result<Measured<Served>, LabError> {
        let names: Vec<String> = servers.iter().map(|server| server.name.to_owned()).collect();
        let part = format!("{} {}", act.name(), client.name);
        interleaved::measure(lab, &part, &names, self.rounds, |lab, one, label| {
            let server = servers[one];
            let scratch = Scratch::new().map_err(|error| Failure::NotStarted(error.to_string()))?;
            let load = client.load(self.rate, lab.seed, act.every() * (self.acts + 2))?;
            let mut operator = Operator::new(server.master(scratch.path()), act, self.acts);
            let spec = server.spec(scratch.path(), client);
            let block = lab.bench.block_beside(&spec, &load, label, &mut operator)?;
            if block.measurement.interrupted {
                return Err(Failure::Interrupted);
            }
            let acted = operator.end().map_err(Failure::LeftOut)?;
            Ok(Undisturbed {
                value: Served::of(&block, acted),
                repeated: block.repeated,
                spoilt: false,
            })
        })
    }
}
