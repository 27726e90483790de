//! A loop of a group that ends although nobody has shut its group down. A process of its own,
//! because the log is the process's.

use std::time::Duration;

use wakeful::accept::{AcceptStrategy, ConnectionServer, Placement, Serving, SharedListener};
use wakeful::signal::run_until_terminated_or_failed;
use wakeful::{LoopGroup, LoopHandle};

mod logged;

/// Ends some of these loops.
type Stop = fn(&[LoopHandle]);

/// Starts a server, has `stop` end some of its loops, and returns how its run ended.
fn run(name: &str, strategy: AcceptStrategy, stop: Stop) -> std::io::Error {
    let listener = SharedListener::bind(&"127.0.0.1:0".parse().unwrap()).unwrap();
    let server = ConnectionServer::new(vec![listener])
        .strategy(strategy)
        .group(LoopGroup::builder().loops(2).name(name));
    let start = || {
        let serving = server.start(|| async |_| ())?;
        stop(serving.handles());
        Ok(serving)
    };
    let drain = |serving: Serving| serving.shutdown(Duration::ZERO);
    run_until_terminated_or_failed(start, Serving::failure, drain)
        .expect_err("the server has failed")
}

#[test]
fn it_is_logged_by_name_and_a_server_that_accepts_no_more_ends_with_an_error() {
    logged::from_now_on(tracing::Level::ERROR);
    let named = |name: &str| logged::count(&[name, "has ended"]);
    let all = |handles: &[LoopHandle]| handles.iter().for_each(LoopHandle::stop);
    let first = |handles: &[LoopHandle]| handles[0].stop();
    let cases: [(_, _, Stop, _); 3] = [
        ("shared", AcceptStrategy::Exclusive, all, 2),
        ("per-loop", AcceptStrategy::ReusePort, all, 2),
        ("dispatched", AcceptStrategy::Dispatch(Placement::RoundRobin), first, 1),
    ];
    for (name, strategy, stop, ended) in cases {
        let error = run(name, strategy, stop);
        assert!(error.to_string().contains("have ended"), "{name}: {error}");
        assert_eq!(named(name), ended, "{name}");
    }
    // A loop that the group itself ends is not an error.
    let group = LoopGroup::builder().loops(2).name("in-order").build().unwrap();
    group.shutdown(Duration::ZERO).unwrap();
    drop(LoopGroup::builder().loops(2).name("in-order").build().unwrap());
    assert_eq!(named("in-order"), 0);
}
