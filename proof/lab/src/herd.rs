//! `lab herd`: how many threads does a connection wake, and who gets it.
//!
//! The servers are in [`contenders`]. Their workers share one Unix socket. The clients in
//! [`client`] connect for every request. The kernel's own trace shows which thread is woken, and
//! what for ([`trace`], [`woken`]). [`verdicts`] has the claims.

mod block;
mod case;
mod client;
mod contenders;
mod found;
mod parts;
mod tables;
mod trace;
mod verdicts;
mod woken;

use std::time::Duration;

use wakeful_load::internals::results::Results;

use self::block::Served;
use self::case::{CASES, Case, ONE, PUBLIC};
use self::found::Found;
use self::parts::PARTS;
use self::trace::Trace;
use crate::interleaved::{self, Measured};
use crate::lab::{Experiment, Findings, Lab, LabError, Size};
use crate::probe::Probe;

/// The experiment: see the [module](self).
#[derive(Debug)]
pub(crate) struct Herd;

impl Experiment for Herd {
    fn name(&self) -> &'static str {
        "herd"
    }

    fn about(&self) -> &'static str {
        "how many threads a connection wakes, and how evenly connections are spread"
    }

    fn story(&self) -> &'static str {
        "A preforking HTTP server with 8 workers sleeps in select(2) on one socket that all share: each connection wakes all of them, and one \
         gets it. With EPOLLEXCLUSIVE (Linux 4.5) it wakes one: 100,000 connections from 2 clients over a Unix socket, with bodies of 11 \
         bytes, took 2.5 s instead of 3.4; nothing is gained once nobody sleeps any more. The price is a pile-up: waiters of separate epoll \
         instances queue at the tail of the socket's wait queue and never rotate, so that whoever began to wait first gets nearly \
         everything; a public demonstration has worker 0 with 6 of 6 connections. nginx takes its listener out and puts it in again \
         after every 16 accepts."
    }

    fn claims(&self) -> Vec<String> {
        verdicts::claims(&Found::none(), 0).into_iter().map(|(_, claim)| claim.claim).collect()
    }

    fn parts(&self) -> &'static [&'static str] {
        &PARTS
    }

    /// Returns `false`, because a case is a number of connections, however long they take.
    fn has_blocks(&self) -> bool {
        false
    }

    fn probes(&self) -> Vec<Probe> {
        contenders::programs()
    }

    fn run(&self, lab: &mut Lab<'_>) -> Result<Results, LabError> {
        if lab.size == Size::Quick {
            lab.bench.limits.settle = Duration::from_millis(100);
            lab.bench.limits.patience = Duration::from_secs(5);
            lab.bench.most_repeats = 1;
        }
        let herds = contenders::all(lab);
        let trace = Trace::open();
        if let Err(reason) = &trace {
            lab.notes.push(format!("The kernel's trace of who is woken is missing: {reason}."));
        }
        let planned = CASES.map(|case| Planned::new(lab, case, &herds));
        for one in &planned {
            let measurements = one.rounds * one.herds.len();
            lab.bench.progress.expect(measurements, one.case.expected_time());
        }
        let found: Result<_, _> =
            planned.iter().map(|one| one.measure(lab, trace.as_ref().ok())).collect();
        let found = Found(found?);
        if found.0.iter().all(Measured::is_empty) {
            return Err(LabError::Nothing);
        }
        let claims = verdicts::claims(&found, lab.seed).into_iter();
        let claims = claims.filter(|(part, _)| lab.is_wanted(part)).map(|(_, claim)| claim);
        let claims = claims.collect();
        let tables = tables::tables(&found);
        Ok(lab.results(self, Findings { tables, claims, ..Findings::default() }))
    }
}

/// A case and what is needed to measure it.
struct Planned<'a> {
    case: Case,
    rounds: usize,
    herds: Vec<&'a contenders::Herd>,
}

impl<'a> Planned<'a> {
    fn new(lab: &Lab<'_>, case: Case, herds: &'a [contenders::Herd]) -> Self {
        let (rounds, connections) = match lab.size {
            Size::Quick if case == ONE => (2, 2_000),
            Size::Quick => (2, case.connections),
            Size::Full if case == PUBLIC => (3, 100_000),
            Size::Full => (3, case.connections),
        };
        let rounds = lab.rounds.unwrap_or(rounds);
        let herds = herds.iter().filter(|herd| case.work.is_zero() || herd.can_compute());
        Self { case: Case { connections, ..case }, rounds, herds: herds.collect() }
    }

    fn measure(
        &self,
        lab: &mut Lab<'_>,
        trace: Option<&Trace>,
    ) -> Result<Measured<Served>, LabError> {
        let names: Vec<String> = self.herds.iter().map(|herd| herd.name.clone()).collect();
        interleaved::measure(lab, self.case.name, &names, self.rounds, |lab, one, label| {
            let herd = self.herds[one];
            lab.bench.undisturbed(label, |bench| block::run(bench, herd, &self.case, trace))
        })
    }
}

impl Case {
    /// Returns the approximate time of the case with one contender.
    fn expected_time(&self) -> Duration {
        // A pause takes about twice as long as was asked for.
        let each = Duration::from_micros(60) + self.pause * 2 + self.work / 2;
        let connections = u32::try_from(self.before + self.connections).unwrap_or(u32::MAX);
        each * connections + Duration::from_millis(600)
    }
}
