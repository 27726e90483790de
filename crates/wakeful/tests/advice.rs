//! A panic of a Tokio type that has no runtime is logged with what to do. A process of its own,
//! because the log is the process's.

mod logged;

use std::time::{Duration, Instant};

#[test]
fn a_panic_for_want_of_a_tokio_runtime_is_logged_with_what_to_do() {
    logged::from_now_on(tracing::Level::TRACE);
    let advice = || logged::count(&["wakeful::time"]);
    wakeful::block_on(async {
        assert!(wakeful::spawn(async { panic!("an ordinary one") }).await.is_err());
        assert_eq!(advice(), 0);
        let wanting = async {
            panic!(
                "there is no reactor running, must be called from the context of a Tokio 1.x runtime"
            )
        };
        assert!(wakeful::spawn(wanting).await.is_err());
        assert_eq!(advice(), 1);
        // Of many, one line a second.
        for _ in 0..100 {
            let wanting = async { panic!("must be called from the context of a Tokio runtime") };
            assert!(wakeful::spawn(wanting).await.is_err());
        }
        assert!(advice() < 50);
    });
    assert!(logged::count(&["no reactor running"]) > 0);
    a_runtime_that_is_not_the_right_one_is_not_called_none();
}

/// A runtime beside the loop that has ended, or was built without timers. In the same test, because
/// the log, and its limit of a line a second, is the process's.
fn a_runtime_that_is_not_the_right_one_is_not_called_none() {
    let (none, of_another) = (["no Tokio runtime runs"], ["has to outlive the loops"]);
    let before = logged::count(&none);
    assert_eq!(logged::count(&of_another), 0);
    let began = Instant::now();
    wakeful::block_on(async {
        while logged::count(&of_another) == 0 {
            assert!(began.elapsed() < Duration::from_secs(20), "it is never told");
            let wanting =
                async { panic!("A Tokio 1.x context was found, but it is being shutdown.") };
            assert!(wakeful::spawn(wanting).await.is_err());
            wakeful::time::sleep(Duration::from_millis(1)).await;
        }
    });
    assert_eq!(logged::count(&none), before);
}
