//! Handles: reaching a loop from other threads, and stopping it.

use std::cell::RefCell;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use wakeful::{LoopHandle, PostAndWaitError};

use crate::backend::Backend;
use crate::backend::driven::Driven;

on_every_backend! {
    what_the_loop_s_own_thread_sends_runs_in_its_order_also_from_outside_a_turn,
    closures_of_50_threads_run_once_each_in_each_thread_s_order,
    post_and_wait_returns_the_value_the_panic_or_the_reason,
    post_and_wait_when_the_loop_ends_first,
    a_handle_after_the_loop_s_end_gives_the_closure_back,
    a_stop_before_the_run_is_remembered_once,
    a_stop_does_not_end_block_on,
    a_queued_closure_runs_before_a_stop_behind_it,
    a_wake_without_work_makes_a_turn,
    what_a_loop_posts_to_itself_runs_behind_what_it_has_taken,
    a_panic_in_a_closure_is_contained_and_counted,
    a_spawned_future_lives_on_its_loop,
}

fn on_a_thread<B: Backend>() -> (LoopHandle, thread::JoinHandle<EventLoopEnd>) {
    let (send, receive) = mpsc::channel();
    let thread = thread::spawn(move || {
        let mut event_loop = B::unhurried();
        send.send(event_loop.handle()).unwrap();
        event_loop.run().unwrap();
        EventLoopEnd
    });
    (receive.recv().unwrap(), thread)
}

#[derive(Debug)]
struct EventLoopEnd;

fn is_send_sync_clone<T: Send + Sync + Clone>(_: &T) {}

fn closures_of_50_threads_run_once_each_in_each_thread_s_order<B: Backend>() {
    thread_local! {
        static SEEN: RefCell<Vec<(usize, usize)>> = const { RefCell::new(Vec::new()) };
    }
    let (handle, thread) = on_a_thread::<B>();
    is_send_sync_clone(&handle);
    thread::scope(|scope| {
        for producer in 0..50 {
            let handle = handle.clone();
            scope.spawn(move || {
                for number in 0..100 {
                    handle
                        .post(move || SEEN.with_borrow_mut(|seen| seen.push((producer, number))))
                        .unwrap();
                }
            });
        }
    });
    let seen = handle.post_and_wait(|| SEEN.take()).unwrap();
    assert_eq!(seen.len(), 5_000);
    for producer in 0..50 {
        let numbers = seen.iter().filter(|(p, _)| *p == producer).map(|(_, n)| *n);
        assert!(numbers.eq(0..100));
    }
    handle.stop();
    thread.join().unwrap();
}

fn post_and_wait_returns_the_value_the_panic_or_the_reason<B: Backend>() {
    let (handle, thread) = on_a_thread::<B>();
    assert_eq!(handle.post_and_wait(|| 42).unwrap(), 42);
    match handle.post_and_wait(|| -> () { panic!("over there") }) {
        Err(PostAndWaitError::Panicked(payload)) => {
            assert_eq!(payload.to_string(), "over there");
            assert!(payload.into_inner().is::<&str>());
        }
        other => panic!("{other:?}"),
    }
    let own = handle.clone();
    let inside = handle.post_and_wait(move || own.post_and_wait(|| ())).unwrap();
    assert!(matches!(inside, Err(PostAndWaitError::OwnThread)));
    handle.stop();
    thread.join().unwrap();
    assert!(matches!(handle.post_and_wait(|| ()), Err(PostAndWaitError::LoopEnded)));
}

fn post_and_wait_when_the_loop_ends_first<B: Backend>() {
    let (ready, is_ready) = mpsc::channel();
    let (end, may_end) = mpsc::channel::<()>();
    let thread = thread::spawn(move || {
        let event_loop = B::event_loop();
        ready.send(event_loop.handle()).unwrap();
        may_end.recv().unwrap();
    });
    let handle = is_ready.recv().unwrap();
    let waiting = thread::spawn({
        let handle = handle.clone();
        move || handle.post_and_wait(|| ())
    });
    // Queued for sure once a later post of another thread could be: the queue is FIFO per thread
    // only, so look at the queue itself.
    while !format!("{handle:?}").contains("empty: false") {
        thread::yield_now();
    }
    end.send(()).unwrap();
    assert!(matches!(waiting.join().unwrap(), Err(PostAndWaitError::LoopEnded)));
    thread.join().unwrap();
}

fn a_handle_after_the_loop_s_end_gives_the_closure_back<B: Backend>() {
    let event_loop = B::event_loop();
    let handle = event_loop.handle();
    drop(event_loop);
    let cargo = Arc::new(());
    let held = cargo.clone();
    let back = handle.post(move || drop(held)).unwrap_err();
    assert!(back.to_string().starts_with("the event loop has ended"), "{back}");
    assert_eq!(Arc::strong_count(&cargo), 2, "given back, not dropped");
    (back.into_inner())();
    assert_eq!(Arc::strong_count(&cargo), 1);
    let held = cargo.clone();
    let back = handle.spawn(move || async move { drop(held) }).unwrap_err();
    assert_eq!(Arc::strong_count(&cargo), 2);
    B::block_on((back.into_inner())());
    assert_eq!(Arc::strong_count(&cargo), 1);
    handle.wake();
    handle.stop();
}

fn a_stop_before_the_run_is_remembered_once<B: Backend>() {
    let mut event_loop = B::event_loop();
    event_loop.stop();
    event_loop.run().unwrap();
    // And the next run runs, until it is stopped from within.
    let handle = event_loop.handle();
    let (send, receive) = mpsc::channel();
    let stopper = handle.clone();
    handle
        .post(move || {
            send.send(()).unwrap();
            stopper.stop();
        })
        .unwrap();
    event_loop.run().unwrap();
    receive.recv().unwrap();
}

fn a_stop_does_not_end_block_on<B: Backend>() {
    let mut event_loop = B::event_loop();
    event_loop.stop();
    event_loop.block_on(wakeful::task::yield_now()).unwrap();
    event_loop.run().unwrap();
}

fn a_queued_closure_runs_before_a_stop_behind_it<B: Backend>() {
    let (handle, thread) = on_a_thread::<B>();
    let ran = Arc::new(Mutex::new(0));
    for _ in 0..10 {
        let ran = ran.clone();
        handle.post(move || *ran.lock().unwrap() += 1).unwrap();
    }
    handle.stop();
    thread.join().unwrap();
    assert_eq!(*ran.lock().unwrap(), 10);
}

fn a_wake_without_work_makes_a_turn<B: Backend>() {
    let (handle, thread) = on_a_thread::<B>();
    for _ in 0..5 {
        handle.post_and_wait(|| ()).unwrap();
        let before = handle.metrics().turns;
        handle.wake();
        while handle.metrics().turns == before {
            thread::yield_now();
        }
    }
    handle.stop();
    thread.join().unwrap();
}

fn what_a_loop_posts_to_itself_runs_behind_what_it_has_taken<B: Backend>() {
    let mut event_loop = B::event_loop();
    let handle = event_loop.handle();
    let log: Arc<Mutex<Vec<&str>>> = Arc::default();
    let note = |text| {
        let log = log.clone();
        move || log.lock().unwrap().push(text)
    };
    let (own, own_note) = (handle.clone(), note("own"));
    let first_note = note("remote 1");
    let second_note = note("remote 2");
    thread::scope(|scope| {
        scope.spawn(|| {
            handle
                .post(move || {
                    first_note();
                    own.post(own_note).unwrap();
                })
                .unwrap();
            handle.post(second_note).unwrap();
        });
    });
    event_loop.take_turn(Some(Duration::ZERO)).unwrap();
    assert_eq!(*log.lock().unwrap(), ["remote 1", "remote 2", "own"]);
}

fn a_panic_in_a_closure_is_contained_and_counted<B: Backend>() {
    let (handle, thread) = on_a_thread::<B>();
    handle.post(|| panic!("on purpose")).unwrap();
    handle.post_and_wait(|| ()).unwrap();
    handle.post_and_wait(|| ()).unwrap();
    assert_eq!(handle.metrics().panics, 1);
    handle.stop();
    thread.join().unwrap();
}

fn a_spawned_future_lives_on_its_loop<B: Backend>() {
    let (handle, thread) = on_a_thread::<B>();
    let task = handle.spawn(|| async {
        let here = std::rc::Rc::new(thread::current().id());
        wakeful::task::yield_now().await;
        (*here, thread::current().id())
    });
    let (made, polled) = B::block_on(task.unwrap()).unwrap();
    assert_eq!(made, polled);
    assert_eq!(made, thread.thread().id());
    let panicked = handle.spawn(|| -> std::future::Ready<()> { panic!("while making it") });
    let error = B::block_on(panicked.unwrap()).unwrap_err();
    assert_eq!(error.to_string(), "the task panicked: while making it");
    handle.stop();
    thread.join().unwrap();
}

fn what_the_loop_s_own_thread_sends_runs_in_its_order_also_from_outside_a_turn<B: Backend>() {
    let order = Arc::new(std::sync::Mutex::new(Vec::new()));
    let note = |what: &'static str| {
        let order = order.clone();
        move || order.lock().unwrap().push(what)
    };
    let taken = || std::mem::take(&mut *order.lock().unwrap());
    let mut event_loop = B::event_loop();
    let handle = event_loop.handle();

    handle.post(note("first")).unwrap();
    event_loop
        .block_on(async {
            handle.post(note("second")).unwrap();
            wakeful::task::yield_now().await;
        })
        .unwrap();
    event_loop.take_turn(Some(std::time::Duration::ZERO)).unwrap();
    assert_eq!(taken(), ["first", "second"], "before block_on, and within it");

    handle.post(note("first")).unwrap();
    let (sender, second) = (handle.clone(), note("second"));
    let mut second = Some(second);
    let hook = event_loop.before_park(move || {
        if let Some(second) = second.take() {
            sender.post(second).unwrap();
        }
    });
    for _ in 0..3 {
        event_loop.take_turn(Some(std::time::Duration::from_micros(1))).unwrap();
    }
    drop(hook);
    assert_eq!(taken(), ["first", "second"], "before a turn, and in before_park");

    let first = note("first");
    handle.spawn(move || async move { first() }).unwrap().detach();
    let second = note("second");
    event_loop.spawn(async move { second() }).detach();
    for _ in 0..2 {
        event_loop.take_turn(Some(std::time::Duration::ZERO)).unwrap();
    }
    assert_eq!(taken(), ["first", "second"], "spawned by the handle, and by the loop");
}
