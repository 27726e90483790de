//! Interleavings of push, sleep, wake, drain and close: all of them with one producer, and with two and
//! three all that need at most as many preemptions as each model says.
//! Run: `RUSTFLAGS="--cfg wakeful_loom" cargo test -p wakeful --lib --release loom`.

use super::*;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

/// An eventfd in the model: a ring before the wait ends the wait.
struct ModelBell {
    /// Rung and not yet heard; how often in all.
    rung: Mutex<(bool, usize)>,
    ring: Condvar,
}

impl ModelBell {
    fn new() -> Self {
        Self { rung: Mutex::new((false, 0)), ring: Condvar::new() }
    }

    /// `epoll_wait`: returns only when somebody has rung. A lost wake is a deadlock, which loom reports.
    fn wait(&self) {
        let mut rung = self.rung.lock().unwrap();
        while !rung.0 {
            rung = self.ring.wait(rung).unwrap();
        }
        rung.0 = false;
    }
}

impl Bell for ModelBell {
    fn ring(&self) {
        let mut rung = self.rung.lock().unwrap();
        *rung = (true, rung.1 + 1);
        drop(rung);
        self.ring.notify_one();
    }
}

#[repr(C)]
struct Numbered {
    node: Node,
    number: usize,
}

static NUMBERED: Kind = Kind { run: discard, discard, order: |_| Order::AsQueued };

unsafe fn discard(node: NonNull<Node>) {
    // SAFETY: only `push` makes nodes of this kind.
    drop(unsafe { Box::from_raw(node.cast::<Numbered>().as_ptr()) });
}

/// Pushes a node; `false` when the queue was closed.
fn push(queue: &ReadyQueue<ModelBell>, number: usize) -> bool {
    let node =
        NonNull::from(Box::leak(Box::new(Numbered { node: Node::new(&NUMBERED), number }))).cast();
    // SAFETY: a fresh node; freed by `take`, or here when it is refused.
    unsafe { queue.push(node).map_err(|node| discard(node)).is_ok() }
}

fn take(drained: Drained) -> Vec<usize> {
    drained
        .map(|node| {
            // SAFETY: only `push` makes the nodes of these models.
            unsafe { Box::from_raw(node.cast::<Numbered>().as_ptr()) }.number
        })
        .collect()
}

/// The loop: drain; when nothing came, sleep; until `count` nodes have arrived.
fn run_until(queue: &ReadyQueue<ModelBell>, count: usize) -> Vec<usize> {
    let mut arrived = Vec::new();
    while arrived.len() < count {
        let drained = take(queue.drain());
        if drained.is_empty() {
            if queue.try_sleep() {
                queue.bell.wait();
            }
        } else {
            arrived.extend(drained);
        }
    }
    arrived
}

fn model(producers: usize, each: usize, preemptions: Option<usize>) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions;
    builder.check(move || {
        let queue = Arc::new(ReadyQueue::new(ModelBell::new()));
        let threads: Vec<_> = (0..producers)
            .map(|producer| {
                let queue = queue.clone();
                thread::spawn(move || {
                    for number in 0..each {
                        assert!(push(&queue, producer * each + number));
                    }
                })
            })
            .collect();
        let arrived = run_until(&queue, producers * each);
        for producer in 0..producers {
            let of_one: Vec<_> = arrived.iter().filter(|n| **n / each == producer).collect();
            assert!(of_one.windows(2).all(|pair| pair[0] < pair[1]), "FIFO per producer");
            assert_eq!(of_one.len(), each);
        }
        for thread in threads {
            thread.join().unwrap();
        }
    });
}

#[test]
fn loom_one_producer_no_wake_is_lost() {
    model(1, 2, None);
}

#[test]
fn loom_two_producers_no_wake_is_lost() {
    model(2, 1, Some(4));
}

#[test]
fn loom_two_producers_two_nodes_each() {
    model(2, 2, Some(2));
}

#[test]
fn loom_three_producers() {
    model(3, 1, Some(2));
}

#[test]
fn loom_a_wake_without_work_ends_the_sleep() {
    loom::model(|| {
        let queue = Arc::new(ReadyQueue::new(ModelBell::new()));
        let flag = Arc::new(AtomicUsize::new(0));
        let waker = thread::spawn({
            let (queue, flag) = (queue.clone(), flag.clone());
            move || {
                flag.store(1, Ordering::Relaxed);
                queue.wake();
            }
        });
        loop {
            take(queue.drain());
            // The drain's acquire pairs with the wake's release: relaxed is enough for the flag.
            if flag.load(Ordering::Relaxed) == 1 {
                break;
            }
            if queue.try_sleep() {
                queue.bell.wait();
            }
        }
        waker.join().unwrap();
    });
}

#[test]
fn loom_no_ring_while_awake() {
    loom::model(|| {
        let queue = Arc::new(ReadyQueue::new(ModelBell::new()));
        let producer = thread::spawn({
            let queue = queue.clone();
            move || assert!(push(&queue, 0))
        });
        let mut arrived = take(queue.drain());
        producer.join().unwrap();
        arrived.extend(take(queue.drain()));
        assert_eq!(arrived, [0]);
        assert_eq!(queue.bell.rung.lock().unwrap().1, 0);
    });
}

#[test]
fn loom_close_takes_or_refuses_every_push() {
    loom::model(|| {
        let queue = Arc::new(ReadyQueue::new(ModelBell::new()));
        let producers: Vec<_> = (0..2)
            .map(|number| {
                let queue = queue.clone();
                thread::spawn(move || push(&queue, number))
            })
            .collect();
        let taken = take(queue.close()).len();
        let accepted = producers.into_iter().map(|p| p.join().unwrap());
        assert_eq!(accepted.filter(|accepted| *accepted).count(), taken);
    });
}
