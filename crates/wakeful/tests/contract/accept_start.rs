//! No loop of a server accepts before the last of them has started. Until then connections are left
//! to the others that have the socket.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use wakeful::LoopHandle;
use wakeful::accept::{
    AcceptStrategy, Connection, ConnectionServer, Serving, SharedListener, Siblings,
};
use wakeful::time::sleep;

use crate::backend::Backend;
use crate::background::LONG;
use crate::support::{STRATEGIES, parking_group};

on_every_backend! {
    who_comes_while_a_server_fails_to_start_is_served_by_another_one,
    who_comes_while_a_sibling_fails_to_start_is_served_by_another_one,
    who_waits_while_a_server_starts_is_served_then,
}

fn localhost() -> (SharedListener, SocketAddr) {
    let listener = SharedListener::bind(&crate::backend::localhost().into()).unwrap();
    let addr = listener.socket_addr().unwrap();
    (listener, addr)
}

fn duplicate(listener: &SharedListener) -> SharedListener {
    SharedListener::from_socket(listener.as_fd().try_clone_to_owned().unwrap()).unwrap()
}

/// Answers each byte with itself, until the client ends.
async fn echo(mut connection: Connection) {
    let mut buf = [0; 1];
    while let Ok(1) = connection.stream.read(&mut buf).await {
        if connection.stream.write_all(&buf).await.is_err() {
            return;
        }
    }
}

fn connect(addr: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(addr).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream.write_all(b"?").unwrap();
    stream
}

fn is_answered(stream: &mut TcpStream) {
    let mut answer = [0; 1];
    stream.read_exact(&mut answer).expect("it is served");
    assert_eq!(&answer, b"?");
}

/// A server whose first loop has started, and whose second one is held in the function that makes
/// its handler.
struct Starting {
    first: LoopHandle,
    /// Says whether that function panics.
    panics: mpsc::Sender<bool>,
    start: JoinHandle<std::io::Result<Serving>>,
}

impl Starting {
    fn new(server: ConnectionServer) -> Self {
        let (made, is_made) = mpsc::channel();
        let (panics, whether_panics) = mpsc::channel::<bool>();
        let (makes, whether_panics) = (AtomicUsize::new(0), Mutex::new(whether_panics));
        let start = thread::spawn(move || {
            server.start(move || {
                made.send(LoopHandle::current()).unwrap();
                if makes.fetch_add(1, Ordering::Relaxed) == 1 {
                    let panics = whether_panics.lock().unwrap().recv().unwrap();
                    assert!(!panics, "as it was told");
                }
                echo
            })
        });
        let first = is_made.recv().unwrap();
        is_made.recv().unwrap();
        Self { first, panics, start }
    }

    /// The first loop has several turns, in which it would see what comes.
    fn let_first_loop_look(&self) {
        (0..5).for_each(|_| self.first.post_and_wait(|| ()).unwrap());
    }

    /// A loop with nothing to do but a few timers asks the kernel about once for each.
    fn first_loop_sleeps(&self) {
        let before = self.first.metrics().waits;
        let (done, is_done) = mpsc::channel();
        let timers = self.first.spawn(move || async move {
            for _ in 0..10 {
                sleep(Duration::from_millis(2)).await;
            }
            done.send(()).unwrap();
        });
        is_done.recv().unwrap();
        timers.unwrap().detach();
        let waits = self.first.metrics().waits - before;
        assert!(waits <= 60, "{waits} waits for 10 timers");
    }

    fn fails(self) {
        self.panics.send(true).unwrap();
        self.start.join().unwrap().expect_err("a loop could not start");
    }

    fn succeeds(self) -> Serving {
        self.panics.send(false).unwrap();
        self.start.join().unwrap().unwrap()
    }
}

/// Begins to start a server with several loops, then starts `other`, which has the same socket.
/// Both answer. Clients come, and after that the start fails.
fn fails_beside(server: ConnectionServer, other: ConnectionServer, addr: SocketAddr) {
    let starting = Starting::new(server);
    let other = other.start(|| echo).unwrap();
    let clients: Vec<_> = (0..10)
        .map(|_| {
            let mut client = connect(addr);
            starting.let_first_loop_look();
            is_answered(&mut client);
            client
        })
        .collect();
    starting.fails();
    for mut client in clients {
        client.write_all(b"?").unwrap();
        is_answered(&mut client);
    }
    assert_eq!(other.counts().accepted(), 10);
    other.shutdown(Duration::ZERO).unwrap();
}

fn who_comes_while_a_server_fails_to_start_is_served_by_another_one<B: Backend>() {
    for strategy in STRATEGIES {
        let (listener, addr) = localhost();
        let other = ConnectionServer::new(vec![duplicate(&listener)]).group(parking_group::<B>(1));
        let server = ConnectionServer::new(vec![duplicate(&listener)]);
        fails_beside(server.group(parking_group::<B>(2)).strategy(strategy), other, addr);
    }
}

fn who_comes_while_a_sibling_fails_to_start_is_served_by_another_one<B: Backend>() {
    for strategy in STRATEGIES {
        let (listener, addr) = localhost();
        let (lifeline, _master) = rustix::pipe::pipe().unwrap();
        let siblings = Siblings::new(2, lifeline).unwrap();
        let on = |loops| {
            let group = B::group().loops(loops).sibling(siblings.join());
            ConnectionServer::new(vec![duplicate(&listener)]).group(group)
        };
        let server = on(2).strategy(strategy);
        fails_beside(server, on(1).strategy(AcceptStrategy::Exclusive), addr);
    }
}

fn who_waits_while_a_server_starts_is_served_then<B: Backend>() {
    for strategy in STRATEGIES {
        let (listener, addr) = localhost();
        let server =
            ConnectionServer::new(vec![listener]).group(parking_group::<B>(2)).strategy(strategy);
        let starting = Starting::new(server);
        let mut clients: Vec<_> = (0..3).map(|_| connect(addr)).collect();
        starting.first_loop_sleeps();
        let serving = starting.succeeds();
        clients.iter_mut().for_each(is_answered);
        assert_eq!(serving.counts().accepted(), 3, "{strategy}");
        serving.shutdown(Duration::ZERO).unwrap();
    }
}
