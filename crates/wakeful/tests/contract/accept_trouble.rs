//! Trouble at the door that a test can really cause; the rest is in `lib::accept::tests`, and what
//! needs a limit of the process in `limits`.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use wakeful::LoopHandle;
use wakeful::accept::{AcceptStrategy, ConnectionServer, Placement, Serving, SharedListener};
use wakeful::group::Targets;
use wakeful::net::ListenAddr;
use wakeful::time::sleep;

use crate::backend::Backend;
use crate::background::{LONG, wait_until};
use crate::support::{STRATEGIES, parking_group};

on_every_backend! {
    a_listener_that_is_shut_down_under_the_server_ends_and_the_others_go_on,
    at_the_limit_of_connections_no_loop_spins_and_the_next_one_is_served_when_one_closes,
    a_flood_of_connections_that_are_reset_does_not_starve_a_quiet_listener,
    a_server_whose_connections_are_reset_serves_the_next_one,
    no_connection_waits_for_a_loop_that_is_busy,
    where_the_active_loops_are_blocked_another_one_stands_in,
    nobody_stands_in_for_a_loop_that_sleeps,
    a_loop_that_stepped_back_stands_in_for_one_that_is_blocked,
    where_the_dispatcher_is_blocked_another_loop_accepts_until_it_is_back,
}

/// The default, but for loops that have Tokio as a guest.
fn exclusive(server: ConnectionServer) -> ConnectionServer {
    server.strategy(AcceptStrategy::Exclusive)
}

fn localhost() -> SharedListener {
    SharedListener::bind(&crate::backend::localhost().into()).unwrap()
}

fn addr(serving: &Serving, number: usize) -> SocketAddr {
    let ListenAddr::Tcp(addr) = serving.local_addrs()[number] else { panic!("it is TCP") };
    addr
}

/// One byte there and back.
fn ask(addr: SocketAddr) {
    let mut stream = TcpStream::connect(addr).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream.write_all(b"?").unwrap();
    let mut answer = [0; 1];
    stream.read_exact(&mut answer).expect("it is served");
    assert_eq!(&answer, b"?");
}

async fn answer(mut connection: wakeful::accept::Connection) {
    let mut buf = [0; 1];
    if let Ok(1) = connection.stream.read(&mut buf).await {
        let _ = connection.stream.write_all(&buf).await;
    }
}

/// A loop with nothing to do but a few timers asks the kernel about once for each. Another thread
/// that is just looking after its membership, and loses its CPU there, may leave the loop watching
/// for that long what it does not want: so one round of several counts.
fn does_not_spin(handle: &LoopHandle) {
    const ROUNDS: usize = 5;
    let waits: Vec<_> = (0..ROUNDS).map(|_| waits_for_ten_timers(handle)).collect();
    assert!(waits.iter().any(|waits| *waits <= 60), "{waits:?} waits for 10 timers each");
}

fn waits_for_ten_timers(handle: &LoopHandle) -> u64 {
    let before = handle.metrics().waits;
    let (done, is_done) = mpsc::channel();
    let timers = handle.spawn(move || async move {
        for _ in 0..10 {
            sleep(Duration::from_millis(2)).await;
        }
        done.send(()).unwrap();
    });
    is_done.recv().unwrap();
    timers.unwrap().detach();
    handle.metrics().waits - before
}

/// Connects, and resets the connection at once.
fn connect_and_reset(addr: SocketAddr) {
    let stream = TcpStream::connect(addr).unwrap();
    socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
}

fn a_listener_that_is_shut_down_under_the_server_ends_and_the_others_go_on<B: Backend>() {
    for strategy in STRATEGIES {
        let (broken, good) = (localhost(), localhost());
        let kept = broken.clone();
        let serving = ConnectionServer::new(vec![broken, good])
            .group(parking_group::<B>(2))
            .strategy(strategy)
            .start(|| answer)
            .unwrap();
        ask(addr(&serving, 0));
        rustix::net::shutdown(&kept, rustix::net::Shutdown::Both).unwrap();
        let counts = serving.counts();
        wait_until("it was noticed", || counts.failed() > 0);
        for _ in 0..10 {
            ask(addr(&serving, 1));
        }
        assert_eq!(counts.accepted(), 11, "{strategy}");
        // Each loop that accepted from it fails once, and no loop retries.
        assert!(counts.failed() <= 2, "{strategy}: {}", counts.failed());
        serving.handles().iter().for_each(does_not_spin);
        assert_eq!(serving.shutdown(LONG).unwrap(), 0);
    }
}

fn at_the_limit_of_connections_no_loop_spins_and_the_next_one_is_served_when_one_closes<
    B: Backend,
>() {
    for strategy in STRATEGIES {
        let serving = ConnectionServer::new(vec![localhost(), localhost()])
            .group(parking_group::<B>(2))
            .strategy(strategy)
            .max_connections(1)
            .start(|| answer)
            .unwrap();
        let counts = serving.counts();
        let addrs = [addr(&serving, 0), addr(&serving, 1)];
        let connect = |number: usize| TcpStream::connect(addrs[number % 2]).unwrap();
        let clients: Vec<_> = (0..20).map(connect).collect();
        wait_until("one is served", || counts.accepted() == 1);
        serving.handles().iter().for_each(does_not_spin);
        assert_eq!(counts.accepted(), 1, "{strategy}");
        // Whichever it is, its place is the next one's as soon as it has its answer.
        for mut client in &clients {
            client.write_all(b"?").unwrap();
        }
        for mut client in clients {
            client.set_read_timeout(Some(LONG)).unwrap();
            client.read_exact(&mut [0; 1]).expect("it is served");
        }
        assert_eq!((counts.accepted(), counts.failed()), (20, 0), "{strategy}");
        assert_eq!(serving.shutdown(LONG).unwrap(), 0);
    }
}

fn a_flood_of_connections_that_are_reset_does_not_starve_a_quiet_listener<B: Backend>() {
    const FLOOD: u64 = 1_000;
    for strategy in STRATEGIES {
        let (seen, see) = mpsc::channel();
        let flooded = Arc::new(AtomicU64::new(0));
        let before = flooded.clone();
        let serving = ConnectionServer::new(vec![localhost(), localhost()])
            .group(parking_group::<B>(1))
            .strategy(strategy)
            .start(move || {
                let (seen, flooded) = (seen.clone(), before.clone());
                move |mut connection: wakeful::accept::Connection| {
                    let (seen, flooded) = (seen.clone(), flooded.clone());
                    async move {
                        let mut buf = [0; 1];
                        match connection.stream.read(&mut buf).await {
                            Ok(1) => {
                                let turns = LoopHandle::current().metrics().turns;
                                let _ = seen.send((turns, flooded.load(Ordering::Relaxed)));
                            }
                            _ => {
                                flooded.fetch_add(1, Ordering::Relaxed);
                            }
                        }
                    }
                }
            })
            .unwrap();
        let handle = serving.handles()[0].clone();
        let (held, is_held) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        handle
            .post(move || {
                held.send(LoopHandle::current().metrics().turns).unwrap();
                let _ = released.recv();
            })
            .unwrap();
        let turns_before = is_held.recv().unwrap();
        (0..FLOOD).for_each(|_| connect_and_reset(addr(&serving, 0)));
        let mut quiet = TcpStream::connect(addr(&serving, 1)).unwrap();
        quiet.write_all(b"?").unwrap();
        drop(release);
        let (turns, served_before) = see.recv_timeout(LONG).expect("the quiet one is served");
        let turns = turns - turns_before;
        // Both listeners are accepted from in one turn, up to 128 connections of the flood before
        // the first of the quiet one; those are served before it, eight at least in each turn.
        assert!(turns <= 40, "{strategy}: {turns} turns");
        assert!(served_before <= 256, "{strategy}: behind {served_before} of the flood");
        let counts = serving.counts();
        wait_until("the flood is over", || counts.accepted() == FLOOD + 1 && counts.open() == 0);
        assert_eq!((counts.failed(), counts.turned_away()), (0, 0), "{strategy}");
        assert_eq!(serving.shutdown(LONG).unwrap(), 0);
    }
}

fn a_server_whose_connections_are_reset_serves_the_next_one<B: Backend>() {
    for strategy in STRATEGIES {
        let serving = ConnectionServer::new(vec![localhost()])
            .group(parking_group::<B>(2))
            .strategy(strategy)
            .start(|| answer)
            .unwrap();
        for _ in 0..50 {
            connect_and_reset(addr(&serving, 0));
            ask(addr(&serving, 0));
        }
        let counts = serving.counts();
        assert_eq!((counts.failed(), counts.turned_away()), (0, 0), "{strategy}");
        assert_eq!(serving.shutdown(LONG).unwrap(), 0);
    }
}

/// No loop that is busy holds an accept event that another one could take.
fn no_connection_waits_for_a_loop_that_is_busy<B: Backend>() {
    let serving = exclusive(ConnectionServer::new(vec![localhost()]).group(parking_group::<B>(2)))
        .start(|| answer)
        .unwrap();
    ask(addr(&serving, 0));
    for busy in [0, 1] {
        let (held, is_held) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        serving.handles()[busy]
            .post(move || {
                held.send(()).unwrap();
                let _ = released.recv();
            })
            .unwrap();
        is_held.recv().unwrap();
        (0..20).for_each(|_| ask(addr(&serving, 0)));
        drop(release);
    }
    assert_eq!(serving.shutdown(LONG).unwrap(), 0);
}

fn where_the_active_loops_are_blocked_another_one_stands_in<B: Backend>() {
    let (held, is_held) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let released = Arc::new(Mutex::new(released));
    let group = B::group().loops(3).concentrate(Targets::default());
    let serving =
        exclusive(ConnectionServer::new(vec![localhost()]).group(group)).start(move || {
            let (held, released) = (held.clone(), released.clone());
            move |mut connection| {
                let (held, released) = (held.clone(), released.clone());
                async move {
                    let mut buf = [0; 1];
                    let _ = connection.stream.read(&mut buf).await;
                    if &buf == b"!" {
                        held.send(()).unwrap();
                        // One waits for the other, and both for the test.
                        let _ = released.lock().map(|released| released.recv());
                    }
                    let _ = connection.stream.write_all(&buf).await;
                }
            }
        });
    let serving = serving.unwrap();
    // Dropped before it, should the test fail.
    let release = release;
    ask(addr(&serving, 0));
    let mut blocking = Vec::new();
    for _ in 0..2 {
        let mut stream = TcpStream::connect(addr(&serving, 0)).unwrap();
        stream.write_all(b"!").unwrap();
        blocking.push(stream);
        is_held.recv_timeout(LONG).expect("a loop is blocked");
        (0..20).for_each(|_| ask(addr(&serving, 0)));
    }
    drop(release);
    assert_eq!(serving.shutdown(LONG).unwrap(), 0);
}

fn nobody_stands_in_for_a_loop_that_sleeps<B: Backend>() {
    let group = B::group().loops(2).concentrate(Targets::default());
    let serving =
        exclusive(ConnectionServer::new(vec![localhost()]).group(group)).start(|| answer).unwrap();
    let parks = || serving.handles().iter().map(|handle| handle.metrics().parks).sum::<u64>();
    // A machine that is busy may hold up a connection's end until then; but not every time.
    let (mut asked, mut in_peace) = (0, 0);
    while in_peace < 5 {
        assert!(asked < 100, "a loop is woken again and again");
        ask(addr(&serving, 0));
        std::thread::sleep(Duration::from_millis(15));
        let before = parks();
        std::thread::sleep(Duration::from_millis(40));
        asked += 1;
        in_peace = if parks() == before { in_peace + 1 } else { 0 };
    }
    assert_eq!(serving.shutdown(LONG).unwrap(), 0);
}

fn a_loop_that_stepped_back_stands_in_for_one_that_is_blocked<B: Backend>() {
    let (held, is_held) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let released = Arc::new(Mutex::new(released));
    let serving = exclusive(ConnectionServer::new(vec![localhost()]).group(parking_group::<B>(2)))
        .start(move || {
            let (held, released) = (held.clone(), released.clone());
            let on_first = std::thread::current().name().is_some_and(|name| name.ends_with("-0"));
            move |mut connection| {
                let (held, released) = (held.clone(), released.clone());
                async move {
                    let mut buf = [0; 1];
                    while let Ok(1) = connection.stream.read(&mut buf).await {
                        if &buf == b"!" {
                            held.send(()).unwrap();
                            let _ = released.lock().map(|released| released.recv());
                        }
                        let _ = connection.stream.write_all(&[u8::from(on_first)]).await;
                    }
                }
            }
        });
    let serving = serving.unwrap();
    // Dropped before it, should the test fail.
    let release = release;
    let ask = |stream: &mut TcpStream| {
        let mut answer = [0; 1];
        stream.write_all(b"?").unwrap();
        stream.read_exact(&mut answer).expect("it is served");
        answer == [1]
    };
    let connect = || {
        let mut stream = TcpStream::connect(addr(&serving, 0)).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        let on_first = ask(&mut stream);
        (stream, on_first)
    };
    let (mut of_first, mut of_second) = (Vec::new(), Vec::new());
    while of_first.is_empty() || of_second.len() < 20 {
        let (stream, on_first) = connect();
        if on_first { of_first.push(stream) } else { of_second.push(stream) }
    }
    of_first.truncate(1);
    // The second one has far more, and is awake now and then: it steps back.
    for _ in 0..60 {
        ask(&mut of_second[0]);
        std::thread::sleep(Duration::from_millis(10));
    }
    of_first[0].write_all(b"!").unwrap();
    is_held.recv_timeout(LONG).expect("a loop is blocked");
    assert!(!connect().1, "the first loop is blocked");
    drop((release, of_first, of_second));
    assert_eq!(serving.shutdown(LONG).unwrap(), 0);
}

fn where_the_dispatcher_is_blocked_another_loop_accepts_until_it_is_back<B: Backend>() {
    let groups =
        [B::group().loops(3).spread(), B::group().loops(2).concentrate(Targets::default())];
    for (group, placement) in groups.into_iter().zip([Placement::RoundRobin, Placement::default()])
    {
        let serving = ConnectionServer::new(vec![localhost(), localhost()])
            .group(group)
            .strategy(AcceptStrategy::Dispatch(placement))
            .start(|| answer)
            .unwrap();
        let counts = serving.counts();
        let wakes_in_vain = || counts.wakes_in_vain();
        // Again and again.
        for _ in 0..3 {
            ask(addr(&serving, 0));
            let (held, is_held) = mpsc::channel();
            let (release, released) = mpsc::channel::<()>();
            let block = move || {
                held.send(()).unwrap();
                // Until the test continues, or has failed.
                let _ = released.recv();
            };
            serving.handles()[0].post(block).unwrap();
            is_held.recv_timeout(LONG).expect("the dispatcher is blocked");
            // Both listeners; and none of these is handed to the loop that is blocked.
            (0..40).for_each(|number| ask(addr(&serving, number % 2)));
            drop(release);
            // Once the dispatcher is back, it is the only one that is woken for a connection.
            wait_until("the other one leaves the listeners", || {
                let (before, begun) = (wakes_in_vain(), Instant::now());
                while begun.elapsed() < Duration::from_millis(50) {
                    (0..2).for_each(|number| ask(addr(&serving, number)));
                }
                wakes_in_vain() == before
            });
        }
        assert_eq!(serving.shutdown(LONG).unwrap(), 0);
    }
}
