//! The tasks that bring connections to their handlers outlive a panic. No user code runs in them,
//! so a fault of the test panics in its place.

use std::sync::{Arc, Mutex};

use tracing::Dispatch;

use super::*;

#[derive(Clone, Default)]
struct Log(Arc<Mutex<String>>);

impl io::Write for Log {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().push_str(&String::from_utf8_lossy(line));
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    fn dispatch(&self) -> Dispatch {
        let log = self.clone();
        tracing_subscriber::fmt().with_writer(move || log.clone()).with_ansi(false).into()
    }

    fn has(&self, texts: [&str; 2]) -> bool {
        let log = self.0.lock().unwrap();
        log.lines().any(|line| texts.iter().all(|text| line.contains(text)))
    }
}

/// Has the next such call of the loop panic, and its lines logged.
fn panic_at_the_next(serving: &Serving, number: usize, call: Call, log: &Log) {
    let lines = log.dispatch();
    let prepare = move || {
        std::mem::forget(tracing::dispatcher::set_default(&lines));
        failures::panic_at(call);
    };
    serving.handles()[number].post_and_wait(prepare).unwrap();
}

#[test]
fn an_accept_task_and_an_inbox_that_panic_are_started_again_and_that_is_logged() {
    // A second dispatcher: with only one, `tracing` may ask another test's thread, which has none.
    let _second = Log::default().dispatch();
    let dispatch = AcceptStrategy::Dispatch(Placement::RoundRobin);
    for (what, strategy, loops, panicking, call, lost) in [
        ("accepting connections", AcceptStrategy::Exclusive, 1, 0, Call::Accept, 0),
        ("accepting connections", AcceptStrategy::ReusePort, 1, 0, Call::Accept, 0),
        ("accepting connections", dispatch, 2, 0, Call::Accept, 0),
        // The connection that it is just taking is lost.
        ("taking connections from other loops", dispatch, 2, 1, Call::Watch, 1),
    ] {
        let (serving, log) = (start(strategy, loops, vec![localhost()]), Log::default());
        panic_at_the_next(&serving, panicking, call, &log);
        let served = (0..4).filter(|_| is_served(addr(&serving, 0))).count();
        assert_eq!(served, 4 - lost, "{what}, {strategy}");
        assert!(log.has([what, "a task panicked and is started again"]), "{what}, {strategy}");
        assert_eq!(serving.handles()[panicking].metrics().panics, 1, "{what}, {strategy}");
        let counts = serving.counts();
        assert_eq!((serving.shutdown(LONG).unwrap(), counts.open()), (0, 0), "{what}, {strategy}");
    }
}
