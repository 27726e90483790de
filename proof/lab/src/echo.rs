//! `lab echo`: what a wake costs, under little load and under much.

use std::time::Duration;

use wakeful_load::internals::bench::{BenchError, Load};
use wakeful_load::internals::results::Results;
use wakeful_load::internals::{floor, format};
use wakeful_load::{Plan, Protocol, Requests, Schedule, Target, Template};

use crate::claims::{Bound, RatioClaim};
use crate::contender::wakeful;
use crate::lab::{Experiment, Findings, Lab, LabError, Size};
use crate::peers::Service;
use crate::rounds;

/// The bytes of a frame, which is sent each way.
const BYTES: usize = 1024;

const CONNECTIONS: usize = 32;

const RATES: [f64; 4] = [1e3, 1e4, 5e4, 1e5];

const SPINNING: &str = "wakeful, spinning";
const PARKING: &str = "wakeful, parking";
/// The same as [`PARKING`]. The difference between the two is the noise.
const AGAIN: &str = "wakeful, parking (again)";

/// The experiment: see the [module](self).
#[derive(Debug)]
pub(crate) struct Echo;

/// A claim, and the load for which it is made.
struct At {
    load: usize,
    claim: RatioClaim,
}

fn claims() -> Vec<At> {
    let p50 = |load: usize, subject, against, most: f64| {
        let rate = format::short_rate(RATES[load]);
        At {
            load,
            claim: RatioClaim {
                text: format!("p50 at {rate}: {subject} / {against} is at most {most}"),
                subject,
                against,
                figure: |figures| figures.p50,
                bound: Bound::AtMost(most),
            },
        }
    };
    let saturated = |subject, against, least: f64| At {
        load: RATES.len(),
        claim: RatioClaim {
            text: format!("saturated throughput: {subject} / {against} is at least {least}"),
            subject,
            against,
            figure: |figures| Some(figures.throughput),
            bound: Bound::AtLeast(least),
        },
    };
    vec![
        p50(1, SPINNING, "tokio-current-thread", 0.4),
        p50(1, SPINNING, "epoll+spin", 1.15),
        p50(3, SPINNING, "epoll+spin", 1.15),
        p50(1, PARKING, "tokio-current-thread", 1.1),
        p50(1, PARKING, "epoll", 1.1),
        saturated(PARKING, "tokio-current-thread", 0.95),
    ]
}

impl Experiment for Echo {
    fn name(&self) -> &'static str {
        "echo"
    }

    fn about(&self) -> &'static str {
        "1 KiB frames over 32 connections, one server thread, from 1k/s to saturation"
    }

    fn story(&self) -> &'static str {
        "A Rust service answered with a p50 of 330 µs at 10k requests/s and of 160 µs at 100k: lightly loaded threads park, \
         and each wake costs. Burning every CPU with tasks that always yield brought 68 µs, at 100 % CPU for ever. This is the \
         least of it: one server thread on the first CPU, echoing frames of 1 KiB over 32 connections, an open-loop generator on the \
         last CPU. Whoever parks is slow when there is little to do; whoever spins takes a whole CPU."
    }

    fn claims(&self) -> Vec<String> {
        claims().into_iter().map(|at| at.claim.text).collect()
    }

    fn service(&self) -> Option<Service> {
        Some(Service::Echo)
    }

    fn run(&self, lab: &mut Lab<'_>) -> Result<Results, LabError> {
        let (rounds, warm_up, duration) = match lab.size {
            Size::Quick => (2, Duration::from_millis(100), Duration::from_millis(500)),
            Size::Full => (3, Duration::from_millis(200), Duration::from_secs(1)),
        };
        if lab.size == Size::Quick {
            lab.bench.limits.settle = Duration::from_millis(100);
            lab.bench.limits.patience = Duration::from_secs(5);
            lab.bench.most_repeats = 1;
        }
        let schedules = RATES.map(Schedule::Poisson).into_iter().chain([Schedule::Closed]);
        let mut loads = Vec::new();
        for schedule in schedules {
            // Each block replaces the target by its server's address.
            let nowhere = Target::Unix("/".into());
            let requests = Requests::new(Protocol::Frames, &Template::of_size(BYTES))
                .map_err(BenchError::from)?;
            let plan = Plan::new(nowhere)
                .requests(requests)
                .in_flight((schedule == Schedule::Closed).then_some(1))
                .schedule(schedule)
                .connections(CONNECTIONS)
                .seed(lab.seed)
                .warm_up(warm_up)
                .duration(duration);
            loads.push(Load { plan, slow_clients: 0 });
        }
        let mut contenders = vec![
            wakeful(&lab.program, SPINNING, "echo", "spin"),
            wakeful(&lab.program, PARKING, "echo", "park"),
            wakeful(&lab.program, AGAIN, "echo", "park"),
        ];
        contenders.extend(lab.peers.iter().cloned());
        floor::expect(&mut lab.bench, &loads[1]);
        rounds::expect(&mut lab.bench, contenders.len(), &loads, rounds);
        let floor = floor::measure(&mut lab.bench, &loads[1], BYTES).ok();
        let measured = rounds::measure(&mut lab.bench, &contenders, &loads, rounds)?;
        for (index, why) in &measured.failed {
            lab.notes.push(format!("{} was left out: {why}", contenders[*index].name));
        }
        let index = |name: &str| contenders.iter().position(|contender| contender.name == name);
        let figures =
            |name: &str, load| index(name).map_or(&[][..], |one| measured.figures(one, load));
        let claims = claims().into_iter().map(|At { load, claim }| {
            let (subject, against) = (figures(claim.subject, load), figures(claim.against, load));
            claim.judge(subject, against, floor.as_ref(), lab.seed)
        });
        let claims = claims.collect();
        let noise = RatioClaim {
            text: String::new(),
            subject: AGAIN,
            against: PARKING,
            figure: |figures| figures.p50,
            bound: Bound::AtMost(1.0),
        };
        for (load, rate) in RATES.into_iter().enumerate() {
            let (again, first) = (figures(AGAIN, load), figures(PARKING, load));
            let noise = noise.judge(again, first, floor.as_ref(), lab.seed).measured;
            lab.notes.push(format!(
                "A against A at {}: p50 of {AGAIN} / {PARKING} is {noise}.",
                format::short_rate(rate)
            ));
        }
        let runs = measured.runs();
        if runs.is_empty() {
            return Err(LabError::Nothing);
        }
        Ok(lab.results(self, Findings { floor, runs, claims, ..Findings::default() }))
    }
}
