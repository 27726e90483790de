//! What a loop counts: exactly, for any thread to read, also while the loop is blocked.

use std::cell::Cell;
use std::future::poll_fn;
use std::io::Write;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::rc::Rc;
use std::sync::mpsc;
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use wakeful::idle::Adaptive;
use wakeful::net::UnixStream;
use wakeful::time::{sleep, sleep_until};
use wakeful::{EventLoop, IdlePolicy};

use crate::backend::Backend;
use crate::backend::driven::{Driven, skip_on_guests};

on_every_backend! {
    metrics_are_read_while_the_loop_is_blocked,
    metrics_count_exactly_what_was_done,
    park_time_is_that_of_parks,
    spin_time_is_that_of_spins,
    remote_latency_is_that_of_the_first_of_each_batch,
    timers_are_as_late_as_the_loop,
}

fn metrics_are_read_while_the_loop_is_blocked<B: Backend>() {
    let group = B::group().loops(1).build().unwrap();
    let handle = &group.handles()[0];
    let (entered, is_entered) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    handle
        .post(move || {
            entered.send(()).unwrap();
            let _ = released.recv();
        })
        .unwrap();
    is_entered.recv().unwrap();
    let first = handle.metrics();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..1_000).for_each(|_| assert_eq!(handle.metrics(), first)));
        }
    });
    drop(release);
    handle.post_and_wait(|| ()).unwrap();
    assert!(handle.metrics().turns >= first.turns);
}

fn metrics_count_exactly_what_was_done<B: Backend>() {
    let mut event_loop = B::event_loop();
    let handle = event_loop.handle();
    let (mut peer, socket) = StdUnixStream::pair().unwrap();
    let reader = event_loop.spawn(async move {
        let mut socket = UnixStream::from_std(socket).unwrap();
        while socket.read(&mut [0; 8]).await.unwrap() > 0 {}
    });
    for _ in 0..3 {
        event_loop.take_turn(Some(Duration::ZERO)).unwrap();
    }
    let before = handle.metrics();
    for _ in 0..10 {
        peer.write_all(b"an event").unwrap();
        let pusher = handle.clone();
        thread::spawn(move || pusher.post(|| ()).unwrap()).join().unwrap();
        event_loop.run_this_turn(|| ());
        event_loop.run_next_turn(|| panic!("on purpose"));
        event_loop.take_turn(Some(Duration::ZERO)).unwrap();
    }
    let after = handle.metrics();
    assert_eq!(after.turns - before.turns, 10);
    assert_eq!(after.waits - before.waits, 10);
    assert_eq!(after.parks, before.parks);
    assert_eq!(after.events - before.events, 10);
    assert_eq!(after.remote - before.remote, 10);
    assert_eq!(after.polls - before.polls, 20, "the reader's, and the closure's");
    assert_eq!(after.callbacks - before.callbacks, 20);
    assert_eq!(after.panics - before.panics, 10);
    assert_eq!(after.timers, before.timers);
    drop(peer);
    event_loop.block_on(reader).unwrap().unwrap();
}

fn park_time_is_that_of_parks<B: Backend>() {
    let began = Instant::now();
    let mut event_loop = B::builder().idle(IdlePolicy::Park).build().unwrap();
    let handle = event_loop.handle();
    for _ in 0..10 {
        event_loop.spawn(async {}).detach();
        event_loop.take_turn(Some(Duration::ZERO)).unwrap();
    }
    assert_eq!((handle.metrics().parks, handle.metrics().park_time), (0, Duration::ZERO));
    let slept = Duration::from_millis(20);
    event_loop.block_on(sleep(slept)).unwrap();
    let metrics = handle.metrics();
    assert!(metrics.parks > 0 && metrics.spin_time.is_zero(), "{metrics:?}");
    let busy = Duration::from_nanos(metrics.turn_time.sum());
    let longest = metrics.longest_poll.unwrap().duration;
    // Between the start of the sleep and its end lie the parks, turns and two polls.
    let counted = metrics.park_time + busy + longest * 2;
    assert!(counted >= slept * 99 / 100, "{metrics:?}");
    assert!(metrics.park_time + busy <= began.elapsed() * 101 / 100, "{metrics:?}");
}

fn spin_time_is_that_of_spins<B: Backend>() {
    skip_on_guests("what Tokio does between two looks of a spin counts nowhere");
    let began = Instant::now();
    let mut event_loop = B::builder().idle(IdlePolicy::Spin).build().unwrap();
    let handle = event_loop.handle();
    event_loop.take_turn(Some(Duration::ZERO)).unwrap();
    assert_eq!(handle.metrics().spin_time, Duration::ZERO);
    event_loop.take_turn(Some(Duration::from_millis(5))).unwrap();
    let metrics = handle.metrics();
    assert!(metrics.spin_time >= Duration::from_micros(4_500), "{metrics:?}");
    assert!(metrics.spin_time <= began.elapsed() * 101 / 100, "{metrics:?}");
    assert_eq!((metrics.parks, metrics.park_time), (0, Duration::ZERO));
    // A hit, a miss, or one that was cut short.
    let long = Adaptive::new().max_window(Duration::from_millis(16));
    let mut event_loop = B::builder().idle(IdlePolicy::Adaptive(long)).build().unwrap();
    event_loop.take_turn(Some(Duration::from_millis(5))).unwrap();
    let metrics = event_loop.handle().metrics();
    assert!(metrics.spin_time + metrics.park_time >= Duration::from_micros(4_500), "{metrics:?}");
    let never = Adaptive::new().max_cpu(0.0);
    let mut event_loop = B::builder().idle(IdlePolicy::Adaptive(never)).build().unwrap();
    event_loop.take_turn(Some(Duration::from_millis(1))).unwrap();
    let metrics = event_loop.handle().metrics();
    assert!(metrics.spin_time.is_zero() && metrics.parks == 1, "{metrics:?}");
}

fn remote_latency_is_that_of_the_first_of_each_batch<B: Backend>() {
    let mut event_loop = B::event_loop();
    let handle = event_loop.handle();
    let waker = Rc::new(Cell::new(None));
    let task = event_loop.spawn({
        let waker = waker.clone();
        poll_fn(move |cx| {
            waker.set(Some(cx.waker().clone()));
            Poll::<()>::Pending
        })
    });
    event_loop.take_turn(Some(Duration::ZERO)).unwrap();
    let added = |event_loop: &mut EventLoop, push: &mut dyn FnMut()| {
        let before = handle.metrics().remote_latency;
        push();
        event_loop.take_turn(Some(Duration::ZERO)).unwrap();
        handle.metrics().remote_latency.since(&before)
    };
    let elsewhere = |f: Box<dyn FnOnce() + Send>| thread::spawn(f).join().unwrap();
    let other = event_loop.handle();
    let batch = added(&mut event_loop, &mut || {
        let other = other.clone();
        elsewhere(Box::new(move || (0..10).for_each(|_| other.post(|| ()).unwrap())));
        thread::sleep(Duration::from_millis(2));
    });
    assert_eq!(batch.count(), 1, "ten in a batch");
    assert!(batch.sum() >= 1_900_000, "{batch:?}");
    let wake = added(&mut event_loop, &mut || {
        let waker = waker.take().unwrap();
        elsewhere(Box::new(move || waker.wake()));
    });
    assert_eq!(wake.count(), 1, "a wake");
    let spawned = added(&mut event_loop, &mut || {
        let other = other.clone();
        elsewhere(Box::new(move || other.spawn(|| async {}).unwrap().detach()));
    });
    assert_eq!(spawned.count(), 1, "a task");
    let before = handle.metrics();
    event_loop
        .block_on(async {
            for _ in 0..10 {
                wakeful::spawn(async {}).await.unwrap();
            }
        })
        .unwrap();
    let after = handle.metrics();
    assert_eq!(after.remote_latency, before.remote_latency, "what stays on the loop");
    assert_eq!(after.remote, before.remote);
    drop(task);
}

fn timers_are_as_late_as_the_loop<B: Backend>() {
    let mut event_loop = B::event_loop();
    let due = Instant::now() + Duration::from_millis(50);
    for _ in 0..3 {
        event_loop.spawn(sleep_until(due)).detach();
    }
    event_loop.take_turn(Some(Duration::ZERO)).unwrap();
    let handle = event_loop.handle();
    let early = handle.metrics().timer_lateness;
    thread::sleep(due.saturating_duration_since(Instant::now()) + Duration::from_millis(3));
    event_loop.take_turn(Some(Duration::ZERO)).unwrap();
    let late = handle.metrics().timer_lateness.since(&early);
    assert_eq!(early.count() + late.count(), 3);
    assert_eq!(handle.metrics().timers, 3);
    assert!(late.sum() >= late.count() * 3_000_000, "{late:?}");
}
