//! `lab shared-socket`: what does it cost that a socket belongs to one loop, and what does it cost
//! if it does not?
//!
//! Each of the parts in [`PARTS`] can be run by itself (`--parts`): the public table of reads and
//! writes, the public crash beside servers that must not crash, the cost of picking a loop, and the
//! torture run. [`contenders`] has the servers, and [`verdicts`] has the claims.

mod contenders;
mod crash;
mod found;
mod parts;
mod pickers;
mod read_write;
mod report;
mod tables;
mod torture;
mod traffic;
mod verdicts;

use std::time::Duration;

use wakeful_load::internals::results::Results;

use self::found::Found;
use self::parts::{CRASH, Extent, PARTS, PICKERS, TABLE, TORTURE};
use crate::lab::{Experiment, Findings, Lab, LabError, Size};
use crate::probe::Probe;

/// The experiment: see the [module](self).
#[derive(Debug)]
pub(crate) struct SharedSocket;

impl Experiment for SharedSocket {
    fn name(&self) -> &'static str {
        "shared-socket"
    }

    fn about(&self) -> &'static str {
        "a key-value service on loops that own their sockets, beside one poller that threads share; and the crash of sharing, reproduced"
    }

    fn story(&self) -> &'static str {
        "The network layer of a C++ key-value store had several threads in one event loop. Under heavy traffic one thread closed a socket that another one was \
         using: use after free. It went to one loop for each thread, each socket on one loop, loops picked at random. Throughput stayed about the same: reads only \
         289k/s to 293k with 50 threads, writes only 36.2k to 37.5k with 15, 30 reads to 1 write 267k to 241k with 50, where the average read went from 543 \
         to 613 µs. The crash was gone in production; but writes were still started on the caller's thread while a failure closed the socket on the loop's, \
         and a later change made closing lazy for the same kind of crash. To pick a loop took, by a count of calls that was not stated, 826 µs in turn by \
         adding and comparing, 421 by a remainder, 505 by a mask and 420 at random. Starting and closing have to be the owner's alone, and here a type says so: \
         a socket is neither Send nor Sync."
    }

    fn claims(&self) -> Vec<String> {
        verdicts::claims(&Found::default(), 0).into_iter().map(|(_, claim)| claim.claim).collect()
    }

    fn parts(&self) -> &'static [&'static str] {
        &PARTS
    }

    fn probes(&self) -> Vec<Probe> {
        contenders::probes()
    }

    fn run(&self, lab: &mut Lab<'_>) -> Result<Results, LabError> {
        if lab.size == Size::Quick {
            lab.bench.limits.settle = Duration::from_millis(100);
            lab.bench.limits.patience = Duration::from_secs(5);
            lab.bench.most_repeats = 1;
        }
        let extent = Extent::of(lab);
        let serving = contenders::serving(lab);
        let raced = contenders::raced(lab);
        if lab.is_wanted(TABLE) {
            read_write::expect(lab, &serving, &extent)?;
        }
        if lab.is_wanted(CRASH) {
            crash::expect(lab, &raced, &extent);
        }
        if lab.is_wanted(PICKERS) {
            pickers::expect(lab, extent.rounds);
        }
        if lab.is_wanted(TORTURE) {
            torture::expect(lab, extent.torture);
        }
        let mut found = Found::default();
        if lab.is_wanted(TABLE) {
            found.table = read_write::measure(lab, &serving, &extent)?;
        }
        if lab.is_wanted(CRASH) {
            found.crash = crash::measure(lab, &raced, &extent)?;
        }
        if lab.is_wanted(PICKERS) {
            found.pickers = pickers::measure(lab, extent.rounds)?;
        }
        if lab.is_wanted(TORTURE) {
            found.torture = torture::run(lab, extent.torture)?;
        }
        if found.is_empty() {
            return Err(LabError::Nothing);
        }
        lab.notes.extend(verdicts::notes(&found, lab.seed));
        let claims = verdicts::claims(&found, lab.seed).into_iter();
        let claims = claims.filter(|(part, _)| lab.is_wanted(part)).map(|(_, claim)| claim);
        let claims = claims.collect();
        let tables = tables::tables(&found, contenders::threads(&lab.bench));
        Ok(lab.results(self, Findings { tables, claims, ..Findings::default() }))
    }
}
