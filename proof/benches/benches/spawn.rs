//! Spawns 1,000 empty tasks, and awaits all their handles.
#![allow(missing_docs)] // What criterion's macros make.

mod shared;

use async_executor::LocalExecutor;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use tokio::runtime::Builder;
use tokio::task::LocalSet;
use wakeful::EventLoop;

const TASKS: usize = 1_000;

fn spawn(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("spawn");
    group.throughput(Throughput::Elements(TASKS as u64));

    let mut event_loop = EventLoop::new().unwrap();
    group.bench_function("wakeful", |bencher| {
        bencher.iter(|| {
            let all = event_loop.block_on(async {
                let tasks: Vec<_> = (0..TASKS).map(|_| wakeful::spawn(async {})).collect();
                for task in tasks {
                    task.await.unwrap();
                }
            });
            all.unwrap();
        });
    });

    let runtime = Builder::new_current_thread().build().unwrap();
    group.bench_function("tokio, spawn", |bencher| {
        bencher.iter(|| {
            runtime.block_on(async {
                let tasks: Vec<_> = (0..TASKS).map(|_| tokio::spawn(async {})).collect();
                for task in tasks {
                    task.await.unwrap();
                }
            });
        });
    });

    let set = LocalSet::new();
    group.bench_function("tokio, spawn_local", |bencher| {
        bencher.iter(|| {
            set.block_on(&runtime, async {
                let tasks: Vec<_> =
                    (0..TASKS).map(|_| tokio::task::spawn_local(async {})).collect();
                for task in tasks {
                    task.await.unwrap();
                }
            });
        });
    });

    let executor = LocalExecutor::new();
    group.bench_function("async-executor", |bencher| {
        bencher.iter(|| {
            futures_lite::future::block_on(executor.run(async {
                let tasks: Vec<_> = (0..TASKS).map(|_| executor.spawn(async {})).collect();
                for task in tasks {
                    task.await;
                }
            }));
        });
    });
    group.finish();
}

criterion_group! { name = benches; config = shared::settings(); targets = spawn }
criterion_main!(benches);
