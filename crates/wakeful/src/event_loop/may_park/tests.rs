//! Tests of the predicate for each kind of work: each kind alone keeps the loop awake, and without
//! it the loop may sleep.

use std::cell::Cell;
use std::rc::Rc;
use std::thread;
use std::time::Duration;

use super::{MayPark, Work};
use crate::event_loop::{EventLoop, current};
use crate::priority::Priority;
use crate::timers::TimerTime;

/// A kind of work, and how to make it without any other kind.
struct Kind {
    name: &'static str,
    make: fn(&EventLoop),
    keeps_awake: MayPark,
}

/// All kinds of work that a loop itself holds. The pattern names every field of [`Work`], so that a
/// new field does not compile until it is here.
fn local_kinds(work: &Work) -> [(bool, Kind); 4] {
    let Work { ready, this_turn_callbacks, next_turn_callbacks, due_timers } = *work;
    let local = |name, make| Kind { name, make, keeps_awake: MayPark::LocalWork };
    [
        (ready, local("a ready task", spawn_within)),
        (this_turn_callbacks, local("a this-turn callback", |this| this.run_this_turn(|| ()))),
        (next_turn_callbacks, local("a next-turn callback", |this| this.run_next_turn(|| ()))),
        (due_timers, local("a due timer", start_timer_that_is_due)),
    ]
}

/// The kinds of work that other threads hold for the loop.
fn remote_kinds() -> [Kind; 5] {
    let remote = |name, make| Kind { name, make, keeps_awake: MayPark::RemoteWork };
    [
        remote("a closure of another thread", |this| {
            let handle = this.handle();
            thread::spawn(move || handle.post(|| ()).unwrap()).join().unwrap();
        }),
        remote("a closure of its own thread, sent between turns", |this| {
            this.handle().post(|| ()).unwrap();
        }),
        remote("a task, spawned between turns", |this| this.spawn(async {}).detach()),
        remote("a wake without work", |this| this.handle().wake()),
        remote("a request to stop", |this| this.handle().stop()),
    ]
}

fn spawn_within(this: &EventLoop) {
    let _entered = current::enter(&this.inner);
    this.inner.spawn(Priority::Normal, async {}).detach();
}

fn start_timer_that_is_due(this: &EventLoop) {
    let _entered = current::enter(&this.inner);
    let waker = std::task::Waker::noop().clone();
    this.inner.timers.borrow_mut().insert(TimerTime::default(), waker);
}

fn may_park(this: &EventLoop) -> MayPark {
    let _entered = current::enter(&this.inner);
    let answer = this.inner.may_park();
    if answer == MayPark::Yes {
        this.inner.take_remote(); // Awake again.
    }
    answer
}

#[test]
fn each_kind_of_work_alone_keeps_the_loop_awake() {
    let idle = EventLoop::new().unwrap();
    assert_eq!(may_park(&idle), MayPark::Yes);
    let kinds = local_kinds(&idle.inner.work());
    for (number, (is_there, kind)) in kinds.into_iter().enumerate() {
        assert!(!is_there, "{}: an idle loop has none", kind.name);
        let event_loop = EventLoop::new().unwrap();
        (kind.make)(&event_loop);
        let there = local_kinds(&event_loop.inner.work()).map(|(is_there, _)| is_there);
        assert_eq!(there.iter().filter(|there| **there).count(), 1, "{} alone", kind.name);
        assert!(there[number], "{}", kind.name);
        check(event_loop, &kind);
    }
    for kind in remote_kinds() {
        let event_loop = EventLoop::new().unwrap();
        (kind.make)(&event_loop);
        assert!(!event_loop.inner.work().any(), "{}", kind.name);
        check(event_loop, &kind);
    }
}

/// Checks that the predicate says no, that a turn without a limit then returns without a park, and
/// that the loop may sleep afterwards.
fn check(mut event_loop: EventLoop, kind: &Kind) {
    for _ in 0..3 {
        assert_eq!(may_park(&event_loop), kind.keeps_awake, "{}", kind.name);
    }
    assert!(!event_loop.prepare_to_park().unwrap(), "{}", kind.name);
    event_loop.turn(None).unwrap();
    assert_eq!(event_loop.handle().metrics().parks, 0, "{}", kind.name);
    assert_eq!(may_park(&event_loop), MayPark::Yes, "{} is done", kind.name);
}

#[test]
fn a_timer_that_is_not_due_and_an_idle_task_let_the_loop_sleep() {
    let mut event_loop = EventLoop::new().unwrap();
    let far = event_loop.spawn(crate::time::sleep(Duration::from_secs(3600)));
    let never = event_loop.spawn(std::future::pending::<()>());
    let ran = Rc::new(Cell::new(0));
    let hook = event_loop.after_turn({
        let ran = ran.clone();
        move || ran.set(ran.get() + 1)
    });
    event_loop.turn(Some(Duration::ZERO)).unwrap();
    assert_eq!(ran.get(), 1);
    assert_eq!(may_park(&event_loop), MayPark::Yes);
    assert!(!far.is_finished() && !never.is_finished());
    drop(hook);
}
