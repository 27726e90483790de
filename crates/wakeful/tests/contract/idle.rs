//! Idle policies: park costs nothing while nothing happens, spin needs no system call to be woken.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use wakeful::{IdlePolicy, LoopHandle};

use crate::backend::Backend;

on_every_backend! {
    a_failed_attempt_to_sleep_costs_no_system_call_but_never_twice_in_a_row,
    a_parked_loop_asks_the_kernel_nothing_until_something_happens,
    a_spinning_loop_never_sleeps_for_others_and_fires_its_timers,
    a_spinning_turn_with_a_limit_ends,
    policies_read_as_they_print,
    a_wake_without_work_makes_a_spinning_loop_take_a_turn,
}

fn start<B: Backend>(policy: IdlePolicy) -> (LoopHandle, thread::JoinHandle<()>) {
    let (send, receive) = mpsc::channel();
    let thread = thread::spawn(move || {
        let mut event_loop = B::builder().idle(policy).build().unwrap();
        send.send(event_loop.handle()).unwrap();
        event_loop.run().unwrap();
    });
    (receive.recv().unwrap(), thread)
}

fn asleep(handle: &LoopHandle) -> bool {
    format!("{handle:?}").contains("asleep: true")
}

fn a_parked_loop_asks_the_kernel_nothing_until_something_happens<B: Backend>() {
    let (handle, thread) = start::<B>(IdlePolicy::Park);
    handle.run_and_wait(|| ()).unwrap();
    while !asleep(&handle) {
        thread::yield_now();
    }
    // It waits, or has but to enter the kernel: one more wait may still be counted.
    let before = handle.metrics();
    for _ in 0..1_000 {
        let now = handle.metrics();
        assert!(now.waits <= before.waits + 1 && now.turns == before.turns, "{before:?} {now:?}");
        thread::yield_now();
    }
    handle.stop();
    thread.join().unwrap();
}

fn a_spinning_loop_never_sleeps_for_others_and_fires_its_timers<B: Backend>() {
    let (handle, thread) = start::<B>(IdlePolicy::Spin);
    for _ in 0..1_000 {
        handle.run_and_wait(|| ()).unwrap();
        assert!(!asleep(&handle));
    }
    assert_eq!(handle.metrics().parks, 0);
    let slept = handle.spawn(|| async {
        let start = Instant::now();
        wakeful::time::sleep(Duration::from_millis(1)).await;
        start.elapsed()
    });
    let slept = futures_lite::future::block_on(slept.unwrap()).unwrap();
    assert!(slept >= Duration::from_millis(1));
    handle.stop();
    thread.join().unwrap();
}

fn a_spinning_turn_with_a_limit_ends<B: Backend>() {
    let mut event_loop = B::builder().idle(IdlePolicy::Spin).build().unwrap();
    let start = Instant::now();
    event_loop.turn(Some(Duration::from_millis(2))).unwrap();
    assert!(start.elapsed() >= Duration::from_millis(2));
}

fn policies_read_as_they_print<B: Backend>() {
    for policy in [IdlePolicy::Park, IdlePolicy::Spin] {
        assert_eq!(policy.to_string().parse(), Ok(policy));
    }
    let error = "burn".parse::<IdlePolicy>().unwrap_err();
    assert!(error.to_string().contains("burn"));
}

fn a_wake_without_work_makes_a_spinning_loop_take_a_turn<B: Backend>() {
    let (handle, thread) = start::<B>(IdlePolicy::Spin);
    for _ in 0..5 {
        handle.run_and_wait(|| ()).unwrap();
        let before = handle.metrics().turns;
        handle.wake();
        while handle.metrics().turns == before {
            thread::yield_now();
        }
    }
    handle.stop();
    thread.join().unwrap();
}

/// Another thread pushes between the last look at the loop's own work and its sleep.
fn a_failed_attempt_to_sleep_costs_no_system_call_but_never_twice_in_a_row<B: Backend>() {
    let mut event_loop = B::event_loop();
    let handle = event_loop.handle();
    let pusher = handle.clone();
    let hook = event_loop.before_park(move || {
        let pusher = pusher.clone();
        thread::spawn(move || pusher.run(|| ()).unwrap()).join().unwrap();
    });
    for _ in 0..5 {
        let before = handle.metrics();
        event_loop.turn(None).unwrap();
        let one = handle.metrics();
        assert_eq!((one.remote - before.remote, one.polls - before.polls), (1, 1), "and it ran");
        assert_eq!(one.waits, before.waits, "the kernel was not asked");
        event_loop.turn(None).unwrap();
        let two = handle.metrics();
        assert_eq!(two.waits - one.waits, 1, "it has its turn under a flood of pushes");
        assert_eq!(two.parks, before.parks);
    }
    drop(hook);
}
