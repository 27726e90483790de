//! What handles tell and do without the output: ids, ends, aborts; and the loop that is found or
//! not.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::future::{Future, pending};
use std::rc::Rc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use wakeful::net::{TcpListener, TcpStream};
use wakeful::task::{self, AbortHandle, Id, spawn_blocking, yield_now};
use wakeful::time::sleep;
use wakeful::{LoopHandle, spawn};

use crate::backend::Backend;
use crate::support::soon;

on_every_backend! {
    an_abort_handle_aborts_from_any_thread_and_outlives_task_and_loop,
    an_id_is_that_of_the_task_that_runs_and_of_all_its_handles,
    only_tasks_have_an_id,
    a_future_that_is_dropped_still_has_its_id,
    blocking_work_says_whether_it_is_over,
    the_loop_of_this_thread_is_found_also_while_it_ends,
    a_loop_runs_within_blocking_work,
}

fn an_abort_handle_aborts_from_any_thread_and_outlives_task_and_loop<B: Backend>() {
    fn is_send_sync<T: Send + Sync>(value: T) -> T {
        value
    }
    let mut event_loop = B::event_loop();
    let (kept, left): (AbortHandle, AbortHandle) = event_loop
        .block_on(async {
            // Neither the output nor the future is `Send`.
            let held = Rc::new(());
            let theirs = held.clone();
            let task = spawn(async move {
                pending::<()>().await;
                theirs
            });
            yield_now().await;
            let abort = is_send_sync(task.abort_handle());
            let clone = abort.clone();
            assert!(!abort.is_finished() && clone.id() == task.id());
            thread::spawn(move || clone.abort()).join().unwrap();
            assert!(soon(task).await.unwrap_err().is_cancelled());
            assert!(abort.is_finished());
            assert_eq!(Rc::strong_count(&held), 1);
            abort.abort();
            // It does not hold the output of a task that nobody joins.
            let theirs = held.clone();
            let task = spawn(async move { theirs });
            let of_detached = task.abort_handle();
            task.detach();
            while !of_detached.is_finished() {
                yield_now().await;
            }
            assert_eq!(Rc::strong_count(&held), 1);
            let left = spawn(pending::<()>());
            let left_abort = left.abort_handle();
            left.detach();
            (of_detached, left_abort)
        })
        .unwrap();
    drop(event_loop);
    assert!(left.is_finished());
    // The last reference to its memory goes elsewhere.
    thread::spawn(move || {
        kept.abort();
        left.abort();
        drop((kept, left));
    })
    .join()
    .unwrap();
}

fn an_id_is_that_of_the_task_that_runs_and_of_all_its_handles<B: Backend>() {
    B::block_on(async {
        let ids: Rc<RefCell<HashSet<Id>>> = Rc::default();
        let tasks: Vec<_> = (0..100)
            .map(|_| {
                let ids = ids.clone();
                spawn(async move {
                    let first = task::id();
                    yield_now().await;
                    ids.borrow_mut().insert(task::id());
                    first
                })
            })
            .collect();
        let of_handles: Vec<_> = tasks.iter().map(wakeful::JoinHandle::id).collect();
        assert!(tasks.iter().all(|task| task.abort_handle().id() == task.id()));
        for (task, id) in tasks.into_iter().zip(&of_handles) {
            assert_eq!(soon(task).await.unwrap(), *id);
        }
        assert_eq!(ids.borrow().len(), 100);
        assert_eq!(*ids.borrow(), of_handles.iter().copied().collect());
        assert_ne!(of_handles[0].to_string(), of_handles[1].to_string());
    });
}

fn only_tasks_have_an_id<B: Backend>() {
    assert_eq!(task::try_id(), None);
    let mut event_loop = B::event_loop();
    let handle = event_loop.handle();
    event_loop
        .block_on(async {
            assert_eq!(task::try_id(), None, "the future of `block_on`");
            let panicked = std::panic::catch_unwind(task::id).unwrap_err();
            assert!(panicked.downcast_ref::<&str>().unwrap().contains("no task runs here"));
            let seen = Rc::new(Cell::new(Some(None)));
            // In a callback after a task.
            spawn(async {}).detach();
            let noted = seen.clone();
            wakeful::run_this_turn(move || noted.set(Some(task::try_id())));
            yield_now().await;
            assert_eq!(seen.get(), Some(None));
            // And in a closure after one.
            spawn(async {}).detach();
            let (send, receive) = async_channel::bounded(1);
            handle.post(move || send.try_send(task::try_id()).unwrap()).unwrap();
            assert_eq!(soon(receive.recv()).await.unwrap(), None);
            let blocking = spawn_blocking(task::try_id);
            assert_eq!(soon(blocking).await.unwrap(), None);
        })
        .unwrap();
    // A loop within a task: the inner one's tasks have their own, and the outer one's is back then.
    if crate::backend::driven::has_guest() {
        return;
    }
    B::block_on(async {
        let task = spawn(async {
            let own = task::id();
            let mut inner = B::event_loop();
            let other = inner.spawn(async { task::id() });
            inner.turn(Some(Duration::ZERO)).unwrap();
            assert_eq!(task::id(), own);
            assert_ne!(other.await.unwrap(), own);
        });
        task.await.unwrap();
    });
}

fn a_future_that_is_dropped_still_has_its_id<B: Backend>() {
    struct Notes(Rc<Cell<Option<Id>>>);
    impl Drop for Notes {
        fn drop(&mut self) {
            self.0.set(task::try_id());
        }
    }
    fn holds(noted: &Rc<Cell<Option<Id>>>) -> impl Future<Output = ()> + use<> {
        let notes = Notes(noted.clone());
        async move {
            let _notes = notes;
            pending::<()>().await;
        }
    }
    let noted = Rc::new(Cell::new(None));
    let mut event_loop = B::event_loop();
    event_loop
        .block_on(async {
            let aborted = spawn(holds(&noted));
            yield_now().await;
            let id = aborted.id();
            aborted.abort();
            assert!(aborted.await.is_err());
            assert_eq!(noted.take(), Some(id));
        })
        .unwrap();
    // And at the loop's end.
    let left = event_loop.spawn(holds(&noted));
    event_loop.block_on(yield_now()).unwrap();
    let id = left.id();
    drop(event_loop);
    assert_eq!(noted.take(), Some(id));
    assert_eq!(task::try_id(), None);
}

fn blocking_work_says_whether_it_is_over<B: Backend>() {
    B::block_on(async {
        let (end, may_end) = mpsc::channel::<()>();
        let work = spawn_blocking(move || may_end.recv().is_ok());
        assert!(!work.is_finished());
        end.send(()).unwrap();
        while !work.is_finished() {
            yield_now().await;
        }
        assert!(work.await.unwrap());
        let panics = spawn_blocking(|| panic!("on purpose"));
        while !panics.is_finished() {
            yield_now().await;
        }
        let aborted = spawn_blocking(|| ());
        aborted.abort();
        assert!(aborted.is_finished());
    });
}

fn the_loop_of_this_thread_is_found_also_while_it_ends<B: Backend>() {
    struct Looks(mpsc::Sender<bool>, LoopHandle);
    impl Drop for Looks {
        fn drop(&mut self) {
            let found = LoopHandle::try_current().is_ok_and(|handle| handle.is_same(&self.1));
            self.0.send(found).unwrap();
        }
    }
    let error = LoopHandle::try_current().unwrap_err();
    assert!(error.to_string().contains("no event loop runs on this thread"), "{error}");
    let mut event_loop = B::event_loop();
    let (send, found) = mpsc::channel();
    let looks = Looks(send, event_loop.handle());
    event_loop
        .block_on(async move {
            assert!(LoopHandle::try_current().unwrap().is_same(&looks.1));
            spawn(async move {
                let _looks = looks;
                pending::<()>().await;
            })
            .detach();
            yield_now().await;
        })
        .unwrap();
    assert!(LoopHandle::try_current().is_err(), "between two runs none runs here");
    drop(event_loop);
    assert!(found.recv().unwrap());
}

fn a_loop_runs_within_blocking_work<B: Backend>() {
    B::block_on(async {
        let outer = thread::current().id();
        let work = spawn_blocking(move || {
            B::block_on(async {
                assert_ne!(thread::current().id(), outer);
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                let addr = listener.local_addr().unwrap();
                let server = spawn(async move {
                    let (mut stream, _) = listener.accept().await.unwrap();
                    stream.write_all(b"inner").await.unwrap();
                });
                let mut answer = [0; 5];
                let mut client = TcpStream::connect(addr).await.unwrap();
                assert_eq!(client.read(&mut answer).await.unwrap(), answer.len());
                server.await.unwrap();
                sleep(Duration::from_millis(1)).await;
                // And blocking work within that.
                spawn_blocking(move || answer).await.unwrap()
            })
        });
        // The outer loop continues meanwhile.
        spawn(sleep(Duration::from_millis(1))).await.unwrap();
        assert_eq!(&soon(work).await.unwrap(), b"inner");
        // A thread of the pool has no loop after that.
        assert!(soon(spawn_blocking(|| LoopHandle::try_current().is_err())).await.unwrap());
    });
}
