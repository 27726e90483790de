//! What many tests need: a pair of connected streams, and an end for what is lost.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use wakeful::accept::{AcceptStrategy, Placement};
use wakeful::net::{TcpListener, TcpStream};
use wakeful::time::timeout;
use wakeful::{EventLoop, IdlePolicy, LoopGroupBuilder};

use crate::backend::driven::Driven;
use crate::backend::{Backend, localhost};
use crate::background::LONG;

/// Waits for what has to come: only a lost event makes it fail.
pub(crate) async fn soon<F: Future>(future: F) -> F::Output {
    timeout(LONG, future).await.expect("an event was lost")
}

/// Nothing comes. A machine that stalls makes this true as well, never false.
pub(crate) async fn is_pending(future: impl Future) -> bool {
    timeout(Duration::from_millis(10), future).await.is_err()
}

/// Both ends of a TCP connection on the loop of this thread.
pub(crate) async fn tcp_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind(localhost()).await.unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    (client, listener.accept().await.unwrap().0)
}

/// Each way to share connections out among loops.
pub(crate) const STRATEGIES: [AcceptStrategy; 3] = [
    AcceptStrategy::Exclusive,
    AcceptStrategy::ReusePort,
    AcceptStrategy::Dispatch(Placement::RoundRobin),
];

/// Loops that park, so that one which spins is seen by its waits.
pub(crate) fn parking_group<B: Backend>(loops: usize) -> LoopGroupBuilder {
    B::group().loops(loops).spread().event_loop(B::builder().idle(IdlePolicy::Park))
}

/// Has the kernel end a connected socket, as an administrator does. `protocol` is an option of
/// ss(8). It needs root, and a kernel that can (`CONFIG_INET_DIAG_DESTROY`): the socket still has a
/// peer if it is not ended.
pub(crate) fn destroy(protocol: &str, local: SocketAddr, peer: SocketAddr) -> io::Result<()> {
    let ports = format!("( sport = :{} and dport = :{} )", local.port(), peer.port());
    Command::new("ss").args(["--kill", "--numeric", protocol, &ports]).output().map(drop)
}

/// Is there anything, this moment, that would end the sleep of a loop that has no work? Takes the
/// turn that is then due.
pub(crate) fn would_wake(event_loop: &mut EventLoop) -> bool {
    assert!(event_loop.asks_to_park().unwrap(), "it has work");
    let ready = poll(&mut [PollFd::new(&*event_loop, PollFlags::IN)], Some(&Timespec::default()));
    event_loop.take_turn(Some(Duration::ZERO)).unwrap();
    ready.unwrap() > 0
}
