//! Servers that accept from the same socket and share their turns, as the workers of a master do.
//! Here they are in one process, which is all the same to them.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self as kernel, CreateFlags, EventData, EventFlags};
use wakeful::LoopGroupBuilder;
use wakeful::accept::{
    AcceptStrategy, Connection, ConnectionServer, Counts, Placement, Serving, SharedListener,
    Sibling, Siblings,
};
use wakeful::group::Targets;

use crate::backend::Backend;
use crate::background::{LONG, until_asleep};

on_every_backend! {
    with_little_to_do_one_of_several_servers_takes_all_and_nobody_is_woken_in_vain,
    when_one_server_is_busy_others_take_part,
    what_comes_while_the_only_active_server_is_full_goes_to_another_one,
    what_comes_at_another_listener_of_a_server_that_is_full_goes_to_another_one,
    what_another_loop_of_a_full_server_was_woken_for_goes_to_another_one,
    what_comes_while_the_only_active_server_is_blocked_goes_to_another_one,
    when_an_active_server_drains_another_one_takes_its_place,
    when_an_active_server_is_dead_another_one_takes_its_place,
    without_a_master_all_servers_wait_for_connections,
    a_server_that_was_stopped_when_its_master_died_accepts_again,
    what_another_process_was_woken_for_goes_to_a_server_that_spreads,
    more_servers_than_places_all_serve,
    a_sibling_is_for_one_group_at_a_time,
}

/// What a byte asks for.
const ECHO: u8 = b'e';
/// Takes the CPU for a while.
const WORK: u8 = b'w';
/// Blocks the loop until [`Workers::release`].
const BLOCK: u8 = b'b';

/// How the loops of each server share what it accepts.
const STRATEGIES: [AcceptStrategy; 2] =
    [AcceptStrategy::Exclusive, AcceptStrategy::Dispatch(Placement::PowerOfTwoChoices)];

struct Workers {
    siblings: Siblings,
    /// The master's end.
    master: Option<OwnedFd>,
    places: Vec<Option<Sibling>>,
    serving: Vec<Option<Serving>>,
    counts: Vec<Arc<Counts>>,
    addr: SocketAddr,
    held: Arc<Held>,
}

/// Loops that a handler blocks.
#[derive(Default)]
struct Held {
    now: AtomicUsize,
    is_released: AtomicBool,
}

impl Held {
    /// Until [`Workers::release`].
    fn block(&self) {
        self.now.fetch_add(1, Ordering::SeqCst);
        while !self.is_released.load(Ordering::SeqCst) {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Workers {
    fn start<B: Backend>(by: AcceptStrategy, wanted: usize, places: usize, loops: usize) -> Self {
        Self::start_with::<B>(wanted, places, loops, |server| server.strategy(by))
    }

    fn start_with<B: Backend>(
        wanted: usize,
        places: usize,
        loops: usize,
        settings: impl Fn(ConnectionServer) -> ConnectionServer,
    ) -> Self {
        let group = B::group().loops(loops);
        Self::start_on(&[localhost()], &group, wanted, places, settings)
    }

    /// `addr` is that of the first listener.
    fn start_on(
        listeners: &[SharedListener],
        group: &LoopGroupBuilder,
        wanted: usize,
        places: usize,
        settings: impl Fn(ConnectionServer) -> ConnectionServer,
    ) -> Self {
        let (lifeline, master) = rustix::pipe::pipe().unwrap();
        let siblings = Siblings::new(places, lifeline).unwrap();
        let held = Arc::new(Held::default());
        let places: Vec<_> = (0..wanted).map(|_| siblings.join()).collect();
        let start = |sibling: &Option<Sibling>| {
            let sockets = listeners.iter().map(|listener| {
                let socket = listener.as_fd().try_clone_to_owned().unwrap();
                SharedListener::from_socket(socket).unwrap()
            });
            let group = group.clone().sibling(sibling.clone());
            let held = held.clone();
            let server = settings(ConnectionServer::new(sockets.collect()).group(group));
            Some(server.start(move || handler(held.clone())).unwrap())
        };
        let serving: Vec<Option<Serving>> = places.iter().map(start).collect();
        let counts = serving.iter().flatten().map(Serving::counts).collect();
        let (addr, master) = (listeners[0].socket_addr().unwrap(), Some(master));
        Self { siblings, master, places, serving, counts, addr, held }
    }

    /// How many connections each has taken.
    fn accepted(&self) -> Vec<u64> {
        self.counts.iter().map(|counts| counts.accepted()).collect()
    }

    fn wakes_in_vain(&self) -> u64 {
        self.counts.iter().map(|counts| counts.wakes_in_vain()).sum()
    }

    /// Asks on a connection of its own, until an answer has come.
    fn asks(&self, what: u8) {
        asks(self.addr, what);
    }

    fn begins(&self, what: u8) -> TcpStream {
        begins(self.addr, what)
    }

    /// A connection that is served, and stays open; with the server that took it.
    fn keeps_one(&self) -> (usize, TcpStream) {
        let (start, before) = (Instant::now(), self.accepted());
        let stream = TcpStream::connect(self.addr).unwrap();
        loop {
            let now = self.accepted();
            if let Some(one) = (0..now.len()).find(|one| now[*one] > before[*one]) {
                return (one, stream);
            }
            assert!(start.elapsed() < LONG, "{now:?}");
            thread::yield_now();
        }
    }

    /// Blocks the loop that takes this. It may take others with it, until its handler runs: it runs
    /// when this returns.
    fn blocks_one(&self) -> TcpStream {
        let (start, before) = (Instant::now(), self.held.now.load(Ordering::SeqCst));
        let stream = self.begins(BLOCK);
        while self.held.now.load(Ordering::SeqCst) == before {
            assert!(start.elapsed() < LONG);
            thread::yield_now();
        }
        stream
    }

    /// Until a single server takes what comes. Those that have just started have looked by then.
    fn settle(&self) -> usize {
        let start = Instant::now();
        loop {
            let before = self.accepted();
            (0..5).for_each(|_| self.asks(ECHO));
            let now = self.accepted();
            let took: Vec<_> = (0..now.len()).filter(|one| now[*one] > before[*one]).collect();
            if let [one] = took[..] {
                return one;
            }
            assert!(start.elapsed() < LONG, "{now:?}");
            // Else they have enough to do.
            thread::sleep(Duration::from_millis(10));
        }
    }

    fn release(&self) {
        self.held.is_released.store(true, Ordering::SeqCst);
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.release();
    }
}

fn localhost() -> SharedListener {
    SharedListener::bind(&crate::backend::localhost().into()).unwrap()
}

fn begins(addr: SocketAddr, what: u8) -> TcpStream {
    let mut stream = TcpStream::connect(addr).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream.write_all(&[what]).unwrap();
    stream
}

fn asks(addr: SocketAddr, what: u8) {
    begins(addr, what).read_exact(&mut [0]).expect("an answer");
}

fn handler(held: Arc<Held>) -> impl Fn(Connection) -> std::pin::Pin<Box<dyn Future<Output = ()>>> {
    move |mut connection| {
        let held = held.clone();
        Box::pin(async move {
            let mut byte = [0];
            if !matches!(connection.stream.read(&mut byte).await, Ok(1)) {
                return;
            }
            let start = Instant::now();
            match byte[0] {
                WORK => while start.elapsed() < Duration::from_millis(1) {},
                BLOCK => held.block(),
                _ => {}
            }
            let _ = connection.stream.write_all(&byte).await;
        })
    }
}

fn a_sibling_is_for_one_group_at_a_time<B: Backend>() {
    let (lifeline, _master) = rustix::pipe::pipe().unwrap();
    let siblings = Siblings::new(2, lifeline).unwrap();
    let (sibling, other) = (siblings.join(), siblings.join());
    let build = |sibling: &Option<Sibling>| B::group().loops(2).sibling(sibling.clone()).build();
    let first = build(&sibling).unwrap();
    let error = build(&sibling).expect_err("it has the place already");
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    assert!(error.to_string().contains("another group has the place"), "{error}");
    let second = build(&other).unwrap();

    // Its loops have ended, though somebody still reads how busy they were.
    let loads = first.loads();
    first.shutdown(LONG).unwrap();
    build(&sibling).unwrap();
    build(&sibling).unwrap();
    assert_eq!(loads.loops(), 2);
    // The others' place is still theirs.
    build(&other).expect_err("it has the place still");
    drop(second);
}

fn with_little_to_do_one_of_several_servers_takes_all_and_nobody_is_woken_in_vain<B: Backend>() {
    for by in STRATEGIES {
        for loops in [1, 2] {
            let workers = Workers::start::<B>(by, 4, 8, loops);
            let start = Instant::now();
            loop {
                let one = workers.settle();
                let (before, in_vain) = (workers.accepted(), workers.wakes_in_vain());
                // Slow enough that it sleeps in between.
                for _ in 0..50 {
                    workers.asks(ECHO);
                    thread::sleep(Duration::from_millis(2));
                }
                let (now, in_vain) = (workers.accepted(), workers.wakes_in_vain() - in_vain);
                if now[one] - before[one] == 50 && in_vain == 0 {
                    break;
                }
                // Where other programs take the CPUs, it may be too busy for that.
                assert!(start.elapsed() < LONG, "{before:?} {now:?}, {in_vain} in vain");
            }
        }
    }
}

fn when_one_server_is_busy_others_take_part<B: Backend>() {
    for by in STRATEGIES {
        let workers = Workers::start::<B>(by, 3, 8, 1);
        workers.settle();
        let start = Instant::now();
        let (addr, counts) = (workers.addr, &workers.counts);
        let taken = || counts.iter().map(|counts| counts.accepted()).collect::<Vec<_>>();
        thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| {
                    while taken().iter().filter(|taken| **taken > 20).count() < 3 {
                        assert!(start.elapsed() < LONG, "{:?}", taken());
                        asks(addr, WORK);
                    }
                });
            }
        });
        // And fewer again when there is little to do.
        workers.settle();
    }
}

fn what_comes_while_the_only_active_server_is_full_goes_to_another_one<B: Backend>() {
    for by in STRATEGIES {
        let workers =
            Workers::start_with::<B>(3, 8, 1, |server| server.strategy(by).max_connections(1));
        let one = workers.settle();
        let mut open = Vec::new();
        for _ in 0..2 {
            open.push(workers.keeps_one().1);
            (0..5).for_each(|_| workers.asks(ECHO));
        }
        // When there is room again, light load is with one again.
        drop(open);
        workers.settle();
        assert!(workers.accepted()[one] > 0);
    }
}

fn what_comes_at_another_listener_of_a_server_that_is_full_goes_to_another_one<B: Backend>() {
    for by in STRATEGIES {
        let listeners = [localhost(), localhost()];
        let group = B::group().loops(1);
        let settings = |server: ConnectionServer| server.strategy(by).max_connections(1);
        let workers = Workers::start_on(&listeners, &group, 2, 8, settings);
        let another = listeners[1].socket_addr().unwrap();
        for _ in 0..3 {
            workers.settle();
            let (one, open) = workers.keeps_one();
            // The task that waits at the other listener does not know that the server is full.
            until_asleep(&workers.serving[one].as_ref().unwrap().handles()[0]);
            (0..5).for_each(|_| asks(another, ECHO));
            drop(open);
        }
    }
}

/// Both loops are active, and only one of them knows that the server is full.
fn what_another_loop_of_a_full_server_was_woken_for_goes_to_another_one<B: Backend>() {
    let group = B::group().loops(2).concentrate(Targets::new().least(2));
    let settings = |server: ConnectionServer| server.max_connections(1);
    let workers = Workers::start_on(&[localhost()], &group, 2, 8, settings);
    for _ in 0..3 {
        workers.settle();
        let (one, open) = workers.keeps_one();
        let full = workers.serving[one].as_ref().unwrap();
        full.handles().iter().for_each(until_asleep);
        (0..5).for_each(|_| workers.asks(ECHO));
        drop(open);
    }
}

fn what_comes_while_the_only_active_server_is_blocked_goes_to_another_one<B: Backend>() {
    for by in STRATEGIES {
        let workers = Workers::start::<B>(by, 3, 8, 1);
        workers.settle();
        // The second one that is blocked is followed, too.
        let blocked: Vec<_> = (0..2)
            .map(|_| {
                let blocked = workers.blocks_one();
                (0..20).for_each(|_| workers.asks(ECHO));
                blocked
            })
            .collect();
        workers.release();
        for mut stream in blocked {
            stream.read_exact(&mut [0]).unwrap();
        }
    }
}

fn when_an_active_server_drains_another_one_takes_its_place<B: Backend>() {
    for by in STRATEGIES {
        let mut workers = Workers::start::<B>(by, 3, 8, 1);
        for _ in 0..3 {
            let one = workers.settle();
            let serving = workers.serving[one].take().unwrap();
            assert_eq!(serving.shutdown(LONG).unwrap(), 0);
            if workers.serving.iter().any(Option::is_some) {
                workers.asks(ECHO);
            }
        }
    }
}

fn when_an_active_server_is_dead_another_one_takes_its_place<B: Backend>() {
    for by in STRATEGIES {
        let mut workers = Workers::start::<B>(by, 3, 8, 1);
        for left in [2, 1] {
            let one = workers.settle();
            drop(workers.serving[one].take());
            workers.siblings.remove(&workers.places[one].take().unwrap());
            (0..5).for_each(|_| workers.asks(ECHO));
            assert_eq!(workers.serving.iter().flatten().count(), left);
        }
    }
}

fn without_a_master_all_servers_wait_for_connections<B: Backend>() {
    for by in STRATEGIES {
        let mut workers = Workers::start::<B>(by, 3, 8, 1);
        let one = workers.settle();
        drop(workers.master.take());
        // Nobody says that this one is dead.
        drop(workers.serving[one].take());
        (0..5).for_each(|_| workers.asks(ECHO));
    }
}

fn a_server_that_was_stopped_when_its_master_died_accepts_again<B: Backend>() {
    for by in STRATEGIES {
        let mut workers = Workers::start::<B>(by, 2, 8, 1);
        let one = workers.settle();
        workers.siblings.is_stopped(workers.places[1 - one].as_ref().unwrap());
        // Nobody says that it continues.
        drop(workers.master.take());
        drop(workers.serving[one].take());
        (0..5).for_each(|_| workers.asks(ECHO));
    }
}

/// Another process is woken first, and does not accept.
fn what_another_process_was_woken_for_goes_to_a_server_that_spreads<B: Backend>() {
    for is_master_gone in [false, true] {
        let listener = localhost();
        let other = kernel::create(CreateFlags::CLOEXEC).unwrap();
        let flags = EventFlags::IN | EventFlags::EXCLUSIVE;
        kernel::add(&other, &listener, EventData::new_u64(0), flags).unwrap();
        let group = B::group().loops(1).spread();
        let mut workers = Workers::start_on(&[listener], &group, 1, 8, |server| server);
        if is_master_gone {
            drop(workers.master.take());
            workers.asks(ECHO);
        }
        let woken = thread::spawn(move || {
            let mut events = Vec::with_capacity(1);
            kernel::wait(&other, spare_capacity(&mut events), None).unwrap();
        });
        let mut clients = Vec::new();
        while !woken.is_finished() {
            clients.push(workers.begins(ECHO));
            thread::sleep(Duration::from_millis(20));
        }
        if !is_master_gone {
            workers.siblings.look_for_connections();
        }
        clients.iter_mut().for_each(|client| client.read_exact(&mut [0]).unwrap());
    }
}

fn more_servers_than_places_all_serve<B: Backend>() {
    for by in STRATEGIES {
        let mut workers = Workers::start::<B>(by, 3, 1, 1);
        assert_eq!(workers.places.iter().flatten().count(), 1);
        for one in 0..2 {
            (0..5).for_each(|_| workers.asks(ECHO));
            drop(workers.serving[one].take());
        }
        (0..5).for_each(|_| workers.asks(ECHO));
    }
}
