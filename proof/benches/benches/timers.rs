//! Registers timers and drops them before they are due, as happens to most timeouts.
//!
//! Everything happens within one poll of `block_on`'s future, so no timer expires meanwhile.
#![allow(missing_docs)] // What criterion's macros make.

mod shared;

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::{Context, Poll};
use std::time::Duration;

use criterion::measurement::WallTime;
use criterion::{Bencher, Criterion, Throughput, criterion_group, criterion_main};
use tokio::runtime::{Builder, Runtime};
use wakeful::EventLoop;

const MANY: usize = 1_000_000;
const OTHERS: usize = 10_000;

const MILLISECOND: u64 = 1_000_000;
const MINUTE: u64 = 60_000 * MILLISECOND;

/// Returns pseudo-random durations, from `least` nanoseconds to a minute. They are the same for
/// each contender.
fn durations(count: usize, least: u64) -> Vec<Duration> {
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let next = |_| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        Duration::from_nanos(least + random % (MINUTE - least))
    };
    (0..count).map(next).collect()
}

fn insert_all_cancel_all<S: Future<Output = ()>>(
    bencher: &mut Bencher<'_, WallTime>,
    cx: &mut Context<'_>,
    sleep: impl Fn(Duration) -> S,
) {
    let durations = durations(MANY, MILLISECOND);
    bencher.iter(|| {
        let insert = |duration: &Duration| {
            let mut timer = Box::pin(sleep(*duration));
            assert!(timer.as_mut().poll(cx).is_pending());
            timer
        };
        let timers: Vec<_> = durations.iter().map(insert).collect();
        drop(timers);
    });
}

fn one_at_a_time<S: Future<Output = ()>>(
    bencher: &mut Bencher<'_, WallTime>,
    cx: &mut Context<'_>,
    sleep: impl Fn(Duration) -> S,
) {
    let insert = |duration: Duration, cx: &mut Context<'_>| {
        let mut timer = Box::pin(sleep(duration));
        assert!(timer.as_mut().poll(cx).is_pending());
        timer
    };
    let others = durations(OTHERS, MINUTE / 2);
    let others: Vec<_> = others.into_iter().map(|duration| insert(duration, cx)).collect();
    let durations = durations(OTHERS, MILLISECOND);
    let mut next = durations.iter().cycle();
    bencher.iter(|| {
        let mut timer = pin!(sleep(*next.next().unwrap()));
        assert!(timer.as_mut().poll(cx).is_pending());
    });
    drop(others);
}

/// Runs `f` in a future of the loop.
fn in_wakeful(mut f: impl FnMut(&mut Context<'_>)) {
    let within = poll_fn(|cx| {
        f(cx);
        Poll::Ready(())
    });
    EventLoop::new().unwrap().block_on(within).unwrap();
}

fn in_tokio(runtime: &Runtime, mut f: impl FnMut(&mut Context<'_>)) {
    runtime.block_on(poll_fn(|cx| {
        f(cx);
        Poll::Ready(())
    }));
}

fn timers(criterion: &mut Criterion) {
    let runtime = Builder::new_current_thread().enable_time().build().unwrap();

    let mut group = criterion.benchmark_group("timers, insert all then cancel all");
    group.throughput(Throughput::Elements(MANY as u64)).sample_size(10);
    group.bench_function("wakeful", |bencher| {
        in_wakeful(|cx| insert_all_cancel_all(bencher, cx, wakeful::time::sleep));
    });
    group.bench_function("tokio", |bencher| {
        in_tokio(&runtime, |cx| insert_all_cancel_all(bencher, cx, tokio::time::sleep));
    });
    group.finish();

    let mut group = criterion.benchmark_group("timers, one at a time");
    group.throughput(Throughput::Elements(1));
    group.bench_function("wakeful", |bencher| {
        in_wakeful(|cx| one_at_a_time(bencher, cx, wakeful::time::sleep));
    });
    group.bench_function("tokio", |bencher| {
        in_tokio(&runtime, |cx| one_at_a_time(bencher, cx, tokio::time::sleep));
    });
    group.finish();
}

criterion_group! { name = benches; config = shared::settings(); targets = timers }
criterion_main!(benches);
