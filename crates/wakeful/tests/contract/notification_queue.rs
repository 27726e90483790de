//! The queue that handles send by: many producers, each in its own order; many loops, each with its
//! own queue; a drain takes what there is at its moment; a stop or an end in the midst loses
//! nothing silently.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use crate::backend::Backend;
use crate::backend::driven::Driven;
use crate::background::{Background, LONG, until_asleep};

on_every_backend! {
    many_concurrent_producers_while_the_loop_sleeps_and_wakes,
    many_consumers_each_get_their_own,
    drain_snapshot_what_comes_during_a_turn_runs_in_the_next,
    stop_while_consuming_keeps_the_rest_in_order,
    end_while_consuming_drops_the_rest_once_and_refuses_the_next,
}

/// Producers that are slow and fast in turn, so that the loop goes to sleep between them again and
/// again.
fn many_concurrent_producers_while_the_loop_sleeps_and_wakes<B: Backend>() {
    const PRODUCERS: usize = 8;
    const POSTS: usize = 1_000;
    thread_local! {
        static SEEN: RefCell<Vec<(usize, usize)>> = const { RefCell::new(Vec::new()) };
    }
    let background = Background::start(B::builder(), |_| ());
    let handle = background.handle();
    thread::scope(|scope| {
        for producer in 0..PRODUCERS {
            scope.spawn(move || {
                for number in 0..POSTS {
                    let note = move || SEEN.with_borrow_mut(|seen| seen.push((producer, number)));
                    handle.post(note).unwrap();
                    if number % 100 == producer {
                        // All that this thread has sent has been run by then.
                        let count = move || {
                            let own = |seen: &&(usize, usize)| seen.0 == producer;
                            SEEN.with_borrow(|seen| seen.iter().filter(own).count())
                        };
                        assert_eq!(handle.post_and_wait(count).unwrap(), number + 1);
                    }
                }
            });
        }
    });
    let seen = handle.post_and_wait(|| SEEN.take()).unwrap();
    assert_eq!(seen.len(), PRODUCERS * POSTS);
    for producer in 0..PRODUCERS {
        let numbers = seen.iter().filter(|(by, _)| *by == producer).map(|(_, number)| *number);
        assert!(numbers.eq(0..POSTS), "in the order of producer {producer}");
    }
    until_asleep(handle);
    background.end();
}

/// Several loops, each with handles in several threads, cloned and dropped meanwhile: what is sent
/// to a loop runs on its thread, once.
fn many_consumers_each_get_their_own<B: Backend>() {
    const POSTS: u64 = 500;
    thread_local! {
        static RAN: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
    }
    let consumers: Vec<_> = (0..4).map(|_| Background::start(B::builder(), |_| ())).collect();
    thread::scope(|scope| {
        for producer in 0..4 {
            let handles: Vec<_> = consumers.iter().map(|c| c.handle().clone()).collect();
            scope.spawn(move || {
                for number in 0..POSTS {
                    for (consumer, handle) in (0..).zip(&handles) {
                        let post = move || RAN.with_borrow_mut(|ran| ran.push(consumer));
                        // Each post by a handle of its own, which is gone before it runs.
                        handle.clone().post(post).unwrap();
                    }
                    if number % 50 == producer {
                        thread::yield_now();
                    }
                }
            });
        }
    });
    for (number, consumer) in (0..).zip(&consumers) {
        let ran = consumer.handle().post_and_wait(|| RAN.take()).unwrap();
        assert_eq!(ran.len() as u64, 4 * POSTS);
        assert!(ran.iter().all(|by| *by == number), "its own only");
    }
    consumers.into_iter().for_each(Background::end);
}

fn drain_snapshot_what_comes_during_a_turn_runs_in_the_next<B: Backend>() {
    let mut event_loop = B::event_loop();
    let handle = event_loop.handle();
    let runs: Arc<Mutex<Vec<(u64, u64)>>> = Arc::default();
    for number in 0..10 {
        let (handle, noted) = (handle.clone(), runs.clone());
        let post = move || {
            // While this one runs, another thread posts: that is not in the snapshot of this turn.
            let (turn, counted, noted) = (handle.metrics().turns, handle.clone(), noted.clone());
            let late = move || noted.lock().unwrap().push((turn, counted.metrics().turns));
            thread::scope(|scope| {
                scope.spawn(|| handle.post(late).unwrap());
            });
        };
        event_loop.handle().post(post).unwrap();
        event_loop.take_turn(Some(LONG)).unwrap();
        assert_eq!(runs.lock().unwrap().len(), number, "not in its turn");
        event_loop.take_turn(Some(LONG)).unwrap();
        let (posted, ran) = *runs.lock().unwrap().last().unwrap();
        assert_eq!(ran, posted + 1);
    }
    assert_eq!(handle.metrics().parks, 0);
}

fn stop_while_consuming_keeps_the_rest_in_order<B: Backend>() {
    // Time without end, so that a turn's bound is the count alone.
    let builder = B::builder().task_budget(16).turn_budget(LONG);
    let mut event_loop = builder.build().unwrap();
    let handle = event_loop.handle();
    let ran: Arc<Mutex<Vec<u64>>> = Arc::default();
    thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..100 {
                let (ran, stopped) = (ran.clone(), handle.clone());
                let post = move || {
                    ran.lock().unwrap().push(number);
                    if number == 10 || number == 40 {
                        stopped.stop();
                    }
                };
                handle.post(post).unwrap();
            }
        });
    });
    let all_ran = || ran.lock().unwrap().clone();
    // The turn of the stop, and the run's last one.
    event_loop.run().unwrap();
    assert!(all_ran().into_iter().eq(0..32));
    event_loop.run().unwrap();
    assert!(all_ran().into_iter().eq(0..64));
    while event_loop.handle().metrics().turns < 7 {
        event_loop.take_turn(Some(Duration::ZERO)).unwrap();
    }
    assert!(all_ran().into_iter().eq(0..100));
}

/// Posts until the loop ends: each is run once, or dropped once on the loop's thread, or comes
/// back.
fn end_while_consuming_drops_the_rest_once_and_refuses_the_next<B: Backend>() {
    struct Cargo {
        home: thread::ThreadId,
        ran: Arc<AtomicU64>,
        dropped: Arc<AtomicU64>,
        did_run: bool,
    }
    impl Cargo {
        fn run(mut self) {
            self.did_run = true;
            self.ran.fetch_add(1, Relaxed);
        }
    }
    impl Drop for Cargo {
        fn drop(&mut self) {
            let at_home = thread::current().id() == self.home;
            assert!(self.did_run || at_home, "dropped on the loop's thread");
            self.dropped.fetch_add(1, Relaxed);
        }
    }
    for _ in 0..20 {
        let (send, receive) = mpsc::channel();
        let consumer = thread::spawn(move || {
            let mut event_loop = B::event_loop();
            send.send((event_loop.handle(), thread::current().id())).unwrap();
            event_loop.run().unwrap();
        });
        let (handle, home) = receive.recv().unwrap();
        let (ran, dropped) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let accepted: u64 = thread::scope(|scope| {
            let producers: Vec<_> = (0..4)
                .map(|_| {
                    let (handle, ran, dropped) = (handle.clone(), ran.clone(), dropped.clone());
                    scope.spawn(move || {
                        let mut accepted = 0;
                        loop {
                            let (ran, dropped) = (ran.clone(), dropped.clone());
                            let cargo = Cargo { home, ran, dropped, did_run: false };
                            let post = move || cargo.run();
                            match handle.post(post) {
                                Ok(()) => accepted += 1,
                                // It came back: run here, as its sender may.
                                Err(back) => {
                                    back.into_inner()();
                                    break accepted;
                                }
                            }
                            if accepted == 100 {
                                handle.stop();
                            }
                        }
                    })
                })
                .collect();
            producers.into_iter().map(|producer| producer.join().unwrap()).sum()
        });
        consumer.join().unwrap();
        let (ran, dropped) = (ran.load(Relaxed), dropped.load(Relaxed));
        assert_eq!(dropped, accepted + 4, "each once");
        assert!((5..=dropped).contains(&ran), "those that came back, and some of the others");
    }
}
