//! Little contention: one writer sweeps over the sources of every worker, again and again, with one
//! event for each. Each worker has its own ready list. The operations per second are those that one
//! worker takes on average, as `perf bench epoll wait --multiq` counts them.
//!
//! A source that is still queued is skipped, as the kernel skips an item that is in its list.
//! Designs that do not coalesce by themselves get a flag for each source.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{AcqRel, Relaxed, Release};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde::Serialize;

use crate::list::{Consumer, Job, Name, Producer, ReadyList};
use crate::scheduling;

#[derive(Debug, Clone, Copy, clap::Args)]
pub struct Arguments {
    /// How many workers. Each has its own CPU, as far as there are enough. The writer has the first
    /// CPU.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: u16,
    /// How many sources each worker has.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..))]
    sources: u16,
    /// How long to measure, in seconds.
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
}

#[derive(Debug, Serialize)]
pub struct Report {
    mode: &'static str,
    contender: String,
    workers: u16,
    sources: u16,
    seconds: f64,
    /// The operations of one worker, on average.
    operations_per_second: f64,
    rings: Option<u64>,
}

pub fn run(contender: Name, arguments: Arguments) -> Result<Report> {
    contender.with(Sweep { contender, arguments })
}

struct Sweep {
    contender: Name,
    arguments: Arguments,
}

/// A source: its producer, and whether the source is queued.
struct Source<P> {
    producer: P,
    value: u64,
    queued: Arc<[AtomicBool]>,
}

impl<P: Producer> Source<P> {
    fn push(&mut self) {
        if P::COALESCES {
            self.producer.push(1);
        } else if !self.queued[index(self.value)].swap(true, AcqRel) {
            self.producer.push(self.value);
        }
    }
}

/// Converts a value to a source's index. Values are one higher than the index, because zero is not
/// a value.
fn index(value: u64) -> usize {
    usize::try_from(value - 1).expect("sources are counted in 16 bits")
}

impl Job for Sweep {
    type Output = Result<Report>;

    fn run<L: ReadyList>(self) -> Result<Report> {
        let Self { contender, arguments } = self;
        let cpus = scheduling::cpus()?;
        let duration = Duration::from_secs_f64(arguments.seconds.clamp(0.01, 3600.0));
        let stop = AtomicBool::new(false);
        let mut sources: Vec<Source<L::Producer>> = Vec::new();
        let mut consumers = Vec::new();
        for _ in 0..arguments.workers {
            let (ends, consumer) = L::build(usize::from(arguments.sources), 2)?;
            let flags: Arc<[AtomicBool]> = ends.iter().map(|_| AtomicBool::new(false)).collect();
            consumers.push((consumer, flags.clone()));
            sources.extend((1..).zip(ends).map(|(value, producer)| Source {
                producer,
                value,
                queued: flags.clone(),
            }));
        }
        let (stop, cpus) = (&stop, &cpus);
        let counts: Result<Vec<(u64, f64, Option<u64>)>> = thread::scope(|scope| {
            let workers: Vec<_> = consumers
                .into_iter()
                .enumerate()
                .map(|(number, (consumer, flags))| {
                    let cpu = cpus[(number + 1) % cpus.len()];
                    scope.spawn(move || {
                        scheduling::pin(cpu)?;
                        Ok(work::<L>(consumer, &flags, stop))
                    })
                })
                .collect();
            let pinned = scheduling::pin(cpus[0]);
            let start = Instant::now();
            while start.elapsed() < duration && pinned.is_ok() {
                sources.iter_mut().for_each(Source::push);
            }
            stop.store(true, Relaxed);
            // A sleeping worker notices the end only when it is woken.
            while workers.iter().any(|worker| !worker.is_finished()) {
                sources.iter_mut().for_each(Source::push);
                thread::yield_now();
            }
            pinned?;
            workers.into_iter().map(|worker| worker.join().expect("no panic")).collect()
        });
        let counts = counts?;
        let rate: f64 = counts.iter().map(|(taken, seconds, _)| *taken as f64 / seconds).sum();
        Ok(Report {
            mode: "sweep",
            contender: contender.to_string(),
            workers: arguments.workers,
            sources: arguments.sources,
            seconds: duration.as_secs_f64(),
            operations_per_second: rate / f64::from(arguments.workers),
            rings: counts.iter().map(|(_, _, rings)| *rings).sum(),
        })
    }
}

fn work<L: ReadyList>(
    mut consumer: L::Consumer,
    queued: &[AtomicBool],
    stop: &AtomicBool,
) -> (u64, f64, Option<u64>) {
    let start = Instant::now();
    let mut taken = 0;
    while !stop.load(Relaxed) {
        consumer.wait_and_drain(|value| {
            taken += 1;
            if !L::Producer::COALESCES {
                queued[index(value)].store(false, Release);
            }
        });
    }
    (taken, start.elapsed().as_secs_f64(), consumer.bell().map(crate::bell::Bell::rings))
}
