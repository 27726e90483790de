//! An oversized batch cannot hold a loop: 10,000 sockets become ready at once, and what else is due
//! does not wait for them. In a process of its own, which may have so many descriptors.

use std::cell::Cell;
use std::io::Write;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::rc::Rc;
use std::time::{Duration, Instant};

use rustix::process::{Resource, getrlimit, setrlimit};
use wakeful::Priority;
use wakeful::net::UnixStream;
use wakeful::time::sleep_until;

#[macro_use]
#[path = "contract/backend.rs"]
mod backend;

use backend::Backend;

on_every_backend! {
    a_due_timer_a_post_and_a_high_socket_wait_for_one_turn_of_10_000_ready_sockets,
}

/// As many sockets as are promised, or as this process may have.
fn sockets() -> usize {
    const SOCKETS: usize = 10_000;
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).unwrap();
    let may = limit.maximum.map_or(usize::MAX, |maximum| maximum as usize).saturating_sub(100);
    if may < SOCKETS {
        println!("only {may} of {SOCKETS} sockets: RLIMIT_NOFILE");
    }
    SOCKETS.min(may)
}

fn a_due_timer_a_post_and_a_high_socket_wait_for_one_turn_of_10_000_ready_sockets<B: Backend>() {
    // Fewer polls than events, so that the flood of ready tasks grows.
    const EVENTS: u32 = 64;
    const POLLS: u32 = 16;
    let sockets = sockets();
    let builder = B::builder().io_batch(EVENTS as usize).task_budget(POLLS);
    let mut event_loop = builder.build().unwrap();
    let handle = event_loop.handle();
    // Duplicates of one socket: one write makes all of them ready.
    let (mut peer, socket) = StdUnixStream::pair().unwrap();
    let served = Rc::new(Cell::new(0));
    for _ in 0..sockets {
        let (socket, served) = (socket.try_clone().unwrap(), served.clone());
        event_loop
            .spawn(async move {
                let mut socket = UnixStream::from_std(socket).unwrap();
                socket.read(&mut [0; 1]).await.unwrap();
                served.set(served.get() + 1);
            })
            .detach();
    }
    let (mut urgent, high_socket) = StdUnixStream::pair().unwrap();
    let high = event_loop.spawn_with(Priority::High, async move {
        let mut socket = UnixStream::from_std(high_socket).unwrap();
        socket.set_priority(Priority::High).unwrap();
        socket.read(&mut [0; 1]).await.unwrap();
    });
    let registered = format!("descriptors: {}", sockets + 1);
    while !format!("{event_loop:?}").contains(&registered) {
        event_loop.turn(Some(Duration::ZERO)).unwrap();
    }
    // What the kernel says about new descriptors: that they may be written to.
    let mut events = u64::MAX;
    while std::mem::replace(&mut events, handle.metrics().events) != handle.metrics().events {
        event_loop.turn(Some(Duration::ZERO)).unwrap();
    }
    let due = Instant::now() + Duration::from_millis(1);
    let timer = event_loop.spawn(sleep_until(due));
    event_loop.turn(Some(Duration::ZERO)).unwrap();
    peer.write_all(&vec![0; sockets]).unwrap();
    while Instant::now() < due {}
    // The timer's turn, the post's and the high socket's: each has at most a budget's share of the
    // flood in front of it.
    let before = handle.metrics();
    event_loop.turn(Some(Duration::ZERO)).unwrap();
    assert_eq!(handle.metrics().timers - before.timers, 1);
    assert!(handle.metrics().events - before.events <= EVENTS.into());
    let pusher = handle.clone();
    std::thread::spawn(move || pusher.post(|| ()).unwrap()).join().unwrap();
    event_loop.turn(Some(Duration::ZERO)).unwrap();
    assert_eq!(handle.metrics().remote - before.remote, 1, "taken in the next turn");
    urgent.write_all(b"x").unwrap();
    event_loop.turn(Some(Duration::ZERO)).unwrap();
    assert!(high.is_finished(), "read in the next turn");
    while !timer.is_finished() {
        event_loop.turn(Some(Duration::ZERO)).unwrap();
    }
    // It was woken before all but the first batch, and tasks run in the order of their wakes.
    assert!(served.get() <= 2 * EVENTS, "{} were served first", served.get());
    while served.get() < u32::try_from(sockets).unwrap() {
        let before = handle.metrics();
        event_loop.turn(Some(Duration::ZERO)).unwrap();
        let after = handle.metrics();
        assert!(after.polls - before.polls <= POLLS.into());
        assert!(after.events - before.events <= EVENTS.into());
    }
}
