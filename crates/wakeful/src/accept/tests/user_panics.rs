//! The library's log lines run the user's subscriber, which may panic. Such a panic is contained,
//! and no connection is lost.

use std::cell::Cell;

use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata};

use super::*;

thread_local! {
    /// How many of the next log lines on this thread panic.
    static PANICS: Cell<u32> = const { Cell::new(0) };
}

struct Panics;

impl tracing::Subscriber for Panics {
    fn enabled(&self, _metadata: &Metadata<'_>) -> bool {
        true
    }

    fn event(&self, event: &Event<'_>) {
        if let Some(left) = PANICS.get().checked_sub(1) {
            PANICS.set(left);
            panic!("of a subscriber, on purpose: {}", event.metadata().target());
        }
    }

    fn new_span(&self, _attributes: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _span: &Id, _values: &Record<'_>) {}
    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}
    fn enter(&self, _span: &Id) {}
    fn exit(&self, _span: &Id) {}
}

/// Makes the next log line on each of these loops panic.
fn panic_at_the_next_line(serving: &Serving) {
    for handle in serving.handles() {
        let prepare = || {
            std::mem::forget(tracing::subscriber::set_default(Panics));
            PANICS.set(1);
        };
        handle.post_and_wait(prepare).unwrap();
    }
}

fn panics_left(serving: &Serving, number: usize) -> u32 {
    serving.handles()[number].post_and_wait(|| PANICS.get()).unwrap()
}

#[test]
fn a_log_subscriber_that_panics_does_not_end_the_accepting() {
    for strategy in [AcceptStrategy::Exclusive, AcceptStrategy::ReusePort] {
        let serving = start(strategy, 1, vec![localhost()]);
        panic_at_the_next_line(&serving);
        fail(&serving, 0, Call::Accept, Errno::NOBUFS, 1);
        assert!(is_served(addr(&serving, 0)), "{strategy}");
        assert_eq!(panics_left(&serving, 0), 0, "{strategy}: it panicked");
        assert_eq!(serving.handles()[0].metrics().panics, 1, "{strategy}");
        assert_eq!(serving.shutdown(LONG).unwrap(), 0);
    }
}

#[test]
fn a_log_subscriber_that_panics_loses_no_arrival_that_is_passed_on() {
    const LOOPS: usize = 2;
    let serving = start(AcceptStrategy::Dispatch(Placement::RoundRobin), LOOPS, vec![localhost()]);
    let counts = serving.counts();
    panic_at_the_next_line(&serving);
    fail(&serving, 1, Call::Watch, Errno::NOSPC, 1);
    let served = (0..LOOPS).filter(|_| is_served(addr(&serving, 0))).count();
    assert_eq!((served, panics_left(&serving, 1)), (LOOPS, 0), "its subscriber panicked");
    (0..LOOPS).for_each(|_| assert!(is_served(addr(&serving, 0))));
    assert_eq!((counts.accepted(), counts.turned_away()), (4, 0));
    assert_eq!(counts.of(1).accepted(), 1, "the loop gets its share again");
    assert_eq!(serving.shutdown(LONG).unwrap(), 0);
    assert_eq!(counts.open(), 0);
}
