//! One task yields 1,000 times, with each runtime's own future. All three runtimes look for other
//! work after some polls, each at its own interval.
#![allow(missing_docs)] // What criterion's macros make.

mod shared;

use async_executor::LocalExecutor;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use futures_lite::future;
use tokio::runtime::Builder;
use wakeful::EventLoop;

const YIELDS: usize = 1_000;

fn yield_now(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("yield_now");
    group.throughput(Throughput::Elements(YIELDS as u64));

    let mut event_loop = EventLoop::new().unwrap();
    group.bench_function("wakeful", |bencher| {
        bencher.iter(|| {
            let task = event_loop.spawn(async {
                for _ in 0..YIELDS {
                    wakeful::task::yield_now().await;
                }
            });
            event_loop.block_on(task).unwrap().unwrap();
        });
    });

    let runtime = Builder::new_current_thread().build().unwrap();
    group.bench_function("tokio", |bencher| {
        bencher.iter(|| {
            let task = runtime.spawn(async {
                for _ in 0..YIELDS {
                    tokio::task::yield_now().await;
                }
            });
            runtime.block_on(task).unwrap();
        });
    });

    let executor = LocalExecutor::new();
    group.bench_function("async-executor", |bencher| {
        bencher.iter(|| {
            let task = executor.spawn(async {
                for _ in 0..YIELDS {
                    future::yield_now().await;
                }
            });
            future::block_on(executor.run(task));
        });
    });
    group.finish();
}

criterion_group! { name = benches; config = shared::settings(); targets = yield_now }
criterion_main!(benches);
