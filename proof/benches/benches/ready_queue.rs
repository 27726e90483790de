//! One thread pushes some nodes and takes them all.
//!
//! The ready queue links existing nodes. The other two queues move one `usize` each, without a box,
//! which is the least that they can carry. The ready queue and the mutex take everything at once;
//! `SegQueue` can only pop one by one.
#![allow(missing_docs)] // What criterion's macros make.

mod shared;

use std::collections::VecDeque;
use std::hint::black_box;
use std::sync::Mutex;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use crossbeam_queue::SegQueue;
use wakeful::internals::PushDrain;

fn ready_queue(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("ready_queue");
    for nodes in [1_usize, 64, 1024] {
        group.throughput(Throughput::Elements(nodes as u64));

        let mut queue = PushDrain::new(nodes);
        group.bench_function(BenchmarkId::new("wakeful", nodes), |bencher| {
            bencher.iter(|| assert_eq!(queue.round(), nodes));
        });

        let queue = SegQueue::new();
        group.bench_function(BenchmarkId::new("SegQueue", nodes), |bencher| {
            bencher.iter(|| {
                (0..nodes).for_each(|node| queue.push(black_box(node)));
                assert_eq!(std::iter::from_fn(|| queue.pop()).map(black_box).count(), nodes);
            });
        });

        let queue = Mutex::new(VecDeque::with_capacity(nodes));
        group.bench_function(BenchmarkId::new("Mutex<VecDeque>", nodes), |bencher| {
            bencher.iter(|| {
                (0..nodes).for_each(|node| queue.lock().unwrap().push_back(black_box(node)));
                assert_eq!(queue.lock().unwrap().drain(..).map(black_box).count(), nodes);
            });
        });
    }
    group.finish();
}

criterion_group! { name = benches; config = shared::settings(); targets = ready_queue }
criterion_main!(benches);
