//! What the runtime's primitives cost, beside Tokio's current-thread runtime and `async-executor`'s local one
//! where there is an equal. Each contender of a group does the same work on one thread.
#![allow(missing_docs, reason = "criterion's macros make public items")]

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::hint::black_box;
use std::pin::Pin;
use std::sync::Mutex;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use async_executor::LocalExecutor;
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use crossbeam_queue::SegQueue;
use futures_lite::future;
use tokio::runtime::{Builder, Runtime};
use tokio::task::LocalSet;
use wakeful::EventLoop;
use wakeful::internals::PushDrain;

const TASKS: usize = 1_000;

fn wakeful_loop() -> EventLoop {
    EventLoop::new().expect("an event loop")
}

fn tokio_loop() -> Runtime {
    Builder::new_current_thread().enable_time().build().expect("a runtime")
}

/// 1,024 nodes pushed and drained by one thread. The others move a `usize` each.
fn push_drain(criterion: &mut Criterion) {
    const NODES: usize = 1_024;
    let mut group = criterion.benchmark_group("push_drain");
    group.throughput(Throughput::Elements(NODES as u64));
    let mut queue = PushDrain::new(NODES);
    group.bench_function("wakeful ReadyQueue", |b| b.iter(|| assert_eq!(queue.round(), NODES)));
    let queue = SegQueue::new();
    group.bench_function("crossbeam SegQueue", |b| {
        b.iter(|| {
            (0..NODES).for_each(|node| queue.push(node));
            assert_eq!(std::iter::from_fn(|| queue.pop()).count(), NODES);
        });
    });
    let queue = Mutex::new(VecDeque::with_capacity(NODES));
    group.bench_function("Mutex<VecDeque>", |b| {
        b.iter(|| {
            (0..NODES).for_each(|node| queue.lock().unwrap().push_back(node));
            let taken = std::mem::take(&mut *queue.lock().unwrap());
            assert_eq!(taken.len(), NODES);
            *queue.lock().unwrap() = VecDeque::with_capacity(NODES);
            black_box(taken);
        });
    });
}

/// 1,000 tasks spawned and joined.
fn spawn(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("spawn");
    group.throughput(Throughput::Elements(TASKS as u64));
    let mut event_loop = wakeful_loop();
    group.bench_function("wakeful", |b| {
        b.iter(|| {
            event_loop.block_on(async {
                let tasks: Vec<_> = (0..TASKS).map(|n| wakeful::spawn(async move { n })).collect();
                for task in tasks {
                    black_box(task.await.unwrap());
                }
            })
        });
    });
    let (runtime, set) = (tokio_loop(), LocalSet::new());
    group.bench_function("tokio spawn_local", |b| {
        b.iter(|| {
            set.block_on(&runtime, async {
                let tasks: Vec<_> =
                    (0..TASKS).map(|n| tokio::task::spawn_local(async move { n })).collect();
                for task in tasks {
                    black_box(task.await.unwrap());
                }
            });
        });
    });
    let runtime = tokio_loop();
    group.bench_function("tokio spawn", |b| {
        b.iter(|| {
            runtime.block_on(async {
                let tasks: Vec<_> =
                    (0..TASKS).map(|n| tokio::spawn(async move { n })).collect();
                for task in tasks {
                    black_box(task.await.unwrap());
                }
            });
        });
    });
    let executor = LocalExecutor::new();
    group.bench_function("async-executor", |b| {
        b.iter(|| {
            future::block_on(executor.run(async {
                let tasks: Vec<_> = (0..TASKS).map(|n| executor.spawn(async move { n })).collect();
                for task in tasks {
                    black_box(task.await);
                }
            }));
        });
    });
}

async fn yields(times: usize) {
    for _ in 0..times {
        let mut yielded = false;
        poll_fn(|cx| {
            if std::mem::replace(&mut yielded, true) {
                return Poll::Ready(());
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }
}

/// A task that wakes itself 1,000 times: the same hand-written future everywhere.
fn yield_now(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("yield");
    group.throughput(Throughput::Elements(TASKS as u64));
    let mut event_loop = wakeful_loop();
    group.bench_function("wakeful", |b| {
        b.iter(|| event_loop.block_on(async { wakeful::spawn(yields(TASKS)).await.unwrap() }));
    });
    let runtime = tokio_loop();
    group.bench_function("tokio", |b| {
        b.iter(|| runtime.block_on(async { tokio::spawn(yields(TASKS)).await.unwrap() }));
    });
    let executor = LocalExecutor::new();
    group.bench_function("async-executor", |b| {
        b.iter(|| future::block_on(executor.run(executor.spawn(yields(TASKS)))));
    });
}

/// Two tasks hand a token to and fro 1,000 times, over the same channel crate everywhere.
async fn ping(send: async_channel::Sender<()>, receive: async_channel::Receiver<()>) {
    for _ in 0..TASKS {
        send.send(()).await.unwrap();
        receive.recv().await.unwrap();
    }
}

async fn pong(send: async_channel::Sender<()>, receive: async_channel::Receiver<()>) {
    while receive.recv().await.is_ok() {
        let _ = send.send(()).await;
    }
}

fn wake(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("wake");
    group.throughput(Throughput::Elements(2 * TASKS as u64));
    let channels = || (async_channel::bounded(1), async_channel::bounded(1));
    let mut event_loop = wakeful_loop();
    group.bench_function("wakeful", |b| {
        b.iter(|| {
            event_loop.block_on(async {
                let (there, back) = channels();
                let pong = wakeful::spawn(pong(back.0, there.1));
                wakeful::spawn(ping(there.0, back.1)).await.unwrap();
                pong.await.unwrap();
            })
        });
    });
    let runtime = tokio_loop();
    group.bench_function("tokio", |b| {
        b.iter(|| {
            runtime.block_on(async {
                let (there, back) = channels();
                let pong = tokio::spawn(pong(back.0, there.1));
                tokio::spawn(ping(there.0, back.1)).await.unwrap();
                pong.await.unwrap();
            });
        });
    });
    let executor = LocalExecutor::new();
    group.bench_function("async-executor", |b| {
        b.iter(|| {
            future::block_on(executor.run(async {
                let (there, back) = channels();
                let pong = executor.spawn(pong(back.0, there.1));
                executor.spawn(ping(there.0, back.1)).await;
                pong.await;
            }));
        });
    });
}

/// Pseudo-random durations from a millisecond to a minute: no timer is due meanwhile.
fn durations(count: usize) -> impl Iterator<Item = Duration> {
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    (0..count).map(move |_| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        Duration::from_micros(60_000_000 + random % 60_000_000)
    })
}

/// Polls each once, so that it is registered, and then drops them in the order of their making.
fn register_and_drop<S: Future<Output = ()>>(sleeps: Vec<Pin<Box<S>>>) {
    let mut sleeps = sleeps;
    let mut cx = Context::from_waker(Waker::noop());
    for sleep in &mut sleeps {
        assert!(sleep.as_mut().poll(&mut cx).is_pending());
    }
}

fn timers(criterion: &mut Criterion) {
    const TIMERS: usize = 1_000_000;
    let mut group = criterion.benchmark_group("timers_1M_insert_cancel");
    group.throughput(Throughput::Elements(TIMERS as u64)).sample_size(10);
    group.warm_up_time(Duration::from_millis(500));
    let mut event_loop = wakeful_loop();
    group.bench_function("wakeful", |b| {
        b.iter_batched(
            || durations(TIMERS).map(|d| Box::pin(wakeful::time::sleep(d))).collect::<Vec<_>>(),
            |sleeps| event_loop.block_on(async { register_and_drop(sleeps) }),
            BatchSize::PerIteration,
        );
    });
    let runtime = tokio_loop();
    group.bench_function("tokio", |b| {
        b.iter_batched(
            || {
                let _entered = runtime.enter();
                durations(TIMERS).map(|d| Box::pin(tokio::time::sleep(d))).collect::<Vec<_>>()
            },
            |sleeps| runtime.block_on(async { register_and_drop(sleeps) }),
            BatchSize::PerIteration,
        );
    });
}

fn settings() -> Criterion {
    Criterion::default()
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .sample_size(30)
}

criterion_group! {
    name = benches;
    config = settings();
    targets = push_drain, spawn, wake, yield_now, timers
}
criterion_main!(benches);
