//! Panics in code that is not the loop's: wakers of other executors, and drops. They end where they began, and nobody beside them is
//! lost.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use wakeful::net::UnixStream;

use crate::backend::Backend;

on_every_backend! {
    a_panic_in_a_waker_loses_no_other_event_of_the_batch,
    a_panic_in_a_timer_s_waker_ends_neither_the_loop_nor_other_timers,
    a_panic_in_the_waker_of_a_handle_s_awaiter_leaves_the_loop_running,
    a_panic_in_such_a_waker_at_the_end_leaves_no_future_undropped,
    a_future_and_its_output_that_both_panic_when_they_are_dropped,
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
    event_loop.turn(Some(Duration::ZERO)).unwrap();
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
        event_loop.turn(Some(Duration::ZERO)).unwrap();
    }
    assert!(task.is_finished());
    let outcome = event_loop.block_on(task).unwrap();
    assert!(outcome.is_err_and(|error| error.is_panic()));
}
