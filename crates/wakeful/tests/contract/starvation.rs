//! Starvation: whatever floods the loop, every other kind that is ready gets at least one step a
//! turn, and a turn's time slice is kept by each phase.

use std::cell::Cell;
use std::io::Write;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::rc::Rc;
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use wakeful::net::UnixStream;
use wakeful::{EventLoop, run_next_turn, run_this_turn};

use crate::backend::Backend;
use crate::backend::driven::{Driven, has_guest};
use crate::background::LONG;

on_every_backend! {
    starvation_of_any_kind_by_all_the_others,
    callback_time_slice_bounds_every_phase,
    idle_starvation_by_callbacks_that_never_end,
    starvation_of_the_kernel_by_posts_that_never_end,
}

/// Most steps of a phase whose turn has no time left: the clock is looked at after so many.
const STEPS: u64 = 8;

#[derive(Clone, Default)]
struct Counts(Rc<[Cell<u64>; 5]>);

impl Counts {
    fn count(&self, kind: usize) {
        self.0[kind].set(self.0[kind].get() + 1);
    }

    fn get(&self) -> [u64; 5] {
        self.0.each_ref().map(Cell::get)
    }
}

const TIMER: usize = 0;
const NEXT_TURN: usize = 1;
const TASK: usize = 2;
const POST: usize = 3;
const THIS_TURN: usize = 4;

fn again_next_turn(counts: Counts) {
    counts.count(NEXT_TURN);
    run_next_turn(move || again_next_turn(counts));
}

fn again_this_turn(counts: Counts) {
    counts.count(THIS_TURN);
    run_this_turn(move || again_this_turn(counts));
}

/// Wakes itself for ever.
fn greedy_task(event_loop: &EventLoop, counts: &Counts) {
    let counts = counts.clone();
    let task = std::future::poll_fn(move |cx| {
        counts.count(TASK);
        cx.waker().wake_by_ref();
        Poll::<()>::Pending
    });
    event_loop.spawn(task).detach();
}

/// Ready in its first poll that comes after `deadline`.
fn timer_task(event_loop: &EventLoop, counts: &Counts, deadline: Instant) {
    let counts = counts.clone();
    let task = async move {
        wakeful::time::sleep_until(deadline).await;
        counts.count(TIMER);
    };
    event_loop.spawn(task).detach();
}

/// With no time for a turn, and all kinds ready without end, each kind that is ready runs in every
/// turn.
fn starvation_of_any_kind_by_all_the_others<B: Backend>() {
    let mut event_loop = B::builder().turn_budget(Duration::ZERO).build().unwrap();
    let handle = event_loop.handle();
    let counts = Counts::default();
    greedy_task(&event_loop, &counts);
    greedy_task(&event_loop, &counts);
    for _ in 0..20 {
        let (this, next) = (counts.clone(), counts.clone());
        event_loop.run_this_turn(move || again_this_turn(this));
        event_loop.run_next_turn(move || again_next_turn(next));
    }
    thread_local! {
        static POSTED: Cell<u64> = const { Cell::new(0) };
    }
    for _ in 0..50 {
        let before = (counts.get(), POSTED.get());
        thread::scope(|scope| {
            scope.spawn(|| handle.post(|| POSTED.set(POSTED.get() + 1)).unwrap());
        });
        event_loop.take_turn(Some(LONG)).unwrap();
        for kind in [NEXT_TURN, TASK, THIS_TURN] {
            let ran = counts.get()[kind] - before.0[kind];
            assert!((1..=STEPS).contains(&ran), "kind {kind} ran {ran} times");
        }
        assert_eq!(POSTED.get() - before.1, 1, "the post of this turn");
    }
    assert_eq!(handle.metrics().parks, 0);
}

/// Timers, callbacks and tasks beyond a turn's time are left for the next turns, eight at a time,
/// and none is left out.
fn callback_time_slice_bounds_every_phase<B: Backend>() {
    const ALL: u64 = 40;
    let mut event_loop = B::builder().turn_budget(Duration::ZERO).build().unwrap();
    let counts = Counts::default();
    let due = Instant::now() + Duration::from_millis(30);
    for _ in 0..ALL {
        timer_task(&event_loop, &counts, due);
    }
    // They begin to wait, eight a turn.
    while event_loop.handle().metrics().polls < ALL {
        event_loop.take_turn(Some(Duration::ZERO)).unwrap();
    }
    for _ in 0..ALL {
        let counts = [(); 3].map(|()| counts.clone());
        let [next, this, post] = counts;
        event_loop.run_next_turn(move || next.count(NEXT_TURN));
        event_loop.run_this_turn(move || this.count(THIS_TURN));
        event_loop.spawn(async move { post.count(POST) }).detach();
    }
    while Instant::now() < due {
        std::hint::spin_loop();
    }
    let before = event_loop.handle().metrics();
    for turn in 1..=ALL / STEPS {
        event_loop.take_turn(Some(LONG)).unwrap();
        let now = event_loop.handle().metrics();
        assert_eq!(now.timers - before.timers, STEPS * turn);
        assert_eq!(now.callbacks - before.callbacks, 2 * STEPS * turn);
        assert_eq!(now.polls - before.polls, STEPS * turn);
        assert_eq!(counts.get()[NEXT_TURN], STEPS * turn);
        assert_eq!(counts.get()[THIS_TURN], STEPS * turn);
    }
    // The timers' tasks stood in line behind the others.
    while counts.get()[TIMER] < ALL {
        event_loop.take_turn(Some(LONG)).unwrap();
    }
    assert_eq!(counts.get()[POST], ALL);
    assert_eq!(event_loop.handle().metrics().parks, 0);
}

/// Callbacks that queue themselves for ever keep the loop from sleeping, and from nothing else:
/// timers, sockets and posts are as punctual as without them.
fn idle_starvation_by_callbacks_that_never_end<B: Backend>() {
    let mut event_loop = B::event_loop();
    let counts = Counts::default();
    let (this, next) = (counts.clone(), counts.clone());
    event_loop.run_this_turn(move || again_this_turn(this));
    event_loop.run_next_turn(move || again_next_turn(next));
    let (mut peer, socket) = StdUnixStream::pair().unwrap();
    let read = Rc::new(Cell::new(0));
    let seen = read.clone();
    event_loop
        .spawn(async move {
            let mut socket = UnixStream::from_std(socket).unwrap();
            while socket.read(&mut [0; 8]).await.unwrap() > 0 {
                seen.set(seen.get() + 1);
            }
        })
        .detach();
    event_loop.take_turn(Some(LONG)).unwrap();
    for round in 1..=20 {
        // A byte is read in the turn after it was written.
        peer.write_all(b"x").unwrap();
        event_loop.take_turn(Some(LONG)).unwrap();
        assert_eq!(read.get(), round);
        // A timer fires in the first turn that begins after its deadline.
        let due = Instant::now() + Duration::from_micros(500);
        timer_task(&event_loop, &counts, due);
        event_loop.take_turn(Some(LONG)).unwrap();
        while Instant::now() < due {
            std::hint::spin_loop();
        }
        event_loop.take_turn(Some(LONG)).unwrap();
        assert_eq!(counts.get()[TIMER], round);
    }
    let metrics = event_loop.handle().metrics();
    assert_eq!((metrics.parks, metrics.turns), (0, 1 + 20 * 3));
    assert_eq!(counts.get()[NEXT_TURN], metrics.turns);
}

/// A loop that finds posts whenever it would sleep asks the kernel at least in every second turn.
fn starvation_of_the_kernel_by_posts_that_never_end<B: Backend>() {
    let mut event_loop = B::event_loop();
    let handle = event_loop.handle();
    let (mut peer, socket) = StdUnixStream::pair().unwrap();
    let read = Rc::new(Cell::new(0));
    let seen = read.clone();
    event_loop
        .spawn(async move {
            let mut socket = UnixStream::from_std(socket).unwrap();
            while socket.read(&mut [0; 8]).await.unwrap() > 0 {
                seen.set(seen.get() + 1);
            }
        })
        .detach();
    event_loop.take_turn(Some(Duration::ZERO)).unwrap();
    for round in 1..=20 {
        peer.write_all(b"x").unwrap();
        let before = handle.metrics();
        for _ in 0..2 {
            thread::scope(|scope| {
                scope.spawn(|| handle.post(|| ()).unwrap());
            });
            event_loop.take_turn(Some(LONG)).unwrap();
        }
        assert_eq!(read.get(), round, "within two turns");
        let now = handle.metrics();
        // A turn of a guest's run always asks.
        let asked = now.waits - before.waits;
        assert!(asked == 1 || has_guest() && asked == 2, "{asked}");
        assert_eq!(now.parks, before.parks);
    }
}
