//! A panic of a Tokio type that has no runtime is logged with what to do. A process of its own,
//! because the log is the process's.

mod logged;

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
}
