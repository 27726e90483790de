//! `lab blocked-consumer`: does the consumer of a ready list wait for a thread that feeds it, and
//! what does it cost to avoid that?
//!
//! All parts use the probe `ready-list` (`proof/peers/ready-list`), which has every contender in
//! one program. The parts are the public stress with 8 to 128 producers, one producer and one
//! consumer with a CPU each, the sweep with little contention, producers that are stopped in the
//! middle of their push, and a service whose replies come from worker threads. [`contenders`] has
//! what is run, and [`verdicts`] has the claims.

mod contenders;
mod found;
mod parts;
mod tables;
mod verdicts;

use std::time::Duration;

use wakeful_load::internals::results::Results;

use self::found::Found;
use self::parts::{ALONE, HOG, POINTS, QUOTA, SERVICE, STEPS, STRESS, SWEEP};
use crate::lab::{Experiment, Findings, Lab, LabError, Size};
use crate::probe::Probe;
use crate::probes::{self, Part};

/// The experiment: see the [module](self).
#[derive(Debug)]
pub(crate) struct BlockedConsumer;

impl Experiment for BlockedConsumer {
    fn name(&self) -> &'static str {
        "blocked-consumer"
    }

    fn about(&self) -> &'static str {
        "ready lists of many producers: events a millisecond, and how long a consumer waits for a producer that was stopped in its push"
    }

    fn story(&self) -> &'static str {
        "The ready list of Linux's epoll was under a read-write lock: producers shared it, the consumer had it alone. That is fast with \
         many producers; but a consumer of high priority waits for a producer of low priority that lost its CPU while it held the lock, and whole \
         systems stalled. A lock-free list was tried and taken back, because it lost events. Since Linux 6.18 it is a spinlock: correct, \
         and slower when producers contend. Producers that write to their own eventfds, one consumer, events a millisecond before and \
         after: on 12 x86 CPUs with 8, 16, 32, 64, 128 threads 7162 to 4956, 8733 to 5383, 7968 to 5572, 10652 to 5739, 11236 to 5931; on 4 \
         RISC-V CPUs 2958 to 2833, 3323 to 3097, 3451 to 3240, 3554 to 3178, 3601 to 3235. With little contention (one writer that sweeps \
         over 64 descriptors of each worker), operations a second: 110279 to 114577, and 175767 to 167396."
    }

    fn claims(&self) -> Vec<String> {
        verdicts::claims(&Found::none(), 0).into_iter().map(|claim| claim.claim).collect()
    }

    fn probes(&self) -> Vec<Probe> {
        contenders::all()
    }

    fn run(&self, lab: &mut Lab<'_>) -> Result<Results, LabError> {
        if lab.size == Size::Quick {
            lab.bench.limits.settle = Duration::from_millis(100);
            lab.bench.limits.patience = Duration::from_secs(5);
            lab.bench.most_repeats = 1;
        }
        let extent = Extent::of(lab.size);
        let stress = STRESS.map(|(producers, part)| extent.stress(producers, part));
        let alone = extent.part(ALONE, &["--events", &extent.events.to_string()], 0.3);
        let sweep = extent.lasting(SWEEP, extent.seconds);
        // Wherever a consumer waits, it waits as long as the deadline.
        let points = Part { rounds: 1, ..extent.part(POINTS, &[], 1.0) };
        let steps = Part { rounds: 1, ..extent.part(STEPS, &[], 5.0) };
        // A claim uses the ratio of the longest drains, so one round does not tell enough. The
        // rounds are shorter, but each has 30 periods of the quota.
        let quota = extent.lasting(QUOTA, extent.quota_seconds);
        let hog = Part { rounds: 1, ..extent.lasting(HOG, extent.hog_seconds) };
        let service = extent.lasting(SERVICE, extent.seconds);
        let rest = [&alone, &sweep, &points, &steps, &quota, &hog, &service];
        stress.iter().chain(rest).for_each(|part| part.expect(lab));
        let found = Found {
            stress: stress
                .iter()
                .map(|part| probes::measure(lab, part))
                .collect::<Result<_, _>>()?,
            alone: probes::measure(lab, &alone)?,
            sweep: probes::measure(lab, &sweep)?,
            points: probes::measure(lab, &points)?,
            steps: probes::measure(lab, &steps)?,
            quota: probes::measure(lab, &quota)?,
            hog: probes::measure(lab, &hog)?,
            service: probes::measure(lab, &service)?,
        };
        if found.is_empty() {
            return Err(LabError::Nothing);
        }
        lab.notes.extend(verdicts::notes(&found, lab.seed));
        let claims = verdicts::claims(&found, lab.seed);
        let tables = tables::tables(&found);
        Ok(lab.results(self, Findings { tables, claims, ..Findings::default() }))
    }
}

/// How much is measured.
struct Extent {
    rounds: usize,
    /// The events of all producers together. The public stress has a million for each producer.
    events: u64,
    seconds: f64,
    quota_seconds: f64,
    hog_seconds: f64,
}

impl Extent {
    fn of(size: Size) -> Self {
        let (rounds, events, seconds, quota_seconds, hog_seconds) = match size {
            Size::Quick => (3, 400_000, 0.3, 1.0, 1.0),
            Size::Full => (7, 4_000_000, 1.0, 3.0, 10.0),
        };
        Self { rounds, events, seconds, quota_seconds, hog_seconds }
    }

    /// Makes a part in which a run takes about `seconds`.
    fn part(&self, name: &'static str, arguments: &[&str], seconds: f64) -> Part {
        let arguments = arguments.iter().map(|&word| word.to_owned()).collect();
        Part { name, arguments, rounds: self.rounds, each: Duration::from_secs_f64(seconds) }
    }

    fn lasting(&self, name: &'static str, seconds: f64) -> Part {
        self.part(name, &["--seconds", &seconds.to_string()], seconds + 0.1)
    }

    fn stress(&self, producers: u64, name: &'static str) -> Part {
        let (producers, each) = (producers.to_string(), (self.events / producers).to_string());
        // The kernel's 2,000 events a millisecond are a tenth of the median's.
        let seconds = self.events as f64 / 1e7;
        self.part(name, &["--producers", &producers, "--events", &each], seconds)
    }
}
