//! Uses that cannot work are refused with messages that help.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use wakeful::{EventLoop, LoopGroup};

use crate::{guest, on_a_guest};

fn panic_of(f: impl FnOnce()) -> String {
    let payload = catch_unwind(AssertUnwindSafe(f)).expect_err("it panics");
    let text = payload.downcast_ref::<String>().cloned();
    text.or(payload.downcast_ref::<&str>().map(|text| (*text).to_owned())).expect("a text")
}

#[test]
fn a_loop_within_a_loop_or_a_runtime_is_a_clear_panic_and_harms_neither() {
    fn in_loop() {
        for text in [
            panic_of(|| wakeful::tokio::block_on(async {})),
            panic_of(|| wakeful::block_on(async {})),
        ] {
            assert!(text.contains("already running on this thread"), "{text}");
        }
    }
    on_a_guest(async move {
        in_loop();
        wakeful::spawn(async move { in_loop() }).await.unwrap();
        tokio::task::spawn_local(async move { in_loop() }).await.unwrap();
        tokio::time::sleep(Duration::from_micros(1)).await;
        // A thread for blocking work is no loop's and no runtime's.
        let inner = || wakeful::tokio::block_on(async { tokio::spawn(async { 3 }).await.unwrap() });
        assert_eq!(tokio::task::spawn_blocking(inner).await.unwrap(), 3);
    });
    wakeful::block_on(async { in_loop() });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let text = panic_of(|| wakeful::tokio::block_on(async {}));
        assert!(text.contains("within a runtime"), "{text}");
        tokio::time::sleep(Duration::from_micros(1)).await;
    });
    assert_eq!(wakeful::tokio::block_on(async { 4 }), 4);
}

#[test]
fn a_loop_with_a_guest_cannot_be_driven_by_another_loop() {
    let mut event_loop = guest();
    for error in [
        event_loop.turn(Some(Duration::ZERO)).unwrap_err(),
        event_loop.prepare_to_park().map(drop).unwrap_err(),
    ] {
        assert_eq!(error.kind(), std::io::ErrorKind::Unsupported);
        assert!(error.to_string().contains("use `run` or `block_on`"), "{error}");
    }
    assert_eq!(event_loop.block_on(async { 5 }).unwrap(), 5);
}

#[test]
fn a_runtime_without_threads_is_refused_beside_loops() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let handle = runtime.handle().clone();
    for error in [
        LoopGroup::builder().loops(1).tokio_handle(handle.clone()).build().unwrap_err(),
        EventLoop::builder().tokio_handle(handle).build().unwrap_err(),
    ] {
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
        assert!(error.to_string().contains("new_multi_thread"), "{error}");
    }
}

#[test]
fn what_only_tokio_s_other_scheduler_can_do_says_so() {
    on_a_guest(async {
        let text = panic_of(|| tokio::task::block_in_place(|| ()));
        assert!(text.contains("multi-threaded"), "{text}");
    });
}
