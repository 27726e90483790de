//! A consumer at real-time priority never waits for a producer that was stopped in the middle of
//! its push: one drain takes all that was pushed, and another producer's push rings by itself. The
//! tests count drains and rings, and measure no times. `wakeful lab blocked-consumer` measures the
//! times, also with other lists.
//!
//! Needs root; without it the test says so and is skipped.

use super::*;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

use rustix::thread::{CpuSet, Pid, gettid, sched_getaffinity, sched_setaffinity};

#[derive(Default)]
struct CountingBell(AtomicUsize);

impl Bell for CountingBell {
    fn ring(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

static KIND: Kind = Kind {
    priority: Priority::Normal,
    run: discard,
    discard,
    leave: discard,
    order: |_| Order::AsQueued,
};

unsafe fn discard(node: NonNull<Node>) {
    // SAFETY: only `node` makes nodes of this kind.
    drop(unsafe { Box::from_raw(node.as_ptr()) });
}

fn push(queue: &ReadyQueue<CountingBell>, at: impl FnMut(Point)) {
    let node = NonNull::from(Box::leak(Box::new(Node::new(&KIND))));
    // SAFETY: a fresh node, freed by `take`.
    unsafe { queue.push_at(node, at) }.expect("the queue is open");
}

fn take(drained: Drained) -> usize {
    // SAFETY: taken out of the queue.
    drained.map(|node| unsafe { discard(node) }).count()
}

fn set_policy(thread: Pid, policy: libc::c_int, sched_priority: libc::c_int) -> io::Result<()> {
    let param = libc::sched_param { sched_priority };
    let thread = thread.as_raw_nonzero().get();
    // SAFETY: the parameter is read during the call only.
    match unsafe { libc::sched_setscheduler(thread, policy, &raw const param) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Sets a scheduling policy for this thread, and pins it to the first CPU that may be used.
fn enter(policy: libc::c_int, priority: libc::c_int) -> io::Result<Pid> {
    let allowed = sched_getaffinity(None)?;
    let mut first = CpuSet::new();
    first.set((0..CpuSet::MAX_CPU).find(|cpu| allowed.is_set(*cpu)).expect("there is a CPU"));
    sched_setaffinity(None, &first)?;
    set_policy(gettid(), policy, priority)?;
    Ok(gettid())
}

const BEFORE: usize = 3;

/// Returns how many nodes the consumer takes in one drain, and how many rings there were, while a
/// producer is stopped at `stop` in its push, after [`BEFORE`] other pushes.
fn drain_beside_a_stopped_producer(stop: Point, sleeps: bool) -> (usize, usize) {
    let queue = Arc::new(ReadyQueue::new(CountingBell::default()));
    let (stopped, is_stopped) = mpsc::channel();
    let (go, may_go) = mpsc::channel();
    let ready = Arc::new(AtomicBool::new(false));
    let producer = thread::spawn({
        let (queue, ready) = (queue.clone(), ready.clone());
        move || {
            let own = enter(libc::SCHED_OTHER, 0).expect("an ordinary thread");
            (0..BEFORE).for_each(|_| push(&queue, |_| {}));
            // The consumer may want to sleep before this push.
            while !ready.load(Ordering::SeqCst) {
                thread::yield_now();
            }
            // A push that finds another one passes this point again, but it is stopped only once.
            let mut stops = true;
            push(&queue, |point| {
                if point == stop && std::mem::take(&mut stops) {
                    stopped.send(own).expect("the test waits");
                    may_go.recv().expect("the test lets go");
                }
            });
        }
    });
    let mut taken = 0;
    if sleeps {
        while taken < BEFORE {
            taken += take(queue.drain());
        }
        assert!(queue.try_sleep());
    }
    ready.store(true, Ordering::SeqCst);
    let producer_thread = is_stopped.recv().expect("the producer comes to its stop");
    set_policy(producer_thread, libc::SCHED_IDLE, 0).expect("lower is always allowed");
    push(&queue, |_| {});
    let rings = queue.bell.0.load(Ordering::SeqCst);
    let consumer = thread::spawn({
        let queue = queue.clone();
        move || {
            enter(libc::SCHED_FIFO, 10).expect("it was tried before");
            take(queue.drain())
        }
    });
    let drained = consumer.join().expect("the consumer ends while the producer is stopped");
    set_policy(producer_thread, libc::SCHED_OTHER, 0).expect("it was allowed before");
    go.send(()).expect("the producer waits");
    producer.join().expect("the producer ends");
    take(queue.drain());
    (taken + drained, rings)
}

#[test]
fn a_real_time_consumer_takes_all_beside_a_producer_stopped_at_any_point() {
    let allowed = thread::spawn(|| enter(libc::SCHED_FIFO, 10)).join().expect("no panic");
    if let Err(error) = allowed {
        eprintln!("skipped: real-time priority is not allowed here ({error}); it needs root");
        return;
    }
    let stop = Arc::new(AtomicBool::new(false));
    let hog = thread::spawn({
        let stop = stop.clone();
        move || {
            enter(libc::SCHED_OTHER, 0).expect("an ordinary thread");
            while !stop.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        }
    });
    for (point, pushed) in [(Point::Start, 0), (Point::Linked, 0), (Point::Pushed, 1)] {
        for (sleeps, rings) in [(false, 0), (true, 1)] {
            let outcome = drain_beside_a_stopped_producer(point, sleeps);
            assert_eq!(outcome, (BEFORE + pushed + 1, rings), "{point:?}, sleeps: {sleeps}");
        }
    }
    stop.store(true, Ordering::Relaxed);
    hog.join().expect("the hog ends");
}
