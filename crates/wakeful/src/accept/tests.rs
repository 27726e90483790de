//! Failures that no test can cause for real: the system's limits, and errors that only a network
//! brings.

mod held_log;
mod not_heard_yet;
mod started_again;
mod user_panics;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use rustix::io::Errno;

use super::*;
use crate::balance::siblings::OurTurn;
use crate::group::Targets;
use crate::net::ListenAddr;
use crate::sys::failures::{self, Call};
use crate::{EventLoop, IdlePolicy, LoopGroup, LoopGroupBuilder};

const LONG: Duration = Duration::from_secs(30);

fn localhost() -> SharedListener {
    SharedListener::bind(&"127.0.0.1:0".parse().unwrap()).unwrap()
}

fn start(strategy: AcceptStrategy, loops: usize, listeners: Vec<SharedListener>) -> Serving {
    start_group(strategy, LoopGroup::builder().loops(loops).spread(), listeners)
}

fn start_group(
    strategy: AcceptStrategy,
    group: LoopGroupBuilder,
    listeners: Vec<SharedListener>,
) -> Serving {
    ConnectionServer::new(listeners)
        .group(group.event_loop(EventLoop::builder().idle(IdlePolicy::Park)))
        .strategy(strategy)
        .start(|| {
            async |mut connection| {
                let mut buf = [0; 1];
                while let Ok(1) = connection.stream.read(&mut buf).await {
                    let _ = connection.stream.write_all(&buf).await;
                }
            }
        })
        .unwrap()
}

fn addr(serving: &Serving, number: usize) -> SocketAddr {
    let ListenAddr::Tcp(addr) = serving.local_addrs()[number] else { panic!("it is TCP") };
    addr
}

/// Does a client get an answer? If not, its connection was closed, because the client does not wait
/// for ever.
fn is_served(addr: SocketAddr) -> bool {
    let mut stream = TcpStream::connect(addr).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    let mut answer = [0; 1];
    let answered = stream.write_all(b"?").and_then(|()| stream.read(&mut answer));
    match answered {
        Ok(1) => true,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => panic!("it waits for ever"),
        _ => false,
    }
}

fn fail(serving: &Serving, number: usize, call: Call, error: Errno, times: u32) {
    serving.handles()[number].post_and_wait(move || failures::fail(call, error, times)).unwrap();
}

#[test]
fn a_shortage_loses_nothing_if_it_passes() {
    for strategy in [AcceptStrategy::Exclusive, AcceptStrategy::Dispatch(Placement::RoundRobin)] {
        let serving = start(strategy, 1, vec![localhost()]);
        let counts = serving.counts();
        for (error, failed) in [
            (Errno::MFILE, 3),
            (Errno::NFILE, 6),
            (Errno::NOBUFS, 9),
            (Errno::NOMEM, 12),
            // An error that accept(2) does not list, or that a firewall causes. It must not end the
            // listener either.
            (Errno::PERM, 15),
        ] {
            fail(&serving, 0, Call::Accept, error, 3);
            assert!(is_served(addr(&serving, 0)), "{error}");
            assert_eq!((counts.failed(), counts.turned_away()), (failed, 0), "{error}");
        }
    }
}

/// Is a client served that comes at the beginning of a shortage, for which a server gives up
/// clients that wait? `sibling` does not accept, whatever it says.
fn is_served_in_a_long_shortage(sibling_is: impl FnOnce(&OurTurn)) -> bool {
    let (lifeline, _master) = rustix::pipe::pipe().unwrap();
    let siblings = Siblings::new(2, lifeline).unwrap();
    let group = LoopGroup::builder().loops(1).sibling(siblings.join());
    let serving = start_group(AcceptStrategy::Exclusive, group, vec![localhost()]);
    let sibling = OurTurn::new(siblings.join().unwrap(), Some(Targets::new()));
    sibling.begins();
    sibling_is(&sibling);
    fail(&serving, 0, Call::Accept, Errno::MFILE, 61);
    let is_served = is_served(addr(&serving, 0));
    let counts = serving.counts();
    assert_eq!((counts.failed(), counts.turned_away()), (61, u64::from(!is_served)));
    is_served
}

#[test]
fn what_waits_in_a_long_shortage_is_left_to_a_sibling_that_accepts() {
    assert!(is_served_in_a_long_shortage(|sibling| sibling.leave(false)));
}

#[test]
fn what_waits_in_a_long_shortage_is_closed_where_no_sibling_has_room() {
    assert!(!is_served_in_a_long_shortage(|sibling| {
        sibling.leave(false);
        sibling.is_full();
    }));
}

#[test]
fn what_waits_in_a_long_shortage_is_closed_where_the_only_sibling_is_stuck() {
    // It never says that it sleeps.
    assert!(!is_served_in_a_long_shortage(|_| ()));
}

#[test]
fn connections_that_are_gone_are_passed_over_and_bounded_in_a_poll() {
    const GONE: u32 = 1_000;
    let serving = start(AcceptStrategy::Exclusive, 1, vec![localhost()]);
    let handle = serving.handles()[0].clone();
    fail(&serving, 0, Call::Accept, Errno::CONNABORTED, GONE);
    let before = handle.metrics().forced_yields;
    assert!(is_served(addr(&serving, 0)));
    // A task may complete 128 operations in one poll.
    let yields = handle.metrics().forced_yields - before;
    assert_eq!(yields, u64::from(GONE) / 128);
    assert_eq!(serving.counts().failed(), 0);
    assert_eq!(serving.counts().wakes_in_vain(), 0, "a yield is no wake");
}

#[test]
fn a_connection_that_cannot_be_watched_is_closed_and_counted_and_the_next_one_served() {
    for strategy in [AcceptStrategy::Exclusive, AcceptStrategy::ReusePort] {
        let serving = start(strategy, 1, vec![localhost()]);
        let counts = serving.counts();
        assert!(is_served(addr(&serving, 0)));
        fail(&serving, 0, Call::Watch, Errno::NOSPC, 1);
        assert!(!is_served(addr(&serving, 0)), "{strategy}");
        assert!(is_served(addr(&serving, 0)), "{strategy}");
        assert_eq!((counts.accepted(), counts.failed(), counts.turned_away()), (2, 1, 1));
    }
}

#[test]
fn a_connection_that_a_loop_refuses_goes_to_another_one() {
    const LOOPS: usize = 3;
    let serving = start(AcceptStrategy::Dispatch(Placement::RoundRobin), LOOPS, vec![localhost()]);
    let counts = serving.counts();
    // The loop that cannot watch is the dispatcher itself, then another one.
    for refusing in [0, 1] {
        fail(&serving, refusing, Call::Watch, Errno::NOSPC, 1);
        (0..LOOPS).for_each(|_| assert!(is_served(addr(&serving, 0))));
        assert_eq!(counts.of(refusing).passed_on(), 1);
        assert_eq!((counts.of(refusing).failed(), counts.turned_away()), (1, 0));
    }
    // All loops fail, so no loop can take the connection.
    (0..LOOPS).for_each(|number| fail(&serving, number, Call::Watch, Errno::NOSPC, 1));
    assert!(!is_served(addr(&serving, 0)));
    assert_eq!((counts.failed(), counts.turned_away()), (5, 1));
    assert!(is_served(addr(&serving, 0)));
}

#[test]
fn a_listener_that_is_closed_under_the_server_ends_and_the_others_go_on() {
    for error in [Errno::BADF, Errno::INVAL, Errno::NOTSOCK] {
        let serving = start(AcceptStrategy::Exclusive, 1, vec![localhost(), localhost()]);
        let counts = serving.counts();
        fail(&serving, 0, Call::Accept, error, 1);
        // The kernel closes the waiting connections when the last listener has gone.
        assert!(!is_served(addr(&serving, 0)), "{error}");
        assert_eq!(counts.failed(), 1, "{error}");
        assert!(TcpStream::connect(addr(&serving, 0)).is_err(), "{error}: it is closed");
        assert!(is_served(addr(&serving, 1)), "{error}");
        assert_eq!(counts.failed(), 1, "{error}");
    }
}

#[test]
fn a_wake_for_a_connection_that_is_not_there_is_counted() {
    let serving = start(AcceptStrategy::Exclusive, 1, vec![localhost()]);
    assert!(is_served(addr(&serving, 0)));
    assert_eq!(serving.counts().wakes_in_vain(), 0);
    // EAGAIN is what a loop gets when another loop was faster.
    fail(&serving, 0, Call::Accept, Errno::AGAIN, 1);
    assert!(is_served(addr(&serving, 0)), "level-triggered: it is told again");
    assert_eq!(serving.counts().wakes_in_vain(), 1);
    assert_eq!(serving.counts().failed(), 0);
}

#[test]
fn a_loop_that_lost_its_place_at_a_listener_gets_it_back() {
    let serving = start(AcceptStrategy::Exclusive, 2, vec![localhost()]);
    let address = addr(&serving, 0);
    (0..10).for_each(|_| assert!(is_served(address)));
    // The loop that takes the next connection goes to the end of the kernel's list, and there it
    // fails to register.
    for number in 0..2 {
        fail(&serving, number, Call::Watch, Errno::NOSPC, 1);
    }
    let clients = (0..6).filter(|_| is_served(address)).count();
    // The failure may have hit the connection itself, which is then closed.
    assert!(clients >= 4, "{clients} are served");
    for number in 0..2 {
        fail(&serving, number, Call::Watch, Errno::NOSPC, 0);
    }
}
