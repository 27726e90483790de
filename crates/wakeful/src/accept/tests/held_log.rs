//! The library's log lines run the user's subscriber, which may block. Then it blocks one loop, as
//! a handler does that blocks, and the other loops take the new connections.

use std::os::fd::OwnedFd;
use std::sync::mpsc;

use super::*;
use crate::sys::held_log::HeldLog;
use crate::time::sleep;

/// A worker with two loops of which the first one accepts, a subscriber that blocks each of them at
/// a line with this text, and the master's end of the lifeline.
fn dispatched(text: &'static str) -> (Serving, HeldLog, OwnedFd) {
    let (lifeline, master) = rustix::pipe::pipe().unwrap();
    let sibling = Siblings::new(1, lifeline).unwrap().join();
    let group = LoopGroup::builder().loops(2).spread().sibling(sibling);
    let dispatch = AcceptStrategy::Dispatch(Placement::RoundRobin);
    let (serving, log) = (start_group(dispatch, group, vec![localhost()]), HeldLog::at(text));
    for handle in serving.handles() {
        handle.post_and_wait(log.subscribe()).unwrap();
    }
    (serving, log, master)
}

#[test]
fn a_dispatcher_that_a_log_line_of_a_review_blocks_has_another_loop_stand_in() {
    let (serving, log, _master) = dispatched("a loop gets no connections");
    let address = addr(&serving, 0);
    assert!(is_served(address));
    // While the other loop is stuck, each review of the dispatcher has the kernel look for a
    // connection that the other one was woken for.
    let (release, released) = mpsc::channel::<()>();
    serving.handles()[1].post(move || _ = released.recv()).unwrap();
    let reviews = serving.handles()[0].spawn(|| async {
        loop {
            // The line is logged once a second, and other tests may have logged it.
            failures::fail(Call::Watch, Errno::NOSPC, 1);
            for _ in 0..60 {
                sleep(Duration::from_millis(5)).await;
            }
        }
    });
    log.wait();
    drop(release);
    (0..4).for_each(|_| assert!(is_served(address)));
    drop(log);
    reviews.unwrap().abort();
    fail(&serving, 0, Call::Watch, Errno::NOSPC, 0);
    assert!(is_served(address));
    assert_eq!(serving.shutdown(LONG).unwrap(), 0);
}

#[test]
fn a_log_line_that_blocks_keeps_no_connection_from_the_other_loop() {
    let (serving, log, _master) = dispatched("a loop cannot take a connection");
    let counts = serving.counts();
    fail(&serving, 1, Call::Watch, Errno::NOSPC, 1);
    // One of these is for the loop that refuses it.
    (0..2).for_each(|_| assert!(is_served(addr(&serving, 0))));
    log.wait();
    drop(log);
    assert_eq!((counts.of(1).passed_on(), counts.turned_away()), (1, 0));
    assert_eq!(serving.shutdown(LONG).unwrap(), 0);
}
