//! Misuse: a loop in a loop from any place, a handle after the end, a loop or a group dropped where
//! it should not be. Always a clear error, never undefined behaviour, never a wait for ever.

use std::cell::RefCell;
use std::future::{Future, pending, poll_fn};
use std::io::Write;
use std::marker::PhantomData;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::panic::catch_unwind;
use std::rc::Rc;
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use wakeful::net::UnixStream;
use wakeful::time::sleep;
use wakeful::{EventLoop, LoopHandle, PostAndWaitError, run_next_turn, run_this_turn, spawn};

use crate::backend::Backend;
use crate::backend::driven::{BY_HAND, Driven, has_guest, skip_on_guests};
use crate::background::LONG;

on_every_backend! {
    nested_run_from_anywhere_is_a_clear_error,
    a_turn_of_a_loop_within_its_own_turn_does_not_come_to_be,
    a_turn_of_another_loop_within_a_turn_is_allowed,
    a_loop_in_a_turn_of_a_loop_in_a_loop,
    a_handle_after_the_end_refuses_everything_and_still_counts,
    what_is_dropped_at_the_end_may_use_its_loop_s_handle,
    a_group_is_dropped_on_another_thread_and_on_a_foreign_loop,
    a_loop_in_the_destructor_of_a_thread_local_says_that_the_thread_ends,
}

/// `EventLoop` is neither `Send` nor `Sync`: for a type that is either, the compiler could not
/// choose between two implementations.
const _: fn() = || {
    trait NotSend<Choice> {
        fn holds() {}
    }
    impl<T> NotSend<()> for T {}
    impl<T: Send> NotSend<u8> for T {}
    trait NotSync<Choice> {
        fn holds() {}
    }
    impl<T> NotSync<()> for T {}
    impl<T: Sync> NotSync<u8> for T {}
    <EventLoop as NotSend<_>>::holds();
    <EventLoop as NotSync<_>>::holds();
    <wakeful::Hook as NotSend<_>>::holds();
};

/// What a nested loop's attempts led to.
type Outcome = Arc<Mutex<Vec<String>>>;

/// Tries each way to run a loop here; each must fail.
fn nest<B: Backend>(outcome: &Outcome, place: &str) {
    let mut inner = B::event_loop();
    inner.stop();
    let run = inner.run().expect_err("a nested run").to_string();
    let block_on = inner.block_on(async {}).expect_err("a nested block_on").to_string();
    let panicked = std::panic::catch_unwind(|| wakeful::block_on(async {}));
    let panicked = *panicked.expect_err("a nested wakeful::block_on").downcast::<String>().unwrap();
    for error in [run, block_on, panicked] {
        assert!(error.contains("already running on this thread"), "{place}: {error}");
    }
    outcome.lock().unwrap().push(place.to_owned());
}

struct Calls<F>(F);

impl<F: Fn() + Send + Sync + 'static> Wake for Calls<F> {
    fn wake(self: Arc<Self>) {
        (self.0)();
    }
}

struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

fn nested_run_from_anywhere_is_a_clear_error<B: Backend>() {
    let mut event_loop = B::event_loop();
    let outcome = Outcome::default();
    let nest = |place: &'static str| {
        let outcome = outcome.clone();
        move || nest::<B>(&outcome, place)
    };
    let once = |place: &'static str| {
        let (nest, mut done) = (nest(place), false);
        move || {
            if !std::mem::replace(&mut done, true) {
                nest();
            }
        }
    };

    let hooks =
        (event_loop.before_park(once("before_park")), event_loop.after_turn(once("after_turn")));
    let task = nest("task");
    event_loop.spawn(async move { task() }).detach();
    event_loop.run_this_turn(nest("this-turn callback"));
    event_loop.run_next_turn(nest("next-turn callback"));
    event_loop.handle().post(nest("post")).unwrap();
    // The drop of a future that is cancelled.
    let on_drop = OnDrop(nest("drop"));
    let cancelled = event_loop.spawn(async move {
        let _on_drop = on_drop;
        pending::<()>().await;
    });
    // A waker that is called by the timers' phase, and one that is called by the events' phase.
    let timer_waker: Waker = Arc::new(Calls(nest("waker of a timer"))).into();
    let event_waker: Waker = Arc::new(Calls(nest("waker of an event"))).into();
    let (mut peer, socket) = StdUnixStream::pair().unwrap();
    let waits = event_loop
        .block_on(async {
            let mut timer = Box::pin(wakeful::time::sleep(Duration::from_millis(50)));
            assert!(timer.as_mut().poll(&mut Context::from_waker(&timer_waker)).is_pending());
            let mut socket = UnixStream::from_std(socket).unwrap();
            let mut read = Box::pin(async move { socket.read(&mut [0; 1]).await });
            assert!(read.as_mut().poll(&mut Context::from_waker(&event_waker)).is_pending());
            (timer, read)
        })
        .unwrap();
    event_loop.take_turn(Some(Duration::ZERO)).unwrap();
    cancelled.abort();
    peer.write_all(b"x").unwrap();
    while outcome.lock().unwrap().len() < 9 {
        event_loop.take_turn(Some(LONG)).unwrap();
        if has_guest() {
            // After a turn that did something it need not have tried to sleep.
            event_loop.block_on(sleep(Duration::from_millis(1))).unwrap();
        }
    }
    let mut places = std::mem::take(&mut *outcome.lock().unwrap());
    places.sort();
    let all = [
        "after_turn",
        "before_park",
        "drop",
        "next-turn callback",
        "post",
        "task",
        "this-turn callback",
        "waker of a timer",
        "waker of an event",
    ];
    assert_eq!(places, all);
    // No panic was contained on the way, and the loop is unharmed.
    assert_eq!(event_loop.handle().metrics().panics, 0);
    assert_eq!(event_loop.block_on(async { spawn(async { 42 }).await.unwrap() }).unwrap(), 42);
    drop((waits, hooks));
}

/// `turn` borrows the loop for itself: within a turn nobody else has it, whatever cell it is in.
fn a_turn_of_a_loop_within_its_own_turn_does_not_come_to_be<B: Backend>() {
    let event_loop = Rc::new(RefCell::new(B::event_loop()));
    let refused = Rc::new(std::cell::Cell::new(0));
    let (own, mark) = (event_loop.clone(), refused.clone());
    event_loop.borrow().run_next_turn(move || {
        mark.set(mark.get() + u32::from(own.try_borrow_mut().is_err()));
        // What needs no turn of its own is reached by the thread's current loop.
        run_this_turn(move || mark.set(mark.get() + u32::from(own.try_borrow_mut().is_err())));
    });
    event_loop.borrow_mut().take_turn(Some(LONG)).unwrap();
    assert_eq!(refused.get(), 2);
}

fn a_turn_of_another_loop_within_a_turn_is_allowed<B: Backend>() {
    skip_on_guests(BY_HAND);
    let mut outer = B::event_loop();
    let handle = outer.handle();
    outer
        .block_on(async move {
            let mut inner = B::event_loop();
            let within = inner.handle();
            assert!(LoopHandle::current().is_same(&handle));
            let (seen, expected) = (Rc::new(std::cell::Cell::new(0)), within.clone());
            let count = seen.clone();
            let task = inner.spawn(async move {
                assert!(LoopHandle::current().is_same(&expected));
                let more = count.clone();
                run_next_turn(move || more.set(more.get() + 1));
                spawn(async move { count.set(count.get() + 1) }).await.unwrap();
            });
            while !task.is_finished() || seen.get() < 2 {
                inner.take_turn(Some(Duration::ZERO)).unwrap();
                // The outer loop is this thread's again.
                assert!(LoopHandle::current().is_same(&handle));
            }
            let turns = within.metrics().turns;
            assert!(inner.asks_to_park().unwrap());
            assert!(LoopHandle::current().is_same(&handle));
            // What the outer loop is sent meanwhile is its own.
            let theirs = spawn(async { LoopHandle::current() });
            inner.take_turn(Some(Duration::ZERO)).unwrap();
            assert!(theirs.await.unwrap().is_same(&handle));
            assert_eq!(within.metrics().turns, turns + 1);
        })
        .unwrap();
}

/// Within the turn of an inner loop, too, `run` is refused; and after an inner turn that panicked
/// the outer loop is the thread's.
fn a_loop_in_a_turn_of_a_loop_in_a_loop<B: Backend>() {
    skip_on_guests(BY_HAND);
    let mut outer = B::event_loop();
    let handle = outer.handle();
    let outcome = Outcome::default();
    outer
        .block_on(async {
            let mut inner = B::event_loop();
            let (outcome, here) = (outcome.clone(), outcome.clone());
            inner.run_next_turn(move || nest::<B>(&here, "within the inner turn"));
            inner.take_turn(Some(Duration::ZERO)).unwrap();
            assert_eq!(outcome.lock().unwrap().len(), 1);
            assert!(LoopHandle::current().is_same(&handle));
            // The inner loop ends within the outer one's turn; what it drops finds the inner one.
            let (own, seen) = (inner.handle(), outcome.clone());
            let on_drop = OnDrop(move || {
                assert!(LoopHandle::current().is_same(&own));
                seen.lock().unwrap().push("dropped".to_owned());
            });
            inner.run_next_turn(move || drop(on_drop));
            drop(inner);
            assert_eq!(outcome.lock().unwrap().len(), 2);
            assert!(LoopHandle::current().is_same(&handle));
        })
        .unwrap();
}

fn a_handle_after_the_end_refuses_everything_and_still_counts<B: Backend>() {
    let mut event_loop = B::event_loop();
    let handle = event_loop.handle();
    event_loop.take_turn(Some(Duration::ZERO)).unwrap();
    let task = event_loop.spawn(pending::<()>());
    drop(event_loop);
    let refuses_everything = || {
        let cargo = Arc::new(());
        let held = cargo.clone();
        let back = handle.post(move || drop(held)).unwrap_err();
        assert_eq!(Arc::strong_count(&cargo), 2, "given back");
        drop(back);
        let held = cargo.clone();
        let back = handle.spawn(move || async move { drop(held) }).unwrap_err();
        assert_eq!(Arc::strong_count(&cargo), 2, "given back");
        drop(back.into_inner()());
        assert_eq!(Arc::strong_count(&cargo), 1);
        handle.wake();
        handle.stop();
        task.abort();
        assert_eq!(handle.metrics().turns, 1);
        assert!(handle.is_same(&handle.clone()));
        assert!(format!("{handle:?}").contains("closed: true"));
    };
    refuses_everything();
    thread::scope(|scope| {
        scope.spawn(|| {
            refuses_everything();
            let refused = handle.post_and_wait(|| ());
            assert!(matches!(refused, Err(PostAndWaitError::LoopEnded)));
        });
    });
    // In a turn of another loop.
    B::block_on(async { refuses_everything() });
    let refused = handle.post_and_wait(|| ());
    assert!(matches!(refused, Err(PostAndWaitError::OwnThread | PostAndWaitError::LoopEnded)));
    assert!(B::block_on(task).unwrap_err().is_cancelled());
}

/// Drops at the loop's end that use the handle, the thread's loop, and a nested loop.
fn what_is_dropped_at_the_end_may_use_its_loop_s_handle<B: Backend>() {
    let event_loop = B::event_loop();
    let handle = event_loop.handle();
    let outcome = Outcome::default();
    let here = outcome.clone();
    let on_drop = OnDrop(move || {
        assert!(handle.post(|| ()).is_err() && handle.spawn(|| async {}).is_err());
        assert!(matches!(handle.post_and_wait(|| ()), Err(PostAndWaitError::OwnThread)));
        handle.wake();
        handle.stop();
        assert!(LoopHandle::current().is_same(&handle));
        nest::<B>(&here, "drop at the end");
    });
    event_loop
        .spawn(async move {
            let _on_drop = on_drop;
            poll_fn(|_| Poll::<()>::Pending).await;
        })
        .detach();
    drop(event_loop);
    assert_eq!(*outcome.lock().unwrap(), ["drop at the end"]);
    // The thread has no loop by now.
    assert_eq!(B::block_on(async { 42 }), 42);
}

fn a_group_is_dropped_on_another_thread_and_on_a_foreign_loop<B: Backend>() {
    let started = || {
        let group = B::group().loops(2).build().unwrap();
        let held = Arc::new(());
        let tasks: Vec<_> = group
            .handles()
            .iter()
            .map(|handle| {
                let held = held.clone();
                let make = move || async move {
                    let _held = held;
                    pending::<()>().await;
                };
                handle.spawn(make).unwrap()
            })
            .collect();
        (group, held, tasks)
    };
    let ended = |held: Arc<()>, tasks: Vec<wakeful::JoinHandle<()>>| {
        assert_eq!(Arc::strong_count(&held), 1, "all that its tasks owned is dropped");
        for task in tasks {
            assert!(futures_lite::future::block_on(task).unwrap_err().is_cancelled());
        }
    };
    let (group, held, tasks) = started();
    thread::spawn(move || drop(group)).join().unwrap();
    ended(held, tasks);
    let (group, held, tasks) = started();
    B::block_on(async move { drop(group) });
    ended(held, tasks);
}

fn a_loop_in_the_destructor_of_a_thread_local_says_that_the_thread_ends<B: Backend>() {
    fn message(panicked: &(dyn std::any::Any + Send)) -> String {
        let text = panicked.downcast_ref::<&str>().copied().map(str::to_owned);
        text.or_else(|| panicked.downcast_ref::<String>().cloned()).unwrap()
    }
    struct RunsLoops<B: Backend>(mpsc::Sender<String>, PhantomData<B>);
    impl<B: Backend> Drop for RunsLoops<B> {
        fn drop(&mut self) {
            let spawns = || B::block_on(async { spawn(async {}).detach() });
            let sleeps = || B::block_on(sleep(LONG));
            self.0.send(message(&*catch_unwind(spawns).unwrap_err())).unwrap();
            self.0.send(message(&*catch_unwind(sleeps).unwrap_err())).unwrap();
            let pairs = || B::block_on(async { UnixStream::pair().map(drop) });
            // A loop that is to have a guest cannot be built then.
            let text = match catch_unwind(pairs) {
                Ok(pair) => pair.unwrap_err().to_string(),
                Err(panicked) => message(&*panicked),
            };
            self.0.send(text).unwrap();
        }
    }
    thread_local! {
        static LAST: RefCell<Option<Box<dyn std::any::Any>>> = const { RefCell::new(None) };
    }
    let (said, hears) = mpsc::channel();
    let ends = thread::spawn(move || {
        // The thread-local that was used first is destroyed last, after the loop's own.
        LAST.set(Some(Box::new(RunsLoops::<B>(said, PhantomData))));
        B::block_on(async {});
    });
    ends.join().unwrap();
    let texts: Vec<_> = hears.iter().collect();
    assert_eq!(texts.len(), 3);
    assert!(texts.iter().all(|text| text.contains("because the thread ends")), "{texts:?}");
}
