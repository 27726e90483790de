//! High sockets: what is ready on one is seen in the next turn, however many normal ones are ready,
//! and takes nothing from them.

use std::cell::Cell;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::rc::Rc;
use std::time::Duration;

use wakeful::accept::{Listener, SharedListener};
use wakeful::net::{TcpListener, TcpStream, UdpSocket, UnixListener, UnixStream};
use wakeful::task::yield_now;
use wakeful::{EventLoop, Priority, spawn, spawn_with};

use crate::backend::driven::Driven;
use crate::backend::{Backend, localhost};
use crate::support::{soon, tcp_pair, would_wake};

on_every_backend! {
    a_high_socket_is_served_in_the_next_turn_of_a_flood,
    a_health_check_is_answered_in_one_turn_of_a_flood,
    a_flood_of_high_sockets_leaves_normal_ones_their_batch,
    a_high_socket_ends_a_sleep_once_for_each_event,
    a_change_of_priority_loses_nothing,
    a_high_socket_that_is_gone_is_nobody_s_event,
    every_kind_of_socket_may_be_high,
    a_shared_listener_and_a_loop_that_has_ended_refuse_a_priority,
}

fn turn(event_loop: &mut EventLoop) {
    event_loop.take_turn(Some(Duration::ZERO)).unwrap();
}

/// Counts the bytes that `socket` brings, one in a read.
fn serve(event_loop: &EventLoop, priority: Priority, socket: StdUnixStream) -> Rc<Cell<usize>> {
    let read = Rc::new(Cell::new(0));
    let counted = read.clone();
    let task = async move {
        let mut socket = UnixStream::from_std(socket).unwrap();
        socket.set_priority(priority).unwrap();
        while socket.read(&mut [0; 1]).await.unwrap() > 0 {
            counted.set(counted.get() + 1);
        }
    };
    event_loop.spawn_with(priority, task).detach();
    read
}

/// So many sockets that become ready at once, each with a task that reads a byte of it.
struct Flood {
    peer: StdUnixStream,
    sockets: usize,
    read: Rc<Cell<usize>>,
}

impl Flood {
    fn new(event_loop: &mut EventLoop, priority: Priority, sockets: usize) -> Self {
        let (peer, socket) = StdUnixStream::pair().unwrap();
        let read = Rc::new(Cell::new(0));
        for _ in 0..sockets {
            let (socket, read) = (socket.try_clone().unwrap(), read.clone());
            let task = async move {
                let mut socket = UnixStream::from_std(socket).unwrap();
                socket.set_priority(priority).unwrap();
                let bytes = socket.read(&mut [0; 1]).await.unwrap();
                read.set(read.get() + bytes);
            };
            event_loop.spawn_with(priority, task).detach();
        }
        // They begin to wait, and what the kernel says about new descriptors is over.
        let mut before = event_loop.handle().metrics();
        loop {
            turn(event_loop);
            let now = event_loop.handle().metrics();
            if (now.polls, now.events) == (before.polls, before.events) {
                return Self { peer, sockets, read };
            }
            before = now;
        }
    }

    fn begin(&mut self) {
        self.peer.write_all(&vec![0; self.sockets]).unwrap();
    }
}

fn a_high_socket_is_served_in_the_next_turn_of_a_flood<B: Backend>() {
    for batch in [1, 3, 64] {
        let mut event_loop = B::builder().io_batch(batch).build().unwrap();
        let mut flood = Flood::new(&mut event_loop, Priority::Normal, 200);
        let (mut peer, socket) = StdUnixStream::pair().unwrap();
        let read = serve(&event_loop, Priority::High, socket);
        (0..3).for_each(|_| turn(&mut event_loop));
        flood.begin();
        let mut rounds = 0;
        while flood.read.get() < flood.sockets {
            peer.write_all(b"x").unwrap();
            rounds += 1;
            turn(&mut event_loop);
            assert_eq!(read.get(), rounds, "in the turn that began after the write");
        }
        assert!(rounds >= 200 / batch, "{rounds} turns: it was a flood");
    }
}

/// Accepted, read and answered, while sockets, tasks and callbacks flood the loop.
fn a_health_check_is_answered_in_one_turn_of_a_flood<B: Backend>() {
    let mut event_loop = B::builder().io_batch(4).build().unwrap();
    let path = std::env::temp_dir().join(format!("wakeful-health-{}", std::process::id()));
    let address = path.clone();
    let health = async move {
        let listener = UnixListener::bind(&address).unwrap();
        listener.set_priority(Priority::High).unwrap();
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let answer = async move {
                let mut request = [0; 8];
                while stream.read(&mut request).await.unwrap() > 0 {
                    stream.write_all(b"ok").await.unwrap();
                }
            };
            spawn_with(Priority::High, answer).detach();
        }
    };
    event_loop.spawn_with(Priority::High, health).detach();
    let mut flood = Flood::new(&mut event_loop, Priority::Normal, 200);
    for _ in 0..1_000 {
        let greedy = async {
            loop {
                yield_now().await;
            }
        };
        event_loop.spawn(greedy).detach();
    }
    fn again() {
        wakeful::run_this_turn(again);
    }
    event_loop.run_this_turn(again);
    flood.begin();
    let mut checks = 0;
    let mut answer = [0; 2];
    while flood.read.get() < flood.sockets && checks < 20 {
        let mut client = StdUnixStream::connect(&path).unwrap();
        client.set_nonblocking(true).unwrap();
        // One check on a new connection, and two on an open one.
        for _ in 0..3 {
            client.write_all(b"?").unwrap();
            turn(&mut event_loop);
            client.read_exact(&mut answer).expect("it was answered in this turn");
            checks += 1;
        }
    }
    assert!(checks >= 20, "{checks} checks: it was a flood");
    std::fs::remove_file(path).unwrap();
}

fn a_flood_of_high_sockets_leaves_normal_ones_their_batch<B: Backend>() {
    const BATCH: u64 = 4;
    let mut event_loop = B::builder().io_batch(BATCH as usize).build().unwrap();
    let handle = event_loop.handle();
    let mut normal = Flood::new(&mut event_loop, Priority::Normal, 50);
    let mut high = Flood::new(&mut event_loop, Priority::High, 100);
    normal.begin();
    high.begin();
    let mut turns = 0;
    while normal.read.get() < normal.sockets {
        let before = handle.metrics().events;
        turn(&mut event_loop);
        turns += 1;
        assert!(handle.metrics().events - before <= 2 * BATCH);
    }
    // One place of the normal batch may be the announcement of the high one.
    assert!(turns <= 50 / (BATCH - 1) + 2, "{turns} turns");
    assert!(high.read.get() < high.sockets, "it was a flood");
    while high.read.get() < high.sockets {
        turn(&mut event_loop);
    }
}

fn a_high_socket_ends_a_sleep_once_for_each_event<B: Backend>() {
    let mut event_loop = B::event_loop();
    let handle = event_loop.handle();
    let (mut peer, socket) = StdUnixStream::pair().unwrap();
    let read = serve(&event_loop, Priority::High, socket);
    (0..3).for_each(|_| turn(&mut event_loop));
    for round in 1..=20 {
        assert!(!would_wake(&mut event_loop), "nothing has come");
        peer.write_all(b"x").unwrap();
        let before = handle.metrics();
        assert!(would_wake(&mut event_loop));
        assert_eq!(read.get(), round);
        assert_eq!(handle.metrics().events - before.events, 1);
    }
}

fn a_change_of_priority_loses_nothing<B: Backend>() {
    B::block_on(async {
        let (mut client, mut server) = tcp_pair().await;
        let reader = spawn(async move {
            let mut priorities = [Priority::High, Priority::Normal].into_iter().cycle();
            let mut total = 0;
            loop {
                // While something is there, and while nothing is.
                server.set_priority(priorities.next().unwrap()).unwrap();
                match soon(server.read(&mut [0; 7])).await.unwrap() {
                    0 => return total,
                    read => total += read,
                }
                if total % 3 == 0 {
                    server.set_priority(priorities.next().unwrap()).unwrap();
                    yield_now().await;
                }
            }
        });
        for round in 0..500 {
            client.write_all(&[0; 10][..round % 10 + 1]).await.unwrap();
            yield_now().await;
        }
        drop(client);
        assert_eq!(soon(reader).await.unwrap(), 500 / 10 * 55);
    });
    // A socket on which somebody waits: its next event is met wherever it is.
    let mut event_loop = B::event_loop();
    let (mut peer, socket) = StdUnixStream::pair().unwrap();
    let read = Rc::new(Cell::new(0));
    let counted = read.clone();
    let (send, receive) = async_channel::unbounded();
    event_loop
        .spawn(async move {
            let mut socket = UnixStream::from_std(socket).unwrap();
            loop {
                let change = receive.recv();
                let mut buf = [0; 1];
                futures_lite::future::or(
                    async {
                        let bytes = socket.read(&mut buf).await.unwrap();
                        counted.set(counted.get() + bytes);
                        None
                    },
                    async { change.await.ok() },
                )
                .await
                .map_or(Ok(()), |priority| socket.set_priority(priority))
                .unwrap();
            }
        })
        .detach();
    for (round, priority) in
        [Priority::High, Priority::Normal].into_iter().cycle().take(20).enumerate()
    {
        // Before the change, and after it.
        if round % 4 < 2 {
            peer.write_all(b"x").unwrap();
            send.try_send(priority).unwrap();
        } else {
            send.try_send(priority).unwrap();
            turn(&mut event_loop);
            peer.write_all(b"x").unwrap();
        }
        (0..3).for_each(|_| turn(&mut event_loop));
        assert_eq!(read.get(), round + 1);
    }
}

/// Dropped while its event is under way, and with a duplicate that lives on.
fn a_high_socket_that_is_gone_is_nobody_s_event<B: Backend>() {
    let mut event_loop = B::event_loop();
    let (mut peer, socket) = StdUnixStream::pair().unwrap();
    let duplicate = socket.try_clone().unwrap();
    let task = event_loop.spawn_with(Priority::High, async move {
        let mut socket = UnixStream::from_std(socket).unwrap();
        socket.set_priority(Priority::High).unwrap();
        socket.read(&mut [0; 1]).await.unwrap();
    });
    turn(&mut event_loop);
    peer.write_all(b"x").unwrap();
    task.abort();
    (0..2).for_each(|_| turn(&mut event_loop));
    assert!(task.is_finished());
    for _ in 0..3 {
        peer.write_all(b"x").unwrap();
        assert!(!would_wake(&mut event_loop), "the duplicate is not watched");
    }
    drop(duplicate);
}

fn every_kind_of_socket_may_be_high<B: Backend>() {
    let path = std::env::temp_dir().join(format!("wakeful-high-{}", std::process::id()));
    let listening = path.clone();
    B::block_on(async move {
        let tcp = TcpListener::bind(localhost()).await.unwrap();
        tcp.set_priority(Priority::High).unwrap();
        let addr = tcp.local_addr().unwrap();
        let unix = UnixListener::bind(&listening).unwrap();
        unix.set_priority(Priority::High).unwrap();
        let udp = UdpSocket::bind(localhost()).await.unwrap();
        udp.set_priority(Priority::High).unwrap();
        let udp_addr = udp.local_addr().unwrap();
        let server = spawn(async move {
            let (mut one, _) = soon(tcp.accept()).await.unwrap();
            let (mut other, _) = soon(unix.accept()).await.unwrap();
            let mut buf = [0; 8];
            let read = soon(one.read(&mut buf)).await.unwrap();
            let read = read + soon(other.read(&mut buf)).await.unwrap();
            read + soon(udp.recv(&mut buf)).await.unwrap()
        });
        // Everybody waits before anything comes.
        yield_now().await;
        let mut tcp = TcpStream::connect(addr).await.unwrap();
        let mut unix = UnixStream::connect(&listening).await.unwrap();
        for _ in 0..10 {
            yield_now().await;
        }
        tcp.write_all(b"tcp").await.unwrap();
        unix.write_all(b"unix").await.unwrap();
        for _ in 0..10 {
            yield_now().await;
        }
        let sender = UdpSocket::bind(localhost()).await.unwrap();
        sender.send_to(b"udp", udp_addr).await.unwrap();
        assert_eq!(soon(server).await.unwrap(), 10);
    });
    std::fs::remove_file(path).unwrap();
}

fn a_shared_listener_and_a_loop_that_has_ended_refuse_a_priority<B: Backend>() {
    let mut event_loop = B::event_loop();
    let left = event_loop
        .block_on(async {
            let shared = SharedListener::bind(&localhost().into()).unwrap();
            let Listener::Tcp(listener) = shared.attach().unwrap() else { panic!("it is TCP") };
            let error = listener.set_priority(Priority::High).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{error}");
            let (left, _) = UnixStream::pair().unwrap();
            left
        })
        .unwrap();
    drop(event_loop);
    assert!(left.set_priority(Priority::Normal).is_ok(), "it has it");
    assert!(left.set_priority(Priority::High).unwrap_err().to_string().contains("has ended"));
}
