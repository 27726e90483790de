//! Reaching a loop from threads: at once or queued, waiting for the result, from fifty of them,
//! from another loop.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use wakeful::{LoopHandle, PostAndWaitError};

use crate::backend::Backend;
use crate::backend::driven::Driven;
use crate::background::{Background, LONG, until_asleep};

on_every_backend! {
    run_at_once_or_queue_cross_thread,
    run_at_once_or_queue_within,
    run_at_once_or_queue_not_running,
    post_and_wait_from_many_threads,
    post_and_wait_from_another_loop,
    post_and_wait_on_the_own_thread_between_turns,
    post_and_wait_while_the_loop_s_thread_unwinds,
    post_and_wait_by_a_thread_that_unwinds,
    spawn_from_many_threads,
}

/// From another thread: queued, the caller continues at once, also while the loop is busy.
fn run_at_once_or_queue_cross_thread<B: Backend>() {
    let background = Background::start(B::builder(), |_| ());
    let handle = background.handle();
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let (done, is_done) = mpsc::channel();
    handle.post(move || may_go_on.recv_timeout(LONG).unwrap()).unwrap();
    let home = thread::current().id();
    handle.post(move || done.send(thread::current().id()).unwrap()).unwrap();
    // The caller is back, and the loop is still in the first closure.
    assert!(is_done.try_recv().is_err());
    go_on.send(()).unwrap();
    assert_ne!(is_done.recv_timeout(LONG).unwrap(), home);
    background.end();
}

/// Within the loop's own turn: queued too, and run in the same turn.
fn run_at_once_or_queue_within<B: Backend>() {
    let mut event_loop = B::event_loop();
    let log: Arc<Mutex<Vec<u64>>> = Arc::default();
    let noted = log.clone();
    let post = move || {
        let (noted, counted) = (noted.clone(), LoopHandle::current());
        let turn = counted.metrics().turns;
        let within = noted.clone();
        let nested = move || within.lock().unwrap().push(LoopHandle::current().metrics().turns);
        counted.post(nested).unwrap();
        assert!(noted.lock().unwrap().is_empty(), "not at once");
        noted.lock().unwrap().push(turn);
    };
    event_loop.handle().post(post).unwrap();
    event_loop.take_turn(Some(Duration::ZERO)).unwrap();
    assert_eq!(*log.lock().unwrap(), [1, 1]);
}

/// While the loop does not run: queued, by its own thread and by others, until it does.
fn run_at_once_or_queue_not_running<B: Backend>() {
    let mut event_loop = B::event_loop();
    let (handle, ran) = (event_loop.handle(), Arc::new(AtomicU64::new(0)));
    let post = || {
        let ran = ran.clone();
        handle.post(move || _ = ran.fetch_add(1, Relaxed)).unwrap();
    };
    for round in 1..=3 {
        post();
        thread::scope(|scope| _ = scope.spawn(post).join());
        assert_eq!(ran.load(Relaxed), 2 * (round - 1));
        event_loop.take_turn(Some(LONG)).unwrap();
        assert_eq!(ran.load(Relaxed), 2 * round);
    }
    assert_eq!(handle.metrics().parks, 0);
}

fn post_and_wait_from_many_threads<B: Backend>() {
    let background = Background::start(B::builder(), |_| ());
    let handle = background.handle();
    let sum = Arc::new(AtomicU64::new(0));
    thread::scope(|scope| {
        for producer in 0..50 {
            let sum = sum.clone();
            scope.spawn(move || {
                for number in 0..100 {
                    let sum = sum.clone();
                    let result = handle.post_and_wait(move || {
                        sum.fetch_add(1, Relaxed);
                        (producer, number)
                    });
                    assert_eq!(result.unwrap(), (producer, number), "each its own");
                }
            });
        }
    });
    assert_eq!(sum.load(Relaxed), 5_000);
    background.end();
}

/// It blocks that loop, and works, as long as the two do not wait for one another.
fn post_and_wait_from_another_loop<B: Backend>() {
    let (one, other) =
        (Background::start(B::builder(), |_| ()), Background::start(B::builder(), |_| ()));
    until_asleep(other.handle());
    let asked = other.handle().clone();
    let result = one.handle().post_and_wait(move || {
        let threads = asked.post_and_wait(|| thread::current().id());
        (thread::current().id(), threads.unwrap())
    });
    let (asking, answering) = result.unwrap();
    assert_ne!(asking, answering);
    // From a task of a loop on this thread, too.
    let asked = other.handle().clone();
    assert_eq!(B::block_on(async move { asked.post_and_wait(|| 42).unwrap() }), 42);
    one.end();
    other.end();
}

fn post_and_wait_on_the_own_thread_between_turns<B: Backend>() {
    let mut event_loop = B::event_loop();
    let handle = event_loop.handle();
    let refused = handle.post_and_wait(|| ()).unwrap_err();
    assert!(matches!(refused, PostAndWaitError::OwnThread));
    assert!(refused.to_string().contains("own thread"), "{refused}");
    // Nothing is left behind: the loop may park.
    assert!(event_loop.asks_to_park().unwrap());
    // In the turn of another loop on this thread, it would wait for itself all the same.
    let mut other = B::event_loop();
    let inner = handle.clone();
    let refused = other.block_on(async move { inner.post_and_wait(|| ()) }).unwrap();
    assert!(matches!(refused, Err(PostAndWaitError::OwnThread)));
}

/// The loop ends by a panic of its thread while somebody waits: that one is told, and does not wait
/// for ever.
fn post_and_wait_while_the_loop_s_thread_unwinds<B: Backend>() {
    let (ready, is_ready) = mpsc::channel();
    let (queued, is_queued) = mpsc::channel::<()>();
    let thread = thread::spawn(move || {
        let mut event_loop = B::event_loop();
        ready.send(event_loop.handle()).unwrap();
        let _ = event_loop.block_on(async move {
            is_queued.recv_timeout(LONG).unwrap();
            panic!("on purpose");
        });
    });
    let handle = is_ready.recv().unwrap();
    let waiting = thread::spawn({
        let handle = handle.clone();
        move || handle.post_and_wait(|| ())
    });
    crate::background::wait_until("it is queued", || {
        format!("{handle:?}").contains("empty: false")
    });
    queued.send(()).unwrap();
    assert!(matches!(waiting.join().unwrap(), Err(PostAndWaitError::LoopEnded)));
    assert!(thread.join().is_err());
    assert!(matches!(handle.post_and_wait(|| ()), Err(PostAndWaitError::LoopEnded)));
}

/// The caller itself may be unwinding.
fn post_and_wait_by_a_thread_that_unwinds<B: Backend>() {
    struct Asks(wakeful::LoopHandle, mpsc::Sender<Result<u32, PostAndWaitError>>);
    impl Drop for Asks {
        fn drop(&mut self) {
            assert!(thread::panicking());
            self.1.send(self.0.post_and_wait(|| 42)).unwrap();
        }
    }
    let background = Background::start(B::builder(), |_| ());
    let (send, receive) = mpsc::channel();
    let asks = Asks(background.handle().clone(), send);
    let panicked = thread::spawn(move || {
        let _asks = asks;
        panic!("on purpose");
    });
    assert_eq!(receive.recv_timeout(LONG).unwrap().unwrap(), 42);
    assert!(panicked.join().is_err());
    background.end();
}

fn spawn_from_many_threads<B: Backend>() {
    let background = Background::start(B::builder(), |_| ());
    let handle = background.handle();
    thread::scope(|scope| {
        for producer in 0..20_u32 {
            scope.spawn(move || {
                let task = |number| {
                    let make = move || async move {
                        wakeful::task::yield_now().await;
                        // Not `Send`: it lives on the loop alone.
                        let both = std::rc::Rc::new((producer, number));
                        wakeful::task::yield_now().await;
                        *both
                    };
                    handle.spawn(make).unwrap()
                };
                let tasks: Vec<_> = (0..50_u32).map(task).collect();
                for (number, task) in (0..).zip(tasks) {
                    let output = futures_lite::future::block_on(task).unwrap();
                    assert_eq!(output, (producer, number));
                }
            });
        }
    });
    background.end();
}
