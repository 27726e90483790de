//! The loop's end: a push is taken or refused, never lost, and a ring finds its bell.

use super::*;

#[test]
fn loom_close_takes_or_refuses_every_push() {
    check(None, || {
        let queue = Arc::new(ReadyQueue::new(ModelBell::new()));
        let producers = [0, 1].map(|number| spawn(&queue, move |queue| push(queue, number)));
        let taken = take(queue.close()).len();
        let accepted = producers.map(|producer| producer.join().unwrap());
        assert_eq!(accepted.iter().filter(|accepted| **accepted).count(), taken);
        assert_eq!(queue.bell.rings(), 0);
    });
}

/// A loop may end while its queue is still marked asleep (after a timeout, or with the permission
/// to sleep of a loop that never waits).
#[test]
fn loom_close_out_of_a_sleep() {
    let (seen_taken, seen_refused) = (Seen::default(), Seen::default());
    let seen = (seen_taken.clone(), seen_refused.clone());
    check(Some(5), move || {
        let queue = Arc::new(ReadyQueue::new(ModelBell::new()));
        let producers = [0, 2].map(|number| {
            spawn(&queue, move |queue| {
                [number, number + 1].into_iter().filter(|number| push(queue, *number)).count()
            })
        });
        let slept = queue.try_sleep();
        let taken = take(queue.close()).len();
        let accepted: usize = producers.map(|producer| producer.join().unwrap()).iter().sum();
        assert_eq!(accepted, taken);
        assert_eq!(queue.bell.rings() > 0, slept && taken > 0);
        assert!(queue.bell.rings() <= taken.min(2), "once for each producer");
        assert!(!queue.try_sleep(), "a closed queue does not sleep");
        assert!(take(queue.drain()).is_empty());
        seen_taken.note(slept && taken == 4);
        seen_refused.note(taken == 0);
    });
    seen.0.assert("all are taken");
    seen.1.assert("all are refused");
}

/// A signal handler's wake, a push and the end, all at the same time.
#[test]
fn loom_close_beside_a_wake_and_a_push() {
    check(None, || {
        let queue = Arc::new(ReadyQueue::new(ModelBell::new()));
        let waker = spawn(&queue, ModelQueue::wake);
        let producer = spawn(&queue, |queue| push(queue, 0));
        let slept = queue.try_sleep();
        let taken = take(queue.close()).len();
        waker.join().unwrap();
        assert_eq!(usize::from(producer.join().unwrap()), taken);
        assert!(queue.bell.rings() <= if slept { 2 } else { 0 });
        assert!(!queue.is_pending() || queue.head.load(Ordering::Relaxed).addr() == CLOSED);
    });
}

/// The pusher's reference may be the last one to the queue. The queue must last until the pusher
/// has rung.
#[test]
fn loom_the_last_reference_is_a_pusher_s() {
    // This test uses loom's `Arc`, because it is about the order of the drops.
    use loom::sync::Arc;
    check(Some(6), || {
        let queue = Arc::new(ReadyQueue::new(ModelBell::new()));
        let producers = [0, 1].map(|number| {
            let queue = queue.clone();
            thread::spawn(move || push(&queue, number))
        });
        queue.try_sleep();
        let taken = take(queue.close()).len();
        drop(queue);
        let accepted = producers.map(|producer| producer.join().unwrap());
        assert_eq!(accepted.iter().filter(|accepted| **accepted).count(), taken);
    });
}
