//! Wakers of other executors, whose clone and drop run code of their own: it may use what it is
//! called by.

#![allow(unsafe_code, reason = "a waker with a clone of its own needs a table of its own")]

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::mpsc;
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Waker};
use std::time::{Duration, Instant};

use futures_lite::FutureExt;
use wakeful::accept::Draining;
use wakeful::time::{sleep, timeout};

use crate::backend::Backend;
use crate::background::LONG;

on_every_backend! {
    a_waker_s_clone_and_drop_may_set_move_and_cancel_timers,
    a_waker_s_clone_may_wait_for_the_same_drain,
    a_waker_s_clone_that_panics_ends_no_wait,
}

const FAR: Duration = Duration::from_secs(3600);

/// What happens at each clone and each drop of a waker.
struct Hook(Box<dyn Fn()>);

/// A waker's data is a leaked `Rc<Hook>`, of which it has a count.
static TABLE: RawWakerVTable = {
    unsafe fn clone(data: *const ()) -> RawWaker {
        // SAFETY: the waker that is cloned keeps the hook alive.
        unsafe {
            Rc::increment_strong_count(data.cast::<Hook>());
            ((*data.cast::<Hook>()).0)();
        }
        RawWaker::new(data, &TABLE)
    }
    unsafe fn drop(data: *const ()) {
        // SAFETY: the waker is gone, and its count is this one.
        let hook = unsafe { Rc::from_raw(data.cast::<Hook>()) };
        (hook.0)();
    }
    RawWakerVTable::new(clone, drop, |_| (), drop)
};

/// It stays on the thread that made it.
fn hooked(f: impl Fn() + 'static) -> Waker {
    let hook = Rc::into_raw(Rc::new(Hook(Box::new(f))));
    // SAFETY: the table keeps the counts, and the test keeps the waker on its thread.
    unsafe { Waker::from_raw(RawWaker::new(hook.cast(), &TABLE)) }
}

/// Polls within a loop, with a waker of one's own.
async fn poll_with<F: Future>(mut future: Pin<&mut F>, waker: &Waker) -> Poll<F::Output> {
    poll_fn(|_| Poll::Ready(future.as_mut().poll(&mut Context::from_waker(waker)))).await
}

fn a_waker_s_clone_and_drop_may_set_move_and_cancel_timers<B: Backend>() {
    fn use_the_timers() {
        let mut timer = pin!(sleep(FAR));
        assert!(timer.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        timer.as_mut().reset(Instant::now() + 2 * FAR);
    }
    let mut event_loop = B::event_loop();
    event_loop
        .block_on(async {
            let (first, second) = (hooked(use_the_timers), hooked(use_the_timers));
            let mut timer = pin!(sleep(FAR));
            assert!(poll_with(timer.as_mut(), &first).await.is_pending());
            assert!(poll_with(timer.as_mut(), &second).await.is_pending());
            timer.as_mut().reset(Instant::now() + 2 * FAR);
            assert!(poll_with(timer.as_mut(), &first).await.is_pending());
        })
        .unwrap();
    assert!(format!("{event_loop:?}").contains("timers: 0"), "{event_loop:?}");
}

fn a_waker_s_clone_may_wait_for_the_same_drain<B: Backend>() {
    B::block_on(async {
        let draining = Draining::default();
        let same = draining.clone();
        let wait_too = move || {
            let mut started = pin!(same.started());
            assert!(started.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        };
        let (first, second) = (hooked(wait_too.clone()), hooked(wait_too));
        let mut started = pin!(draining.started());
        assert!(poll_with(started.as_mut(), &first).await.is_pending());
        assert!(poll_with(started.as_mut(), &second).await.is_pending());
    });
}

fn a_waker_s_clone_that_panics_ends_no_wait<B: Backend>() {
    async fn poll_with_panic<F: Future + Unpin>(future: &mut F) {
        let armed = Cell::new(true);
        let waker = hooked(move || assert!(!armed.replace(false), "on purpose"));
        let poll = poll_with(Pin::new(future), &waker);
        assert!(AssertUnwindSafe(poll).catch_unwind().await.is_err());
    }
    B::block_on(async {
        let mut task = wakeful::spawn(async {
            wakeful::task::yield_now().await;
            7
        });
        poll_with_panic(&mut task).await;
        assert_eq!(timeout(LONG, task).await.expect("the task's end wakes").unwrap(), 7);

        let (go, begin) = mpsc::channel();
        let mut work = wakeful::task::spawn_blocking(move || begin.recv().unwrap());
        poll_with_panic(&mut work).await;
        wakeful::spawn(async move { go.send(7).unwrap() }).detach();
        assert_eq!(timeout(LONG, work).await.expect("the work's end wakes").unwrap(), 7);
    });
}
