//! How long a real-time consumer waits for producers that do not run. [`trial`] stops one producer
//! in the middle of its push: at the points that a design names ([`Way::Points`]), or after each
//! instruction, whoever wrote the code ([`Way::Steps`]). [`preempted`] lets the scheduler stop the
//! producers, by a busy loop ([`Way::Hog`]) or by a CPU quota ([`Way::Quota`]).
//!
//! It needs root, for real-time priorities. Without root, the answer says so.

mod cgroup;
mod gate;
mod interrupt;
mod preempted;
mod stepping;
mod trial;

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::list::{Consumer, Job, Name, Producer, ReadyList};
use crate::scheduling::{self, Policy, this_thread};
use trial::{CONTROLLER, State, Stop};

/// The most stops in one push, evenly spread.
const MOST_STEPS: u64 = 200;

/// What stops the producers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Way {
    /// The design's own code, at each place that could matter.
    Points,
    /// The processor's trap flag, after each instruction (at most 200).
    Steps,
    /// A busy loop of ordinary priority on their CPU, while they are `SCHED_IDLE`.
    Hog,
    /// A CPU quota of 2 ms in 100.
    Quota,
}

#[derive(Debug, Clone, Copy, clap::Args)]
pub struct Arguments {
    /// What stops the producers.
    #[arg(long, value_enum, default_value = "points")]
    by: Way,
    /// The time after which a wait counts as endless and the producer may continue, in
    /// milliseconds.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..=900))]
    deadline_ms: u64,
    /// How long to measure with `hog` and `quota`, in seconds.
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// How long to measure in minutes, instead of `--seconds`.
    #[arg(long)]
    minutes: Option<f64>,
}

#[derive(Debug, Default, Serialize)]
pub struct Report {
    mode: &'static str,
    by: String,
    contender: String,
    deadline_ms: u64,
    /// Why nothing was measured.
    skipped: Option<String>,
    /// The consumer's longest drain, in microseconds.
    worst_drain_us: Option<f64>,
    /// The longest time from the beginning of another producer's push until a sleeping consumer has
    /// its event, in microseconds.
    worst_post_us: Option<f64>,
    /// How many drains ended only because the stopped producer was let go.
    drains_rescued: u64,
    /// How many posts ended only because the stopped producer was let go.
    posts_rescued: u64,
    /// The number of drains and posts together.
    trials: u64,
    /// How many drains took more than a millisecond, with `hog` and `quota`.
    drains_over_1ms: Option<u64>,
    /// How many events were taken, with `hog` and `quota`.
    events: Option<u64>,
    /// The number of instructions of a push, with `steps`. Of a push to an awake consumer and one
    /// to a sleeping consumer, this is the longer one.
    instructions: Option<u64>,
    /// The points at which the consumer, or the other producer's event, had to wait for the stopped
    /// producer, with `points`.
    waited_at: Vec<&'static str>,
    /// The points at which neither had to wait.
    unmoved_at: Vec<&'static str>,
}

pub fn run(contender: Name, arguments: Arguments) -> Result<Report> {
    let mut report = Report {
        mode: "priority",
        by: format!("{:?}", arguments.by).to_lowercase(),
        contender: contender.to_string(),
        deadline_ms: arguments.deadline_ms,
        ..Report::default()
    };
    report.skipped = scheduling::may_be_real_time().err();
    if arguments.by == Way::Steps && report.skipped.is_none() {
        report.skipped = stepping::check().err();
    }
    if report.skipped.is_none() {
        contender.with(Measure { arguments, report: &mut report })?;
    }
    Ok(report)
}

struct Measure<'a> {
    arguments: Arguments,
    report: &'a mut Report,
}

impl Job for Measure<'_> {
    type Output = Result<()>;

    fn run<L: ReadyList>(self) -> Result<()> {
        let Self { arguments, report } = self;
        let cpu = scheduling::cpus()?[0];
        let deadline = Duration::from_millis(arguments.deadline_ms);
        let seconds = arguments.minutes.map_or(arguments.seconds, |minutes| minutes * 60.0);
        let duration = Duration::from_secs_f64(seconds.clamp(0.1, 86_400.0));
        scheduling::set_policy(this_thread(), CONTROLLER).context("real-time priority")?;
        let outcome = match arguments.by {
            Way::Points => beside_a_hog(cpu, || points::<L>(cpu, deadline, report)),
            Way::Steps => beside_a_hog(cpu, || steps::<L>(cpu, deadline, report)),
            Way::Hog | Way::Quota => {
                let by = match arguments.by {
                    Way::Hog => preempted::By::Hog,
                    _ => preempted::By::Quota,
                };
                preempted::run::<L>(by, cpu, duration, deadline).map(|drains| {
                    report.worst_drain_us = Some(microseconds(drains.longest));
                    report.drains_over_1ms = Some(drains.over_1ms);
                    report.drains_rescued = drains.rescued;
                    report.trials = drains.count;
                    report.events = Some(drains.events);
                })
            }
        };
        // The control group has been removed by now.
        interrupt::end_if_wanted();
        scheduling::set_policy(this_thread(), Policy::Other)?;
        outcome
    }
}

fn microseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// Runs `f` while a thread of ordinary priority wants the whole CPU.
fn beside_a_hog(cpu: usize, f: impl FnOnce() -> Result<()>) -> Result<()> {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let hog = scope.spawn(|| {
            scheduling::set_policy(this_thread(), Policy::Other)?;
            scheduling::pin(cpu)?;
            while !stop.load(Relaxed) {
                std::hint::spin_loop();
            }
            anyhow::Ok(())
        });
        let outcome = f();
        stop.store(true, Relaxed);
        hog.join().expect("no panic")?;
        outcome
    })
}

impl Report {
    /// Tries one stop. Returns `None` if the push ended before it, and otherwise whether the
    /// consumer or the other producer's event had to wait for the stopped producer.
    fn ask<L: ReadyList>(
        &mut self,
        stop: Stop,
        state: State,
        cpu: usize,
        deadline: Duration,
    ) -> Result<Option<bool>> {
        let Some(waited) = trial::run::<L>(stop, state, cpu, deadline)? else { return Ok(None) };
        let (worst, rescued) = match state {
            State::Awake => (&mut self.worst_drain_us, &mut self.drains_rescued),
            State::Asleep => (&mut self.worst_post_us, &mut self.posts_rescued),
        };
        *worst = Some(worst.unwrap_or_default().max(microseconds(waited.time)));
        *rescued += u64::from(waited.rescued);
        self.trials += 1;
        Ok(Some(waited.rescued))
    }
}

fn points<L: ReadyList>(cpu: usize, deadline: Duration, report: &mut Report) -> Result<()> {
    for name in names::<L>()? {
        let drain = report.ask::<L>(Stop::At(name), State::Awake, cpu, deadline)?;
        let post = report.ask::<L>(Stop::At(name), State::Asleep, cpu, deadline)?;
        match [drain, post].into_iter().flatten().max() {
            Some(true) => report.waited_at.push(name),
            Some(false) => report.unmoved_at.push(name),
            None => {}
        }
    }
    if report.trials == 0 {
        report.skipped = Some("its code names no points: see `steps`".to_owned());
    }
    Ok(())
}

/// Returns the points of a push to a sleeping consumer. Such a push has all points.
fn names<L: ReadyList>() -> Result<Vec<&'static str>> {
    let (mut ends, mut consumer) = L::build(1, 2)?;
    let mut names = Vec::new();
    consumer.arm();
    ends[0].push_at(1, |name| {
        if !names.contains(&name) {
            names.push(name);
        }
    });
    Ok(names)
}

fn steps<L: ReadyList>(cpu: usize, deadline: Duration, report: &mut Report) -> Result<()> {
    for state in [State::Awake, State::Asleep] {
        let (mut ends, mut consumer) = L::build(1, 64)?;
        (0..trial::BEFORE).for_each(|_| ends[0].push(1));
        if state == State::Asleep {
            consumer.take(|_| ());
            consumer.arm();
        }
        let all = stepping::instructions(|| ends[0].push(1));
        report.instructions = report.instructions.max(Some(all));
        let stride = all.div_ceil(MOST_STEPS).max(1);
        for number in (0..all).step_by(usize::try_from(stride)?) {
            report.ask::<L>(Stop::Behind(number), state, cpu, deadline)?;
        }
    }
    Ok(())
}
