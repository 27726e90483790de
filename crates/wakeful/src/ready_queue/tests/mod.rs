//! The ready queue alone, one behaviour per test. [`bell`] tests it with an eventfd, and [`stress`]
//! under random load.

#[cfg(not(miri))]
mod bell;
#[cfg(not(miri))]
mod stress;

use super::*;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

#[derive(Default)]
struct CountingBell(AtomicUsize);

impl Bell for CountingBell {
    fn ring(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[repr(C)]
struct Numbered {
    node: Node,
    producer: usize,
    number: usize,
}

static NUMBERED: Kind = Kind {
    priority: Priority::Normal,
    run: discard,
    discard,
    leave: discard,
    order: |_| Order::AsQueued,
};

unsafe fn discard(node: NonNull<Node>) {
    // SAFETY: only `numbered` makes nodes of this kind.
    drop(unsafe { Box::from_raw(node.cast::<Numbered>().as_ptr()) });
}

fn numbered(producer: usize, number: usize) -> NonNull<Node> {
    NonNull::from(Box::leak(Box::new(Numbered { node: Node::new(&NUMBERED), producer, number })))
        .cast()
}

fn push(queue: &ReadyQueue<CountingBell>, number: usize) {
    // SAFETY: a fresh node, freed by `take`.
    unsafe { queue.push(numbered(0, number)) }.expect("the queue is open");
}

fn take(drained: Drained) -> Vec<(usize, usize)> {
    drained
        .map(|node| {
            // SAFETY: only `numbered` makes the nodes of these tests.
            let node = unsafe { Box::from_raw(node.cast::<Numbered>().as_ptr()) };
            (node.producer, node.number)
        })
        .collect()
}

#[test]
fn drains_in_the_order_of_the_pushes() {
    let queue = ReadyQueue::new(CountingBell::default());
    (0..5).for_each(|number| push(&queue, number));
    assert_eq!(take(queue.drain()), (0..5).map(|n| (0, n)).collect::<Vec<_>>());
    assert!(take(queue.drain()).is_empty());
}

#[test]
fn rings_only_while_asleep_and_until_a_ring_is_complete() {
    let queue = ReadyQueue::new(CountingBell::default());
    push(&queue, 0);
    assert_eq!(queue.bell.0.load(Ordering::SeqCst), 0, "awake: no ring");
    assert!(!queue.try_sleep(), "work is queued");
    take(queue.drain());
    assert!(queue.try_sleep());
    push(&queue, 1);
    assert_eq!(queue.bell.0.load(Ordering::SeqCst), 1, "asleep");
    push(&queue, 2);
    queue.wake();
    assert_eq!(queue.bell.0.load(Ordering::SeqCst), 1, "this sleep's ring is complete");
    take(queue.drain());
    push(&queue, 3);
    assert_eq!(queue.bell.0.load(Ordering::SeqCst), 1, "the drain ended the sleep");
    assert!(!queue.try_sleep(), "a number that no sleep has");
    take(queue.drain());
    for sleep in 2..10 {
        assert!(queue.try_sleep());
        (0..3).for_each(|number| push(&queue, number));
        assert_eq!(queue.bell.0.load(Ordering::SeqCst), sleep, "another sleep, another ring");
        take(queue.drain());
    }
}

/// A bell whose first ring blocks until the test lets it continue.
struct SlowBell {
    rings: AtomicUsize,
    begun: mpsc::Sender<()>,
    go: std::sync::Mutex<mpsc::Receiver<()>>,
}

impl Bell for SlowBell {
    fn ring(&self) {
        if self.rings.fetch_add(1, Ordering::SeqCst) == 0 {
            self.begun.send(()).expect("the test waits");
            self.go.lock().unwrap().recv().expect("the test lets go");
        }
    }
}

#[test]
fn a_ring_that_is_not_complete_delays_no_other_and_its_late_mark_no_later_sleep() {
    let ((begun, has_begun), (let_go, go)) = (mpsc::channel(), mpsc::channel());
    let bell = SlowBell { rings: AtomicUsize::new(0), begun, go: std::sync::Mutex::new(go) };
    let queue = ReadyQueue::new(bell);
    // SAFETY: fresh nodes, freed by `take`.
    let push = |number| unsafe { queue.push(numbered(0, number)) }.expect("the queue is open");
    let rings = || queue.bell.rings.load(Ordering::SeqCst);
    assert!(queue.try_sleep());
    thread::scope(|scope| {
        let slow = scope.spawn(|| push(0));
        has_begun.recv().expect("the producer rings");
        push(1);
        assert_eq!(rings(), 2, "the first ring is not complete, so the second producer rings");
        push(2);
        assert_eq!(rings(), 2, "the second one is");
        assert_eq!(take(queue.drain()).len(), 3);
        assert!(queue.try_sleep());
        let_go.send(()).expect("the producer waits");
        slow.join().expect("it ends, and its mark comes too late");
        push(3);
        assert_eq!(rings(), 3, "nobody has rung for the second sleep");
    });
    assert_eq!(take(queue.drain()).len(), 1);
}

#[test]
fn a_wake_without_work_prevents_the_sleep_once() {
    let queue = ReadyQueue::new(CountingBell::default());
    queue.wake();
    assert!(queue.is_pending());
    assert!(!queue.try_sleep());
    assert!(take(queue.drain()).is_empty());
    assert!(queue.try_sleep());
    assert!(!queue.is_pending());
    queue.wake();
    assert_eq!(queue.bell.0.load(Ordering::SeqCst), 1);
}

#[test]
fn close_takes_what_is_there_and_refuses_the_rest() {
    let queue = ReadyQueue::new(CountingBell::default());
    push(&queue, 0);
    assert_eq!(take(queue.close()), [(0, 0)]);
    let late = numbered(0, 1);
    // SAFETY: a fresh node; refused, so it is still ours.
    assert_eq!(unsafe { queue.push(late) }, Err(late));
    // SAFETY: as above.
    unsafe { discard(late) };
    queue.wake();
    assert!(!queue.try_sleep(), "a closed queue does not sleep");
    assert!(take(queue.close()).is_empty());
}

#[test]
fn every_push_of_every_producer_arrives_in_its_order() {
    const PRODUCERS: usize = 8;
    const EACH: usize = if cfg!(miri) { 20 } else { 20_000 };
    let queue = Arc::new(ReadyQueue::new(CountingBell::default()));
    thread::scope(|scope| {
        for producer in 0..PRODUCERS {
            let queue = queue.clone();
            scope.spawn(move || {
                for number in 0..EACH {
                    // SAFETY: a fresh node, freed by `take`.
                    unsafe { queue.push(numbered(producer, number)) }.expect("open");
                }
            });
        }
        let mut next = [0; PRODUCERS];
        while next.iter().sum::<usize>() < PRODUCERS * EACH {
            for (producer, number) in take(queue.drain()) {
                assert_eq!(number, next[producer]);
                next[producer] += 1;
            }
        }
    });
}

#[test]
fn a_producer_stopped_before_its_ring_delays_no_other() {
    let queue = Arc::new(ReadyQueue::new(CountingBell::default()));
    assert!(queue.try_sleep());
    let (stopped, is_stopped) = mpsc::channel();
    let (go, may_go) = mpsc::channel();
    let producer = thread::spawn({
        let queue = queue.clone();
        move || {
            pause::set_for_this_thread(move |point| {
                if point == Point::Pushed {
                    stopped.send(()).expect("the test waits");
                    may_go.recv().expect("the test lets go");
                }
            });
            push(&queue, 0);
        }
    });
    is_stopped.recv().expect("the producer comes to its ring");
    assert_eq!(queue.bell.0.load(Ordering::SeqCst), 0);
    push(&queue, 1);
    assert_eq!(queue.bell.0.load(Ordering::SeqCst), 1, "the second producer rang for itself");
    assert_eq!(take(queue.drain()), [(0, 0), (0, 1)]);
    go.send(()).expect("the producer waits");
    producer.join().expect("the producer ends");
}

/// The swap decides whether the loop sleeps, and not a load before it.
#[test]
fn a_producer_stopped_before_its_swap_rings_for_a_sleep_that_began_meanwhile() {
    let queue = Arc::new(ReadyQueue::new(CountingBell::default()));
    let (stopped, is_stopped) = mpsc::channel();
    let (go, may_go) = mpsc::channel();
    let producer = thread::spawn({
        let queue = queue.clone();
        move || {
            let mut stop_once = true;
            pause::set_for_this_thread(move |point| {
                if point == Point::Linked && std::mem::take(&mut stop_once) {
                    stopped.send(()).expect("the test waits");
                    may_go.recv().expect("the test lets go");
                }
            });
            push(&queue, 0);
        }
    });
    is_stopped.recv().expect("the producer comes to its swap");
    assert!(queue.try_sleep(), "nothing is queued yet");
    go.send(()).expect("the producer waits");
    producer.join().expect("the producer ends");
    assert_eq!(queue.bell.0.load(Ordering::SeqCst), 1);
    assert_eq!(take(queue.drain()), [(0, 0)]);
}
