//! The claims of `shared-socket`, and their verdicts.

use wakeful_load::internals::results::{Claim, Verdict};

use super::contenders::{AGAIN, LOOPS, ONE_LOOP, OWNED, POLLER, REDIS, SHARED, STRAND};
use super::crash::Raced;
use super::found::Found;
use super::parts::{CRASH, TABLE, TORTURE};
use super::read_write::{self, WORKLOADS};
use crate::claims::{self, Bound};
use crate::interleaved::Measured;

/// In the public case, the figure went from 1.04 to 0.90.
const AGAINST_POLLER: f64 = 0.9;
const AGAINST_REDIS: f64 = 1.0;

/// The workloads for which the public case has throughputs.
const PUBLISHED: [usize; 3] = [0, 1, 6];

const USE_AFTER_FREE: &str = "heap-use-after-free";

/// Returns the claims, each with the part that it is about.
pub(super) fn claims(found: &Found, seed: u64) -> Vec<(&'static str, Claim)> {
    let table = of_table(found, seed).into_iter().map(|claim| (TABLE, claim));
    let crash = of_crash(found).into_iter().map(|claim| (CRASH, claim));
    table.chain(crash).chain([(TORTURE, torture(found))]).collect()
}

fn of_table(found: &Found, seed: u64) -> Vec<Claim> {
    let mut claims = Vec::new();
    for workload in 0..WORKLOADS.len() {
        claims.push(throughput(found, workload, (OWNED, POLLER), AGAINST_POLLER, seed));
    }
    for workload in PUBLISHED {
        claims.push(throughput(found, workload, (LOOPS, POLLER), AGAINST_POLLER, seed));
    }
    for workload in PUBLISHED {
        claims.push(throughput(found, workload, (ONE_LOOP, REDIS), AGAINST_REDIS, seed));
    }
    claims
}

fn of_crash(found: &Found) -> Vec<Claim> {
    let used_after_free = |raced: &Raced| {
        let is_it = raced.report.as_ref().is_some_and(|report| report.error == USE_AFTER_FREE);
        f64::from(u8::from(is_it))
    };
    let died = |raced: &Raced| f64::from(u8::from(raced.died.is_some()));
    let lost = |raced: &Raced| died(raced) + (raced.traffic.wrong + raced.traffic.broken) as f64;
    let reported = "ends with the report of a use after free";
    let serves = "serves on: no answer is wrong or missing";
    vec![
        in_every_run(found, SHARED, reported, used_after_free, Bound::AtLeast(1.0)),
        in_every_run(found, STRAND, "does not end", died, Bound::AtMost(0.0)),
        in_every_run(found, LOOPS, serves, lost, Bound::AtMost(0.0)),
    ]
}

fn rates(found: &Found, workload: usize, name: &str) -> Vec<Option<f64>> {
    let rates: Option<&Measured<Vec<f64>>> = found.table.get(workload).map(|it| &it.rates);
    rates.map_or_else(Vec::new, |rates| rates.figures(name, |rates| Some(rates.iter().sum())))
}

fn throughput(
    found: &Found,
    workload: usize,
    (subject, against): (&str, &str),
    bound: f64,
    seed: u64,
) -> Claim {
    let named = read_write::name(WORKLOADS[workload]);
    claims::ratio(
        &format!("{named}, requests/s: {subject} / {against} is at least {bound}"),
        (subject, &rates(found, workload, subject)),
        (against, &rates(found, workload, against)),
        Bound::AtLeast(bound),
        seed,
    )
}

fn in_every_run(
    found: &Found,
    name: &str,
    what: &str,
    figure: impl Fn(&Raced) -> f64,
    bound: Bound,
) -> Claim {
    let figures = found.crash.figures(name, |raced| Some(figure(raced)));
    let text = format!("connections closed while they are used, every run: {name} {what}");
    claims::in_every_round(&text, (name, &figures), bound)
}

fn torture(found: &Found) -> Claim {
    let claim = format!("{TORTURE}: nothing is wrong at the end");
    let Some(tortured) = &found.torture else {
        let measured = "it was not run".to_owned();
        return Claim { claim, measured, verdict: Verdict::CannotTell };
    };
    let (measured, verdict) = match tortured.faults.first() {
        None => ("no fault".to_owned(), Verdict::Holds),
        Some(first) => {
            (format!("{} faults, the first: {first}", tortured.faults.len()), Verdict::DoesNotHold)
        }
    };
    Claim { claim, measured, verdict }
}

/// Returns notes for the reader: the noise, and what is in doubt.
pub(super) fn notes(found: &Found, seed: u64) -> Vec<String> {
    let mut notes = Vec::new();
    for (workload, it) in found.table.iter().enumerate() {
        let (again, first) = (rates(found, workload, AGAIN), rates(found, workload, LOOPS));
        let noise = claims::ratio("", (AGAIN, &again), (LOOPS, &first), Bound::AtMost(1.0), seed);
        let named = read_write::name(WORKLOADS[workload]);
        notes.push(format!("A against A, {named}: {}.", noise.measured));
        notes.extend(it.doubts.iter().map(|doubt| format!("INVALID, {named}: {doubt}.")));
    }
    notes
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::read_write::Workload;
    use super::super::report::Report;
    use super::super::torture::Tortured;
    use super::super::traffic::Traffic;
    use super::*;

    fn table(owned: f64, loops: f64, one: f64) -> Vec<Workload> {
        let rounds = |rate: f64| [0.99, 1.0, 1.01].map(|by| vec![rate * by]).to_vec();
        let workload = |_| Workload {
            rates: Measured::canned(vec![
                (OWNED, rounds(owned)),
                (LOOPS, rounds(loops)),
                (AGAIN, rounds(loops)),
                (ONE_LOOP, rounds(one)),
                (POLLER, rounds(100e3)),
                (REDIS, rounds(100e3)),
            ]),
            kinds: Vec::new(),
            wholes: BTreeMap::new(),
            doubts: Vec::new(),
        };
        WORKLOADS.into_iter().map(workload).collect()
    }

    fn raced(error: Option<&str>, wrong: u64) -> Vec<Raced> {
        let report = error.map(|error| Report {
            error: error.to_owned(),
            used: String::new(),
            freed: String::new(),
        });
        let died = error.map(|_| "exited with status 86".to_owned());
        let traffic = Traffic { wrong, ..Traffic::default() };
        vec![Raced { seconds: 1.0, traffic, died, report }; 2]
    }

    fn found() -> Found {
        Found {
            table: table(100e3, 100e3, 120e3),
            crash: Measured::canned(vec![
                (SHARED, raced(Some(USE_AFTER_FREE), 0)),
                (STRAND, raced(None, 0)),
                (LOOPS, raced(None, 0)),
            ]),
            pickers: Measured::default(),
            torture: Some(Tortured::default()),
        }
    }

    fn fails(found: &Found) -> Vec<usize> {
        let verdicts = claims(found, 1).into_iter().map(|(_, claim)| claim.verdict).enumerate();
        verdicts
            .filter(|(_, verdict)| *verdict == Verdict::DoesNotHold)
            .map(|(index, _)| index)
            .collect()
    }

    #[test]
    fn what_is_as_it_should_be_holds() {
        for (_, claim) in claims(&found(), 1) {
            assert_eq!(claim.verdict, Verdict::Holds, "{claim:?}");
        }
    }

    #[test]
    fn each_claim_can_fail() {
        let with = |change: &dyn Fn(&mut Found)| {
            let mut found = found();
            change(&mut found);
            fails(&found)
        };
        let crash = |shared, strand, own| {
            Measured::canned(vec![(SHARED, shared), (STRAND, strand), (LOOPS, own)])
        };
        let uaf = || raced(Some(USE_AFTER_FREE), 0);
        assert_eq!(with(&|found| found.table = table(80e3, 100e3, 120e3)), [0, 1, 2, 3, 4, 5, 6]);
        assert_eq!(with(&|found| found.table = table(100e3, 80e3, 120e3)), [7, 8, 9]);
        assert_eq!(with(&|found| found.table = table(100e3, 100e3, 90e3)), [10, 11, 12]);
        let none = raced(None, 0);
        assert_eq!(
            with(&|found| found.crash = crash(none.clone(), none.clone(), none.clone())),
            [13]
        );
        let other = raced(Some("SEGV"), 0);
        assert_eq!(
            with(&|found| found.crash = crash(other.clone(), none.clone(), none.clone())),
            [13]
        );
        assert_eq!(with(&|found| found.crash = crash(uaf(), uaf(), none.clone())), [14]);
        assert_eq!(with(&|found| found.crash = crash(uaf(), none.clone(), uaf())), [15]);
        assert_eq!(with(&|found| found.crash = crash(uaf(), none.clone(), raced(None, 1))), [15]);
        let faults = vec!["a byte".to_owned()];
        let tortured = Tortured { counts: Vec::new(), faults };
        assert_eq!(with(&|found| found.torture = Some(tortured.clone())), [16]);
    }

    #[test]
    fn what_was_not_measured_leaves_its_claims_open() {
        let open = claims(&Found::default(), 0);
        assert_eq!(open.len(), 17);
        assert!(open.iter().all(|(_, claim)| claim.verdict == Verdict::CannotTell));
    }
}
