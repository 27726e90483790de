//! Who rings, and what a ring does: sleeps that end by a push, by a wake, by an old ring, or by a
//! timeout.

use super::*;

/// Sets a flag and calls `wake`, as a signal handler does.
fn flag_and_wake(queue: &ModelQueue, flag: &AtomicUsize) {
    flag.store(1, Ordering::Relaxed);
    queue.wake();
}

#[test]
fn loom_a_wake_without_work_ends_the_sleep() {
    check(None, || {
        let queue = Arc::new(ReadyQueue::new(ModelBell::new()));
        let flag = Arc::new(AtomicUsize::new(0));
        let its_flag = flag.clone();
        let waker = spawn(&queue, move |queue| flag_and_wake(queue, &its_flag));
        // The drain's acquire pairs with the wake's release: relaxed is enough for the flag.
        let log = Log::run(&queue, |_| flag.load(Ordering::Relaxed) == 1);
        waker.join().unwrap();
        assert_eq!(queue.bell.rings(), log.sleeps, "one ring for a sleep, none without");
    });
}

/// The wake's bit must not affect the pushes around it, nor these the bit.
#[test]
fn loom_a_wake_beside_a_push() {
    check(Some(3), || {
        let queue = Arc::new(ReadyQueue::new(ModelBell::new()));
        let flag = Arc::new(AtomicUsize::new(0));
        let its_flag = flag.clone();
        let waker = spawn(&queue, move |queue| flag_and_wake(queue, &its_flag));
        let producer = spawn(&queue, |queue| assert!(push(queue, 0) && push(queue, 1)));
        let log =
            Log::run(&queue, |log| log.arrived.len() == 2 && flag.load(Ordering::Relaxed) == 1);
        waker.join().unwrap();
        producer.join().unwrap();
        assert_eq!(log.arrived, [0, 1]);
        assert!(log.sleeps <= queue.bell.rings() && queue.bell.rings() <= 3);
    });
}

/// The wait may time out at any moment, even between a push and its ring.
#[test]
fn loom_a_wait_that_times_out_while_pushes_arrive() {
    let seen = Seen::default();
    let nothing_came = seen.clone();
    check(Some(5), move || {
        let queue = Arc::new(ReadyQueue::new(ModelBell::new()));
        let timer = spawn(&queue, |queue| queue.bell.time_out());
        let producer = spawn(&queue, |queue| assert!(push(queue, 0) && push(queue, 1)));
        let log = Log::run(&queue, |log| log.arrived.len() == 2);
        timer.join().unwrap();
        producer.join().unwrap();
        assert_eq!(log.arrived, [0, 1]);
        assert!(queue.bell.rings() <= log.pushed_asleep);
        assert!(queue.bell.rings() <= log.sleeps, "one producer rings once for a sleep");
        assert!(log.sleeps <= queue.bell.rings() + 1);
        nothing_came.note(log.idle_wakes == 1);
    });
    seen.assert("the time-out ends a wait in which nothing came");
}

/// Two producers ring for one sleep. The loop wakes by one ring, sleeps again, and then hears the
/// other ring. That may end a wait early, but must never make a wait miss its own ring.
#[test]
fn loom_a_ring_left_over_from_an_earlier_sleep() {
    let seen = Seen::default();
    let left_over = seen.clone();
    check(Some(3), move || {
        let queue = Arc::new(ReadyQueue::new(ModelBell::new()));
        let first = spawn(&queue, |queue| assert!(push(queue, 0)));
        let second = spawn(&queue, |queue| (1..=3).for_each(|number| assert!(push(queue, number))));
        let log = Log::run(&queue, |log| log.arrived.len() == 4);
        first.join().unwrap();
        second.join().unwrap();
        assert!(queue.bell.rings() <= log.pushed_asleep);
        assert!(log.sleeps <= queue.bell.rings(), "each wait's end took a ring of its own");
        left_over.note(log.idle_wakes > 0);
    });
    seen.assert("a left-over ring ends a wait in which nothing came");
}

#[test]
fn loom_no_ring_while_awake() {
    check(None, || {
        let queue = Arc::new(ReadyQueue::new(ModelBell::new()));
        let producers =
            [0, 1].map(|number| spawn(&queue, move |queue| assert!(push(queue, number))));
        let mut arrived = take(queue.drain());
        for producer in producers {
            producer.join().unwrap();
        }
        arrived.extend(take(queue.drain()));
        assert_eq!(arrived.len(), 2);
        assert_eq!(queue.bell.rings(), 0);
    });
}
