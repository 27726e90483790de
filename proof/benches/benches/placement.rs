//! Picks a loop for the next connection, on several threads at once. It compares the cost of a
//! shared counter with that of a state for each thread.
//!
//! A thread picks as fast as it can, alone or beside a second thread. The reported time is that of
//! one pick. wakeful's contenders are [`Picker`]s, one for each thread, as in a server with a
//! dispatcher on each.
#![allow(missing_docs)] // What criterion's macros make.

mod shared;

use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, criterion_group, criterion_main};
use wakeful::accept::{Picker, Placement};

/// This must be a power of two, because of the mask.
const LOOPS: usize = 8;
const THREADS: [usize; 2] = [1, 2];

/// A value on its own cache line.
#[repr(align(128))]
struct Padded<T>(T);

/// The state that all threads share.
struct Shared {
    next: Padded<AtomicUsize>,
    random: Padded<AtomicU64>,
    /// The number of connections of each loop.
    open: [Padded<AtomicUsize>; LOOPS],
}

impl Shared {
    fn new() -> Self {
        Self {
            next: Padded(AtomicUsize::new(0)),
            random: Padded(AtomicU64::new(1)),
            open: std::array::from_fn(|number| Padded(AtomicUsize::new(100 + number % 3))),
        }
    }
}

fn xorshift(mut random: u64) -> u64 {
    random ^= random << 13;
    random ^= random >> 7;
    random ^ random << 17
}

fn below(random: u64) -> usize {
    usize::try_from((u128::from(random) * LOOPS as u128) >> 64).expect("it is below the bound")
}

/// The way in which a thread picks, with its own state.
type Pick<'a> = Box<dyn FnMut() -> usize + 'a>;
type Contender = (&'static str, for<'a> fn(&'a Shared) -> Pick<'a>);

const CONTENDERS: [Contender; 9] = [
    ("round robin, shared, by compare", |shared| {
        Box::new(|| {
            let back_to_zero = |next| Some(if next + 1 == LOOPS { 0 } else { next + 1 });
            let counter = &shared.next.0;
            counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, back_to_zero).unwrap_or(0)
        })
    }),
    ("round robin, shared, by modulo", |shared| {
        Box::new(|| shared.next.0.fetch_add(1, Ordering::Relaxed) % black_box(LOOPS))
    }),
    ("round robin, shared, by mask", |shared| {
        Box::new(|| shared.next.0.fetch_add(1, Ordering::Relaxed) & (LOOPS - 1))
    }),
    ("random, shared", |shared| {
        Box::new(|| {
            let state = &shared.random.0;
            let next = |random| Some(xorshift(random));
            below(state.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).unwrap_or(0))
        })
    }),
    ("random, thread-local", |_| {
        let mut random = 1;
        Box::new(move || {
            random = xorshift(random);
            below(random)
        })
    }),
    ("wakeful, round robin", |shared| wakefuls(Placement::RoundRobin, shared)),
    ("wakeful, random", |shared| wakefuls(Placement::Random, shared)),
    ("wakeful, least loaded", |shared| wakefuls(Placement::LeastLoaded, shared)),
    ("wakeful, power of two choices", |shared| wakefuls(Placement::PowerOfTwoChoices, shared)),
];

fn wakefuls(placement: Placement, shared: &Shared) -> Pick<'_> {
    let mut picker = Picker::new(placement, LOOPS);
    Box::new(move || picker.pick(|number| shared.open[number].0.load(Ordering::Relaxed)))
}

/// Returns the time in which each of `threads` threads has made `picks` picks.
fn picked_by(threads: usize, picks: u64, contender: Contender) -> Duration {
    let (shared, start) = (Shared::new(), Barrier::new(threads));
    let pick = || {
        let mut pick = contender.1(&shared);
        start.wait();
        let started = Instant::now();
        for _ in 0..picks {
            black_box(pick());
        }
        started.elapsed()
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(pick)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).max().unwrap()
    })
}

fn pick(group: &mut BenchmarkGroup<'_, WallTime>, threads: usize) {
    for contender in CONTENDERS {
        group.bench_function(contender.0, |bencher| {
            bencher.iter_custom(|picks| picked_by(threads, picks, contender));
        });
    }
}

fn placement(criterion: &mut Criterion) {
    for threads in THREADS {
        let mut group = criterion.benchmark_group(format!("pick a loop, threads: {threads}"));
        pick(&mut group, threads);
        group.finish();
    }
}

criterion_group! { name = benches; config = shared::settings(); targets = placement }
criterion_main!(benches);
