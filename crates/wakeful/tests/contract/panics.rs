//! Panics in code that is not the loop's: wakers of other executors, and drops. They end where they
//! began, and nobody beside them is lost.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use wakeful::net::UnixStream;

use crate::backend::driven::Driven;
use crate::backend::{Backend, localhost};
use crate::background::LONG;

on_every_backend! {
    a_panic_in_a_waker_loses_no_other_event_of_the_batch,
    a_panic_in_a_timer_s_waker_ends_neither_the_loop_nor_other_timers,
    a_panic_in_the_waker_of_a_handle_s_awaiter_leaves_the_loop_running,
    a_panic_in_such_a_waker_at_the_end_leaves_no_future_undropped,
    a_future_and_its_output_that_both_panic_when_they_are_dropped,
    a_hook_that_drops_itself_and_panics_in_its_drop,
    a_waker_that_panics_when_another_replaced_it_meanwhile_loses_no_event_of_the_batch,
    a_waker_s_drop_that_panics_is_not_that_of_the_task_that_waits_next,
    a_waker_s_drop_that_panics_when_another_replaces_it_ends_no_wait,
    what_a_task_that_unwinds_drops_may_panic_in_its_drop,
    wakers_that_panic_when_their_socket_or_their_loop_goes,
    payloads_that_panic_when_they_are_dropped_and_so_on,
    outputs_that_panic_when_nobody_asks_for_them,
    an_aborted_future_that_panics_in_its_drop_is_reported_as_a_panic,
    a_future_that_panics_in_its_drop_at_the_loop_s_end_is_reported_as_a_panic,
    a_log_subscriber_that_panics_ends_no_turn,
}

/// A waker of another executor, and not a good one.
struct Panics(AtomicUsize);

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
        panic!("a waker that panics, on purpose");
    }
}

fn panics() -> (Arc<Panics>, Waker) {
    let panics = Arc::new(Panics(AtomicUsize::new(0)));
    (panics.clone(), panics.into())
}

/// Polls `future` once, with `waker`.
fn poll_once<F: Future + Unpin>(future: &mut F, waker: &Waker) -> Poll<F::Output> {
    std::pin::Pin::new(future).poll(&mut Context::from_waker(waker))
}

fn a_panic_in_a_waker_loses_no_other_event_of_the_batch<B: Backend>() {
    B::block_on(async {
        let (panicked, bad) = panics();
        let pairs: Vec<_> = (0..4).map(|_| UnixStream::pair().unwrap()).collect();
        let (mut near, mut far): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
        for round in 1..=3 {
            // The first of them waits with the bad waker, the others are tasks' own.
            let mut first = near.remove(0);
            let mut buf = [0; 1];
            {
                let mut read = Box::pin(first.read(&mut buf));
                assert!(poll_once(&mut read, &bad).is_pending());
            }
            let others: Vec<_> = near
                .drain(..)
                .map(|mut stream| {
                    wakeful::spawn(async move {
                        stream.read(&mut [0; 1]).await.unwrap();
                        stream
                    })
                })
                .collect();
            wakeful::task::yield_now().await;
            for stream in &mut far {
                stream.write_all(b"x").await.unwrap();
            }
            near.push(first);
            for task in others {
                near.push(task.await.unwrap());
            }
            near[0].read(&mut buf).await.unwrap();
            assert!(panicked.0.load(Ordering::SeqCst) <= round);
        }
    });
}

fn a_panic_in_a_timer_s_waker_ends_neither_the_loop_nor_other_timers<B: Backend>() {
    B::block_on(async {
        let (panicked, bad) = panics();
        let mut sleep = pin!(wakeful::time::sleep(Duration::from_micros(100)));
        assert!(poll_once(&mut sleep, &bad).is_pending());
        wakeful::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(panicked.0.load(Ordering::SeqCst), 1);
    });
}

fn a_panic_in_the_waker_of_a_handle_s_awaiter_leaves_the_loop_running<B: Backend>() {
    let (panicked, bad) = panics();
    let mut event_loop = B::event_loop();
    let mut handle = event_loop.spawn(async { 42 });
    assert!(poll_once(&mut handle, &bad).is_pending());
    event_loop.take_turn(Some(Duration::ZERO)).unwrap();
    assert_eq!(panicked.0.load(Ordering::SeqCst), 1);
    assert_eq!(event_loop.block_on(handle).unwrap().unwrap(), 42);
}

fn a_panic_in_such_a_waker_at_the_end_leaves_no_future_undropped<B: Backend>() {
    let alive = Rc::new(());
    let (panicked, bad) = panics();
    let event_loop = B::event_loop();
    let mut handles: Vec<_> = (0..3)
        .map(|_| {
            let alive = alive.clone();
            event_loop.spawn(async move {
                let _alive = alive;
                std::future::pending::<()>().await;
            })
        })
        .collect();
    for handle in &mut handles {
        assert!(poll_once(handle, &bad).is_pending());
    }
    drop(event_loop);
    assert_eq!(Rc::strong_count(&alive), 1, "all are dropped");
    assert_eq!(panicked.0.load(Ordering::SeqCst), 3);
    assert!(handles.iter().all(wakeful::JoinHandle::is_finished));
}

/// Panics when it is dropped.
struct PanicsInDrop;

impl Drop for PanicsInDrop {
    fn drop(&mut self) {
        panic!("in a drop, on purpose");
    }
}

fn a_future_and_its_output_that_both_panic_when_they_are_dropped<B: Backend>() {
    struct PanicsInDrop;
    impl Drop for PanicsInDrop {
        fn drop(&mut self) {
            if !std::thread::panicking() {
                panic!("on purpose");
            }
        }
    }
    let mut event_loop = B::event_loop();
    let held = PanicsInDrop;
    let task = event_loop.spawn(poll_fn(move |_| {
        let _held = &held;
        Poll::Ready(PanicsInDrop)
    }));
    for _ in 0..3 {
        event_loop.take_turn(Some(Duration::ZERO)).unwrap();
    }
    assert!(task.is_finished());
    let outcome = event_loop.block_on(task).unwrap();
    assert!(outcome.is_err_and(|error| error.is_panic()));
}

fn a_hook_that_drops_itself_and_panics_in_its_drop<B: Backend>() {
    let mut event_loop = B::event_loop();
    for before_park in [true, false] {
        let own = Rc::new(Cell::new(None));
        let slot = own.clone();
        let held = PanicsInDrop;
        let callback = move || {
            let _held = &held;
            drop(slot.take());
        };
        let hook = if before_park {
            event_loop.before_park(callback)
        } else {
            event_loop.after_turn(callback)
        };
        own.set(Some(hook));
        let before = event_loop.handle().metrics().panics;
        // The second turn would run the hook again.
        for _ in 0..2 {
            event_loop.take_turn(Some(Duration::from_millis(1))).unwrap();
        }
        assert_eq!(event_loop.handle().metrics().panics - before, 1);
    }
    assert_eq!(event_loop.block_on(async { 42 }).unwrap(), 42);
}

/// A waker of another executor that runs `WHEN_WOKEN`, and panics in its drop.
struct PanicsAtLast(PanicsInDrop);

thread_local! {
    static WHEN_WOKEN: Cell<Option<Box<dyn FnOnce()>>> = const { Cell::new(None) };
}

impl Wake for PanicsAtLast {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if let Some(run) = WHEN_WOKEN.take() {
            run();
        }
    }
}

fn panics_at_last() -> Waker {
    Arc::new(PanicsAtLast(PanicsInDrop)).into()
}

/// Polls a read of `stream` once, with `waker`. The socket keeps the waker.
fn wait_to_read(stream: &mut UnixStream, waker: &Waker) {
    let mut buf = [0; 1];
    let mut read = Box::pin(stream.read(&mut buf));
    assert!(poll_once(&mut read, waker).is_pending());
}

/// Reads of the far ends' bytes, by tasks.
fn readers(streams: Vec<UnixStream>) -> Vec<wakeful::JoinHandle<()>> {
    let read = |mut stream: UnixStream| async move {
        assert_eq!(stream.read(&mut [0; 1]).await.unwrap(), 1);
    };
    streams.into_iter().map(|stream| wakeful::spawn(read(stream))).collect()
}

fn a_waker_that_panics_when_another_replaced_it_meanwhile_loses_no_event_of_the_batch<
    B: Backend,
>() {
    let mut event_loop = B::event_loop();
    event_loop
        .block_on(async {
            let pairs: Vec<_> = (0..4).map(|_| UnixStream::pair().unwrap()).collect();
            let (mut near, mut far): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
            let mut first = near.remove(0);
            // Not ready, each of them.
            wait_to_read(&mut first, Waker::noop());
            wait_to_read(&mut first, &panics_at_last());
            let others = readers(near);
            wakeful::task::yield_now().await;
            let keeper = std::rc::Rc::new(std::cell::Cell::new(None));
            let kept = keeper.clone();
            WHEN_WOKEN.set(Some(Box::new(move || {
                let mut buf = [0; 1];
                let mut read = Box::pin(first.read(&mut buf));
                assert!(poll_once(&mut read, Waker::noop()).is_ready());
                drop(read);
                // The read was not short, so what is ready is not known: another one finds nothing,
                // and waits.
                wait_to_read(&mut first, Waker::noop());
                kept.set(Some(first));
            })));
            for stream in &mut far {
                stream.write_all(b"x").await.unwrap();
            }
            for task in others {
                task.await.unwrap();
            }
            // The loop still waits for events, also with a limit.
            wakeful::time::sleep(Duration::from_micros(100)).await;
            drop(keeper.take());
        })
        .unwrap();
    assert_eq!(event_loop.handle().metrics().panics, 1);
}

fn a_waker_s_drop_that_panics_is_not_that_of_the_task_that_waits_next<B: Backend>() {
    let mut event_loop = B::event_loop();
    event_loop
        .block_on(async {
            let (mut near, mut far) = UnixStream::pair().unwrap();
            wait_to_read(&mut near, Waker::noop());
            wait_to_read(&mut near, &panics_at_last());
            let tasks = readers(vec![near]);
            wakeful::task::yield_now().await;
            far.write_all(b"x").await.unwrap();
            for task in tasks {
                task.await.unwrap();
            }
        })
        .unwrap();
    assert_eq!(event_loop.handle().metrics().panics, 1);
}

fn a_waker_s_drop_that_panics_when_another_replaces_it_ends_no_wait<B: Backend>() {
    let mut event_loop = B::event_loop();
    event_loop
        .block_on(async {
            let mut sleep = wakeful::time::sleep(Duration::from_millis(1));
            assert!(poll_once(&mut sleep, &panics_at_last()).is_pending());
            sleep.await;
            let mut task = wakeful::spawn(async {
                wakeful::task::yield_now().await;
                7
            });
            assert!(poll_once(&mut task, &panics_at_last()).is_pending());
            assert_eq!(task.await.unwrap(), 7);
            let (go, begin) = std::sync::mpsc::channel();
            let mut work = wakeful::task::spawn_blocking(move || begin.recv().unwrap());
            assert!(poll_once(&mut work, &panics_at_last()).is_pending());
            wakeful::spawn(async move { go.send(7).unwrap() }).detach();
            assert_eq!(work.await.unwrap(), 7);
        })
        .unwrap();
    assert_eq!(event_loop.handle().metrics().panics, 3);
}

/// A second panic while a task unwinds would abort the process.
fn what_a_task_that_unwinds_drops_may_panic_in_its_drop<B: Backend>() {
    B::block_on(async {
        let task = wakeful::spawn(async {
            let mut sleep = wakeful::time::sleep(LONG);
            assert!(poll_once(&mut sleep, &panics_at_last()).is_pending());
            panic!("on purpose");
        });
        assert!(task.await.unwrap_err().is_panic());
        let task = wakeful::spawn(async {
            let held = PanicsInDrop;
            let _hook = wakeful::after_turn(move || _ = &held);
            panic!("on purpose");
        });
        assert!(task.await.unwrap_err().is_panic());
    });
}

fn wakers_that_panic_when_their_socket_or_their_loop_goes<B: Backend>() {
    let mut event_loop = B::event_loop();
    let handle = event_loop.handle();
    let kept = event_loop
        .block_on(async {
            let datagrams = || wakeful::net::UdpSocket::bind(localhost());
            for _ in 0..2 {
                // Several wait for one socket: their drops are several panics.
                let socket = datagrams().await.unwrap();
                for _ in 0..3 {
                    let mut buf = [0; 1];
                    let mut receive = Box::pin(socket.recv_from(&mut buf));
                    assert!(poll_once(&mut receive, &panics_at_last()).is_pending());
                }
            }
            let (mut near, far) = UnixStream::pair().unwrap();
            wait_to_read(&mut near, &panics_at_last());
            drop(near);
            drop(far);
            let (mut near, far) = UnixStream::pair().unwrap();
            wait_to_read(&mut near, &panics_at_last());
            (near, far)
        })
        .unwrap();
    assert_eq!(handle.metrics().panics, 7);
    // The loop's end wakes and drops the last one. That nobody counts: the loop is over.
    drop(event_loop);
    drop(kept);
}

/// A payload whose drop panics with another such, `left` times.
struct Nested(usize);

impl Drop for Nested {
    fn drop(&mut self) {
        if self.0 > 0 {
            std::panic::panic_any(Nested(self.0 - 1));
        }
    }
}

fn payloads_that_panic_when_they_are_dropped_and_so_on<B: Backend>() {
    let mut event_loop = B::event_loop();
    let handle = event_loop.handle();
    for left in 0..4 {
        let before = handle.metrics().panics;
        event_loop.spawn(async move { std::panic::panic_any(Nested(left)) }).detach();
        event_loop.run_this_turn(move || std::panic::panic_any(Nested(left)));
        event_loop.run_next_turn(move || std::panic::panic_any(Nested(left)));
        handle.post(move || std::panic::panic_any(Nested(left))).unwrap();
        let aborted = event_loop.spawn(async move { std::panic::panic_any(Nested(left)) });
        drop(aborted);
        event_loop.take_turn(Some(Duration::ZERO)).unwrap();
        // The three without a handle, and what the drop of a task's payload does.
        let expected = 3 + if left > 0 { 2 } else { 0 };
        assert_eq!(handle.metrics().panics - before, expected, "{left}");
    }
    assert_eq!(event_loop.block_on(async { 42 }).unwrap(), 42);
}

fn outputs_that_panic_when_nobody_asks_for_them<B: Backend>() {
    let mut event_loop = B::event_loop();
    let metrics = event_loop.handle();
    event_loop.spawn(async { PanicsInDrop }).detach();
    event_loop.take_turn(Some(Duration::ZERO)).unwrap();
    assert_eq!(metrics.metrics().panics, 1);
    // A handle that has the output already: whoever drops it does not panic.
    let other = event_loop.spawn(async { 42 });
    let handle = event_loop.spawn(async { PanicsInDrop });
    let holder = event_loop.spawn(async move {
        other.await.unwrap();
        assert!(handle.is_finished());
        drop(handle);
    });
    event_loop.block_on(holder).unwrap().unwrap();
    assert_eq!(metrics.metrics().panics, 2, "counted once");
    // On a thread without a loop nobody counts it.
    let handle = event_loop.spawn(async { PanicsInDrop });
    event_loop.take_turn(Some(Duration::ZERO)).unwrap();
    std::thread::spawn(move || drop(handle)).join().unwrap();
    assert_eq!(metrics.metrics().panics, 2);
}

fn an_aborted_future_that_panics_in_its_drop_is_reported_as_a_panic<B: Backend>() {
    let mut event_loop = B::event_loop();
    for polled_before in [false, true] {
        let held = PanicsInDrop;
        let task = event_loop.spawn(async move {
            let _held = held;
            std::future::pending::<()>().await;
        });
        if polled_before {
            event_loop.take_turn(Some(Duration::ZERO)).unwrap();
        }
        task.abort();
        let error = event_loop.block_on(task).unwrap().unwrap_err();
        assert!(error.is_panic() && !error.is_cancelled(), "{error}");
        assert!(error.to_string().contains("in a drop"), "{error}");
    }
    assert_eq!(event_loop.handle().metrics().panics, 0, "they are the handles'");
}

fn a_future_that_panics_in_its_drop_at_the_loop_s_end_is_reported_as_a_panic<B: Backend>() {
    let mut event_loop = B::event_loop();
    let tasks = [(); 2].map(|()| {
        let held = PanicsInDrop;
        event_loop.spawn(async move {
            let _held = held;
            std::future::pending::<()>().await;
        })
    });
    event_loop.take_turn(Some(Duration::ZERO)).unwrap();
    drop(event_loop);
    for task in tasks {
        let error = futures_lite::future::block_on(task).unwrap_err();
        assert!(error.is_panic(), "{error}");
    }
}

/// A log subscriber that is not a good one.
#[derive(Clone)]
struct PanickingLog(Arc<AtomicUsize>);

impl tracing::Subscriber for PanickingLog {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, _: &tracing::Event<'_>) {
        self.0.fetch_add(1, Ordering::SeqCst);
        panic!("a log subscriber that panics, on purpose");
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

fn a_log_subscriber_that_panics_ends_no_turn<B: Backend>() {
    let log = PanickingLog(Arc::default());
    let mut event_loop = B::builder().slow_turn(Duration::from_millis(1)).build().unwrap();
    // A second dispatcher: with only one, `tracing` may ask another test's thread, which has none.
    let _second = tracing::Dispatch::new(log.clone());
    let ended = tracing::subscriber::with_default(log.clone(), || {
        event_loop.block_on(async {
            std::thread::sleep(Duration::from_millis(5));
            wakeful::task::yield_now().await;
            wakeful::spawn(async { std::thread::sleep(Duration::from_millis(5)) }).await.unwrap();
            42
        })
    });
    assert_eq!(ended.unwrap(), 42);
    let logged = log.0.load(Ordering::SeqCst);
    assert!(logged > 0, "a slow turn was logged");
    assert_eq!(event_loop.handle().metrics().panics, logged as u64);
}
