//! Listeners that several loops share, and the server's frame around them. What is counted is
//! connections and waits, not time.

use std::cell::Cell;
use std::future::{Future, pending, poll_fn};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use wakeful::accept::{ConnectionServer, Listener, SharedListener};
use wakeful::net::{ListenAddr, Stream, TcpStream, UnixStream};
use wakeful::time::{sleep, timeout};
use wakeful::{EventLoop, LoopGroup, LoopHandle, spawn};

use crate::backend::Backend;
use crate::backend::driven::{BY_HAND, skip_on_guests};
use crate::background::{Background, LONG, until_asleep};

on_every_backend! {
    every_connection_to_a_shared_listener_is_served_once,
    a_shared_listener_that_nobody_accepts_from_does_not_make_the_loop_spin,
    a_connection_goes_to_another_loop_while_one_does_not_accept,
    a_left_over_socket_file_is_replaced_and_one_in_use_refused,
    a_port_in_use_is_refused,
    a_server_tells_its_connections_that_it_drains_and_aborts_the_rest,
    connections_over_the_limit_wait_until_one_closes,
    a_limit_that_would_let_nobody_in_is_refused,
    the_same_socket_given_twice_is_refused,
    a_handler_s_panic_closes_its_connection_and_no_other,
    the_wake_of_an_abandoned_accept_is_passed_on,
    what_was_passed_on_to_a_loop_that_ends_goes_to_a_third_one,
    what_was_passed_on_while_a_loop_is_blocked_goes_to_a_third_one,
}

fn group<B: Backend>(loops: usize) -> LoopGroup {
    B::group().loops(loops).build().unwrap()
}

fn localhost() -> SharedListener {
    SharedListener::bind(&crate::backend::localhost().into()).unwrap()
}

/// A path for a socket file, and its directory's end.
struct SocketPath(PathBuf);

impl SocketPath {
    fn new(test: &str) -> Self {
        let name = format!("wakeful-accept-{}-{test}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&directory).unwrap();
        Self(directory)
    }

    fn path(&self) -> PathBuf {
        self.0.join("socket")
    }

    fn addr(&self) -> ListenAddr {
        ListenAddr::Unix(self.path())
    }
}

impl Drop for SocketPath {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

async fn serve(listener: Listener, accepted: Arc<AtomicUsize>) {
    loop {
        let (mut stream, _) = listener.accept().await.unwrap();
        accepted.fetch_add(1, Ordering::Relaxed);
        spawn(async move {
            let mut buf = [0; 64];
            while let Ok(read @ 1..) = stream.read(&mut buf).await {
                stream.write_all(&buf[..read]).await.unwrap();
            }
        })
        .detach();
    }
}

async fn connect(addr: &ListenAddr) -> Stream {
    match addr {
        ListenAddr::Tcp(addr) => TcpStream::connect(*addr).await.unwrap().into(),
        ListenAddr::Unix(path) => UnixStream::connect(path).await.unwrap().into(),
        ListenAddr::Abstract(_) => panic!("no test listens there"),
    }
}

fn every_connection_to_a_shared_listener_is_served_once<B: Backend>() {
    const CONNECTIONS: usize = 300;
    let file = SocketPath::new("served");
    for listener in [localhost(), SharedListener::bind(&file.addr()).unwrap()] {
        let (group, accepted) = (group::<B>(3), Arc::new(AtomicUsize::new(0)));
        for handle in group.handles() {
            let (listener, accepted) = (listener.clone(), accepted.clone());
            handle
                .post_and_wait(move || spawn(serve(listener.attach().unwrap(), accepted)).detach())
                .unwrap();
        }
        B::block_on(async {
            let clients: Vec<_> = (0..CONNECTIONS)
                .map(|number| {
                    let addr = listener.local_addr().clone();
                    spawn(async move {
                        let mut stream = connect(&addr).await;
                        let text = format!("{number}");
                        stream.write_all(text.as_bytes()).await.unwrap();
                        let mut buf = [0; 64];
                        let read = stream.read(&mut buf).await.unwrap();
                        assert_eq!(&buf[..read], text.as_bytes());
                    })
                })
                .collect();
            for client in clients {
                timeout(LONG, client).await.expect("a connection was not served").unwrap();
            }
        });
        assert_eq!(accepted.load(Ordering::Relaxed), CONNECTIONS);
        group.shutdown(Duration::ZERO).unwrap();
    }
}

fn a_shared_listener_that_nobody_accepts_from_does_not_make_the_loop_spin<B: Backend>() {
    B::block_on(async {
        let handle = LoopHandle::current();
        let file = SocketPath::new("idle");
        for shared in [localhost(), SharedListener::bind(&file.addr()).unwrap()] {
            let listener = shared.attach().unwrap();
            let mut client = connect(shared.local_addr()).await;
            client.write_all(b"waits in the backlog").await.unwrap();
            sleep(Duration::from_millis(1)).await;
            let before = handle.metrics();
            for _ in 0..5 {
                sleep(Duration::from_millis(2)).await;
            }
            let waits = handle.metrics().waits - before.waits;
            assert!(waits <= 20, "{waits} waits for 5 timers");
            // It comes back, for this connection and for those after it.
            timeout(LONG, listener.accept()).await.unwrap().unwrap();
            for _ in 0..3 {
                let mut accept = Box::pin(listener.accept());
                let given_up = timeout(Duration::ZERO, &mut accept).await;
                assert!(given_up.is_err());
                let _client = connect(shared.local_addr()).await;
                timeout(LONG, accept).await.unwrap().unwrap();
            }
        }
    });
}

fn a_connection_goes_to_another_loop_while_one_does_not_accept<B: Backend>() {
    let (group, shared) = (group::<B>(2), localhost());
    let accepted = Arc::new(AtomicUsize::new(0));
    // The first loop attaches first, and never accepts.
    let idle = shared.clone();
    let kept = group.handles()[0].spawn(|| async move {
        let _listener = idle.attach().unwrap();
        pending::<()>().await;
    });
    group.handles()[0].post_and_wait(|| ()).unwrap();
    let (listener, counted) = (shared.clone(), accepted.clone());
    group.handles()[1]
        .post_and_wait(move || spawn(serve(listener.attach().unwrap(), counted)).detach())
        .unwrap();
    B::block_on(async {
        for _ in 0..50 {
            let mut stream = connect(shared.local_addr()).await;
            stream.write_all(b"x").await.unwrap();
            let read = timeout(LONG, stream.read(&mut [0; 1])).await;
            assert_eq!(read.expect("nobody took the connection").unwrap(), 1);
        }
    });
    assert_eq!(accepted.load(Ordering::Relaxed), 50);
    kept.unwrap().detach();
}

fn a_left_over_socket_file_is_replaced_and_one_in_use_refused<B: Backend>() {
    let file = SocketPath::new("left-over");
    // A std listener leaves its file behind.
    drop(std::os::unix::net::UnixListener::bind(file.path()).unwrap());
    assert!(file.path().exists());
    let listener = SharedListener::bind(&file.addr()).unwrap();
    StdUnixStream::connect(file.path()).unwrap();

    let error = SharedListener::bind(&file.addr()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AddrInUse);
    StdUnixStream::connect(file.path()).expect("the refused one left the first one's file");
    let clone = listener.clone();
    drop(listener);
    StdUnixStream::connect(file.path()).unwrap();
    drop(clone);
    assert!(!file.path().exists(), "the last clone removes its file");

    std::fs::write(file.path(), "not a socket").unwrap();
    let error = SharedListener::bind(&file.addr()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AddrInUse);
    assert_eq!(std::fs::read_to_string(file.path()).unwrap(), "not a socket");
}

fn a_port_in_use_is_refused<B: Backend>() {
    let listener = localhost();
    let error = SharedListener::bind(listener.local_addr()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AddrInUse);
}

fn a_server_tells_its_connections_that_it_drains_and_aborts_the_rest<B: Backend>() {
    let group = B::group().loops(2);
    let server = ConnectionServer::new(vec![localhost()]).group(group);
    let running = server
        .start(|| {
            async |mut connection| {
                let mut kind = [0; 1];
                connection.stream.read(&mut kind).await.unwrap();
                connection.stream.write_all(&kind).await.unwrap();
                connection.draining.started().await;
                if kind == *b"s" {
                    pending::<()>().await;
                }
                connection.stream.write_all(b"bye").await.unwrap();
            }
        })
        .unwrap();
    let ListenAddr::Tcp(addr) = running.local_addrs()[0] else { panic!("it is TCP") };
    let client = |kind: u8| {
        let mut stream = std::net::TcpStream::connect(addr).unwrap();
        stream.write_all(&[kind]).unwrap();
        stream.read_exact(&mut [0; 1]).unwrap();
        stream
    };
    let (polite, stubborn): (Vec<_>, Vec<_>) =
        (0..10).map(|_| (client(b'p'), client(b's'))).unzip();
    let counts = running.counts();
    assert_eq!((counts.open(), counts.accepted(), counts.failed()), (20, 20, 0));
    assert_eq!(running.shutdown(Duration::from_millis(100)).unwrap(), 10);
    for mut stream in polite {
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        assert_eq!(text, "bye");
    }
    for mut stream in stubborn {
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).unwrap();
        assert!(rest.is_empty());
    }
    assert_eq!(counts.open(), 0);
    assert!(std::net::TcpStream::connect(addr).is_err(), "nobody listens any more");
}

fn a_limit_that_would_let_nobody_in_is_refused<B: Backend>() {
    let server = ConnectionServer::new(vec![localhost()]).group(B::group().loops(1));
    let started = server.max_connections(0).start(|| async |_| ());
    let error = started.expect_err("0 is refused");
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains("lets nobody in"), "{error}");
}

fn the_same_socket_given_twice_is_refused<B: Backend>() {
    let (listener, other) = (localhost(), localhost());
    let addr = listener.local_addr().to_string();
    let start = |listeners| {
        let server = ConnectionServer::new(listeners).group(B::group().loops(2));
        server.start(|| async |_| ())
    };
    let error = start(vec![listener.clone(), other.clone(), listener.clone()]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    let text = error.to_string();
    assert!(text.contains("given twice") && text.contains(&addr), "{text}");
    start(vec![listener, other]).unwrap().shutdown(LONG).unwrap();
}

fn connections_over_the_limit_wait_until_one_closes<B: Backend>() {
    let server =
        ConnectionServer::new(vec![localhost()]).group(B::group().loops(2)).max_connections(2);
    let greatest = Arc::new(AtomicUsize::new(0));
    let (open, most) = (Arc::new(AtomicUsize::new(0)), greatest.clone());
    let running = server
        .start(move || {
            let (open, most) = (open.clone(), most.clone());
            // One per loop: need not be `Send`.
            let served = Rc::new(Cell::new(0));
            move |mut connection: wakeful::accept::Connection| {
                let (open, most, served) = (open.clone(), most.clone(), served.clone());
                async move {
                    most.fetch_max(open.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
                    served.set(served.get() + 1);
                    let mut buf = [0; 1];
                    connection.stream.read(&mut buf).await.unwrap();
                    open.fetch_sub(1, Ordering::Relaxed);
                    connection.stream.write_all(&buf).await.unwrap();
                }
            }
        })
        .unwrap();
    let ListenAddr::Tcp(addr) = running.local_addrs()[0] else { panic!("it is TCP") };
    let clients: Vec<_> = (0..20).map(|_| std::net::TcpStream::connect(addr).unwrap()).collect();
    for mut client in clients {
        client.write_all(b"x").unwrap();
        client.read_exact(&mut [0; 1]).unwrap();
    }
    assert!(greatest.load(Ordering::Relaxed) <= 2);
    assert_eq!(running.counts().accepted(), 20);
    assert_eq!(running.shutdown(LONG).unwrap(), 0);
}

fn a_handler_s_panic_closes_its_connection_and_no_other<B: Backend>() {
    let running = ConnectionServer::new(vec![localhost()])
        .group(B::group().loops(1))
        .start(|| {
            async |mut connection| {
                let mut buf = [0; 1];
                connection.stream.read(&mut buf).await.unwrap();
                assert!(buf != *b"!", "on purpose");
                connection.stream.write_all(&buf).await.unwrap();
            }
        })
        .unwrap();
    let ListenAddr::Tcp(addr) = running.local_addrs()[0] else { panic!("it is TCP") };
    let ask = |byte: &[u8]| {
        let mut stream = std::net::TcpStream::connect(addr).unwrap();
        stream.write_all(byte).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        answer
    };
    assert_eq!(ask(b"!"), b"");
    assert_eq!(ask(b"x"), b"x");
    assert_eq!(running.shutdown(LONG).unwrap(), 0);
}

/// The kernel woke one loop for the connection, and that one's `accept` was dropped before it was
/// polled again, as by a `select`. Another loop must hear of it.
/// Waits for the wake of a connection, and does not take it.
async fn abandon(shared: &SharedListener) -> Listener {
    let listener = shared.attach().unwrap();
    let mut accept = Box::pin(listener.accept());
    let mut woken = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut woken, true) {
            return Poll::Ready(());
        }
        assert!(accept.as_mut().poll(cx).is_pending());
        Poll::Pending
    })
    .await;
    drop(accept);
    listener
}

fn the_wake_of_an_abandoned_accept_is_passed_on<B: Backend>() {
    let (group, shared) = (group::<B>(2), localhost());
    let abandons = shared.clone();
    let abandoned = group.handles()[0].spawn(|| async move {
        let _listener = abandon(&abandons).await;
        pending::<()>().await;
    });
    group.handles()[0].post_and_wait(|| ()).unwrap();
    let (listener, counted) = (shared.clone(), Arc::new(AtomicUsize::new(0)));
    group.handles()[1]
        .post_and_wait(move || spawn(serve(listener.attach().unwrap(), counted)).detach())
        .unwrap();
    B::block_on(async {
        for _ in 0..3 {
            let mut stream = connect(shared.local_addr()).await;
            stream.write_all(b"x").await.unwrap();
            let read = timeout(Duration::from_secs(3), stream.read(&mut [0; 1])).await;
            assert_eq!(read.expect("nobody took the connection").unwrap(), 1);
        }
    });
    abandoned.unwrap().detach();
}

/// The second loop ends before it asks the kernel again. The third one sleeps, and the kernel has
/// not woken it.
fn what_was_passed_on_to_a_loop_that_ends_goes_to_a_third_one<B: Backend>() {
    a_third_loop_takes_what_a_second_one_does_not::<B>(|second| {
        drop(second);
        None
    });
}

/// The second loop takes no turn any more.
fn what_was_passed_on_while_a_loop_is_blocked_goes_to_a_third_one<B: Backend>() {
    a_third_loop_takes_what_a_second_one_does_not::<B>(Some);
}

fn a_third_loop_takes_what_a_second_one_does_not<B: Backend>(
    then: fn(EventLoop) -> Option<EventLoop>,
) {
    skip_on_guests(BY_HAND);
    let (shared, counted) = (localhost(), Arc::new(AtomicUsize::new(0)));
    let (mut first, mut second) = (B::event_loop(), B::event_loop());
    let [abandons, ends, serves] = [(); 3].map(|()| shared.clone());
    let abandoned = first.spawn(async move { drop(abandon(&abandons).await) });
    first.turn(Some(Duration::ZERO)).unwrap();
    second.spawn(async move { serve(ends.attach().unwrap(), Arc::default()).await }).detach();
    second.turn(Some(Duration::ZERO)).unwrap();
    let third = Background::start(B::builder(), move |event_loop| {
        event_loop.spawn(async move { serve(serves.attach().unwrap(), counted).await }).detach();
    });
    until_asleep(third.handle());
    let (handle, addr) = (first.handle(), shared.socket_addr().unwrap());
    let client = thread::spawn(move || {
        until_asleep(&handle);
        let mut stream = std::net::TcpStream::connect(addr).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream.write_all(b"x").unwrap();
        stream.read_exact(&mut [0; 1]).expect("nobody took the connection");
    });
    while !abandoned.is_finished() {
        first.turn(Some(LONG)).unwrap();
    }
    let _second = then(second);
    client.join().unwrap();
}
