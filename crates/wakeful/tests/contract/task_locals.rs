//! Task-local values: seen in their scope, and nowhere else.

use std::cell::{Cell, RefCell};
use std::future::{Future, pending, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use wakeful::task::yield_now;
use wakeful::{spawn, task_local};

use crate::backend::Backend;

on_every_backend! {
    a_task_local_is_seen_in_its_own_scope_across_polls,
    scopes_are_nested_and_entered_again_within_with,
    a_panic_in_a_scope_restores_the_value,
    a_task_local_is_there_while_its_future_is_dropped,
    a_scope_whose_future_and_value_panic_in_their_drops_ends_nothing,
    a_scope_moves_between_threads,
    a_spawned_task_is_not_in_the_scope_that_spawned_it,
    a_task_local_without_a_scope_is_a_clear_error,
}

task_local! {
    static NUMBER: u32;
    /// A value that is neither `Sync` nor `Clone`.
    static LIST: RefCell<Vec<u32>>;
}

fn a_task_local_is_seen_in_its_own_scope_across_polls<B: Backend>() {
    B::block_on(async {
        let tasks: Vec<_> = (0..10)
            .map(|number| {
                spawn(NUMBER.scope(
                    number,
                    LIST.scope(RefCell::default(), async move {
                        for _ in 0..5 {
                            LIST.with(|list| list.borrow_mut().push(NUMBER.get()));
                            yield_now().await;
                        }
                        LIST.with(RefCell::take)
                    }),
                ))
            })
            .collect();
        for (number, task) in tasks.into_iter().enumerate() {
            assert_eq!(task.await.unwrap(), [number as u32; 5]);
        }
        assert!(NUMBER.try_with(|_| ()).is_err() && LIST.try_with(|_| ()).is_err());
    });
}

fn scopes_are_nested_and_entered_again_within_with<B: Backend>() {
    B::block_on(NUMBER.scope(1, async {
        assert_eq!(NUMBER.scope(2, async { NUMBER.get() }).await, 2);
        assert_eq!(NUMBER.sync_scope(3, || NUMBER.get()), 3);
        // The value is borrowed meanwhile.
        NUMBER.with(|outer| {
            let inner =
                NUMBER.sync_scope(4, || NUMBER.with(|four| NUMBER.with(|same| four + same)));
            assert_eq!((*outer, inner, NUMBER.get()), (1, 8, 1));
            let scope = pin!(NUMBER.scope(5, async { NUMBER.get() }));
            let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
            assert_eq!(scope.poll(&mut cx), Poll::Ready(5));
            assert_eq!((*outer, NUMBER.get()), (1, 1));
        });
    }));
}

fn a_panic_in_a_scope_restores_the_value<B: Backend>() {
    B::block_on(NUMBER.scope(1, async {
        let panicked = catch_unwind(|| NUMBER.sync_scope(2, || panic!("on purpose")));
        assert!(panicked.is_err());
        assert_eq!(NUMBER.get(), 1);
        let mut scope = Box::pin(NUMBER.scope(3, async {
            assert_ne!(NUMBER.get(), 3, "on purpose");
        }));
        poll_fn(|cx| {
            assert!(catch_unwind(AssertUnwindSafe(|| scope.as_mut().poll(cx))).is_err());
            Poll::Ready(())
        })
        .await;
        assert_eq!(NUMBER.get(), 1);
        struct PanicsInDrop;
        impl Drop for PanicsInDrop {
            fn drop(&mut self) {
                panic!("in a drop that sees {}, on purpose", NUMBER.get());
            }
        }
        let held = PanicsInDrop;
        let scope = NUMBER.scope(4, async move {
            let _held = held;
        });
        assert!(catch_unwind(AssertUnwindSafe(|| drop(scope))).is_err());
        assert_eq!(NUMBER.get(), 1);
    }));
    assert!(NUMBER.try_with(|_| ()).is_err());
}

fn a_task_local_is_there_while_its_future_is_dropped<B: Backend>() {
    struct Sees(Rc<Cell<u32>>);
    impl Drop for Sees {
        fn drop(&mut self) {
            self.0.set(NUMBER.try_with(|number| *number).unwrap_or(0));
        }
    }
    B::block_on(async {
        for ends in [true, false] {
            let seen = Rc::new(Cell::new(0));
            let sees = Sees(seen.clone());
            let task = spawn(NUMBER.scope(7, async move {
                let _sees = sees;
                yield_now().await;
                if !ends {
                    pending::<()>().await;
                }
            }));
            yield_now().await;
            yield_now().await;
            task.abort();
            assert_eq!(task.await.is_ok(), ends);
            assert_eq!(seen.get(), 7);
        }
    });
}

fn a_scope_whose_future_and_value_panic_in_their_drops_ends_nothing<B: Backend>() {
    struct Panics(&'static str);
    impl Drop for Panics {
        fn drop(&mut self) {
            panic!("the drop of the {}, on purpose", self.0);
        }
    }
    task_local! { static PANICS: Panics; }
    B::block_on(async {
        let of_future = Panics("future");
        let task = spawn(PANICS.scope(Panics("value"), async move {
            let _of_future = of_future;
            pending::<()>().await;
        }));
        yield_now().await;
        task.abort();
        let panicked = task.await.unwrap_err().try_into_panic().unwrap();
        let text = panicked.downcast_ref::<String>().unwrap();
        assert!(text.starts_with("the drop of the future"), "{text}");
    });
}

fn a_scope_moves_between_threads<B: Backend>() {
    let mut scope = Box::pin(LIST.scope(RefCell::default(), async {
        for step in 0..4 {
            LIST.with(|list| list.borrow_mut().push(step));
            yield_now().await;
        }
        LIST.with(RefCell::take)
    }));
    let list = loop {
        let polled = std::thread::spawn(move || {
            B::block_on(async move {
                let polled = poll_fn(|cx| Poll::Ready(scope.as_mut().poll(cx))).await;
                (scope, polled)
            })
        });
        let (back, polled) = polled.join().unwrap();
        scope = back;
        if let Poll::Ready(list) = polled {
            break list;
        }
    };
    assert_eq!(list, [0, 1, 2, 3]);
}

fn a_spawned_task_is_not_in_the_scope_that_spawned_it<B: Backend>() {
    B::block_on(NUMBER.scope(1, async {
        let without = spawn(async { NUMBER.try_with(|number| *number).is_err() });
        let with = spawn(NUMBER.scope(NUMBER.get() + 1, async { NUMBER.get() }));
        assert_eq!((without.await.unwrap(), with.await.unwrap()), (true, 2));
    }));
}

fn a_task_local_without_a_scope_is_a_clear_error<B: Backend>() {
    B::block_on(async {
        let error = spawn(async { NUMBER.get() }).await.unwrap_err();
        assert!(error.to_string().contains("no scope of this task-local value"), "{error}");
        let error = NUMBER.try_with(|_| ()).unwrap_err();
        assert!(error.to_string().contains("no scope of this task-local value"), "{error}");
    });
}
