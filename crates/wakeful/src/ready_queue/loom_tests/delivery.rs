//! Every push arrives exactly once, in its producer's order. A producer that met a sleep rings, at
//! most once per sleep, and no other thread rings.

use super::*;

/// Each of `producers` producers pushes `each` nodes. The loop sleeps whenever it finds nothing.
fn model(producers: usize, each: usize, preemptions: Option<usize>) {
    let (slept, did_not, left_out) = (Seen::default(), Seen::default(), Seen::default());
    let seen = (slept.clone(), did_not.clone(), left_out.clone());
    check(preemptions, move || {
        let queue = Arc::new(ReadyQueue::new(ModelBell::new()));
        let threads: Vec<_> = (0..producers)
            .map(|producer| {
                spawn(&queue, move |queue| {
                    (0..each).for_each(|number| assert!(push(queue, producer * each + number)));
                })
            })
            .collect();
        let log = Log::run(&queue, |log| log.arrived.len() == producers * each);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        for producer in 0..producers {
            let of_one: Vec<_> = log.arrived.iter().filter(|n| **n / each == producer).collect();
            assert!(of_one.windows(2).all(|pair| pair[0] < pair[1]), "FIFO per producer");
            assert_eq!(of_one.len(), each);
        }
        assert!(
            queue.bell.rings() <= log.pushed_asleep,
            "a ring is that of a push that met a sleep"
        );
        if producers == 1 {
            assert_eq!(queue.bell.rings(), log.sleeps, "one producer rings once for each sleep");
        }
        assert!(log.sleeps <= queue.bell.rings(), "a ring ends one wait at most");
        left_out.note(queue.bell.rings() < log.pushed_asleep);
        assert!(take(queue.drain()).is_empty());
        slept.note(log.pushed_asleep == producers * each);
        did_not.note(log.sleeps == 0);
    });
    seen.0.assert("every push meets a sleep");
    if preemptions != Some(1) {
        // This needs two preemptions: the loop is stopped before its sleep, and so is each producer
        // before the last one.
        seen.1.assert("no push meets a sleep");
    }
    if producers * each > 1 {
        seen.2.assert("a ring is left out");
    }
}

#[test]
fn loom_one_producer_two_nodes() {
    model(1, 2, None);
}

#[test]
fn loom_one_producer_three_nodes() {
    model(1, 3, Some(8));
}

#[test]
fn loom_two_producers() {
    model(2, 1, Some(5));
}

#[test]
fn loom_two_producers_two_nodes_each() {
    model(2, 2, Some(2));
}

#[test]
fn loom_three_producers() {
    model(3, 1, Some(1));
}
