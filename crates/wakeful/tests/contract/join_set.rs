//! Sets of tasks: joined as they finish, aborted together.

use std::cell::{Cell, RefCell};
use std::future::{Future, pending, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use wakeful::task::{JoinSet, yield_now};
use wakeful::time::sleep;
use wakeful::{Priority, spawn, spawn_with};

use crate::backend::Backend;
use crate::background::LONG;
use crate::support::{is_pending, soon};

on_every_backend! {
    a_set_returns_its_tasks_in_the_order_in_which_they_finish,
    a_set_s_wait_may_be_given_up_and_loses_no_task,
    panics_and_aborts_are_returned_with_their_ids,
    a_dropped_set_aborts_its_tasks_wherever_it_is_dropped,
    shutdown_of_a_set_waits_until_its_futures_are_dropped,
    what_a_set_has_detached_goes_on_and_is_not_taken_for_another_task,
    a_set_of_several_loops_loses_no_task,
    a_set_is_told_of_the_end_of_its_loop,
    blocking_work_of_a_set_is_joined_and_leaves_its_queue_when_it_is_aborted,
    an_empty_set_that_is_asked_again_and_again_lets_others_run,
    joining_costs_the_same_for_each_task_however_many_there_are,
    panics_in_outputs_and_wakers_reach_no_other_task_of_a_set,
    outputs_that_join_all_gives_up_may_panic_in_their_drops,
    a_handle_whose_output_was_taken_is_refused_by_a_set_which_goes_on,
}

fn a_set_returns_its_tasks_in_the_order_in_which_they_finish<B: Backend>() {
    B::block_on(async {
        let mut set = JoinSet::new();
        assert!(set.join_next().await.is_none() && set.try_join_next().is_none());
        let (open, gate) = async_channel::bounded::<()>(1);
        set.spawn(async move {
            let _ = gate.recv().await;
            "last"
        });
        set.spawn(async {
            yield_now().await;
            "second"
        });
        set.spawn(async { "first" });
        set.insert(spawn_with(Priority::High, async { "high" }));
        assert_eq!((set.len(), set.try_join_next().is_none()), (4, true));
        for expected in ["high", "first", "second"] {
            assert_eq!(set.join_next().await.unwrap().unwrap(), expected);
        }
        assert_eq!(set.len(), 1);
        drop(open);
        assert_eq!(set.join_next().await.unwrap().unwrap(), "last");
        assert!(set.is_empty());

        // What has finished before it came into the set is in it, too.
        let early = spawn(async { "early" });
        yield_now().await;
        assert!(early.is_finished());
        set.insert(early);
        assert_eq!(set.try_join_next().unwrap().unwrap(), "early");
        assert_eq!(
            (0..10).map(|n| async move { n }).collect::<JoinSet<_>>().join_all().await.len(),
            10
        );
    });
}

fn a_set_s_wait_may_be_given_up_and_loses_no_task<B: Backend>() {
    B::block_on(async {
        let mut set = JoinSet::new();
        for number in 0..100 {
            set.spawn(async move {
                for _ in 0..number % 7 {
                    yield_now().await;
                }
                number
            });
        }
        let mut numbers = Vec::new();
        while !set.is_empty() {
            let mut given_up = true;
            {
                let mut next = pin!(set.join_next());
                poll_fn(|cx| {
                    if let Poll::Ready(next) = next.as_mut().poll(cx) {
                        numbers.push(next.unwrap().unwrap());
                        given_up = false;
                    }
                    Poll::Ready(())
                })
                .await;
            }
            if given_up {
                yield_now().await;
            }
        }
        numbers.sort_unstable();
        assert!(numbers.into_iter().eq(0..100));
        // Whoever waits is woken by a task that finishes later.
        set.spawn(async {
            sleep(Duration::from_millis(1)).await;
            7
        });
        assert_eq!(soon(set.join_next()).await.unwrap().unwrap(), 7);
    });
}

fn panics_and_aborts_are_returned_with_their_ids<B: Backend>() {
    B::block_on(async {
        let mut set = JoinSet::new();
        let panics = set.spawn(async { panic!("on purpose") });
        let (_, outcome) =
            set.join_next_with_id().await.filter(|(id, _)| *id == panics.id()).unwrap();
        assert!(outcome.unwrap_err().is_panic() && panics.is_finished());
        let aborted = set.spawn(pending::<u32>());
        let returns = set.spawn(async { 7 });
        aborted.abort();
        let mut outcomes = Vec::new();
        while let Some((id, outcome)) = set.join_next_with_id().await {
            outcomes.push((id, outcome.ok()));
        }
        outcomes.sort_by_key(|(_, output)| *output);
        assert_eq!(outcomes, [(aborted.id(), None), (returns.id(), Some(7))]);

        let mut set: JoinSet<()> = JoinSet::new();
        let other = Rc::new(());
        let held = other.clone();
        set.spawn(async move {
            let _held = held;
            pending::<()>().await;
        });
        set.spawn(async { panic!("of a task") });
        let all = spawn(set.join_all()).await.unwrap_err();
        assert_eq!(all.to_string(), "the task panicked: of a task");
        yield_now().await;
        assert_eq!(Rc::strong_count(&other), 1, "the others are aborted");
    });
}

fn a_dropped_set_aborts_its_tasks_wherever_it_is_dropped<B: Backend>() {
    for elsewhere in [false, true] {
        B::block_on(async {
            let dropped_on = Arc::new(std::sync::Mutex::new(Vec::new()));
            struct Notes(Arc<std::sync::Mutex<Vec<thread::ThreadId>>>);
            impl Drop for Notes {
                fn drop(&mut self) {
                    self.0.lock().unwrap().push(thread::current().id());
                }
            }
            let mut set = JoinSet::new();
            for _ in 0..3 {
                let notes = Notes(dropped_on.clone());
                set.spawn(async move {
                    let _notes = notes;
                    pending::<()>().await;
                });
            }
            // One has finished, and one has not begun.
            set.spawn(async {});
            yield_now().await;
            set.spawn(pending());
            if elsewhere {
                thread::spawn(move || drop(set)).join().unwrap();
            } else {
                drop(set);
            }
            while dropped_on.lock().unwrap().len() < 3 {
                yield_now().await;
            }
            assert_eq!(*dropped_on.lock().unwrap(), [thread::current().id(); 3]);
        });
    }
}

fn shutdown_of_a_set_waits_until_its_futures_are_dropped<B: Backend>() {
    B::block_on(async {
        let mut set = JoinSet::new();
        let held = Rc::new(());
        for number in 0..10 {
            let held = held.clone();
            set.spawn(async move {
                let _held = held;
                if number % 2 == 0 {
                    pending::<()>().await;
                }
                assert_ne!(number, 3, "on purpose");
            });
        }
        yield_now().await;
        soon(set.shutdown()).await;
        assert_eq!((set.len(), Rc::strong_count(&held)), (0, 1));
        // It is as good as new.
        set.spawn(async {});
        soon(set.join_next()).await.unwrap().unwrap();
        soon(set.shutdown()).await;
    });
}

fn what_a_set_has_detached_goes_on_and_is_not_taken_for_another_task<B: Backend>() {
    B::block_on(async {
        let (open, gate) = async_channel::bounded::<()>(1);
        let ended = Rc::new(Cell::new(0));
        let set = Rc::new(RefCell::new(JoinSet::new()));
        for waits in [true, true, false] {
            let (gate, ended) = (gate.clone(), ended.clone());
            set.borrow_mut().spawn(async move {
                if waits {
                    let _ = gate.recv().await;
                }
                ended.set(ended.get() + 1);
                "detached"
            });
        }
        yield_now().await;
        let first = poll_fn(|cx| set.borrow_mut().poll_join_next(cx)).await;
        assert_eq!(first.unwrap().unwrap(), "detached");
        // Somebody waits for the set, which becomes empty.
        let waiting = spawn({
            let set = set.clone();
            async move { poll_fn(|cx| set.borrow_mut().poll_join_next(cx)).await.is_none() }
        });
        yield_now().await;
        set.borrow_mut().detach_all();
        assert!(soon(waiting).await.unwrap());
        set.borrow_mut().spawn(pending());
        drop(open);
        while ended.get() < 3 {
            yield_now().await;
        }
        yield_now().await;
        assert!(set.borrow_mut().try_join_next().is_none(), "it is none of the new one");
        assert_eq!(set.borrow().len(), 1);
    });
}

fn a_set_of_several_loops_loses_no_task<B: Backend>() {
    const TASKS: u64 = 300;
    let group = B::group().loops(3).build().unwrap();
    let mut set = JoinSet::new();
    for number in 0..TASKS {
        let handle = &group.handles()[number as usize % 3];
        let spawned = handle.spawn(move || async move {
            for _ in 0..number % 5 {
                yield_now().await;
            }
            number
        });
        set.insert(spawned.unwrap());
    }
    // Joined on a thread without a loop, in part, and then on a loop.
    let (mut sum, mut joined) = (0, 0);
    while joined < TASKS / 2 {
        sum += futures_lite::future::block_on(set.join_next()).unwrap().unwrap();
        joined += 1;
    }
    sum += B::block_on(set.join_all()).into_iter().sum::<u64>();
    assert_eq!(sum, TASKS * (TASKS - 1) / 2);
    group.shutdown(LONG).unwrap();
}

fn a_set_is_told_of_the_end_of_its_loop<B: Backend>() {
    let mut event_loop = B::event_loop();
    let mut set = JoinSet::new();
    event_loop
        .block_on(async {
            set.spawn(pending::<()>());
            yield_now().await;
            set.spawn(pending());
        })
        .unwrap();
    let (asleep, is_asleep) = mpsc::channel();
    let waiting = thread::spawn(move || {
        futures_lite::future::block_on(async {
            let first = {
                let mut next = pin!(set.join_next());
                poll_fn(|cx| {
                    let polled = next.as_mut().poll(cx);
                    let _ = asleep.send(polled.is_pending());
                    polled
                })
                .await
            };
            [first.unwrap(), set.join_next().await.unwrap()]
        })
    });
    assert!(is_asleep.recv().unwrap());
    drop(event_loop);
    for outcome in waiting.join().unwrap() {
        assert!(outcome.unwrap_err().is_cancelled());
    }
}

fn blocking_work_of_a_set_is_joined_and_leaves_its_queue_when_it_is_aborted<B: Backend>() {
    B::block_on(async {
        let mut set = JoinSet::new();
        set.spawn_blocking(|| 42);
        assert_eq!(soon(set.join_next()).await.unwrap().unwrap(), 42);
        set.spawn_blocking(|| panic!("blocked"));
        let error = soon(set.join_next()).await.unwrap().unwrap_err();
        assert_eq!(error.to_string(), "the task panicked: blocked");
        // It has begun, so it continues for itself.
        let (begun, has_begun) = async_channel::bounded(1);
        let (end, may_end) = mpsc::channel();
        let ended = Arc::new(AtomicBool::new(false));
        let mark = ended.clone();
        set.spawn_blocking(move || {
            begun.try_send(()).unwrap();
            may_end.recv().unwrap();
            mark.store(true, Ordering::Release);
            0
        });
        has_begun.recv().await.unwrap();
        set.abort_all();
        assert!(soon(set.join_next()).await.unwrap().unwrap_err().is_cancelled());
        end.send(()).unwrap();
        while !ended.load(Ordering::Acquire) {
            yield_now().await;
        }
    });
}

fn an_empty_set_that_is_asked_again_and_again_lets_others_run<B: Backend>() {
    B::block_on(async {
        let stop = Rc::new(Cell::new(false));
        let stopped = stop.clone();
        let asks = spawn(async move {
            let mut set = JoinSet::<()>::new();
            while !stopped.get() {
                assert!(set.join_next().await.is_none());
            }
        });
        spawn(async move { stop.set(true) }).await.unwrap();
        asks.await.unwrap();
    });
}

/// Counted by polls: a set that asks all its tasks, or is woken for each, would have more.
fn joining_costs_the_same_for_each_task_however_many_there_are<B: Backend>() {
    let polls_with = |tasks: u64| {
        let mut event_loop = B::unhurried();
        let handle = event_loop.handle();
        event_loop
            .block_on(async {
                let (open, gate) = async_channel::bounded::<()>(1);
                let mut set = JoinSet::new();
                for _ in 0..tasks {
                    let gate = gate.clone();
                    set.spawn(async move { gate.recv().await.is_err() });
                }
                yield_now().await;
                let joins = spawn(async move {
                    while let Some(joined) = set.join_next().await {
                        assert!(joined.unwrap());
                    }
                });
                yield_now().await;
                let before = handle.metrics().polls;
                drop(open);
                joins.await.unwrap();
                handle.metrics().polls - before
            })
            .unwrap()
    };
    // Each task has one poll. The joining one has one for each 128 that it joins, and a few more.
    for tasks in [10, 1_000] {
        let polls = polls_with(tasks);
        assert!(polls <= tasks + tasks / 64 + 4, "{polls} polls for {tasks} tasks");
    }
}

fn panics_in_outputs_and_wakers_reach_no_other_task_of_a_set<B: Backend>() {
    struct Panics;
    impl Drop for Panics {
        fn drop(&mut self) {
            panic!("an output whose drop panics, on purpose");
        }
    }
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            std::mem::forget(self);
            panic!("a waker that panics, on purpose");
        }
    }
    B::block_on(async {
        let mut set = JoinSet::new();
        let waker: Waker = Arc::new(Panics).into();
        set.spawn(async { Some(Panics) });
        set.spawn(async { None });
        assert!(set.poll_join_next(&mut Context::from_waker(&waker)).is_pending());
        std::mem::forget(waker);
        yield_now().await;
        let output = set.join_next().await.unwrap().unwrap();
        std::mem::forget(output);
        assert!(set.join_next().await.unwrap().unwrap().is_none());
        set.spawn(async { Some(Panics) });
        set.spawn(async { Some(Panics) });
        yield_now().await;
        drop(set);
        let mut set = JoinSet::new();
        set.spawn(async { Panics });
        set.spawn(async { Panics });
        yield_now().await;
        soon(set.shutdown()).await;
        set.spawn(pending());
        assert!(is_pending(set.join_next()).await);
    });
}

fn outputs_that_join_all_gives_up_may_panic_in_their_drops<B: Backend>() {
    struct Panics(Rc<Cell<u32>>);
    impl Drop for Panics {
        fn drop(&mut self) {
            self.0.set(self.0.get() + 1);
            panic!("an output whose drop panics, on purpose");
        }
    }
    B::block_on(async {
        let dropped = Rc::new(Cell::new(0));
        let two = || -> JoinSet<Panics> {
            (0..2).map(|_| std::future::ready(Panics(dropped.clone()))).collect()
        };
        // Because a task panics: while that unwinds.
        let mut set = two();
        set.spawn(async {
            yield_now().await;
            panic!("the task's own, on purpose")
        });
        let error = spawn(async { set.join_all().await.len() }).await.unwrap_err();
        assert!(error.to_string().contains("the task's own"), "{error}");
        assert_eq!(dropped.get(), 2);
        // Because nobody waits any more.
        let mut set = two();
        set.spawn(pending());
        let mut all = Box::pin(set.join_all());
        yield_now().await;
        assert!(is_pending(&mut all).await);
        drop(all);
        assert_eq!(dropped.get(), 4);
    });
}

fn a_handle_whose_output_was_taken_is_refused_by_a_set_which_goes_on<B: Backend>() {
    B::block_on(async {
        let mut set = JoinSet::new();
        set.spawn(async { 1 });
        let mut taken = spawn(async { 2 });
        assert_eq!((&mut taken).await.unwrap(), 2);
        let refused = catch_unwind(AssertUnwindSafe(|| set.insert(taken))).unwrap_err();
        let message = refused.downcast_ref::<&str>().unwrap();
        assert!(message.contains("JoinSet::insert"), "{message}");
        // One that was awaited in vain still has its output.
        let mut awaited = spawn(async {
            yield_now().await;
            3
        });
        let polled = poll_fn(|cx| Poll::Ready(Pin::new(&mut awaited).poll(cx))).await;
        assert!(polled.is_pending());
        set.insert(awaited);
        let mut outputs = soon(set.join_all()).await;
        outputs.sort_unstable();
        assert_eq!(outputs, [1, 3]);
    });
}
