//! `lab late-wake`: how late is work that is ready while its loop sleeps, or is about to sleep?
//!
//! There are three parts: the public case ([`DEFERRED`]), one cold call ([`cold`]), and posts from
//! another thread to a loop that sleeps and to one that does not. [`contenders`] has what is run,
//! and [`verdicts`] has the claims.

mod contenders;
mod found;
mod parts;
mod tables;
mod verdicts;

use std::time::Duration;

use wakeful_load::internals::results::Results;

use self::found::Found;
use self::parts::{COLD, DEFERRED, PARKED, SPINNING};
use crate::cold;
use crate::contender::wakeful;
use crate::lab::{Experiment, Findings, Lab, LabError, Size};
use crate::peers::Service;
use crate::probe::Probe;
use crate::probes::{self, Part};

/// The experiment: see the [module](self).
#[derive(Debug)]
pub(crate) struct LateWake;

/// How much is measured.
struct Extent {
    rounds: usize,
    timer: Duration,
    /// Pairs of posts in a round of the public case.
    times: u32,
    posts: u32,
}

impl Extent {
    fn of(lab: &Lab<'_>) -> Self {
        let (rounds, timer, times, posts) = match lab.size {
            Size::Quick => (3, Duration::from_secs(2), 5, 1_000),
            // The fewest posts that are enough for p99.
            Size::Full => (7, Duration::from_secs(5), 10, 10_000),
        };
        Self { rounds, timer: lab.timer.unwrap_or(timer), times, posts }
    }

    /// Returns the part of the public case. The time is the average of the contenders, if one of
    /// them waits for the timer.
    fn deferred(&self, contenders: usize) -> Part {
        let timer = self.timer.as_millis().to_string();
        let pairs = contenders::DEFERRED_GAP * self.times + Duration::from_millis(100);
        Part {
            name: DEFERRED,
            arguments: words(&["--timer-ms", &timer, "--times", &self.times.to_string()]),
            rounds: self.rounds,
            each: pairs + self.timer / u32::try_from(contenders.max(1)).unwrap_or(u32::MAX),
        }
    }

    fn posts(&self, name: &'static str, gap: Duration) -> Part {
        Part {
            name,
            arguments: words(&["--posts", &self.posts.to_string()]),
            rounds: self.rounds,
            // The loop takes a moment to fall asleep, and to wake.
            each: (gap + Duration::from_micros(50)) * self.posts + Duration::from_millis(50),
        }
    }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

impl Experiment for LateWake {
    fn name(&self) -> &'static str {
        "late-wake"
    }

    fn about(&self) -> &'static str {
        "work that a post queues, one cold call, and posts to a loop that sleeps and to one that does not"
    }

    fn story(&self) -> &'static str {
        "The first call of a C++ RPC server on a libevent-backed loop took about 6,500 ms instead of 1, another one 6,418 ms instead of 16, \
         and a suite of tests 155 s instead of 1.4. The reply was queued as a callback of the loop, in a list that the poller knew nothing \
         of, and the loop went back to sleep until its next timer. Two things had to come together, and both are the application's: it \
         runs its callbacks only when a one-shot wait returns, and the eventfd that wakes the loop for posts was registered as an internal \
         event, which libevent does not count when it decides whether a one-shot wait is over. And since the list of posts was armed again \
         by such a callback, later posts did not ring. Reproduced by hand with libevent 2.1.12: an eventfd written at 100 ms with a timer at \
         2 s ends the wait after 100.3 ms if its event is normal, and after 2,002.2 ms if it is internal."
    }

    fn claims(&self) -> Vec<String> {
        verdicts::texts()
    }

    fn service(&self) -> Option<Service> {
        Some(Service::Echo)
    }

    fn has_timer(&self) -> bool {
        true
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
        let extent = Extent::of(lab);
        let rounds = extent.rounds;
        let mut servers = vec![
            wakeful(&lab.program, "wakeful, parking", "echo", "park"),
            wakeful(&lab.program, "wakeful, spinning", "echo", "spin"),
        ];
        servers.extend(lab.peers.iter().cloned());
        // A contender that is late is as late as the timer.
        for ready in lab.probes.iter_mut().filter(|ready| ready.probe.part == DEFERRED) {
            ready.probe.patience += extent.timer;
        }
        let of_deferred = lab.probes.iter().filter(|ready| ready.probe.part == DEFERRED).count();
        let deferred = extent.deferred(of_deferred);
        let parked = extent.posts(PARKED, contenders::PARKED_GAP);
        let spinning = extent.posts(SPINNING, contenders::SPINNING_GAP);
        deferred.expect(lab);
        cold::expect(lab, &servers, rounds);
        parked.expect(lab);
        spinning.expect(lab);
        let found = Found {
            deferred: probes::measure(lab, &deferred)?,
            cold: cold::measure(lab, COLD, &servers, rounds)?,
            parked: probes::measure(lab, &parked)?,
            spinning: probes::measure(lab, &spinning)?,
        };
        if found.is_empty() {
            return Err(LabError::Nothing);
        }
        let claims = verdicts::claims(&found, lab.seed);
        lab.notes.push(verdicts::noise(&found, lab.seed));
        let tables = tables::tables(&found, extent.timer);
        Ok(lab.results(self, Findings { tables, claims, ..Findings::default() }))
    }
}

impl Found {
    fn is_empty(&self) -> bool {
        self.deferred.is_empty()
            && self.cold.is_empty()
            && self.parked.is_empty()
            && self.spinning.is_empty()
    }
}
