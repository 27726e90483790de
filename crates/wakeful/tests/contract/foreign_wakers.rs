//! Wakers of other executors, whose clone and drop run code of their own: it may use what it is
//! called by.

#![allow(unsafe_code, reason = "a waker with a clone of its own needs a table of its own")]

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::io::Write;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Wake, Waker};
use std::time::{Duration, Instant};

use futures_lite::FutureExt;
use wakeful::accept::Draining;
use wakeful::net::UnixStream;
use wakeful::task::{Scope, spawn_blocking};
use wakeful::time::{sleep, timeout};

use crate::backend::Backend;
use crate::backend::driven::{BY_HAND, skip_on_guests};
use crate::background::LONG;

on_every_backend! {
    a_waker_s_clone_and_drop_may_set_move_and_cancel_timers,
    a_waker_s_clone_may_wait_for_the_same_drain,
    a_waker_s_clone_that_panics_ends_no_wait,
    a_waker_s_clone_may_take_a_turn_of_the_loop,
    a_waker_that_panics_in_its_wake_and_in_its_drop_ends_no_process,
    who_stops_waiting_during_a_wake_is_not_woken,
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
async fn poll_with<F: Future + ?Sized>(mut future: Pin<&mut F>, waker: &Waker) -> Poll<F::Output> {
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

/// Another executor polls between two turns.
fn a_waker_s_clone_may_take_a_turn_of_the_loop<B: Backend>() {
    /// `cause` makes `future` ready with the next turns.
    fn is_ready<T>(
        event_loop: &Rc<RefCell<wakeful::EventLoop>>,
        future: impl Future<Output = T>,
        cause: impl FnOnce() + 'static,
    ) {
        let (event_loop, cause) = (event_loop.clone(), Rc::new(Cell::new(Some(cause))));
        let pending = cause.clone();
        let waker = hooked(move || {
            let Some(cause) = cause.take() else { return };
            cause();
            for _ in 0..3 {
                event_loop.borrow_mut().turn(Some(Duration::ZERO)).unwrap();
            }
        });
        let polled = pin!(future).poll(&mut Context::from_waker(&waker));
        assert!(pending.take().is_none(), "it has waited");
        assert!(polled.is_ready(), "nobody would wake it");
    }
    skip_on_guests(BY_HAND);
    let event_loop = Rc::new(RefCell::new(B::event_loop()));
    let on_it = || {
        let (ours, theirs) = StdUnixStream::pair().unwrap();
        let on_it = async move { UnixStream::from_std(ours).unwrap() };
        let stream = event_loop.borrow_mut().block_on(on_it).unwrap();
        event_loop.borrow_mut().turn(Some(Duration::ZERO)).unwrap();
        (stream, move || (&theirs).write_all(b"x").unwrap())
    };
    let (mut stream, write) = on_it();
    is_ready(&event_loop, stream.read(&mut [0; 1]), write);
    let (stream, write) = on_it();
    is_ready(&event_loop, stream.readable(), write);
    let (end, has_ended) = async_channel::bounded::<()>(1);
    let on_it = async move {
        let scope = Scope::new();
        scope.spawn(async move { _ = has_ended.recv().await }).detach();
        [scope]
    };
    let [scope] = event_loop.borrow_mut().block_on(on_it).unwrap();
    is_ready(&event_loop, scope, move || drop(end));
}

fn a_waker_that_panics_in_its_wake_and_in_its_drop_ends_no_process<B: Backend>() {
    struct PanicsTwice(Arc<AtomicUsize>);
    impl Wake for PanicsTwice {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
            panic!("of a wake, on purpose")
        }
    }
    impl Drop for PanicsTwice {
        fn drop(&mut self) {
            panic!("of a drop, on purpose")
        }
    }
    B::block_on(async {
        let later = || sleep(Duration::from_millis(100));
        let (go, goes) = mpsc::channel::<()>();
        let (readable, mut peer) = UnixStream::pair().unwrap();
        let scope = Scope::new();
        scope.spawn(later()).detach();
        let mut waits: Vec<Pin<Box<dyn Future<Output = ()>>>> = vec![
            Box::pin(later()),
            Box::pin(async { wakeful::spawn(later()).await.unwrap() }),
            Box::pin(async { spawn_blocking(move || _ = goes.recv()).await.unwrap() }),
            Box::pin(async move { readable.readable().await.unwrap() }),
            Box::pin(scope),
        ];
        let woken = Arc::new(AtomicUsize::new(0));
        for wait in &mut waits {
            let waker = Arc::new(PanicsTwice(woken.clone())).into();
            assert!(poll_with(wait.as_mut(), &waker).await.is_pending());
        }
        drop(go);
        peer.write_all(b"x").await.unwrap();
        while woken.load(Ordering::SeqCst) < waits.len() {
            sleep(Duration::from_millis(1)).await;
        }
    });
}

fn who_stops_waiting_during_a_wake_is_not_woken<B: Backend>() {
    thread_local! {
        static WAKES: Cell<u32> = const { Cell::new(0) };
        static FIRST: Cell<Option<Box<dyn FnOnce()>>> = const { Cell::new(None) };
    }
    struct CallsFirst;
    impl Wake for CallsFirst {
        fn wake(self: Arc<Self>) {
            WAKES.set(WAKES.get() + 1);
            if let Some(first) = FIRST.take() {
                first();
            }
        }
    }
    B::block_on(async {
        for waiters in 2..=5 {
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            let ours = Rc::new(ours);
            let wait = |ours: Rc<UnixStream>| async move { ours.readable().await };
            let mut waits: Vec<_> = (0..waiters).map(|_| Box::pin(wait(ours.clone()))).collect();
            for wait in &mut waits {
                let waker = Arc::new(CallsFirst).into();
                assert!(poll_with(wait.as_mut(), &waker).await.is_pending());
            }
            WAKES.set(0);
            FIRST.set(Some(Box::new(move || drop((waits, ours)))));
            theirs.write_all(b"x").await.unwrap();
            while WAKES.get() == 0 {
                sleep(Duration::from_millis(1)).await;
            }
            assert_eq!(WAKES.get(), 1, "of {waiters}");
        }
    });
}
