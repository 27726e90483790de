//! Streams of signals that end at odd moments: with a signal pending, within the handler of one,
//! with their loop. Alone in its process and one test at a time, because signals are the process's.

#[macro_use]
#[path = "contract/backend.rs"]
mod backend;

use std::cell::RefCell;
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use signal_hook::low_level::raise;
use wakeful::signal::{SIGUSR1, SIGUSR2, Signals};
use wakeful::{EventLoop, spawn};

use self::backend::Backend;

on_every_backend! {
    signal_pending_on_close,
    signals_of_one_stream,
    signal_pending_when_its_loop_ends,
    signal_free_in_callback,
    signal_free_of_a_peer_in_callback,
    signal_free_in_its_waker,
}

fn one_at_a_time() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// On this thread, so that the handler has run when this returns.
fn send(signal: i32) {
    raise(signal).unwrap();
}

/// One look: which signal has come?
fn received(signals: &mut Signals) -> Option<i32> {
    match pin!(signals.recv()).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(signal) => Some(signal.unwrap()),
        Poll::Pending => None,
    }
}

/// Calls `f` where the loop is this thread's, and then lets the loop take in what has come.
fn on<R>(event_loop: &mut EventLoop, f: impl FnOnce() -> R) -> R {
    let result = event_loop.block_on(async { f() }).unwrap();
    for _ in 0..3 {
        event_loop.turn(Some(Duration::ZERO)).unwrap();
    }
    result
}

fn signal_pending_on_close<B: Backend>() {
    let _one = one_at_a_time();
    let mut event_loop = B::event_loop();
    let (closed, mut kept) = on(&mut event_loop, || {
        let (mut one, mut other) =
            (Signals::new(&[SIGUSR1]).unwrap(), Signals::new(&[SIGUSR1, SIGUSR2]).unwrap());
        assert_eq!((received(&mut one), received(&mut other)), (None, None));
        (one, other)
    });
    send(SIGUSR1);
    drop(closed);
    assert_eq!(on(&mut event_loop, || received(&mut kept)), None, "its event is still to come");
    assert_eq!(
        on(&mut event_loop, || received(&mut kept)),
        Some(SIGUSR1),
        "the other one's is its own"
    );
    // A new stream begins with what comes from now on.
    let mut new = on(&mut event_loop, || Signals::new(&[SIGUSR1]).unwrap());
    let both = on(&mut event_loop, || (received(&mut new), received(&mut kept)));
    assert_eq!(both, (None, None));
    send(SIGUSR1);
    on(&mut event_loop, || ());
    let both = on(&mut event_loop, || (received(&mut new), received(&mut kept)));
    assert_eq!(both, (Some(SIGUSR1), Some(SIGUSR1)));
    // With nobody left, what the signals did by default does not come back: that would be the end
    // here.
    drop((new, kept));
    send(SIGUSR1);
    send(SIGUSR2);
}

fn signals_of_one_stream<B: Backend>() {
    let _one = one_at_a_time();
    let mut event_loop = B::event_loop();
    let mut signals = on(&mut event_loop, || Signals::new(&[SIGUSR1, SIGUSR2]).unwrap());
    let mut none = on(&mut event_loop, || Signals::new(&[]).unwrap());
    // They share a descriptor: many of the one hide nothing of the other.
    (0..2000).for_each(|_| send(SIGUSR1));
    send(SIGUSR2);
    on(&mut event_loop, || ());
    let mut told = |event_loop: &mut EventLoop| on(event_loop, || received(&mut signals));
    assert_eq!(told(&mut event_loop), Some(SIGUSR1));
    assert_eq!(told(&mut event_loop), Some(SIGUSR2));
    assert_eq!(told(&mut event_loop), None, "arrivals that nobody took count as one");
    send(SIGUSR2);
    on(&mut event_loop, || ());
    assert_eq!(told(&mut event_loop), Some(SIGUSR2));
    assert_eq!(on(&mut event_loop, || received(&mut none)), None);
}

fn signal_pending_when_its_loop_ends<B: Backend>() {
    let _one = one_at_a_time();
    let mut event_loop = B::event_loop();
    let mut outlives = on(&mut event_loop, || Signals::new(&[SIGUSR1]).unwrap());
    let owned = event_loop.spawn(async { Signals::new(&[SIGUSR1]).unwrap().recv().await });
    event_loop.turn(Some(Duration::ZERO)).unwrap();
    send(SIGUSR1);
    drop(event_loop);
    // The handlers of both are still there, or were: neither may harm.
    send(SIGUSR1);
    assert!(owned.is_finished());
    let recv = futures_lite::future::block_on(async { outlives.recv().await });
    // A signal that had arrived is returned. A call that would have to wait is an error.
    if let Ok(signal) = recv {
        assert_eq!(signal, SIGUSR1);
    }
    let recv = futures_lite::future::block_on(async {
        while outlives.recv().await.is_ok() {}
        outlives.recv().await
    });
    assert!(recv.unwrap_err().to_string().contains("ended"));
}

fn signal_free_in_callback<B: Backend>() {
    let _one = one_at_a_time();
    let mut event_loop = B::event_loop();
    let handler = event_loop.spawn(async {
        let mut signals = Signals::new(&[SIGUSR1]).unwrap();
        let signal = signals.recv().await.unwrap();
        // Freed in its own handler, with another signal already on its way.
        send(SIGUSR1);
        drop(signals);
        send(SIGUSR1);
        signal
    });
    on(&mut event_loop, || ());
    send(SIGUSR1);
    assert_eq!(event_loop.block_on(handler).unwrap().unwrap(), SIGUSR1);
    send(SIGUSR1);
    on(&mut event_loop, || ());
    let text = format!("{event_loop:?}");
    assert!(text.contains("descriptors: 0"), "{text}");
}

/// Of several handlers of one signal, whose events are of one batch, the first that runs frees the
/// others.
fn signal_free_of_a_peer_in_callback<B: Backend>() {
    let _one = one_at_a_time();
    let mut event_loop = B::event_loop();
    let tasks: Rc<RefCell<Vec<wakeful::JoinHandle<()>>>> = Rc::default();
    let ran = Rc::new(RefCell::new(0));
    for _ in 0..5 {
        let (tasks, ran) = (tasks.clone(), ran.clone());
        let task = event_loop.spawn({
            let tasks = tasks.clone();
            async move {
                let mut signals = Signals::new(&[SIGUSR1]).unwrap();
                signals.recv().await.unwrap();
                *ran.borrow_mut() += 1;
                for task in &*tasks.borrow() {
                    task.abort();
                }
                drop(signals);
                // The abort of this task itself takes effect here.
                wakeful::task::yield_now().await;
                *ran.borrow_mut() += 1_000;
            }
        });
        tasks.borrow_mut().push(task);
    }
    on(&mut event_loop, || ());
    send(SIGUSR1);
    on(&mut event_loop, || ());
    send(SIGUSR1);
    on(&mut event_loop, || ());
    assert_eq!(*ran.borrow(), 1);
    let text = format!("{event_loop:?}");
    assert!(text.contains("tasks: 0") && text.contains("descriptors: 0"), "{text}");
    tasks.borrow_mut().clear();
}

/// Freed by its own waker, in the very phase of the turn that tells of its event.
fn signal_free_in_its_waker<B: Backend>() {
    struct Frees(Box<dyn Fn() + Send + Sync>);
    impl Wake for Frees {
        fn wake(self: Arc<Self>) {
            (self.0)();
        }
    }
    thread_local! {
        static SIGNALS: RefCell<Option<Signals>> = const { RefCell::new(None) };
    }
    let _one = one_at_a_time();
    let mut event_loop = B::event_loop();
    let freed = Arc::new(AtomicU64::new(0));
    let count = freed.clone();
    let frees = move || {
        drop(SIGNALS.take());
        count.fetch_add(1, SeqCst);
    };
    let waker = Waker::from(Arc::new(Frees(Box::new(frees))));
    on(&mut event_loop, || {
        let mut signals = Signals::new(&[SIGUSR1]).unwrap();
        let waits = pin!(signals.recv()).poll(&mut Context::from_waker(&waker)).is_pending();
        assert!(waits);
        SIGNALS.set(Some(signals));
    });
    send(SIGUSR1);
    send(SIGUSR1);
    on(&mut event_loop, || ());
    assert!(SIGNALS.take().is_none());
    assert_eq!(freed.load(SeqCst), 1, "no wake after it was freed");
    send(SIGUSR1);
    // The loop is unharmed.
    assert_eq!(event_loop.block_on(async { spawn(async { 42 }).await.unwrap() }).unwrap(), 42);
}
