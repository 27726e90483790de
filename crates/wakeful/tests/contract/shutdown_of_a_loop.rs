//! The end of one loop within a grace period.

use std::cell::Cell;
use std::future::pending;
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};

use wakeful::task::yield_now;
use wakeful::time::sleep;
use wakeful::{EventLoop, spawn};

use crate::backend::Backend;
use crate::background::LONG;

on_every_backend! {
    a_loop_s_shutdown_waits_for_its_tasks_and_no_longer,
    a_loop_s_shutdown_drops_what_is_left_behind_its_grace,
    a_loop_s_shutdown_without_tasks_or_grace_waits_for_nothing,
    a_loop_s_shutdown_runs_what_was_sent_before_it_and_meanwhile,
    a_loop_s_shutdown_within_a_loop_is_an_error_and_drops_it,
}

fn a_loop_s_shutdown_waits_for_its_tasks_and_no_longer<B: Backend>() {
    let event_loop = B::event_loop();
    let done = Rc::new(Cell::new(0));
    for number in 0..3 {
        let done = done.clone();
        event_loop
            .spawn(async move {
                sleep(Duration::from_millis(5 * number)).await;
                let last = done.clone();
                // What a task spawns is waited for, too.
                spawn(async move {
                    yield_now().await;
                    last.set(last.get() + 1);
                })
                .detach();
            })
            .detach();
    }
    let start = Instant::now();
    assert!(event_loop.shutdown(2 * LONG).unwrap());
    assert!(start.elapsed() < LONG);
    assert_eq!(done.get(), 3);
}

fn a_loop_s_shutdown_drops_what_is_left_behind_its_grace<B: Backend>() {
    for grace in [Duration::from_millis(20), Duration::from_millis(120)] {
        let event_loop = B::event_loop();
        let held = Rc::new(());
        let theirs = held.clone();
        let endless = event_loop.spawn(async move {
            let _held = theirs;
            pending::<()>().await;
        });
        // One that is always awake, beside it.
        event_loop
            .spawn(async {
                loop {
                    yield_now().await;
                }
            })
            .detach();
        let start = Instant::now();
        assert!(!event_loop.shutdown(grace).unwrap());
        assert!(start.elapsed() >= grace, "{:?}", start.elapsed());
        assert_eq!(Rc::strong_count(&held), 1);
        assert!(B::block_on(endless).unwrap_err().is_cancelled());
    }
}

fn a_loop_s_shutdown_without_tasks_or_grace_waits_for_nothing<B: Backend>() {
    let start = Instant::now();
    assert!(B::event_loop().shutdown(2 * LONG).unwrap());
    assert!(start.elapsed() < LONG);
    assert!(B::event_loop().shutdown(Duration::MAX).unwrap());
    assert!(B::event_loop().shutdown(Duration::ZERO).unwrap());
    let event_loop = B::event_loop();
    let polled = Rc::new(Cell::new(false));
    let mark = polled.clone();
    event_loop.spawn(async move { mark.set(true) }).detach();
    let handle = event_loop.handle();
    assert!(!event_loop.shutdown(Duration::ZERO).unwrap());
    assert!(!polled.get());
    assert_eq!(handle.metrics().turns, 0);
    // A stop that came before does not cut the grace.
    let event_loop = B::event_loop();
    event_loop.stop();
    event_loop.spawn(sleep(Duration::from_millis(2))).detach();
    assert!(event_loop.shutdown(LONG).unwrap());
}

fn a_loop_s_shutdown_runs_what_was_sent_before_it_and_meanwhile<B: Backend>() {
    let event_loop = B::event_loop();
    let handle = event_loop.handle();
    let (tell, told) = async_channel::bounded::<()>(1);
    event_loop.spawn(async move { told.recv().await.unwrap() }).detach();
    let other = thread::spawn(move || {
        let ran = handle.spawn(|| async { 7 }).unwrap();
        assert_eq!(futures_lite::future::block_on(ran).unwrap(), 7);
        tell.send_blocking(()).unwrap();
    });
    assert!(event_loop.shutdown(LONG).unwrap());
    other.join().unwrap();
    // Sent before, and only looked at in the shutdown.
    let event_loop = B::event_loop();
    let handle = event_loop.handle();
    let sent = thread::spawn(move || handle.spawn(|| async { 7 }).unwrap()).join().unwrap();
    assert!(event_loop.shutdown(LONG).unwrap());
    assert_eq!(B::block_on(sent).unwrap(), 7);
}

fn a_loop_s_shutdown_within_a_loop_is_an_error_and_drops_it<B: Backend>() {
    B::block_on(async {
        let inner: EventLoop = B::event_loop();
        let task = inner.spawn(pending::<()>());
        let error = inner.shutdown(LONG).unwrap_err();
        assert!(error.to_string().contains("already running"), "{error}");
        assert!(task.await.unwrap_err().is_cancelled());
    });
}
