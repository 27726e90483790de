//! What a loop counts: exactly, for any thread to read, also while the loop is blocked.

use std::io::Write;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use wakeful::net::UnixStream;

use crate::backend::Backend;

on_every_backend! {
    metrics_are_read_while_the_loop_is_blocked,
    metrics_count_exactly_what_was_done,
}

fn metrics_are_read_while_the_loop_is_blocked<B: Backend>() {
    let group = B::group().loops(1).build().unwrap();
    let handle = &group.handles()[0];
    let (entered, is_entered) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    handle
        .run(move || {
            entered.send(()).unwrap();
            let _ = released.recv();
        })
        .unwrap();
    is_entered.recv().unwrap();
    let first = handle.metrics();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..1_000).for_each(|_| assert_eq!(handle.metrics(), first)));
        }
    });
    drop(release);
    handle.run_and_wait(|| ()).unwrap();
    assert!(handle.metrics().turns >= first.turns);
}

fn metrics_count_exactly_what_was_done<B: Backend>() {
    let mut event_loop = B::event_loop();
    let handle = event_loop.handle();
    let (mut peer, socket) = StdUnixStream::pair().unwrap();
    let reader = event_loop.spawn(async move {
        let mut socket = UnixStream::from_std(socket).unwrap();
        while socket.read(&mut [0; 8]).await.unwrap() > 0 {}
    });
    for _ in 0..3 {
        event_loop.turn(Some(Duration::ZERO)).unwrap();
    }
    let before = handle.metrics();
    for _ in 0..10 {
        peer.write_all(b"an event").unwrap();
        let pusher = handle.clone();
        thread::spawn(move || pusher.run(|| ()).unwrap()).join().unwrap();
        event_loop.run_this_turn(|| ());
        event_loop.run_next_turn(|| panic!("on purpose"));
        event_loop.turn(Some(Duration::ZERO)).unwrap();
    }
    let after = handle.metrics();
    assert_eq!(after.turns - before.turns, 10);
    assert_eq!(after.waits - before.waits, 10);
    assert_eq!(after.parks, before.parks);
    assert_eq!(after.events - before.events, 10);
    assert_eq!(after.remote - before.remote, 10);
    assert_eq!(after.polls - before.polls, 20, "the reader's, and the closure's");
    assert_eq!(after.callbacks - before.callbacks, 20);
    assert_eq!(after.panics - before.panics, 10);
    assert_eq!(after.timers, before.timers);
    drop(peer);
    event_loop.block_on(reader).unwrap().unwrap();
}
