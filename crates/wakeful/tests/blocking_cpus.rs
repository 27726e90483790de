//! The CPUs of the threads for blocking work. A process has one pool of them, so this is a program
//! of its own.

use std::thread;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use wakeful::task::spawn_blocking;

/// The CPUs that this thread may use.
fn cpus() -> Vec<usize> {
    let set = sched_getaffinity(None).unwrap();
    (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect()
}

/// As in a program with a loop on each CPU that makes its threads itself.
#[test]
fn threads_for_blocking_work_are_not_pinned_as_the_first_loop_is() {
    let all = cpus();
    let pinned = thread::spawn(move || {
        let mut first = CpuSet::new();
        first.set(cpus()[0]);
        sched_setaffinity(None, &first).unwrap();
        wakeful::block_on(async { spawn_blocking(cpus).await.unwrap() })
    });
    assert_eq!(pinned.join().unwrap(), all);
}
