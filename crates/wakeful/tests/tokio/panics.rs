//! A panic ends what it is in, and nothing besides.

use std::panic::{AssertUnwindSafe, catch_unwind};

use wakeful::LoopHandle;

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
