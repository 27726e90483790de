//! The end of a loop as others see it: handles keep nothing alive, and what is sent to a loop that
//! ends runs, is dropped at home, or is given back. A loop's last words (drops) may still use it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, ThreadId};
use std::time::Duration;

use wakeful::{EventLoop, Hook, after_turn, before_park, run_next_turn};

use crate::backend::Backend;
use crate::backend::driven::Driven;

on_every_backend! {
    every_closure_sent_while_the_loop_ends_is_dropped_at_home_or_given_back,
    handles_held_across_the_shutdown_keep_no_loop_alive,
    callbacks_at_destruction_are_dropped_on_the_loop_which_they_may_still_ask,
    a_callback_added_within_a_callback_waits_for_its_turn,
    what_a_destructor_adds_at_the_loop_s_end_is_dropped_before_the_end_is_over,
    destructors_that_add_without_end_do_not_hold_the_loop_s_end_up,
}

fn one_turn(event_loop: &mut EventLoop) {
    event_loop.take_turn(Some(Duration::ZERO)).unwrap();
}

#[derive(Default)]
struct Ledger {
    made: AtomicUsize,
    ran: AtomicUsize,
    dropped_at_home: AtomicUsize,
    dropped_elsewhere: AtomicUsize,
}

/// What a closure owns.
struct Cargo(Arc<Ledger>, ThreadId);

impl Drop for Cargo {
    fn drop(&mut self) {
        let count = match thread::current().id() == self.1 {
            true => &self.0.dropped_at_home,
            false => &self.0.dropped_elsewhere,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }
}

fn every_closure_sent_while_the_loop_ends_is_dropped_at_home_or_given_back<B: Backend>() {
    for _ in 0..20 {
        let ledger = Arc::new(Ledger::default());
        let (given_back, home) = (AtomicUsize::new(0), thread::current().id());
        let started = AtomicUsize::new(0);
        let mut event_loop = B::event_loop();
        let handle = event_loop.handle();
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    loop {
                        ledger.made.fetch_add(1, Ordering::Relaxed);
                        let cargo = Cargo(ledger.clone(), home);
                        let sent = handle.post(move || {
                            cargo.0.ran.fetch_add(1, Ordering::Relaxed);
                        });
                        started.fetch_add(1, Ordering::Relaxed);
                        if sent.is_err() {
                            given_back.fetch_add(1, Ordering::Relaxed);
                            break;
                        }
                    }
                });
            }
            while started.load(Ordering::Relaxed) < 100 {
                one_turn(&mut event_loop);
            }
            drop(event_loop);
        });
        let count = |counter: &AtomicUsize| counter.load(Ordering::Relaxed);
        let made = count(&ledger.made);
        assert_eq!(count(&given_back), 2);
        assert_eq!(count(&ledger.dropped_elsewhere), 2, "only those that were given back");
        assert_eq!(count(&ledger.dropped_at_home), made - 2);
        assert!(count(&ledger.ran) <= made - 2);
    }
}

/// A handle is an address, not a share: the loop ends when its owner says so.
fn handles_held_across_the_shutdown_keep_no_loop_alive<B: Backend>() {
    let group = B::group().loops(2).build().unwrap();
    let handles = group.handles().to_vec();
    let (held, is_dropped) = mpsc::channel::<()>();
    for handle in &handles {
        let held = held.clone();
        // The loop holds a handle of its own, too.
        let own = handle.clone();
        let kept = handle.spawn(move || async move {
            let _kept = (held, own);
            std::future::pending::<()>().await;
        });
        kept.unwrap().detach();
    }
    drop(held);
    group.shutdown(Duration::ZERO).unwrap();
    assert_eq!(is_dropped.try_recv(), Err(mpsc::TryRecvError::Disconnected));
    for handle in handles {
        assert!(handle.post(|| ()).is_err());
        assert!(handle.metrics().turns > 0, "its counts are still there");
    }
}

/// They do not run, but what they own is dropped while the loop is still the thread's own.
fn callbacks_at_destruction_are_dropped_on_the_loop_which_they_may_still_ask<B: Backend>() {
    struct AsksItsLoop(Rc<Cell<u32>>, wakeful::LoopHandle);
    impl Drop for AsksItsLoop {
        fn drop(&mut self) {
            let here = std::panic::catch_unwind(wakeful::LoopHandle::current);
            if here.is_ok_and(|here| here.is_same(&self.1)) {
                self.0.set(self.0.get() + 1);
            }
        }
    }
    let dropped = Rc::new(Cell::new(0));
    let event_loop = B::event_loop();
    let asks = || AsksItsLoop(dropped.clone(), event_loop.handle());
    let ran = Arc::new(AtomicBool::new(false));
    let mark = |asks: AsksItsLoop| {
        let ran = ran.clone();
        move || {
            let _asks = &asks;
            ran.store(true, Ordering::Relaxed);
        }
    };
    event_loop.run_this_turn(mark(asks()));
    event_loop.run_next_turn(mark(asks()));
    let hooks = (event_loop.after_turn(mark(asks())), event_loop.before_park(mark(asks())));
    drop(event_loop);
    assert_eq!(dropped.get(), 4);
    assert!(!ran.load(Ordering::Relaxed));
    drop(hooks);
}

fn a_callback_added_within_a_callback_waits_for_its_turn<B: Backend>() {
    let mut event_loop = B::event_loop();
    let ran = Rc::new(Cell::new(0));
    let inner = ran.clone();
    event_loop.run_next_turn(move || {
        let innermost = inner.clone();
        run_next_turn(move || innermost.set(innermost.get() + 10));
        inner.set(inner.get() + 1);
    });
    one_turn(&mut event_loop);
    assert_eq!(ran.get(), 1, "next turn means the next one");
    one_turn(&mut event_loop);
    assert_eq!(ran.get(), 11);

    let (added, log) = (Rc::new(RefCell::new(Vec::<Hook>::new())), Rc::new(Cell::new(0)));
    let (add_to, count) = (added.clone(), log.clone());
    let hook = event_loop.after_turn(move || {
        if add_to.borrow().is_empty() {
            let (after, before) = (count.clone(), count.clone());
            add_to.borrow_mut().push(after_turn(move || after.set(after.get() + 1)));
            add_to.borrow_mut().push(before_park(move || before.set(before.get() + 100)));
        }
    });
    one_turn(&mut event_loop);
    assert_eq!(log.get(), 0, "not in the phase that it was added in");
    one_turn(&mut event_loop);
    one_turn(&mut event_loop);
    assert_eq!(log.get(), 2, "once a turn; and no turn with a limit of zero parks");
    drop((hook, added));
}

/// Adds to its loop the next one of its kind when it is dropped, `left` times.
struct AddsAnother {
    dropped: Rc<Cell<usize>>,
    left: usize,
    add: fn(AddsAnother),
}

impl Drop for AddsAnother {
    fn drop(&mut self) {
        self.dropped.set(self.dropped.get() + 1);
        if let Some(left) = self.left.checked_sub(1) {
            (self.add)(Self { dropped: self.dropped.clone(), left, add: self.add });
        }
    }
}

fn as_task(another: AddsAnother) {
    let handle = wakeful::spawn(async move {
        let _another = another;
        std::future::pending::<()>().await;
    });
    assert!(handle.is_finished());
    let result = futures_lite::future::block_on(handle);
    assert!(result.unwrap_err().is_cancelled());
}

fn as_callback(another: AddsAnother) {
    run_next_turn(move || drop(another));
}

fn as_hook(another: AddsAnother) {
    drop(after_turn(move || _ = &another));
}

fn as_task_or_callback(another: AddsAnother) {
    if another.left.is_multiple_of(2) { as_task(another) } else { as_callback(another) }
}

/// How many were dropped at the end of a loop with a task or a callback that owns the first of
/// `left`.
fn dropped_at_the_end<B: Backend>(left: usize, add: fn(AddsAnother), first_in_task: bool) -> usize {
    let dropped = Rc::new(Cell::new(0));
    let event_loop = B::event_loop();
    let first = AddsAnother { dropped: dropped.clone(), left, add };
    if first_in_task {
        event_loop.spawn(async move { drop(first) }).detach();
    } else {
        event_loop.run_next_turn(move || drop(first));
    }
    drop(event_loop);
    dropped.get()
}

const WAYS: [fn(AddsAnother); 4] = [as_task, as_callback, as_hook, as_task_or_callback];

fn what_a_destructor_adds_at_the_loop_s_end_is_dropped_before_the_end_is_over<B: Backend>() {
    for add in WAYS {
        for first_in_task in [true, false] {
            // As drops within drops, they would use the stack up.
            let dropped = dropped_at_the_end::<B>(9_000, add, first_in_task);
            assert_eq!(dropped, 9_001);
        }
    }
}

fn destructors_that_add_without_end_do_not_hold_the_loop_s_end_up<B: Backend>() {
    for add in WAYS {
        for first_in_task in [true, false] {
            let dropped = dropped_at_the_end::<B>(usize::MAX, add, first_in_task);
            assert!((10_000..30_000).contains(&dropped), "{dropped}");
        }
    }
}
