//! Work without a task: where in a turn it runs, its bounds, its hooks.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use wakeful::{EventLoop, run_next_turn, run_this_turn, spawn};

use crate::backend::Backend;
use crate::backend::driven::Driven;
use crate::background::LONG;

on_every_backend! {
    the_phases_of_a_turn_come_in_their_order,
    this_turn_s_callbacks_run_in_this_turn_also_those_that_they_queue,
    a_callback_that_queues_itself_for_ever_is_bounded_and_the_loop_stays_awake,
    next_turn_s_callbacks_run_once_per_turn,
    many_responses_of_a_turn_are_flushed_once,
    a_hook_runs_until_it_is_dropped_also_by_itself,
    a_hook_may_drop_another_hook_before_it_runs,
    a_hook_that_takes_the_place_of_a_dropped_one_waits_for_its_turn,
    before_park_runs_before_a_wait_and_not_in_a_busy_turn,
    panics_are_contained_and_counted,
    callbacks_reach_the_loop_that_runs_them,
}

type Log = Rc<RefCell<Vec<&'static str>>>;

fn one_turn(event_loop: &mut EventLoop) {
    event_loop.take_turn(Some(Duration::ZERO)).unwrap();
}

fn the_phases_of_a_turn_come_in_their_order<B: Backend>() {
    let mut event_loop = B::event_loop();
    let log = Log::default();
    let note = |text: &'static str| {
        let log = log.clone();
        move || log.borrow_mut().push(text)
    };
    let after = event_loop.after_turn(note("after turn"));
    event_loop.run_this_turn(note("this turn"));
    let task = note("task");
    event_loop.spawn(async move { task() }).detach();
    event_loop.run_next_turn(note("next turn"));
    one_turn(&mut event_loop);
    assert_eq!(*log.borrow(), ["next turn", "task", "this turn", "after turn"]);
    drop(after);
}

fn this_turn_s_callbacks_run_in_this_turn_also_those_that_they_queue<B: Backend>() {
    let mut event_loop = B::unhurried();
    let depth = Rc::new(Cell::new(0));
    fn deeper(depth: Rc<Cell<u32>>) {
        depth.set(depth.get() + 1);
        if depth.get() < 100 {
            run_this_turn(move || deeper(depth));
        }
    }
    let start = depth.clone();
    event_loop.spawn(async move { run_this_turn(move || deeper(start)) }).detach();
    one_turn(&mut event_loop);
    assert_eq!(depth.get(), 100);
}

fn a_callback_that_queues_itself_for_ever_is_bounded_and_the_loop_stays_awake<B: Backend>() {
    let mut event_loop = B::builder().callback_budget(10).turn_budget(LONG).build().unwrap();
    let ran = Rc::new(Cell::new(0));
    fn again(ran: Rc<Cell<u32>>) {
        ran.set(ran.get() + 1);
        run_this_turn(move || again(ran));
    }
    let first = ran.clone();
    event_loop.run_this_turn(move || again(first));
    one_turn(&mut event_loop);
    assert_eq!(ran.get(), 10);
    event_loop.take_turn(Some(Duration::from_secs(60))).unwrap();
    assert_eq!(ran.get(), 20);
    assert_eq!(event_loop.handle().metrics().parks, 0);
}

fn next_turn_s_callbacks_run_once_per_turn<B: Backend>() {
    let mut event_loop = B::event_loop();
    let ran = Rc::new(Cell::new(0));
    fn again(ran: Rc<Cell<u32>>) {
        ran.set(ran.get() + 1);
        run_next_turn(move || again(ran));
    }
    let first = ran.clone();
    event_loop.run_next_turn(move || again(first));
    for turn in 1..=5 {
        event_loop.take_turn(Some(Duration::from_secs(60))).unwrap();
        assert_eq!(ran.get(), turn);
    }
}

fn many_responses_of_a_turn_are_flushed_once<B: Backend>() {
    let mut event_loop = B::unhurried();
    let (queued, flushes) = (Rc::new(RefCell::new(Vec::new())), Rc::new(RefCell::new(Vec::new())));
    for response in 0..50 {
        let (queued, flushes) = (queued.clone(), flushes.clone());
        event_loop
            .spawn(async move {
                queued.borrow_mut().push(response);
                if queued.borrow().len() == 1 {
                    run_this_turn(move || flushes.borrow_mut().push(queued.take().len()));
                }
            })
            .detach();
    }
    one_turn(&mut event_loop);
    assert_eq!(*flushes.borrow(), [50]);
}

fn a_hook_runs_until_it_is_dropped_also_by_itself<B: Backend>() {
    let mut event_loop = B::event_loop();
    let ran = Rc::new(Cell::new(0));
    let count = |ran: &Rc<Cell<u32>>| {
        let ran = ran.clone();
        move || ran.set(ran.get() + 1)
    };
    let hook = event_loop.after_turn(count(&ran));
    one_turn(&mut event_loop);
    one_turn(&mut event_loop);
    assert_eq!(ran.get(), 2);
    drop(hook);
    one_turn(&mut event_loop);
    assert_eq!(ran.get(), 2);

    let own: Rc<RefCell<Option<wakeful::Hook>>> = Rc::default();
    let (inner, counted) = (own.clone(), ran.clone());
    *own.borrow_mut() = Some(event_loop.after_turn(move || {
        counted.set(counted.get() + 1);
        drop(inner.borrow_mut().take());
    }));
    one_turn(&mut event_loop);
    one_turn(&mut event_loop);
    assert_eq!(ran.get(), 3);
}

fn a_hook_may_drop_another_hook_before_it_runs<B: Backend>() {
    let mut event_loop = B::event_loop();
    let second: Rc<RefCell<Option<wakeful::Hook>>> = Rc::default();
    let victim = second.clone();
    let first = event_loop.after_turn(move || drop(victim.borrow_mut().take()));
    let ran = Rc::new(Cell::new(false));
    let mark = ran.clone();
    *second.borrow_mut() = Some(event_loop.after_turn(move || mark.set(true)));
    one_turn(&mut event_loop);
    assert!(!ran.get());
    drop(first);
}

fn a_hook_that_takes_the_place_of_a_dropped_one_waits_for_its_turn<B: Backend>() {
    let mut event_loop = B::event_loop();
    let second: Rc<RefCell<Option<wakeful::Hook>>> = Rc::default();
    let ran = Rc::new(Cell::new(0));
    let (place, mark, replaced) = (second.clone(), ran.clone(), Cell::new(false));
    let first = event_loop.after_turn(move || {
        if !replaced.replace(true) {
            drop(place.borrow_mut().take());
            let mark = mark.clone();
            let replacement = wakeful::after_turn(move || mark.set(mark.get() + 1));
            *place.borrow_mut() = Some(replacement);
        }
    });
    *second.borrow_mut() = Some(event_loop.after_turn(|| unreachable!("it is dropped")));
    one_turn(&mut event_loop);
    assert_eq!(ran.get(), 0);
    one_turn(&mut event_loop);
    assert_eq!(ran.get(), 1);
    drop((first, second));
}

fn before_park_runs_before_a_wait_and_not_in_a_busy_turn<B: Backend>() {
    let mut event_loop = B::event_loop();
    let ran = Rc::new(Cell::new(0));
    let mark = ran.clone();
    let hook = event_loop.before_park(move || mark.set(mark.get() + 1));
    event_loop.run_next_turn(|| ());
    event_loop.take_turn(Some(Duration::from_micros(1))).unwrap();
    assert_eq!(ran.get(), 0);
    event_loop.take_turn(Some(Duration::from_micros(1))).unwrap();
    assert_eq!(ran.get(), 1);
    drop(hook);
}

fn panics_are_contained_and_counted<B: Backend>() {
    let mut event_loop = B::event_loop();
    event_loop.run_this_turn(|| panic!("on purpose"));
    event_loop.run_next_turn(|| panic!("on purpose"));
    let hook = event_loop.after_turn(|| panic!("on purpose"));
    let ran = Rc::new(Cell::new(false));
    let mark = ran.clone();
    event_loop.run_this_turn(move || mark.set(true));
    one_turn(&mut event_loop);
    assert!(ran.get());
    assert_eq!(event_loop.handle().metrics().panics, 3);
    assert_eq!(event_loop.handle().metrics().callbacks, 4);
    drop(hook);
}

fn callbacks_reach_the_loop_that_runs_them<B: Backend>() {
    B::block_on(async {
        let (send, receive) = async_channel::bounded(1);
        run_this_turn(move || {
            spawn(async move { send.send(42).await.unwrap() }).detach();
        });
        assert_eq!(receive.recv().await.unwrap(), 42);
    });
}
