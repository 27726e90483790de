//! A loop inside somebody else's: plain `poll(2)`, another epoll (nested epoll), calloop, another
//! wakeful loop. No wake is late: one event is one readiness and one turn, and then there is
//! nothing. None is lost: posts, timers and sockets from several threads in random interleavings.

use std::cell::RefCell;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{CreateFlags, EventData, EventFlags, add, create, wait};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use wakeful::net::UnixStream;
use wakeful::{EventLoop, LoopHandle};

use crate::backend::Backend;
use crate::backend::driven::{BY_HAND, Driven, skip_on_guests};
use crate::background::LONG;
use crate::calloop_source::Wakeful;

on_every_backend! {
    one_event_is_one_turn_through_poll,
    one_event_is_one_turn_through_nested_epoll,
    one_event_is_one_turn_through_calloop,
    one_event_is_one_turn_through_another_wakeful_loop,
    what_a_batch_leaves_over_keeps_the_descriptor_readable,
    nothing_is_lost_through_poll,
    nothing_is_lost_through_nested_epoll,
    nothing_is_lost_through_calloop,
    nothing_is_lost_through_another_wakeful_loop,
}

/// A foreign loop with a loop of ours in it.
trait Foreign {
    fn new(event_loop: EventLoop) -> Self;

    /// One round of the foreign loop: it sleeps for up to `limit` if the loop may park, and has it
    /// take a turn if there is something to do. Returns the turns.
    fn dispatch(&mut self, limit: Duration) -> u64;
}

fn poll_for(descriptor: impl AsFd, limit: Duration) -> bool {
    let limit = Timespec::try_from(limit).unwrap();
    loop {
        match poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], Some(&limit)) {
            Err(Errno::INTR) => {}
            ready => return ready.unwrap() > 0,
        }
    }
}

/// Knows nothing of wakeful but a descriptor that turns readable.
struct Poll(EventLoop);

impl Foreign for Poll {
    fn new(event_loop: EventLoop) -> Self {
        Self(event_loop)
    }

    fn dispatch(&mut self, limit: Duration) -> u64 {
        if self.0.asks_to_park().unwrap() && !poll_for(&self.0, limit) {
            return 0;
        }
        self.0.take_turn(Some(Duration::ZERO)).unwrap();
        1
    }
}

/// The descriptor in another epoll, level-triggered.
struct Nested {
    event_loop: EventLoop,
    outer: OwnedFd,
}

impl Foreign for Nested {
    fn new(event_loop: EventLoop) -> Self {
        let outer = create(CreateFlags::CLOEXEC).unwrap();
        add(&outer, &event_loop, EventData::new_u64(0), EventFlags::IN).unwrap();
        Self { event_loop, outer }
    }

    fn dispatch(&mut self, limit: Duration) -> u64 {
        let limit = Timespec::try_from(limit).unwrap();
        let mut events = Vec::with_capacity(1);
        while self.event_loop.asks_to_park().unwrap() {
            match wait(&self.outer, spare_capacity(&mut events), Some(&limit)) {
                Err(Errno::INTR) => {}
                Ok(0) => return 0,
                ready => {
                    ready.unwrap();
                    break;
                }
            }
        }
        self.event_loop.take_turn(Some(Duration::ZERO)).unwrap();
        1
    }
}

/// calloop, by the source in examples/calloop.
struct Calloop(calloop::EventLoop<'static, u64>);

impl Foreign for Calloop {
    fn new(event_loop: EventLoop) -> Self {
        let calloop = calloop::EventLoop::try_new().unwrap();
        let source = Wakeful::new(event_loop).unwrap();
        calloop.handle().insert_source(source, |(), _, turns| *turns += 1).unwrap();
        Self(calloop)
    }

    fn dispatch(&mut self, limit: Duration) -> u64 {
        let mut turns = 0;
        self.0.dispatch(limit, &mut turns).unwrap();
        turns
    }
}

/// Another wakeful loop. It waits for the descriptor by way of its blocking pool, and the inner
/// loop's turn is inside one of its own.
struct Outer {
    outer: EventLoop,
    inner: Rc<RefCell<EventLoop>>,
}

impl Foreign for Outer {
    fn new(event_loop: EventLoop) -> Self {
        Self { outer: EventLoop::new().unwrap(), inner: Rc::new(event_loop.into()) }
    }

    fn dispatch(&mut self, limit: Duration) -> u64 {
        let inner = self.inner.clone();
        let round = self.outer.spawn(async move {
            if inner.borrow_mut().asks_to_park().unwrap() {
                let descriptor = inner.borrow().as_fd().try_clone_to_owned().unwrap();
                let wait = wakeful::task::spawn_blocking(move || poll_for(descriptor, limit));
                if !wait.await.unwrap() {
                    return 0;
                }
            }
            inner.borrow_mut().take_turn(Some(Duration::ZERO)).unwrap();
            1
        });
        self.outer.block_on(round).unwrap().unwrap()
    }
}

/// Counts what was seen of the events that were sent.
type Seen = Arc<AtomicU64>;

/// A socket that is read by a task, and its other end.
fn read_socket(event_loop: &EventLoop, seen: &Seen) -> StdUnixStream {
    let (peer, socket) = StdUnixStream::pair().unwrap();
    let seen = seen.clone();
    let reader = event_loop.spawn(async move {
        let mut socket = UnixStream::from_std(socket).unwrap();
        loop {
            let read = socket.read(&mut [0; 8]).await.unwrap();
            seen.fetch_add(read as u64, Relaxed);
            if read == 0 {
                break;
            }
        }
    });
    reader.detach();
    peer
}

fn start_timer(handle: &LoopHandle, seen: &Seen, duration: Duration) {
    let seen = seen.clone();
    let timer = handle.spawn(move || async move {
        wakeful::time::sleep(duration).await;
        seen.fetch_add(1, Relaxed);
    });
    timer.unwrap().detach();
}

/// Each kind of event by itself, sent by another thread to a loop that may park.
fn one_event_is_one_turn<B: Backend, F: Foreign>() {
    skip_on_guests(BY_HAND);
    /// How it is sent, how many turns it needs, and how many of them are seen.
    type Event = (&'static str, fn(&LoopHandle, &Seen, &mut StdUnixStream), u64, u64);
    let events: [Event; 6] = [
        ("a post", |handle, seen, _| post(handle, seen), 1, 1),
        ("a wake", |handle, _, _| handle.wake(), 1, 0),
        ("a byte", |_, _, peer| peer.write_all(b"x").unwrap(), 1, 1),
        // One to start it, one when it is due.
        ("a timer", |handle, seen, _| start_timer(handle, seen, Duration::from_millis(2)), 2, 1),
        ("50 posts", |handle, seen, _| (0..50).for_each(|_| post(handle, seen)), 1, 50),
        ("100 wakes", |handle, _, _| (0..100).for_each(|_| handle.wake()), 1, 0),
    ];
    fn post(handle: &LoopHandle, seen: &Seen) {
        let seen = seen.clone();
        handle.post(move || _ = seen.fetch_add(1, Relaxed)).unwrap();
    }

    let event_loop = B::unhurried();
    let (handle, seen) = (event_loop.handle(), Seen::default());
    let mut peer = read_socket(&event_loop, &seen);
    let mut foreign = F::new(event_loop);
    while foreign.dispatch(Duration::ZERO) > 0 {}

    for (name, send, turns, sees) in events.iter().cycle().take(5 * events.len()) {
        let before = (handle.metrics().turns, seen.load(Relaxed));
        assert_eq!(foreign.dispatch(Duration::ZERO), 0, "before {name}");
        thread::scope(|scope| {
            scope.spawn(|| send(&handle, &seen, &mut peer));
        });
        for turn in 1..=*turns {
            assert_eq!(foreign.dispatch(LONG), 1, "turn {turn} for {name}");
        }
        assert_eq!(foreign.dispatch(Duration::ZERO), 0, "after {name}");
        let after = (handle.metrics().turns, seen.load(Relaxed));
        assert_eq!(after, (before.0 + turns, before.1 + sees), "{name}");
    }
}

fn one_event_is_one_turn_through_poll<B: Backend>() {
    one_event_is_one_turn::<B, Poll>();
}

fn one_event_is_one_turn_through_nested_epoll<B: Backend>() {
    one_event_is_one_turn::<B, Nested>();
}

fn one_event_is_one_turn_through_calloop<B: Backend>() {
    one_event_is_one_turn::<B, Calloop>();
}

fn one_event_is_one_turn_through_another_wakeful_loop<B: Backend>() {
    one_event_is_one_turn::<B, Outer>();
}

/// Why a foreign loop watches the descriptor level-triggered: a turn takes one batch, and for what
/// it leaves over the kernel reports no new edge.
fn what_a_batch_leaves_over_keeps_the_descriptor_readable<B: Backend>() {
    skip_on_guests(BY_HAND);
    let event_loop = B::builder().io_batch(1).build().unwrap();
    let seen = Seen::default();
    let mut peers: Vec<_> = (0..10).map(|_| read_socket(&event_loop, &seen)).collect();
    let mut foreign = Nested::new(event_loop);
    while foreign.dispatch(Duration::ZERO) > 0 {}
    peers.iter_mut().for_each(|peer| peer.write_all(b"x").unwrap());
    for read in 1..=10 {
        assert_eq!(foreign.dispatch(LONG), 1);
        assert_eq!(seen.load(Relaxed), read);
    }
    assert_eq!(foreign.dispatch(Duration::ZERO), 0);
}

/// Xorshift: the same sequence for a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// 10,000 events of all kinds from four threads, with pauses of all lengths between them.
fn nothing_is_lost<B: Backend, F: Foreign>() {
    skip_on_guests(BY_HAND);
    const THREADS: u64 = 4;
    const EVENTS: u64 = 2_500;
    let event_loop = B::event_loop();
    let (handle, seen) = (event_loop.handle(), Seen::default());
    let producers: Vec<_> = (1..=THREADS)
        .map(|seed| {
            let (handle, seen) = (handle.clone(), seen.clone());
            let mut peer = read_socket(&event_loop, &seen);
            thread::spawn(move || {
                let mut random = Random(seed << 40 | 0x9e37_79b9);
                for _ in 0..EVENTS {
                    let counted = seen.clone();
                    let count = move || _ = counted.fetch_add(1, Relaxed);
                    match random.below(5) {
                        0 => handle.post(count).unwrap(),
                        1 => handle.post(|| wakeful::run_next_turn(count)).unwrap(),
                        2 => peer.write_all(b"x").unwrap(),
                        3 => {
                            let duration = Duration::from_micros(random.below(300));
                            start_timer(&handle, &seen, duration);
                        }
                        _ => {
                            handle.wake();
                            handle.spawn(move || async move { count() }).unwrap().detach();
                        }
                    }
                    match random.below(20) {
                        0 => thread::yield_now(),
                        1..=5 => (0..random.below(2_000)).for_each(|_| std::hint::spin_loop()),
                        _ => {}
                    }
                }
                // Kept open, so that its end is no event.
                peer
            })
        })
        .collect();
    let mut foreign = F::new(event_loop);
    while seen.load(Relaxed) < THREADS * EVENTS {
        assert!(foreign.dispatch(LONG) > 0, "a wake was lost, {} arrived", seen.load(Relaxed));
    }
    let peers: Vec<_> = producers.into_iter().map(|producer| producer.join().unwrap()).collect();
    while foreign.dispatch(Duration::ZERO) > 0 {}
    assert_eq!(seen.load(Relaxed), THREADS * EVENTS, "each once");
    drop(peers);
}

fn nothing_is_lost_through_poll<B: Backend>() {
    nothing_is_lost::<B, Poll>();
}

fn nothing_is_lost_through_nested_epoll<B: Backend>() {
    nothing_is_lost::<B, Nested>();
}

fn nothing_is_lost_through_calloop<B: Backend>() {
    nothing_is_lost::<B, Calloop>();
}

fn nothing_is_lost_through_another_wakeful_loop<B: Backend>() {
    nothing_is_lost::<B, Outer>();
}
