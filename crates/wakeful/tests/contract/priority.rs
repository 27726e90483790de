//! Priority: what is high runs within a turn, however much is normal, and leaves the normal its
//! share.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use wakeful::task::yield_now;
use wakeful::{EventLoop, Priority, spawn, spawn_with};

use crate::backend::Backend;
use crate::backend::driven::Driven;
use crate::background::LONG;

on_every_backend! {
    a_high_task_runs_within_one_turn_of_a_flood_of_normal_ones,
    a_high_task_that_becomes_ready_during_a_turn_runs_in_it,
    high_tasks_that_never_end_leave_normal_ones_half_of_each_turn,
    high_tasks_leave_normal_ones_a_step_of_a_turn_without_time,
    high_tasks_have_the_whole_turn_where_nothing_is_normal,
    each_class_keeps_its_order,
    a_high_task_alone_keeps_the_loop_awake_and_is_dropped_at_its_end,
}

/// Nothing here is left over by time.
fn patient<B: Backend>(task_budget: u32) -> EventLoop {
    B::builder().task_budget(task_budget).turn_budget(LONG).build().unwrap()
}

fn turn(event_loop: &mut EventLoop) {
    event_loop.take_turn(Some(Duration::ZERO)).unwrap();
}

/// Counts its polls, and is always ready.
fn greedy(event_loop: &EventLoop, priority: Priority) -> Rc<Cell<u32>> {
    let polls = Rc::new(Cell::new(0));
    let counted = polls.clone();
    let task = std::future::poll_fn(move |cx| {
        counted.set(counted.get() + 1);
        cx.waker().wake_by_ref();
        Poll::<()>::Pending
    });
    event_loop.spawn_with(priority, task).detach();
    polls
}

/// Ten thousand normal tasks that are always ready: a normal one would wait for 157 turns.
fn flood(event_loop: &EventLoop) -> Rc<Cell<u32>> {
    let polls = Rc::new(Cell::new(0));
    for _ in 0..10_000 {
        let counted = polls.clone();
        let task = async move {
            loop {
                counted.set(counted.get() + 1);
                yield_now().await;
            }
        };
        event_loop.spawn(task).detach();
    }
    polls
}

/// However it became ready: spawned here or by a handle, sent as a closure, woken by a timer, here
/// or by another thread.
fn a_high_task_runs_within_one_turn_of_a_flood_of_normal_ones<B: Backend>() {
    let mut event_loop = patient::<B>(64);
    let handle = event_loop.handle();
    let normal = flood(&event_loop);
    // Receivers first, so that they wait when something comes.
    let (send, receive) = async_channel::unbounded::<u32>();
    let received = Rc::new(Cell::new(0));
    let counted = received.clone();
    let waiting = async move {
        while let Ok(number) = receive.recv().await {
            counted.set(number);
        }
    };
    event_loop.spawn_with(Priority::High, waiting).detach();
    turn(&mut event_loop);

    for round in 1..=20 {
        let due = Instant::now() + Duration::from_micros(100);
        let timer = event_loop.spawn_with(Priority::High, wakeful::time::sleep_until(due));
        turn(&mut event_loop);
        while Instant::now() < due {}
        let before = normal.get();
        let spawned = event_loop.spawn_with(Priority::High, async {});
        let (mut remote, mut closure) = (None, None);
        thread::scope(|scope| {
            scope.spawn(|| {
                remote = Some(handle.spawn_with(Priority::High, || async {}).unwrap());
                let (done, is_done) = std::sync::mpsc::channel();
                handle.post_with(Priority::High, move || done.send(()).unwrap()).unwrap();
                closure = Some(is_done);
                send.try_send(round).unwrap();
            });
        });
        turn(&mut event_loop);
        assert!(spawned.is_finished() && timer.is_finished());
        assert!(remote.unwrap().is_finished(), "spawned by another thread");
        assert_eq!(closure.unwrap().try_recv(), Ok(()), "sent by another thread");
        assert_eq!(received.get(), round, "woken by another thread");
        let meanwhile = normal.get() - before;
        assert!((1..64).contains(&meanwhile), "{meanwhile} of the flood");
    }
}

/// What a normal task wakes does not wait for the rest of the turn.
fn a_high_task_that_becomes_ready_during_a_turn_runs_in_it<B: Backend>() {
    let mut event_loop = patient::<B>(64);
    let normal = flood(&event_loop);
    turn(&mut event_loop);
    let seen_at = Rc::new(Cell::new(None));
    let (seen, counted) = (seen_at.clone(), normal.clone());
    event_loop.run_next_turn(move || {
        // Runs among the normal ones, in front of which the flood stands.
        spawn(async move {
            let spawned_at = counted.get();
            spawn_with(Priority::High, async move { seen.set(Some(counted.get() - spawned_at)) })
                .detach();
        })
        .detach();
    });
    while seen_at.get().is_none() {
        turn(&mut event_loop);
    }
    assert_eq!(seen_at.get(), Some(0), "polls of the flood in between");
}

fn high_tasks_that_never_end_leave_normal_ones_half_of_each_turn<B: Backend>() {
    for budget in [2, 3, 7, 8, 64, 100] {
        let mut event_loop = patient::<B>(budget);
        let normal = greedy(&event_loop, Priority::Normal);
        let high: Vec<_> = (0..10).map(|_| greedy(&event_loop, Priority::High)).collect();
        for turns in 1..=20 {
            turn(&mut event_loop);
            assert_eq!(normal.get(), turns * (budget / 2), "of {budget}");
            let high: u32 = high.iter().map(|polls| polls.get()).sum();
            assert_eq!(high, turns * budget.div_ceil(2), "of {budget}");
        }
    }
}

/// A turn that has used up its time runs eight at least: seven high ones, and a normal one.
fn high_tasks_leave_normal_ones_a_step_of_a_turn_without_time<B: Backend>() {
    let mut event_loop = B::builder().turn_budget(Duration::ZERO).build().unwrap();
    let normal = greedy(&event_loop, Priority::Normal);
    let high = greedy(&event_loop, Priority::High);
    for turns in 1..=20 {
        turn(&mut event_loop);
        assert_eq!((high.get(), normal.get()), (7 * turns, turns));
    }
}

fn high_tasks_have_the_whole_turn_where_nothing_is_normal<B: Backend>() {
    let mut event_loop = patient::<B>(64);
    let high = greedy(&event_loop, Priority::High);
    turn(&mut event_loop);
    assert_eq!(high.get(), 64);
}

fn each_class_keeps_its_order<B: Backend>() {
    let mut event_loop = patient::<B>(64);
    let log: Rc<RefCell<Vec<(Priority, u32)>>> = Rc::default();
    for number in 0..10 {
        for priority in [Priority::Normal, Priority::High] {
            let log = log.clone();
            let task = async move { log.borrow_mut().push((priority, number)) };
            event_loop.spawn_with(priority, task).detach();
        }
    }
    turn(&mut event_loop);
    let log = log.take();
    for class in [Priority::Normal, Priority::High] {
        let numbers: Vec<_> =
            log.iter().filter(|(of, _)| *of == class).map(|(_, number)| *number).collect();
        assert_eq!(numbers, Vec::from_iter(0..10), "{class:?}: {log:?}");
    }
    assert!(log[..7].iter().all(|(class, _)| *class == Priority::High), "{log:?}");
    // The eighth is a normal one, and then the high ones are done.
    assert_eq!(log[7], (Priority::Normal, 0));
    assert!(log[11..].iter().all(|(class, _)| *class == Priority::Normal), "{log:?}");
}

fn a_high_task_alone_keeps_the_loop_awake_and_is_dropped_at_its_end<B: Backend>() {
    let mut event_loop = B::event_loop();
    let held = Rc::new(());
    let (theirs, never_run) = (held.clone(), held.clone());
    let task = async move {
        let _held = theirs;
        for _ in 0..100 {
            yield_now().await;
        }
        std::future::pending::<()>().await;
    };
    event_loop.spawn_with(Priority::High, task).detach();
    while event_loop.handle().metrics().polls < 101 {
        // It would wait for ever.
        event_loop.take_turn(None).unwrap();
    }
    assert_eq!(event_loop.handle().metrics().parks, 0);
    event_loop.handle().post_with(Priority::High, || ()).unwrap();
    event_loop.spawn_with(Priority::High, async move { drop(never_run) }).detach();
    assert!(!event_loop.asks_to_park().unwrap());
    drop(event_loop);
    assert_eq!(Rc::strong_count(&held), 1);
}
