//! The public stress test: the producers, each on CPU i mod n, push the same number of events each
//! after a barrier. One consumer takes them, wherever the scheduler puts it. There is also the
//! honest parallel case: the consumer has a CPU that no producer has.

use std::sync::Barrier;
use std::thread;
use std::time::Instant;

use anyhow::{Result, ensure};
use serde::Serialize;

use crate::allocations;
use crate::list::{Consumer, Job, Name, Producer, ReadyList};
use crate::scheduling;

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum ConsumerPlace {
    /// Where the scheduler puts it.
    Anywhere,
    /// On the last CPU, and producers on the others.
    Alone,
}

#[derive(Debug, Clone, Copy, clap::Args)]
pub struct Arguments {
    /// How many producers.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1024))]
    producers: u16,
    /// How many events each producer pushes.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    events: u64,
    /// Pushes only one in this many of these events, for a list that would take too long.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    one_in: u64,
    /// Where the consumer runs.
    #[arg(long, value_enum, default_value = "anywhere")]
    consumer: ConsumerPlace,
}

#[derive(Debug, Serialize)]
pub struct Report {
    mode: &'static str,
    contender: String,
    producers: u16,
    /// The events of each producer.
    events: u64,
    consumer: &'static str,
    seconds: f64,
    events_per_ms: f64,
    /// How many system calls woke the consumer. `None`: the kernel does not report it.
    rings: Option<u64>,
    /// Allocations for each event, counted in a separate run.
    allocations_per_event: f64,
}

pub fn run(contender: Name, arguments: Arguments) -> Result<Report> {
    contender.with(Throughput { contender, arguments })
}

struct Throughput {
    contender: Name,
    arguments: Arguments,
}

/// The measurements of one run.
struct Measured {
    /// Before the first push. The first thread to leave the barrier may be any.
    begin: Instant,
    /// When the consumer has all events.
    end: Instant,
    rings: Option<u64>,
}

impl Job for Throughput {
    type Output = Result<Report>;

    fn run<L: ReadyList>(self) -> Result<Report> {
        let Self { contender, arguments } = self;
        let producers = usize::from(arguments.producers);
        let events = (arguments.events / arguments.one_in).max(1);
        let push_and_take =
            |events| push_and_take::<L>(producers, events, arguments.consumer, || ());
        let measured = push_and_take(events)?;
        // Fewer events, because the count does not depend on their number, and the run must not
        // take long.
        let counted = events.min(20_000);
        allocations::start();
        let again = push_and_take(counted);
        let all = allocations::stop();
        again?;
        // Counts the same with one event each: this is what threads and lists allocate at their
        // start.
        allocations::start();
        let least = push_and_take(1);
        let setup = allocations::stop();
        least?;
        let all_events = events * u64::from(arguments.producers);
        let counted_events = (counted - 1).max(1) * u64::from(arguments.producers);
        let seconds = (measured.end - measured.begin).as_secs_f64();
        Ok(Report {
            mode: "throughput",
            contender: contender.to_string(),
            producers: arguments.producers,
            events,
            consumer: match arguments.consumer {
                ConsumerPlace::Anywhere => "anywhere",
                ConsumerPlace::Alone => "alone",
            },
            seconds,
            events_per_ms: all_events as f64 / (seconds * 1e3),
            rings: measured.rings,
            allocations_per_event: all.saturating_sub(setup) as f64 / counted_events as f64,
        })
    }
}

/// Runs once. The consumer's thread calls `late` as soon as it has left the barrier. It does
/// nothing, except in a test: there the thread gets its CPU late.
fn push_and_take<L: ReadyList>(
    producers: usize,
    events: u64,
    place: ConsumerPlace,
    late: impl FnOnce() + Send,
) -> Result<Measured> {
    let mut cpus = scheduling::cpus()?;
    let own = match place {
        ConsumerPlace::Anywhere => None,
        ConsumerPlace::Alone => {
            ensure!(cpus.len() > 1, "there is only one CPU: the consumer cannot be alone");
            cpus.pop()
        }
    };
    let (ends, mut consumer) = L::build(producers, usize::try_from(events)?)?;
    let barrier = &Barrier::new(producers + 1);
    let expected = events * producers as u64;
    thread::scope(|scope| {
        let threads: Vec<_> = ends
            .into_iter()
            .enumerate()
            .map(|(index, mut producer)| {
                let cpu = cpus[index % cpus.len()];
                scope.spawn(move || {
                    let pinned = scheduling::pin(cpu);
                    barrier.wait();
                    let begin = Instant::now();
                    (0..events).for_each(|_| producer.push(1));
                    pinned.map(|()| begin)
                })
            })
            .collect();
        // A separate thread, so that a pinned consumer pins no other thread.
        let taking = scope.spawn(move || {
            let pinned = own.map_or(Ok(()), scheduling::pin);
            barrier.wait();
            late();
            let taken = take(&mut consumer, expected);
            pinned.map(|()| taken)
        });
        let begins = threads.into_iter().map(|one| one.join().expect("a producer does not panic"));
        let begins: Result<Vec<Instant>> = begins.collect();
        let taken = taking.join().expect("the consumer does not panic")?;
        let begin = begins?.into_iter().fold(taken.begin, Instant::min);
        Ok(Measured { begin, ..taken })
    })
}

/// Takes all events, and measures what the consumer's thread sees.
fn take(consumer: &mut impl Consumer, expected: u64) -> Measured {
    let begin = Instant::now();
    let mut sum = 0;
    while sum < expected {
        consumer.wait_and_drain(|value| sum += value);
    }
    let end = Instant::now();
    Measured { begin, end, rings: consumer.bell().map(crate::bell::Bell::rings) }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::lists::spinlocked::Spinlocked;

    /// The time before and after each push.
    static PUSHES: Mutex<Vec<[Instant; 2]>> = Mutex::new(Vec::new());

    struct Noted;

    struct NotedProducer(<Spinlocked as ReadyList>::Producer);

    impl ReadyList for Noted {
        type Producer = NotedProducer;
        type Consumer = <Spinlocked as ReadyList>::Consumer;

        fn build(producers: usize, pool: usize) -> Result<(Vec<NotedProducer>, Self::Consumer)> {
            let (ends, consumer) = Spinlocked::build(producers, pool)?;
            Ok((ends.into_iter().map(NotedProducer).collect(), consumer))
        }
    }

    impl Producer for NotedProducer {
        fn push_at(&mut self, value: u64, at: impl FnMut(&'static str)) {
            let before = Instant::now();
            self.0.push_at(value, at);
            PUSHES.lock().unwrap().push([before, Instant::now()]);
        }
    }

    #[test]
    fn the_time_spans_what_is_pushed_before_the_consumer_has_a_cpu() {
        let late = || {
            while PUSHES.lock().unwrap().len() < 200 {
                thread::yield_now();
            }
        };
        let run = push_and_take::<Noted>(2, 100, ConsumerPlace::Anywhere, late).unwrap();
        let pushes = PUSHES.lock().unwrap();
        for [before, after] in pushes.iter() {
            assert!(run.begin <= *before && *after <= run.end, "{before:?} to {after:?}");
        }
    }
}
