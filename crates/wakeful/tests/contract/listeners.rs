//! Listeners as futures written by hand and as streams, whom they have accepted, and how they come
//! from the standard library and go back to it.

use std::future::poll_fn;
use std::io::{Read, Write};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{UnixListener as StdUnixListener, UnixStream as StdUnixStream};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use futures_lite::StreamExt;
use rustix::net::{AddressFamily, SocketType};
use wakeful::accept::SharedListener;
use wakeful::net::{
    Incoming, Listener, PeerAddr, Stream, TcpListener, TcpStream, UnixListener, UnixStream,
};
use wakeful::spawn;
use wakeful::task::yield_now;

use crate::backend::{Backend, localhost};
use crate::support::{is_pending, soon};

on_every_backend! {
    a_future_written_by_hand_accepts,
    one_that_accepts_by_hand_waits_beside_others,
    connections_come_as_a_stream,
    a_stream_that_is_dropped_takes_no_connection_along,
    what_always_comes_lets_others_run,
    a_poll_passes_over_a_connection_that_is_gone,
    a_shared_listener_s_connections_come_in_each_way,
    accept_on_unix_says_who_it_is,
    a_listener_goes_to_the_standard_library_and_comes_back,
    a_shared_listener_leaves_its_loop_and_the_others_listen_on,
}

/// A file's name that only this test uses.
fn path<B: Backend>(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("wakeful-{name}-{}", std::process::id()))
}

fn a_future_written_by_hand_accepts<B: Backend>() {
    let path = path::<B>("by-hand");
    B::block_on(async {
        let listener = TcpListener::bind(localhost()).await.unwrap();
        let addr = listener.local_addr().unwrap();
        assert!(is_pending(poll_fn(|cx| listener.poll_accept(cx))).await);
        let client = soon(TcpStream::connect(addr)).await.unwrap();
        let (server, peer) = soon(poll_fn(|cx| listener.poll_accept(cx))).await.unwrap();
        assert_eq!(peer, client.local_addr().unwrap());
        assert_eq!(server.peer_addr().unwrap(), peer);
        assert!(is_pending(poll_fn(|cx| listener.poll_accept(cx))).await);

        let either = Listener::from(listener);
        let client = soon(TcpStream::connect(addr)).await.unwrap();
        let (_, peer) = soon(poll_fn(|cx| either.poll_accept(cx))).await.unwrap();
        assert_eq!(peer, PeerAddr::Tcp(client.local_addr().unwrap()));

        let listener = UnixListener::bind(&path).unwrap();
        assert!(is_pending(poll_fn(|cx| listener.poll_accept(cx))).await);
        let _client = soon(UnixStream::connect(&path)).await.unwrap();
        let (_, peer) = soon(poll_fn(|cx| listener.poll_accept(cx))).await.unwrap();
        assert!(peer.is_unnamed());
        let either = Listener::from(listener);
        let _client = soon(UnixStream::connect(&path)).await.unwrap();
        let (_, peer) = soon(poll_fn(|cx| either.poll_accept(cx))).await.unwrap();
        assert_eq!(peer, PeerAddr::Unix);
    });
    std::fs::remove_file(&path).unwrap();
}

fn one_that_accepts_by_hand_waits_beside_others<B: Backend>() {
    B::block_on(async {
        let listener = Rc::new(TcpListener::bind(localhost()).await.unwrap());
        let addr = listener.local_addr().unwrap();
        let mut waiting: Vec<_> = (0..3)
            .map(|_| {
                let listener = listener.clone();
                spawn(async move { listener.accept().await.map(|(_, peer)| peer) })
            })
            .collect();
        waiting.push(spawn({
            let listener = listener.clone();
            async move { poll_fn(|cx| listener.poll_accept(cx)).await.map(|(_, peer)| peer) }
        }));
        waiting.push(spawn({
            let listener = listener.clone();
            async move { listener.incoming().next().await.unwrap()?.peer_addr() }
        }));
        yield_now().await;
        let mut clients = Vec::new();
        for _ in 0..5 {
            clients.push(soon(TcpStream::connect(addr)).await.unwrap());
        }
        let mut peers = Vec::new();
        for task in waiting {
            peers.push(soon(task).await.unwrap().unwrap());
        }
        peers.sort();
        let mut addrs: Vec<_> = clients.iter().map(|c| c.local_addr().unwrap()).collect();
        addrs.sort();
        assert_eq!(peers, addrs, "each has one");
    });
}

fn connections_come_as_a_stream<B: Backend>() {
    let path = path::<B>("incoming");
    B::block_on(async {
        let listener = TcpListener::bind(localhost()).await.unwrap();
        let addr = listener.local_addr().unwrap();
        let mut clients = Vec::new();
        for _ in 0..20 {
            clients.push(soon(TcpStream::connect(addr)).await.unwrap());
        }
        let mut incoming = listener.incoming();
        for client in &clients {
            let server = soon(incoming.next()).await.expect("it never ends").unwrap();
            assert_eq!(server.peer_addr().unwrap(), client.local_addr().unwrap());
        }
        assert!(is_pending(incoming.next()).await);
        drop(incoming);

        let listener = UnixListener::bind(&path).unwrap();
        let mut incoming: Incoming<'_, UnixStream> = listener.incoming();
        assert!(is_pending(incoming.next()).await);
        let mut client = soon(UnixStream::connect(&path)).await.unwrap();
        let mut server = soon(incoming.next()).await.unwrap().unwrap();
        client.write_all(b"hello").await.unwrap();
        assert_eq!(soon(server.read(&mut [0; 8])).await.unwrap(), 5);
        drop(incoming);

        let either = Listener::from(listener);
        let _client = soon(UnixStream::connect(&path)).await.unwrap();
        let server: Stream = soon(either.incoming().next()).await.unwrap().unwrap();
        assert!(matches!(server, Stream::Unix(_)));
    });
    std::fs::remove_file(&path).unwrap();
}

fn a_stream_that_is_dropped_takes_no_connection_along<B: Backend>() {
    B::block_on(async {
        let listener = TcpListener::bind(localhost()).await.unwrap();
        let addr = listener.local_addr().unwrap();
        for _ in 0..20 {
            let mut incoming = listener.incoming();
            assert!(
                soon(async { futures_lite::future::poll_once(incoming.next()).await })
                    .await
                    .is_none()
            );
            let client = soon(TcpStream::connect(addr)).await.unwrap();
            yield_now().await;
            drop(incoming);
            let (_, peer) = soon(listener.accept()).await.unwrap();
            assert_eq!(peer, client.local_addr().unwrap());
        }
    });
}

/// A backlog that never empties.
fn what_always_comes_lets_others_run<B: Backend>() {
    // Few, so that few connections are made.
    let settings = B::builder().cooperative_budget(4).task_budget(2);
    let mut event_loop = settings.build().unwrap();
    let done = event_loop.block_on(async {
        let listener = TcpListener::bind(localhost()).await.unwrap();
        let addr = listener.local_addr().unwrap();
        let connect = move || drop(std::net::TcpStream::connect(addr).unwrap());
        connect();
        let greedy = spawn(async move {
            let mut incoming = listener.incoming();
            loop {
                // Each connection that is taken is followed by another one.
                incoming.next().await.unwrap().unwrap();
                connect();
                poll_fn(|cx| listener.poll_accept(cx)).await.unwrap();
                connect();
            }
        });
        for _ in 0..20 {
            soon(yield_now()).await;
        }
        drop(greedy);
    });
    done.unwrap();
}

fn a_poll_passes_over_a_connection_that_is_gone<B: Backend>() {
    B::block_on(async {
        let listener = TcpListener::bind(localhost()).await.unwrap();
        let addr = listener.local_addr().unwrap();
        for _ in 0..20 {
            let reset = soon(TcpStream::connect(addr)).await.unwrap();
            reset.set_linger(Some(Duration::ZERO)).unwrap();
            drop(reset);
            let whole = soon(TcpStream::connect(addr)).await.unwrap();
            loop {
                let accepted = soon(poll_fn(|cx| listener.poll_accept(cx))).await;
                if accepted.expect("no error of ours").1 == whole.local_addr().unwrap() {
                    break;
                }
            }
        }
    });
}

fn a_shared_listener_s_connections_come_in_each_way<B: Backend>() {
    B::block_on(async {
        let shared = SharedListener::bind(&localhost().into()).unwrap();
        let addr = shared.socket_addr().unwrap();
        let listener = shared.attach().unwrap();
        for _ in 0..5 {
            assert!(is_pending(poll_fn(|cx| listener.poll_accept(cx))).await);
            assert!(is_pending(listener.incoming().next()).await);
            let client = soon(TcpStream::connect(addr)).await.unwrap();
            let (_, peer) = soon(poll_fn(|cx| listener.poll_accept(cx))).await.unwrap();
            assert_eq!(peer, PeerAddr::Tcp(client.local_addr().unwrap()));
            let _client = soon(TcpStream::connect(addr)).await.unwrap();
            soon(listener.incoming().next()).await.unwrap().unwrap();
            let _client = soon(TcpStream::connect(addr)).await.unwrap();
            soon(listener.accept()).await.unwrap();
        }
    });
}

fn accept_on_unix_says_who_it_is<B: Backend>() {
    let (path, named) = (path::<B>("who"), path::<B>("who-client"));
    let name = format!("wakeful-who-{}", std::process::id()).into_bytes();
    // The longest that the kernel takes, without a zero after it.
    let longest = {
        let mut longest = std::env::temp_dir().into_os_string().into_string().unwrap();
        longest.push_str(&format!("/wakeful-who-{}-", std::process::id()));
        longest.push_str(&"x".repeat(108 - longest.len()));
        PathBuf::from(longest)
    };
    let client = |bound: Option<rustix::net::SocketAddrUnix>| {
        let fd = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
        if let Some(addr) = bound {
            rustix::net::bind(&fd, &addr).unwrap();
        }
        rustix::net::connect(&fd, &rustix::net::SocketAddrUnix::new(&path).unwrap()).unwrap();
        StdUnixStream::from(fd)
    };
    let with_path = |path: &PathBuf| Some(rustix::net::SocketAddrUnix::new(path).unwrap());
    B::block_on(async {
        let listener = UnixListener::bind(&path).unwrap();
        let _unnamed = client(None);
        let (_, peer) = soon(listener.accept()).await.unwrap();
        assert!(peer.is_unnamed());

        let mut with_path_ = client(with_path(&named));
        let (mut stream, peer) = soon(listener.accept()).await.unwrap();
        assert_eq!(peer.as_pathname(), Some(&*named));
        assert_eq!(stream.peer_addr().unwrap().as_pathname(), Some(&*named));
        with_path_.write_all(b"it is me").unwrap();
        assert_eq!(soon(stream.read(&mut [0; 16])).await.unwrap(), 8);

        // It may be gone already.
        let abstract_name = rustix::net::SocketAddrUnix::new_abstract_name(&name).unwrap();
        drop(client(Some(abstract_name)));
        let (_, peer) = soon(listener.accept()).await.unwrap();
        assert_eq!(peer.as_abstract_name(), Some(&name[..]));

        let mut longest_ = client(with_path(&longest));
        let (mut stream, peer) = soon(listener.accept()).await.unwrap();
        assert!(peer.is_unnamed(), "the standard library cannot hold it");
        longest_.write_all(b"and I").unwrap();
        assert_eq!(soon(stream.read(&mut [0; 16])).await.unwrap(), 5);
        assert!(stream.peer_addr().is_err());
    });
    for path in [path, named, longest] {
        std::fs::remove_file(path).unwrap();
    }
}

fn a_listener_goes_to_the_standard_library_and_comes_back<B: Backend>() {
    let path = path::<B>("std");
    B::block_on(async {
        let listener = TcpListener::bind(localhost()).await.unwrap();
        let addr = listener.local_addr().unwrap();
        // Somebody waited, and a connection has come.
        assert!(is_pending(listener.accept()).await);
        let one = std::net::TcpStream::connect(addr).unwrap();
        let listener = listener.into_std().unwrap();
        assert_eq!(listener.accept().unwrap().1, one.local_addr().unwrap());
        let none = listener.accept().unwrap_err();
        assert_eq!(none.kind(), std::io::ErrorKind::WouldBlock, "it does not block");

        // What is in the backlog is accepted without an event.
        listener.set_nonblocking(false).unwrap();
        let two = std::net::TcpStream::connect(addr).unwrap();
        let listener = TcpListener::from_std(listener).unwrap();
        let (_, peer) = soon(listener.accept()).await.unwrap();
        assert_eq!(peer, two.local_addr().unwrap());
        assert!(is_pending(listener.accept()).await, "it does not block");

        let listener = StdUnixListener::bind(&path).unwrap();
        let mut client = StdUnixStream::connect(&path).unwrap();
        let listener = UnixListener::from_std(listener).unwrap();
        soon(listener.accept()).await.unwrap().0.write_all(b"!").await.unwrap();
        assert_eq!(client.read(&mut [0; 8]).unwrap(), 1);
        let listener = listener.into_std().unwrap();
        let _client = StdUnixStream::connect(&path).unwrap();
        listener.accept().unwrap();
        assert_eq!(listener.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    });
    std::fs::remove_file(&path).unwrap();
}

fn a_shared_listener_leaves_its_loop_and_the_others_listen_on<B: Backend>() {
    B::block_on(async {
        let shared = SharedListener::bind(&localhost().into()).unwrap();
        let addr = shared.socket_addr().unwrap();
        let Listener::Tcp(one) = shared.attach().unwrap() else { panic!("it is TCP") };
        assert!(is_pending(one.accept()).await);
        let one = one.into_std().unwrap();
        assert_eq!(one.local_addr().unwrap(), addr);

        let other = shared.attach().unwrap();
        let client = soon(TcpStream::connect(addr)).await.unwrap();
        let (_, peer) = soon(other.accept()).await.unwrap();
        assert_eq!(peer, PeerAddr::Tcp(client.local_addr().unwrap()));
        let client = soon(TcpStream::connect(addr)).await.unwrap();
        assert_eq!(one.accept().unwrap().1, client.local_addr().unwrap());
    });
}
