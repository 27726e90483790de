//! Scopes: tasks that end together, as one future.

use std::cell::{Cell, RefCell};
use std::future::{Future, pending, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Wake};
use std::thread;
use std::time::Duration;

use wakeful::task::{Builder, Scope, Spawner, consume_budget, id, yield_now};
use wakeful::time::{sleep, timeout};
use wakeful::{EventLoop, Priority, spawn};

use crate::backend::Backend;
use crate::support::{is_pending, soon};

on_every_backend! {
    a_scope_ends_with_the_last_of_its_tasks_and_of_those_that_they_spawn,
    a_scope_s_tasks_are_tasks_of_the_loop,
    a_scope_s_await_may_be_given_up_and_taken_up_again,
    a_panic_in_a_task_of_a_scope_goes_to_its_handle_and_to_no_other_task,
    a_dropped_scope_cancels_its_tasks_and_what_they_would_spawn,
    a_scope_may_be_dropped_by_one_of_its_own_tasks,
    shutdown_of_a_scope_waits_until_its_futures_are_dropped,
    a_task_of_a_scope_is_aborted_from_another_thread,
    a_scope_does_not_outlive_its_loop_s_tasks,
    panics_in_wakers_and_drops_leave_a_scope_usable,
    an_empty_scope_that_is_asked_again_and_again_lets_others_run,
    a_scope_that_lives_long_keeps_nothing_of_what_has_ended,
}

/// Notes how many of these were dropped.
struct Dropped(Rc<Cell<usize>>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.set(self.0.get() + 1);
    }
}

async fn holds_for_ever(_held: Dropped) {
    pending::<()>().await;
}

fn a_scope_ends_with_the_last_of_its_tasks_and_of_those_that_they_spawn<B: Backend>() {
    fn tree(scope: &Spawner, depth: u32, leaves: &Rc<Cell<u32>>) {
        for _ in 0..2 {
            let (spawner, leaves) = (scope.clone(), leaves.clone());
            let branch = async move {
                if depth == 0 {
                    sleep(Duration::from_micros(100)).await;
                    leaves.set(leaves.get() + 1);
                } else {
                    tree(&spawner, depth - 1, &leaves);
                }
            };
            scope.spawn(branch).detach();
        }
    }
    B::block_on(async {
        let leaves = Rc::new(Cell::new(0));
        let mut scope = Scope::new();
        soon(&mut scope).await;
        tree(scope.spawner(), 6, &leaves);
        // Outputs of any type, each by its handle.
        let (text, number) = (scope.spawn(async { "text" }), scope.spawn(async { 7 }));
        soon(&mut scope).await;
        assert_eq!((leaves.get(), scope.len()), (128, 0));
        assert_eq!((text.await.unwrap(), number.await.unwrap()), ("text", 7));
        // It is as good as new, and may be awaited by value, in another task.
        tree(scope.spawner(), 2, &leaves);
        soon(spawn(scope)).await.unwrap();
        assert_eq!(leaves.get(), 136);
    });
}

fn a_scope_s_tasks_are_tasks_of_the_loop<B: Backend>() {
    let mut event_loop = B::builder().cooperative_budget(10).build().unwrap();
    event_loop
        .block_on(async {
            let scope = Scope::new();
            // They run although nobody awaits the scope, each with an id and a budget of its own.
            let steps = [(); 3].map(|()| Rc::new(Cell::new(0)));
            let tasks = steps.clone().map(|steps| {
                scope.spawn(async move {
                    loop {
                        consume_budget().await;
                        steps.set(steps.get() + 1);
                    }
                })
            });
            let ids = scope.spawn(async { id() });
            let known = ids.id();
            assert_eq!(ids.await.unwrap(), known);
            let steps = steps.map(|steps| steps.get());
            assert!(steps.iter().all(|steps| *steps > 0 && steps % 10 == 0), "{steps:?}");
            // A priority, too.
            let order: Rc<RefCell<Vec<&str>>> = Rc::default();
            for (name, priority) in [("normal", Priority::Normal), ("high", Priority::High)] {
                let order = order.clone();
                let builder = Builder::new().priority(priority);
                builder
                    .spawn_in(scope.spawner(), async move { order.borrow_mut().push(name) })
                    .detach();
            }
            while order.borrow().len() < 2 {
                yield_now().await;
            }
            assert_eq!(*order.borrow(), ["high", "normal"]);
            assert_eq!(scope.len(), 3);
            drop(scope);
            for task in tasks {
                assert!(soon(task).await.unwrap_err().is_cancelled());
            }
        })
        .unwrap();
}

fn a_scope_s_await_may_be_given_up_and_taken_up_again<B: Backend>() {
    B::block_on(async {
        let mut scope = Scope::new();
        let (open, gate) = async_channel::bounded::<()>(1);
        let done = scope.spawn(async move { gate.recv().await.is_err() });
        assert!(is_pending(&mut scope).await);
        // Two tasks in turn: the one that asked last is woken.
        let shared = Rc::new(RefCell::new(scope));
        let waits = |shared: &Rc<RefCell<Scope>>| {
            let shared = shared.clone();
            spawn(poll_fn(move |cx| Pin::new(&mut *shared.borrow_mut()).poll(cx)))
        };
        let first = waits(&shared);
        yield_now().await;
        let last = waits(&shared);
        yield_now().await;
        first.abort();
        assert!(soon(first).await.unwrap_err().is_cancelled());
        drop(open);
        soon(last).await.unwrap();
        assert!(done.await.unwrap());
    });
}

fn a_panic_in_a_task_of_a_scope_goes_to_its_handle_and_to_no_other_task<B: Backend>() {
    B::block_on(async {
        let mut scope = Scope::new();
        let panics = scope.spawn(async { panic!("on purpose") });
        scope.spawn(async { panic!("of nobody's") }).detach();
        let spawner = scope.spawner().clone();
        let goes_on = scope.spawn(async move {
            yield_now().await;
            spawner.spawn(async { "inside" }).await.unwrap()
        });
        soon(&mut scope).await;
        assert_eq!(panics.await.unwrap_err().to_string(), "the task panicked: on purpose");
        assert_eq!(goes_on.await.unwrap(), "inside");
        assert_eq!(scope.spawn(async { "behind" }).await.unwrap(), "behind");
    });
}

fn a_dropped_scope_cancels_its_tasks_and_what_they_would_spawn<B: Backend>() {
    /// Spawns once more as it is dropped.
    struct SpawnsAtItsEnd(Spawner, Rc<Cell<usize>>);
    impl Drop for SpawnsAtItsEnd {
        fn drop(&mut self) {
            self.0.spawn(holds_for_ever(Dropped(self.1.clone()))).detach();
        }
    }
    B::block_on(async {
        let dropped = Rc::new(Cell::new(0));
        let scope = Scope::new();
        let spawner = scope.spawner().clone();
        let pends = scope.spawn(holds_for_ever(Dropped(dropped.clone())));
        let at_end = SpawnsAtItsEnd(spawner.clone(), dropped.clone());
        scope
            .spawn(async move {
                let _at_end = at_end;
                pending::<()>().await;
            })
            .detach();
        yield_now().await;
        let not_begun = scope.spawn(holds_for_ever(Dropped(dropped.clone())));
        // As the branch of a `select!` that was not first.
        assert!(timeout(Duration::ZERO, scope).await.is_err());
        assert!(soon(pends).await.unwrap_err().is_cancelled());
        assert!(soon(not_begun).await.unwrap_err().is_cancelled());
        while dropped.get() < 3 {
            yield_now().await;
        }
        // What is spawned in it now never runs.
        let ran = Rc::new(Cell::new(false));
        let mark = ran.clone();
        let late = spawner.spawn(async move { mark.set(true) });
        assert!(soon(late).await.unwrap_err().is_cancelled());
        assert!(!ran.get());
    });
}

fn a_scope_may_be_dropped_by_one_of_its_own_tasks<B: Backend>() {
    B::block_on(async {
        let dropped = Rc::new(Cell::new(0));
        let scope = Rc::new(RefCell::new(Some(Scope::new())));
        let spawner = scope.borrow().as_ref().unwrap().spawner().clone();
        spawner.spawn(holds_for_ever(Dropped(dropped.clone()))).detach();
        let drops = spawner.spawn({
            let scope = scope.clone();
            async move {
                scope.borrow_mut().take();
                yield_now().await;
                unreachable!("it has cancelled itself");
            }
        });
        assert!(soon(drops).await.unwrap_err().is_cancelled());
        while dropped.get() < 1 {
            yield_now().await;
        }
        // One that owns its own scope, in a circle, ends with its loop at the latest.
        let scope = Scope::new();
        let spawner = scope.spawner().clone();
        let owns = spawner.spawn(async move {
            let mut scope = scope;
            (&mut scope).await;
        });
        assert!(is_pending(pending::<()>()).await && !owns.is_finished());
    });
}

fn shutdown_of_a_scope_waits_until_its_futures_are_dropped<B: Backend>() {
    B::block_on(async {
        let dropped = Rc::new(Cell::new(0));
        let mut scope = Scope::new();
        for number in 0..10 {
            let held = Dropped(dropped.clone());
            if number % 2 == 0 {
                scope.spawn(holds_for_ever(held)).detach();
            } else {
                scope.spawn(async move { drop(held) }).detach();
            }
        }
        yield_now().await;
        // Without the end, the tasks may be cancelled and the scope continue.
        scope.abort_all();
        soon(&mut scope).await;
        assert_eq!((dropped.get(), scope.len()), (10, 0));
        scope.spawn(holds_for_ever(Dropped(dropped.clone()))).detach();
        soon(scope.shutdown()).await;
        assert_eq!((dropped.get(), scope.is_empty()), (11, true));
        let late = scope.spawn(async {});
        assert!(soon(late).await.unwrap_err().is_cancelled());
        soon(scope.shutdown()).await;
    });
}

fn a_task_of_a_scope_is_aborted_from_another_thread<B: Backend>() {
    B::block_on(async {
        let mut scope = Scope::new();
        let task = scope.spawn(pending::<()>());
        let abort = task.abort_handle();
        let aborts = thread::spawn(move || abort.abort());
        soon(&mut scope).await;
        aborts.join().unwrap();
        assert!(task.await.unwrap_err().is_cancelled());
    });
}

fn a_scope_does_not_outlive_its_loop_s_tasks<B: Backend>() {
    let dropped = Rc::new(Cell::new(0));
    let mut event_loop: EventLoop = B::event_loop();
    let kept = Scope::new();
    event_loop
        .block_on(async {
            let owned = Scope::new();
            for scope in [&owned, &kept] {
                scope.spawn(holds_for_ever(Dropped(dropped.clone()))).detach();
            }
            spawn(owned).detach();
            yield_now().await;
        })
        .unwrap();
    drop(event_loop);
    assert_eq!((dropped.get(), kept.len()), (2, 0));
    // On another loop it is a scope as any other.
    B::block_on(async {
        let task = kept.spawn(async { 7 });
        soon(kept).await;
        assert_eq!(task.await.unwrap(), 7);
    });
}

fn panics_in_wakers_and_drops_leave_a_scope_usable<B: Backend>() {
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("a waker");
        }
    }
    struct PanicsInItsDrop;
    impl Drop for PanicsInItsDrop {
        fn drop(&mut self) {
            panic!("a drop");
        }
    }
    B::block_on(async {
        let mut scope = Scope::new();
        let task = scope.spawn(async {
            let _panics = PanicsInItsDrop;
            pending::<()>().await;
        });
        yield_now().await;
        {
            let waker = Arc::new(Panics).into();
            let polled = pin!(&mut scope).poll(&mut Context::from_waker(&waker));
            assert_eq!(polled, Poll::Pending);
        }
        // The future panics in its drop, and then the waker does.
        task.abort();
        assert!(soon(task).await.unwrap_err().is_panic());
        assert!(scope.is_empty());
        scope.spawn(yield_now()).detach();
        soon(&mut scope).await;
    });
}

fn an_empty_scope_that_is_asked_again_and_again_lets_others_run<B: Backend>() {
    B::block_on(async {
        let stop = Rc::new(Cell::new(false));
        let asks = spawn({
            let stop = stop.clone();
            async move {
                let mut scope = Scope::new();
                while !stop.get() {
                    (&mut scope).await;
                }
            }
        });
        spawn(async move { stop.set(true) }).await.unwrap();
        soon(asks).await.unwrap();
    });
}

/// A server's scope lives as long as the server: the places of what has ended are used again.
fn a_scope_that_lives_long_keeps_nothing_of_what_has_ended<B: Backend>() {
    B::block_on(async {
        let mut scope = Scope::new();
        let output = Rc::new(());
        for _ in 0..1_000 {
            let output = output.clone();
            scope.spawn(async move { output }).detach();
            yield_now().await;
            yield_now().await;
            assert!(scope.len() <= 1);
        }
        soon(&mut scope).await;
        assert_eq!(Rc::strong_count(&output), 1);
    });
}
