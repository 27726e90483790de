//! Tasks: spawning, joining, aborting, panics, fairness.

use std::cell::{Cell, RefCell};
use std::future::{pending, poll_fn};
use std::io::Write;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Poll, Waker};
use std::thread;
use std::time::Duration;

use wakeful::net::UnixStream;
use wakeful::spawn;
use wakeful::task::{BlockingHandle, consume_budget, spawn_blocking, yield_now};
use wakeful::time::sleep;

use crate::backend::Backend;
use crate::backend::driven::Driven;
use crate::background::LONG;
use crate::support::soon;

on_every_backend! {
    a_task_need_not_be_send,
    a_handle_is_awaited_on_another_thread_without_a_loop,
    abort_before_the_first_poll_while_pending_and_after_the_end,
    a_task_that_aborts_itself_ends_after_its_poll,
    dropping_the_handle_detaches,
    a_panic_is_returned_and_the_loop_goes_on,
    yielding_lets_every_ready_task_run_once,
    an_always_ready_socket_does_not_hold_the_loop,
    consume_budget_yields_when_the_budget_is_spent,
    one_waker_shared_by_10_000_tasks_does_not_hold_the_loop,
    blocking_work_returns_panics_and_is_aborted,
    blocking_work_is_aborted_by_reference_and_who_waits_is_told,
    an_abort_behind_the_end_leaves_the_outcome_of_tasks_and_of_blocking_work,
    blocking_work_may_run_a_loop_of_its_own_and_ask_the_one_outside,
    spawning_without_a_loop_is_a_clear_error,
    futures_of_other_crates_run_here,
    block_on_borrows_and_may_be_called_again,
    a_loop_in_a_loop_is_a_clear_error,
    a_handle_is_awaited_on_another_loop_and_gives_its_output_there,
    a_panic_in_block_on_s_future_leaves_the_loop_usable,
}

fn assert_send_sync<T: Send + Sync>(_: &T) {}

fn a_task_need_not_be_send<B: Backend>() {
    B::block_on(async {
        let shared = Rc::new(Cell::new(0));
        let theirs = shared.clone();
        spawn(async move { theirs.set(42) }).await.unwrap();
        assert_eq!(shared.get(), 42);
    });
}

fn a_handle_is_awaited_on_another_thread_without_a_loop<B: Backend>() {
    let mut event_loop = B::event_loop();
    let task = event_loop.spawn(async {
        yield_now().await;
        "done".to_owned()
    });
    assert_send_sync(&task);
    let (handle, started) = (event_loop.handle(), std::sync::mpsc::channel());
    let thread = thread::spawn(move || {
        started.0.send(()).unwrap();
        let output = futures_lite::future::block_on(task).unwrap();
        handle.stop();
        output
    });
    started.1.recv().unwrap();
    event_loop.run().unwrap();
    assert_eq!(thread.join().unwrap(), "done");
}

fn abort_before_the_first_poll_while_pending_and_after_the_end<B: Backend>() {
    B::block_on(async {
        let polled = Rc::new(Cell::new(false));
        let mark = polled.clone();
        let task = spawn(async move { mark.set(true) });
        task.abort();
        assert!(task.await.unwrap_err().is_cancelled());
        assert!(!polled.get());

        let dropped = Rc::new(());
        let held = dropped.clone();
        let task = spawn(async move {
            let _held = held;
            pending::<()>().await;
        });
        yield_now().await;
        assert!(!task.is_finished());
        task.abort();
        task.abort();
        let error = task.await.unwrap_err();
        assert!(error.is_cancelled() && !error.is_panic());
        assert_eq!(Rc::strong_count(&dropped), 1);

        let task = spawn(async { 7 });
        yield_now().await;
        assert!(task.is_finished());
        task.abort();
        assert_eq!(task.await.unwrap(), 7);
    });
}

fn a_task_that_aborts_itself_ends_after_its_poll<B: Backend>() {
    B::block_on(async {
        let handle = Rc::new(RefCell::new(None::<wakeful::JoinHandle<()>>));
        let own = handle.clone();
        let reached = Rc::new(Cell::new(false));
        let mark = reached.clone();
        let task = spawn(async move {
            own.borrow().as_ref().unwrap().abort();
            mark.set(true);
            pending::<()>().await;
        });
        *handle.borrow_mut() = Some(task);
        yield_now().await;
        yield_now().await;
        let task = handle.borrow_mut().take().unwrap();
        assert!(task.await.unwrap_err().is_cancelled());
        assert!(reached.get());
    });
}

fn dropping_the_handle_detaches<B: Backend>() {
    B::block_on(async {
        let done = Rc::new(Cell::new(false));
        let mark = done.clone();
        drop(spawn(async move {
            yield_now().await;
            mark.set(true);
        }));
        while !done.get() {
            yield_now().await;
        }
    });
}

fn a_panic_is_returned_and_the_loop_goes_on<B: Backend>() {
    B::block_on(async {
        let error = spawn(async { panic!("at {}", std::process::id()) }).await.unwrap_err();
        assert!(error.is_panic() && !error.is_cancelled());
        let text = format!("at {}", std::process::id());
        assert_eq!(error.to_string(), format!("the task panicked: {text}"));
        let payload = error.try_into_panic().unwrap();
        assert_eq!(*payload.downcast::<String>().unwrap(), text);
        assert_eq!(spawn(async { 1 }).await.unwrap(), 1);

        struct PanicsInDrop;
        impl Drop for PanicsInDrop {
            fn drop(&mut self) {
                panic!("in drop");
            }
        }
        let bomb = PanicsInDrop;
        // Held by the future itself, so it goes with the future, after the output is there.
        let mut held = Some(bomb);
        let task = spawn(poll_fn(move |_| {
            let _ = &mut held;
            Poll::Ready(5)
        }));
        assert_eq!(task.await.unwrap_err().to_string(), "the task panicked: in drop");
    });
}

fn yielding_lets_every_ready_task_run_once<B: Backend>() {
    B::block_on(async {
        let log = Rc::new(RefCell::new(Vec::new()));
        let tasks: Vec<_> = (0..3)
            .map(|number| {
                let log = log.clone();
                spawn(async move {
                    for round in 0..3 {
                        log.borrow_mut().push((round, number));
                        yield_now().await;
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        let expected: Vec<_> = (0..3).flat_map(|round| (0..3).map(move |n| (round, n))).collect();
        assert_eq!(*log.borrow(), expected);
    });
}

/// Without a budget the first poll would never end: the socket is refilled from within.
fn an_always_ready_socket_does_not_hold_the_loop<B: Backend>() {
    B::block_on(async {
        let (std_write, std_read) = std::os::unix::net::UnixStream::pair().unwrap();
        let mut read = UnixStream::from_std(std_read).unwrap();
        let stop = Rc::new(Cell::new(false));
        let (stopped, reads) = (stop.clone(), Rc::new(Cell::new(0_u64)));
        let count = reads.clone();
        let greedy = spawn(async move {
            (&std_write).write_all(b"x").unwrap();
            while !stopped.get() {
                read.read(&mut [0; 1]).await.unwrap();
                (&std_write).write_all(b"x").unwrap();
                count.set(count.get() + 1);
            }
        });
        // A timer and another task make progress meanwhile.
        wakeful::time::sleep(Duration::from_millis(1)).await;
        yield_now().await;
        stop.set(true);
        greedy.await.unwrap();
        assert!(reads.get() > 0);
    });
}

fn consume_budget_yields_when_the_budget_is_spent<B: Backend>() {
    B::block_on(async {
        let others = Rc::new(Cell::new(0));
        let seen = others.clone();
        let busy = spawn(async move {
            let mut calls = 0;
            while seen.get() == 0 {
                consume_budget().await;
                calls += 1;
            }
            calls
        });
        let mark = others.clone();
        spawn(async move { mark.set(1) }).await.unwrap();
        // The documented default is 128: the next call yields, and is completed by the next poll.
        assert_eq!(busy.await.unwrap(), 128 + 1);
    });
}

fn one_waker_shared_by_10_000_tasks_does_not_hold_the_loop<B: Backend>() {
    const TASKS: usize = 10_000;
    let mut event_loop = B::builder().task_budget(64).build().unwrap();
    let handle = event_loop.handle();
    let waiting: Rc<RefCell<Vec<Waker>>> = Rc::default();
    let (open, ran) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(0)));
    for _ in 0..TASKS {
        let (waiting, open, ran) = (waiting.clone(), open.clone(), ran.clone());
        event_loop
            .spawn(poll_fn(move |cx| {
                if open.get() {
                    ran.set(ran.get() + 1);
                    return Poll::Ready(());
                }
                waiting.borrow_mut().push(cx.waker().clone());
                Poll::Pending
            }))
            .detach();
    }
    while waiting.borrow().len() < TASKS {
        event_loop.take_turn(Some(Duration::ZERO)).unwrap();
    }
    // The fan-out, and after it an event and a post: neither waits for all of it.
    let (mut peer, socket) = std::os::unix::net::UnixStream::pair().unwrap();
    let event_seen_after = Rc::new(Cell::new(usize::MAX));
    let (seen, ran_by_then) = (event_seen_after.clone(), ran.clone());
    event_loop
        .spawn(async move {
            let mut socket = UnixStream::from_std(socket).unwrap();
            socket.read(&mut [0; 1]).await.unwrap();
            seen.set(ran_by_then.get());
        })
        .detach();
    event_loop.take_turn(Some(Duration::ZERO)).unwrap();
    open.set(true);
    waiting.take().into_iter().for_each(Waker::wake);
    let turns_before = handle.metrics().turns;
    event_loop.take_turn(Some(Duration::ZERO)).unwrap();
    assert!(ran.get() <= 64, "a turn runs at most its budget, not {}", ran.get());
    peer.write_all(b"x").unwrap();
    while ran.get() < TASKS {
        event_loop.take_turn(Some(Duration::ZERO)).unwrap();
    }
    let turns = handle.metrics().turns - turns_before;
    assert!(turns >= (TASKS / 64) as u64, "{turns} turns");
    // The event's task queues behind what was ready before it: it runs last, but it was collected
    // in time.
    event_loop.take_turn(Some(Duration::ZERO)).unwrap();
    assert!(event_seen_after.get() <= TASKS);
    assert!(handle.metrics().waits >= turns, "the kernel was asked in every turn");
}

fn blocking_work_returns_panics_and_is_aborted<B: Backend>() {
    B::block_on(async {
        assert_eq!(spawn_blocking(|| 6 * 7).await.unwrap(), 42);
        let error = spawn_blocking(|| panic!("blocked")).await.unwrap_err();
        assert_eq!(error.to_string(), "the task panicked: blocked");
        let (hold, held) = std::sync::mpsc::channel::<()>();
        let task = spawn_blocking(move || held.recv().is_err());
        task.abort();
        assert!(task.await.unwrap_err().is_cancelled());
        drop(hold);
        let ran = Arc::new(AtomicUsize::new(0));
        let (counted, (done, is_done)) = (ran.clone(), async_channel::bounded(1));
        spawn_blocking(move || {
            counted.fetch_add(1, Ordering::Relaxed);
            done.try_send(()).unwrap();
        })
        .detach();
        is_done.recv().await.unwrap();
        assert_eq!(ran.load(Ordering::Relaxed), 1);
    });
}

fn abort_on_two_threads<T>(work: &BlockingHandle<T>) {
    thread::scope(|threads| {
        threads.spawn(|| work.abort());
        threads.spawn(|| work.abort());
    });
}

fn blocking_work_is_aborted_by_reference_and_who_waits_is_told<B: Backend>() {
    B::block_on(async {
        let (hold, held) = std::sync::mpsc::channel::<()>();
        let work = Rc::new(RefCell::new(spawn_blocking(move || held.recv().is_err())));
        let waiting = spawn({
            let work = work.clone();
            poll_fn(move |cx| Pin::new(&mut *work.borrow_mut()).poll(cx))
        });
        yield_now().await;
        assert!(!waiting.is_finished());
        abort_on_two_threads(&work.borrow());
        // It runs still.
        assert!(soon(waiting).await.unwrap().unwrap_err().is_cancelled());
        drop(hold);
    });
}

fn an_abort_behind_the_end_leaves_the_outcome_of_tasks_and_of_blocking_work<B: Backend>() {
    B::block_on(async {
        let (returns, panics) = (spawn(async { 7 }), spawn(async { panic!("a task") }));
        let (work, broken) = (spawn_blocking(|| 7), spawn_blocking(|| panic!("blocking work")));
        let is_over = || {
            returns.is_finished()
                && panics.is_finished()
                && work.is_finished()
                && broken.is_finished()
        };
        let start = std::time::Instant::now();
        while !is_over() {
            assert!(start.elapsed() < LONG, "it never ends");
            yield_now().await;
        }
        returns.abort();
        panics.abort();
        abort_on_two_threads(&work);
        abort_on_two_threads(&broken);
        assert_eq!((returns.await.unwrap(), soon(work).await.unwrap()), (7, 7));
        for (error, said) in [
            (panics.await.unwrap_err(), "the task panicked: a task"),
            (soon(broken).await.unwrap_err(), "the task panicked: blocking work"),
        ] {
            assert!(error.is_panic() && !error.is_cancelled());
            assert_eq!(error.to_string(), said);
        }
    });
}

fn blocking_work_may_run_a_loop_of_its_own_and_ask_the_one_outside<B: Backend>() {
    B::block_on(async {
        let outer = wakeful::LoopHandle::current();
        let here = thread::current().id();
        let work = spawn_blocking(move || {
            assert!(wakeful::LoopHandle::try_current().is_err(), "none runs there by itself");
            // One after the other, on the same thread.
            let mut sum = 0;
            for number in 0..3 {
                sum += B::block_on(async move {
                    let task = spawn(async move {
                        sleep(Duration::from_micros(100)).await;
                        number
                    });
                    let (mut ours, mut theirs) = UnixStream::pair().unwrap();
                    ours.write_all(b"x").await.unwrap();
                    theirs.read(&mut [0; 1]).await.unwrap();
                    // A loop inside may have blocking work, too.
                    task.await.unwrap() + spawn_blocking(|| 1).await.unwrap()
                });
            }
            let there = outer.post_and_wait(|| thread::current().id()).unwrap();
            assert_eq!(there, here);
            assert!(std::panic::catch_unwind(|| spawn(async {})).is_err(), "its loop has ended");
            sum
        });
        assert_eq!(soon(work).await.unwrap(), 6);
        // A panic inside is the work's.
        let work = spawn_blocking(|| B::block_on(async { panic!("inside") }));
        assert_eq!(soon(work).await.unwrap_err().to_string(), "the task panicked: inside");
    });
}

fn spawning_without_a_loop_is_a_clear_error<B: Backend>() {
    let _not_running = B::event_loop();
    let panicked = std::panic::catch_unwind(|| spawn(async {})).unwrap_err();
    let text = panicked.downcast_ref::<&str>().copied().map(str::to_owned);
    let text = text.or_else(|| panicked.downcast_ref::<String>().cloned()).unwrap();
    assert!(text.contains("no event loop runs on this thread"), "{text}");
}

fn futures_of_other_crates_run_here<B: Backend>() {
    B::block_on(async {
        let (send, receive) = async_channel::bounded(1);
        let sender = spawn(async move {
            for number in 0..100 {
                send.send(number).await.unwrap();
            }
        });
        let mut sum = 0;
        while let Ok(number) = receive.recv().await {
            sum += number;
        }
        sender.await.unwrap();
        assert_eq!(sum, 4950);
        let joined = futures_util::future::join_all((0..50).map(|n| spawn(async move { n }))).await;
        assert_eq!(joined.into_iter().map(Result::unwrap).sum::<i32>(), 1225);
    });
}

fn block_on_borrows_and_may_be_called_again<B: Backend>() {
    let mut event_loop = B::event_loop();
    let mut text = String::new();
    event_loop.block_on(async { text.push_str("one ") }).unwrap();
    let background = event_loop.spawn(async { "two" });
    let word = event_loop.block_on(background).unwrap().unwrap();
    text.push_str(word);
    assert_eq!(text, "one two");
}

fn a_loop_in_a_loop_is_a_clear_error<B: Backend>() {
    B::block_on(async {
        let mut inner = B::event_loop();
        let error = inner.run().unwrap_err();
        assert!(error.to_string().contains("already running"), "{error}");
        assert!(inner.block_on(async {}).is_err());
        let panicked = std::panic::catch_unwind(|| wakeful::block_on(async {})).unwrap_err();
        assert!(panicked.downcast::<String>().unwrap().contains("already running"));
        drop(inner);
        // The outer loop is unharmed.
        spawn(async {}).await.unwrap();
    });
}

fn a_handle_is_awaited_on_another_loop_and_gives_its_output_there<B: Backend>() {
    let group = B::group().loops(2).build().unwrap();
    let (one, other) = (group.handles()[0].clone(), group.handles()[1].clone());
    let sum = one.spawn(move || async move {
        let mut sum = 0;
        for number in 0..100 {
            let task = other.spawn(move || async move {
                yield_now().await;
                vec![number]
            });
            sum += task.unwrap().await.unwrap()[0];
        }
        sum
    });
    assert_eq!(B::block_on(sum.unwrap()).unwrap(), 4950);
}

fn a_panic_in_block_on_s_future_leaves_the_loop_usable<B: Backend>() {
    let mut event_loop = B::event_loop();
    let background = event_loop.spawn(async {
        yield_now().await;
        7
    });
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        event_loop.block_on(async {
            yield_now().await;
            panic!("on purpose");
        })
    }));
    assert!(panicked.is_err());
    assert_eq!(event_loop.block_on(background).unwrap().unwrap(), 7);
    // No loop is left behind as the thread's own.
    assert!(std::panic::catch_unwind(wakeful::LoopHandle::current).is_err());
}
