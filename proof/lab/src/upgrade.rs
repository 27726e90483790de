//! `lab upgrade`: what clients lose while an operator upgrades, reloads, scales and kills.
//!
//! Servers made of processes ([`contenders`]) under a steady load ([`clients`]), and an operator
//! who goes on all the while ([`operator`]) by the signals of each server ([`master`]). What is
//! claimed is in [`verdicts`].

mod clients;
mod contenders;
mod found;
mod master;
mod operator;
mod tables;
mod verdicts;

use std::time::Duration;

use wakeful_load::internals::results::Results;

use self::clients::CLIENTS;
use self::contenders::Server;
use self::found::{Found, Served};
use self::master::Act;
use self::operator::Operator;
use crate::interleaved::{self, Failure, Measured};
use crate::lab::{Experiment, Findings, Lab, LabError, Size};
use crate::probe::Probe;
use crate::scratch::Scratch;

/// See the [module](self).
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
        verdicts::claims(&Found::default()).into_iter().map(|claim| claim.claim).collect()
    }

    fn parts(&self) -> &'static [&'static str] {
        &Act::NAMES
    }

    fn probes(&self) -> Vec<Probe> {
        contenders::programs()
    }

    fn run(&self, lab: &mut Lab<'_>) -> Result<Results, LabError> {
        let (rounds, acts) = match lab.size {
            Size::Quick => (1, 4),
            Size::Full => (1, 20),
        };
        let rounds = lab.rounds.unwrap_or(rounds);
        if lab.size == Size::Quick {
            lab.bench.limits.settle = Duration::from_millis(100);
            lab.bench.limits.patience = Duration::from_secs(5);
        }
        // A neighbour delays answers, and loses none.
        lab.bench.most_repeats = 0;
        let servers = contenders::all(lab);
        let wanted: Vec<Act> =
            Act::ALL.into_iter().filter(|act| lab.is_wanted(act.name())).collect();
        for act in &wanted {
            let able = servers.iter().filter(|server| server.can(*act)).count();
            let each = act.every() * (acts + 2) + Duration::from_secs(1);
            lab.bench.progress.expect(able * CLIENTS.len() * rounds, each);
        }
        let mut found = Found::default();
        for act in wanted {
            let able: Vec<&Server> = servers.iter().filter(|server| server.can(act)).collect();
            for client in CLIENTS {
                let part = format!("{} {}", act.name(), client.name);
                let served = measure(lab, &part, &able, rounds, act, acts, client)?;
                found.add(act, client.name, served);
            }
        }
        if found.is_empty() {
            return Err(LabError::Nothing);
        }
        let (tables, claims) = (tables::tables(&found), verdicts::claims(&found));
        Ok(lab.results(self, Findings { tables, claims, ..Findings::default() }))
    }
}

fn measure(
    lab: &mut Lab<'_>,
    part: &str,
    servers: &[&Server],
    rounds: usize,
    act: Act,
    acts: u32,
    client: clients::Client,
) -> Result<Measured<Served>, LabError> {
    let names: Vec<String> = servers.iter().map(|server| server.name.to_owned()).collect();
    interleaved::measure(lab, part, &names, rounds, |lab, one, label| {
        let server = servers[one];
        let scratch = Scratch::new().map_err(|error| Failure::LeftOut(error.to_string()))?;
        let load = client.load(lab.seed, act.every() * (acts + 2))?;
        let mut operator = Operator::new(server.master(scratch.path()), act, acts);
        let spec = server.spec(scratch.path(), client);
        let block = lab.bench.block_beside(&spec, &load, label, &mut operator)?;
        if block.measurement.interrupted {
            return Err(Failure::Interrupted);
        }
        let acted = operator.end().map_err(Failure::LeftOut)?;
        Ok(wakeful_load::internals::bench::Undisturbed {
            value: Served::of(&block, acted),
            repeated: block.repeated,
            spoilt: false,
        })
    })
}
