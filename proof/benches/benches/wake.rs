//! Wakes: between two tasks of one loop, and from another thread.
#![allow(missing_docs)] // What criterion's macros make.

mod shared;

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Poll, Waker};
use std::thread;

use async_executor::LocalExecutor;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use wakeful::{EventLoop, IdlePolicy, LoopHandle};

const ROUNDS: usize = 1_000;

/// Whose turn it is, and the waker of the other player. It is the same for every contender.
#[derive(Default)]
struct Baton(Mutex<(usize, Option<Waker>)>);

impl Baton {
    /// The player `me` (0 or 1) waits for its turn, and passes the turn on. It does so the given
    /// number of times.
    async fn play(self: Arc<Self>, me: usize) {
        for _ in 0..ROUNDS {
            let other = poll_fn(|cx| {
                let (turn, waiting) = &mut *self.0.lock().unwrap();
                if *turn == me {
                    *turn = 1 - me;
                    return Poll::Ready(waiting.take());
                }
                *waiting = Some(cx.waker().clone());
                Poll::Pending
            });
            if let Some(other) = other.await {
                other.wake();
            }
        }
    }
}

fn ping_pong(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("wake, two tasks");
    group.throughput(Throughput::Elements(ROUNDS as u64));

    let mut event_loop = EventLoop::new().unwrap();
    group.bench_function("wakeful", |bencher| {
        bencher.iter(|| {
            let baton = Arc::new(Baton::default());
            let tasks = [0, 1].map(|me| event_loop.spawn(baton.clone().play(me)));
            for task in tasks {
                event_loop.block_on(task).unwrap().unwrap();
            }
        });
    });

    let runtime = Builder::new_current_thread().build().unwrap();
    group.bench_function("tokio", |bencher| {
        bencher.iter(|| {
            let baton = Arc::new(Baton::default());
            let tasks = [0, 1].map(|me| runtime.spawn(baton.clone().play(me)));
            for task in tasks {
                runtime.block_on(task).unwrap();
            }
        });
    });

    let executor = LocalExecutor::new();
    group.bench_function("async-executor", |bencher| {
        bencher.iter(|| {
            let baton = Arc::new(Baton::default());
            let tasks = [0, 1].map(|me| executor.spawn(baton.clone().play(me)));
            for task in tasks {
                futures_lite::future::block_on(executor.run(task));
            }
        });
    });
    group.finish();
}

static ANSWERED: AtomicBool = AtomicBool::new(false);

/// Sends something that answers, and spins until the answer has come.
fn round_trip(send: impl FnOnce()) {
    send();
    while !ANSWERED.swap(false, Ordering::Acquire) {
        std::hint::spin_loop();
    }
}

fn answer() {
    ANSWERED.store(true, Ordering::Release);
}

/// Runs `f` while a loop runs on another thread.
fn with_loop(idle: IdlePolicy, f: impl FnOnce(&LoopHandle)) {
    let (sender, receiver) = mpsc::channel();
    let thread = thread::spawn(move || {
        let mut event_loop = EventLoop::builder().idle(idle).build().unwrap();
        sender.send(event_loop.handle()).unwrap();
        event_loop.run().unwrap();
    });
    let handle = receiver.recv().unwrap();
    f(&handle);
    handle.stop();
    thread.join().unwrap();
}

/// Runs `f` while a runtime runs on another thread.
fn with_tokio(f: impl FnOnce(&Handle)) {
    let runtime = Builder::new_current_thread().build().unwrap();
    let handle = runtime.handle().clone();
    let (stop, stopped) = oneshot::channel::<()>();
    let thread = thread::spawn(move || runtime.block_on(stopped));
    f(&handle);
    stop.send(()).unwrap();
    thread.join().unwrap().unwrap();
}

fn cross_thread(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("wake, from another thread and back");
    group.throughput(Throughput::Elements(1));
    group.bench_function("wakeful run, spins", |bencher| {
        with_loop(IdlePolicy::Spin, |handle| {
            bencher.iter(|| round_trip(|| handle.post(answer).unwrap()));
        });
    });
    group.bench_function("wakeful spawn, spins", |bencher| {
        with_loop(IdlePolicy::Spin, |handle| {
            bencher.iter(|| round_trip(|| handle.spawn(|| async { answer() }).unwrap().detach()));
        });
    });
    group.bench_function("wakeful spawn, parks", |bencher| {
        with_loop(IdlePolicy::Park, |handle| {
            bencher.iter(|| round_trip(|| handle.spawn(|| async { answer() }).unwrap().detach()));
        });
    });
    group.bench_function("tokio spawn, parks", |bencher| {
        with_tokio(|handle| {
            bencher.iter(|| round_trip(|| drop(handle.spawn(async { answer() }))));
        });
    });
    group.finish();
}

criterion_group! { name = benches; config = shared::settings(); targets = ping_pong, cross_thread }
criterion_main!(benches);
