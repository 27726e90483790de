//! A loop of a group that ends although nobody has shut its group down. A process of its own, because
//! the log is the process's.

use std::sync::Mutex;
use std::time::Duration;

use tracing::field::{Field, Visit};
use wakeful::accept::{AcceptStrategy, ConnectionServer, Placement, Serving, SharedListener};
use wakeful::signal::run_until_terminated_or_failed;
use wakeful::{LoopGroup, LoopHandle};

static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

struct Log;

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, _: &Field, value: &dyn std::fmt::Debug) {
        self.0.push_str(&format!("{value:?} "));
    }
}

impl tracing::Subscriber for Log {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() == tracing::Level::ERROR
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        LINES.lock().unwrap().push(text.0);
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

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
    tracing::subscriber::set_global_default(Log).unwrap();
    let named = |name: &str| {
        let lines = LINES.lock().unwrap();
        lines.iter().filter(|line| line.contains(name) && line.contains("has ended")).count()
    };
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
    // What the group ends itself is no error.
    let group = LoopGroup::builder().loops(2).name("in-order").build().unwrap();
    group.shutdown(Duration::ZERO).unwrap();
    drop(LoopGroup::builder().loops(2).name("in-order").build().unwrap());
    assert_eq!(named("in-order"), 0);
}
