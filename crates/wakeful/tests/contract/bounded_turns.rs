//! Bounded turns: under each kind of flood, after how many turns everything else has had its step.
//!
//! The bound is the same for all: a timer that is due fires in the next turn, a high task runs in
//! it, and what is normal runs as soon as what was ready before it has run, [`POLLS`] of them a
//! turn. (`oversized_batch.rs` is the flood of 10,000 sockets, `starvation.rs` those of callbacks
//! and of everything at once without time.)

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io::Write;
use std::net::UdpSocket as StdUdpSocket;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::task::{Context, Wake};
use std::thread;
use std::time::{Duration, Instant};

use wakeful::net::{UdpSocket, UnixStream};
use wakeful::task::yield_now;
use wakeful::{EventLoop, Priority};

use crate::backend::driven::Driven;
use crate::backend::{Backend, localhost};
use crate::background::LONG;

on_every_backend! {
    a_fan_out_of_100_listeners_for_each_of_10_000_events,
    a_task_that_always_yields,
    a_connection_that_always_has_data,
    a_flood_of_remote_posts,
}

/// The default task budget. Time is left out: what is counted does not depend on the machine.
const POLLS: u64 = 64;
const EVENTS: u64 = 64;

fn bounded<B: Backend>() -> EventLoop {
    let builder = B::builder().task_budget(POLLS as u32).io_batch(EVENTS as usize);
    builder.turn_budget(LONG).build().unwrap()
}

/// Takes a turn, which asks the kernel once and keeps its bounds.
fn turn(event_loop: &mut EventLoop) {
    let before = event_loop.handle().metrics();
    event_loop.take_turn(Some(Duration::ZERO)).unwrap();
    let after = event_loop.handle().metrics();
    assert_eq!(after.waits - before.waits, 1);
    assert!(after.polls - before.polls <= POLLS);
    assert!(after.events - before.events <= EVENTS);
}

#[derive(Default)]
struct CountWakes(AtomicU32);

impl Wake for CountWakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// While up to `ahead` nodes are ready, everything becomes ready at once, and is served in its
/// time.
fn all_are_served(event_loop: &mut EventLoop, ahead: u64) {
    let (mut peer, socket) = StdUnixStream::pair().unwrap();
    let reader = event_loop.spawn(async move {
        let mut socket = UnixStream::from_std(socket).unwrap();
        socket.read(&mut [0; 1]).await.unwrap();
    });
    let wakes = Arc::new(CountWakes::default());
    let due = Rc::new(Cell::new(None));
    let timer = Rc::new(RefCell::new(None));
    event_loop.run_next_turn({
        let (wakes, due, timer) = (wakes.clone(), due.clone(), timer.clone());
        move || {
            due.set(Some(Instant::now() + Duration::from_millis(20)));
            let mut sleep = Box::pin(wakeful::time::sleep_until(due.get().unwrap()));
            assert!(sleep.as_mut().poll(&mut Context::from_waker(&wakes.into())).is_pending());
            timer.replace(Some(sleep));
        }
    });
    // What waits has begun to; five more than the flood itself are in line.
    let bound = (ahead + 5).div_ceil(POLLS);
    (0..bound).for_each(|_| turn(event_loop));
    while due.get().is_none_or(|due| Instant::now() < due) {
        std::hint::spin_loop();
    }

    peer.write_all(b"x").unwrap();
    let high = event_loop.spawn_with(Priority::High, async {});
    let spawned = event_loop.spawn(async {});
    let posted = Arc::new(AtomicBool::new(false));
    let mark = posted.clone();
    event_loop.handle().post(move || mark.store(true, Ordering::Relaxed)).unwrap();
    turn(event_loop);
    assert_eq!(wakes.0.load(Ordering::Relaxed), 1, "the timer fires in the next turn");
    assert!(high.is_finished(), "a high task runs in the next turn");
    (1..bound).for_each(|_| turn(event_loop));
    assert!(spawned.is_finished(), "spawned, {bound} turns ago");
    assert!(posted.load(Ordering::Relaxed), "posted, {bound} turns ago");
    assert!(reader.is_finished(), "readable, {bound} turns ago");
}

/// Each datagram wakes all 100 tasks that wait on its socket, and one of them gets it.
fn a_fan_out_of_100_listeners_for_each_of_10_000_events<B: Backend>() {
    const SOCKETS: u64 = 50;
    const LISTENERS: u64 = 100;
    const ROUNDS: u64 = 10_000 / SOCKETS;
    let mut event_loop = bounded::<B>();
    let received = Rc::new(Cell::new(0));
    let mut addrs = Vec::new();
    for _ in 0..SOCKETS {
        let socket = StdUdpSocket::bind(localhost()).unwrap();
        addrs.push(socket.local_addr().unwrap());
        let received = received.clone();
        let listen = async move {
            let socket = Rc::new(UdpSocket::from_std(socket).unwrap());
            for _ in 0..LISTENERS {
                let (socket, received) = (socket.clone(), received.clone());
                let listener = async move {
                    while socket.recv(&mut [0; 1]).await.is_ok() {
                        received.set(received.get() + 1);
                    }
                };
                wakeful::spawn(listener).detach();
            }
        };
        event_loop.spawn(listen).detach();
    }
    while event_loop.handle().metrics().polls < SOCKETS * (LISTENERS + 1) {
        turn(&mut event_loop);
    }
    let sender = StdUdpSocket::bind(localhost()).unwrap();
    let before = event_loop.handle().metrics();
    for round in 1..=ROUNDS {
        for addr in &addrs {
            sender.send_to(b"x", addr).unwrap();
        }
        if round % 50 == 0 {
            all_are_served(&mut event_loop, SOCKETS * LISTENERS);
        }
        // Until all have run, and wait again.
        let polls_due = round * SOCKETS * LISTENERS;
        while event_loop.handle().metrics().polls - before.polls < polls_due {
            turn(&mut event_loop);
        }
    }
    let events = event_loop.handle().metrics().events - before.events;
    assert!(events >= ROUNDS * SOCKETS, "{events} events");
    assert_eq!(received.get(), ROUNDS * SOCKETS);
}

fn a_task_that_always_yields<B: Backend>() {
    let mut event_loop = bounded::<B>();
    let polls = Rc::new(Cell::new(0));
    let counted = polls.clone();
    let task = async move {
        loop {
            counted.set(counted.get() + 1);
            yield_now().await;
        }
    };
    event_loop.spawn(task).detach();
    for _ in 0..20 {
        all_are_served(&mut event_loop, 1);
    }
    let turns = event_loop.handle().metrics().turns;
    assert!(polls.get() > turns, "{} polls in {turns} turns: it has what is left", polls.get());
}

fn a_connection_that_always_has_data<B: Backend>() {
    let mut event_loop = bounded::<B>();
    let (peer, socket) = StdUnixStream::pair().unwrap();
    let reads = Rc::new(Cell::new(0));
    let counted = reads.clone();
    let task = async move {
        let mut socket = UnixStream::from_std(socket).unwrap();
        loop {
            (&peer).write_all(b"x").unwrap();
            socket.read(&mut [0; 1]).await.unwrap();
            counted.set(counted.get() + 1);
        }
    };
    event_loop.spawn(task).detach();
    for _ in 0..5 {
        all_are_served(&mut event_loop, 1);
    }
    let metrics = event_loop.handle().metrics();
    assert!(reads.get() > metrics.turns, "it is read in each turn");
    assert!(reads.get() <= metrics.polls * 128, "and no more than its budget in a poll");
}

/// Four threads that post without end, each with as many posts under way as it can.
fn a_flood_of_remote_posts<B: Backend>() {
    const THREADS: u64 = 4;
    const UNDER_WAY: usize = 1_000;
    let mut event_loop = bounded::<B>();
    let handle = event_loop.handle();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let under_way = Arc::new(AtomicUsize::new(0));
                while !stop.load(Ordering::Relaxed) {
                    if under_way.load(Ordering::Relaxed) == UNDER_WAY {
                        thread::yield_now();
                        continue;
                    }
                    under_way.fetch_add(1, Ordering::Relaxed);
                    let done = under_way.clone();
                    let post = move || {
                        done.fetch_sub(1, Ordering::Relaxed);
                    };
                    handle.post(post).unwrap();
                }
            });
        }
        let _stop = StopAtEnd(&stop);
        for _ in 0..20 {
            let before = handle.metrics().remote;
            while handle.metrics().remote - before < 1_000 {
                turn(&mut event_loop);
            }
            all_are_served(&mut event_loop, THREADS * UNDER_WAY as u64);
        }
    });
}

/// Also when an assertion fails: the threads end.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
