//! A panic ends what it is in, and nothing besides.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use wakeful::{LoopGroup, LoopHandle};

use crate::background::LONG;
use crate::{guest, on_a_guest, soon};

#[test]
fn a_panic_in_a_task_of_either_ends_that_task() {
    on_a_guest(async {
        for _ in 0..3 {
            let of_loop = wakeful::spawn(async {
                tokio::task::yield_now().await;
                panic!("on purpose")
            });
            assert!(!of_loop.await.unwrap_err().is_cancelled());
            let of_tokio = tokio::spawn(async {
                tokio::task::yield_now().await;
                panic!("on purpose")
            });
            assert!(of_tokio.await.unwrap_err().is_panic());
            let local = tokio::task::spawn_local(async {
                wakeful::time::sleep(std::time::Duration::from_micros(1)).await;
                panic!("on purpose")
            });
            assert!(local.await.unwrap_err().is_panic());
            let (sender, receiver) = tokio::sync::oneshot::channel::<()>();
            LoopHandle::current()
                .post(move || {
                    let _dropped_by_the_panic = sender;
                    panic!("on purpose")
                })
                .unwrap();
            assert!(receiver.await.is_err());
            let blocking = tokio::task::spawn_blocking(|| panic!("on purpose"));
            assert!(blocking.await.unwrap_err().is_panic());
        }
        assert_eq!(LoopHandle::current().metrics().panics, 3);
    });
}

#[test]
fn a_panic_in_the_root_leaves_a_loop_that_runs() {
    let mut event_loop = guest();
    let handle = event_loop.handle();
    let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
    for round in 0..3 {
        let sender = sender.clone();
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            event_loop.block_on(async {
                let tokio_s = sender.clone();
                tokio::spawn(async move {
                    tokio::time::sleep(std::time::Duration::from_millis(1)).await;
                    tokio_s.send(round).unwrap();
                });
                wakeful::spawn(async move {
                    wakeful::time::sleep(std::time::Duration::from_millis(1)).await;
                    sender.send(round).unwrap();
                })
                .detach();
                if round % 2 == 0 {
                    wakeful::time::sleep(std::time::Duration::from_micros(10)).await;
                }
                panic!("of the root, on purpose")
            })
        }));
        let text = panicked.unwrap_err();
        assert_eq!(text.downcast_ref::<&str>(), Some(&"of the root, on purpose"));
        let poster = handle.clone();
        let thread = std::thread::spawn(move || poster.post_and_wait(|| 5).unwrap());
        let goes_on = soon(async {
            for _ in 0..2 {
                assert_eq!(receiver.recv().await, Some(round));
            }
            wakeful::task::spawn_blocking(|| thread.join().unwrap()).await.unwrap()
        });
        assert_eq!(event_loop.block_on(goes_on).unwrap(), 5);
    }
}

/// The drop of this needs a Tokio runtime.
struct Spawns;

impl Drop for Spawns {
    fn drop(&mut self) {
        tokio::spawn(async {});
    }
}

#[test]
fn what_the_root_still_owns_at_its_end_is_dropped_within_the_runtime() {
    let never_ready = async {
        let _needs_a_runtime = Spawns;
        std::future::pending::<u32>().await
    };
    // As a timeout does, the root is ready while it owns a future that is not.
    let root = futures_lite::future::or(never_ready, async { 5 });
    assert_eq!(guest().block_on(root).unwrap(), 5);
}

#[test]
fn what_a_root_that_panics_still_owns_is_dropped_within_the_runtime() {
    let mut event_loop = guest();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let never_ready = async {
            let _needs_a_runtime = Spawns;
            std::future::pending::<()>().await;
        };
        let panics = async { panic!("of the root, on purpose") };
        event_loop.block_on(futures_lite::future::zip(never_ready, panics))
    }));
    let text = panicked.map(drop).unwrap_err();
    assert_eq!(text.downcast_ref::<&str>(), Some(&"of the root, on purpose"));
    assert_eq!(event_loop.block_on(async { tokio::spawn(async { 5 }).await }).unwrap().unwrap(), 5);
}

/// Panics as it is woken.
struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("a waker, on purpose");
    }
}

#[test]
fn a_waker_that_panics_as_tokio_calls_it_is_the_error_of_the_loop_s_run() {
    let by_a_waker_that_panics = || async {
        let mut sleep = pin!(tokio::time::sleep(Duration::from_millis(1)));
        let waker = Waker::from(Arc::new(Panics));
        assert!(sleep.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        std::future::pending::<()>().await;
    };
    // Of two loops, so that the guests end together.
    let group = LoopGroup::builder().loops(2).tokio().build().unwrap();
    let [first, other] = group.handles() else { unreachable!("two were asked for") };
    let task = first.spawn(by_a_waker_that_panics).unwrap();
    assert!(wakeful::block_on(soon(task)).unwrap_err().is_cancelled());
    assert_eq!(other.post_and_wait(|| 5).unwrap(), 5);
    let error = group.shutdown(LONG).unwrap_err().to_string();
    assert!(error.contains("wakeful-0 had ended with an error: this loop's Tokio"), "{error}");
    assert!(error.contains("a waker, on purpose"), "{error}");
}
