//! The interleavings of loops that wake and of a watchdog that stops, by model checking. How to run
//! them is in `ready_queue/loom_tests`. A wake that is lost is a deadlock, which loom reports.

#![allow(clippy::arc_with_non_send_sync, reason = "loom's threads are one thread")]

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use loom::sync::atomic::Ordering::AcqRel;
use loom::thread::{self, Thread};

use super::*;

/// A page of two loops, and the watchdog's bell.
struct Model {
    watches: [AtomicUsize; 2],
    beats: [AtomicUsize; 2],
    unheard: AtomicUsize,
    /// The number of rings. It is not one of loom's atomics, because it is read only after the
    /// joins.
    rings: std::sync::atomic::AtomicUsize,
    waiter: std::sync::Mutex<Option<Thread>>,
}

impl Model {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            watches: [AtomicUsize::new(RESTS), AtomicUsize::new(RESTS)],
            beats: [AtomicUsize::new(0), AtomicUsize::new(0)],
            unheard: AtomicUsize::new(0),
            rings: std::sync::atomic::AtomicUsize::new(0),
            waiter: std::sync::Mutex::new(None),
        })
    }

    fn ring(&self) {
        self.rings.fetch_add(1, Relaxed);
        self.unheard.fetch_add(1, AcqRel);
        if let Some(waiter) = &*self.waiter.lock().unwrap() {
            waiter.unpark();
        }
    }

    fn wait(&self) {
        *self.waiter.lock().unwrap() = Some(thread::current());
        while self.unheard.swap(0, AcqRel) == 0 {
            thread::park();
        }
        *self.waiter.lock().unwrap() = None;
    }

    fn wakes(&self, number: usize) {
        let call = || ring_and_mark(|| self.ring(), self.watches.iter());
        wake(&self.beats[number], &self.watches[number], call);
    }

    fn sleeps(&self, number: usize) {
        fall_asleep(&self.beats[number]);
    }

    fn rings(&self) -> usize {
        self.rings.load(Relaxed)
    }

    /// Watches until each of these loops was seen awake. Returns how often it tried to rest.
    fn watch_until(&self, loops: &[usize]) -> usize {
        let mut rests = 0;
        loop {
            self.unheard.swap(0, AcqRel);
            self.watches.iter().for_each(watch_on);
            let seen = [0, 1].map(|number| beat_of(&self.beats[number]));
            if loops.iter().all(|number| seen[*number].is_some()) {
                return rests;
            }
            if seen.iter().any(Option::is_some) {
                // The watchdog looks again after a while.
                thread::yield_now();
                continue;
            }
            rests += 1;
            self.watches.iter().for_each(watch_no_more);
            if all_sleep(self.beats.iter()) {
                self.wait();
            } else {
                thread::yield_now();
            }
        }
    }
}

fn check(preemptions: Option<usize>, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions;
    builder.check(model);
}

#[test]
fn loom_a_watchdog_that_stops_beside_a_loop_that_wakes_sees_it_or_is_rung() {
    static SLEPT: AtomicBool = AtomicBool::new(false);
    static SAW: AtomicBool = AtomicBool::new(false);
    check(None, || {
        let model = Model::new();
        let its = model.clone();
        let wakes = thread::spawn(move || its.wakes(0));
        let rests = model.watch_until(&[0]);
        wakes.join().unwrap();
        assert!(model.rings() <= rests + 1, "one loop rings once between two rests");
        SLEPT.fetch_or(model.rings() > 0 && rests > 0, Relaxed);
        SAW.fetch_or(model.rings() == 0, Relaxed);
    });
    assert!(SLEPT.load(Relaxed) && SAW.load(Relaxed), "both ways are ways of the model");
}

#[test]
fn loom_of_two_loops_that_wake_at_once_none_is_missed() {
    check(Some(3), || {
        let model = Model::new();
        let loops = [0, 1].map(|number| {
            let its = model.clone();
            thread::spawn(move || its.wakes(number))
        });
        let rests = model.watch_until(&[0, 1]);
        loops.into_iter().for_each(|it| it.join().unwrap());
        assert!(model.rings() <= 2 * (rests + 1), "each rings once between two rests");
    });
}

/// The mark of the first loop must not replace the ring of the second.
#[test]
fn loom_a_loop_that_wakes_behind_the_sleep_of_another_is_not_missed() {
    static TWICE: AtomicBool = AtomicBool::new(false);
    check(Some(3), || {
        let model = Model::new();
        let its = model.clone();
        let first = thread::spawn(move || {
            its.wakes(0);
            its.sleeps(0);
        });
        let its = model.clone();
        let second = thread::spawn(move || its.wakes(1));
        model.watch_until(&[1]);
        first.join().unwrap();
        second.join().unwrap();
        TWICE.fetch_or(model.rings() > 1, Relaxed);
    });
    assert!(TWICE.load(Relaxed), "both may ring");
}

#[test]
fn loom_a_loop_that_is_watched_rings_nobody() {
    check(None, || {
        let model = Model::new();
        model.watches.iter().for_each(watch_on);
        let loops = [0, 1].map(|number| {
            let its = model.clone();
            thread::spawn(move || {
                its.wakes(number);
                its.sleeps(number);
                its.wakes(number);
            })
        });
        loops.into_iter().for_each(|it| it.join().unwrap());
        assert_eq!(model.rings(), 0);
    });
}
