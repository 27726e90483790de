//! Listening, connecting, names and datagrams.

use std::io::ErrorKind;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::SocketAddr as UnixAddr;
use std::rc::Rc;
use std::time::Duration;

use socket2::{Domain, Socket, Type};
use wakeful::net::{TcpListener, TcpStream, UdpSocket, UnixListener, UnixStream, resolve};
use wakeful::spawn;
use wakeful::task::yield_now;

use crate::backend::{Backend, localhost};
use crate::support::soon;

on_every_backend! {
    a_connection_that_its_peer_gave_up_is_no_error_of_the_listener,
    a_thousand_connections_at_once,
    several_tasks_accept_from_one_listener,
    connect_tries_every_address_and_reports_the_last_failure,
    names_are_resolved,
    unix_sockets_listen_connect_and_wait_for_room_in_the_backlog,
    unnamed_and_abstract_unix_addresses_are_addresses,
    a_datagram_wakes_a_receiver_and_several_may_wait,
}

fn a_thousand_connections_at_once<B: Backend>() {
    B::block_on(async {
        let listener = TcpListener::bind(localhost()).await.unwrap();
        let addr = listener.local_addr().unwrap();
        spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                spawn(async move {
                    let mut buf = [0; 64];
                    while let Ok(n @ 1..) = stream.read(&mut buf).await {
                        stream.write_all(&buf[..n]).await.unwrap();
                    }
                })
                .detach();
            }
        })
        .detach();
        let mut streams = Vec::new();
        for _ in 0..1_000 {
            streams.push(soon(TcpStream::connect(addr)).await.unwrap());
        }
        let tasks: Vec<_> = streams
            .into_iter()
            .enumerate()
            .map(|(number, mut stream)| {
                spawn(async move {
                    for round in 0..3 {
                        let text = format!("{number} {round}");
                        stream.write_all(text.as_bytes()).await.unwrap();
                        let mut buf = [0; 64];
                        let n = stream.read(&mut buf).await.unwrap();
                        assert_eq!(&buf[..n], text.as_bytes());
                    }
                })
            })
            .collect();
        for task in tasks {
            soon(task).await.unwrap();
        }
    });
}

fn several_tasks_accept_from_one_listener<B: Backend>() {
    B::block_on(async {
        let listener = Rc::new(TcpListener::bind(localhost()).await.unwrap());
        let addr = listener.local_addr().unwrap();
        let acceptors: Vec<_> = (0..5)
            .map(|_| {
                let listener = listener.clone();
                spawn(async move { listener.accept().await.map(|_| ()) })
            })
            .collect();
        yield_now().await;
        acceptors[0].abort();
        let mut clients = Vec::new();
        for _ in 0..4 {
            clients.push(TcpStream::connect(addr).await.unwrap());
        }
        let mut accepted = 0;
        for acceptor in acceptors {
            accepted += usize::from(soon(acceptor).await.is_ok());
        }
        assert_eq!(accepted, 4);
    });
}

fn connect_tries_every_address_and_reports_the_last_failure<B: Backend>() {
    B::block_on(async {
        // Bound and not listening, so that nobody else gets the port meanwhile.
        let unused = Socket::new(Domain::for_address(localhost()), Type::STREAM, None).unwrap();
        unused.bind(&localhost().into()).unwrap();
        let closed = unused.local_addr().unwrap().as_socket().unwrap();
        let listener = TcpListener::bind(localhost()).await.unwrap();
        let open = listener.local_addr().unwrap();
        let stream = soon(TcpStream::connect(&[closed, open][..])).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), open);
        let error = soon(TcpStream::connect(closed)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        let none: &[std::net::SocketAddr] = &[];
        assert_eq!(TcpStream::connect(none).await.unwrap_err().kind(), ErrorKind::InvalidInput);
        assert!(TcpListener::bind(open).await.is_err(), "in use");
    });
}

fn names_are_resolved<B: Backend>() {
    B::block_on(async {
        let addrs = soon(resolve(("localhost", 80))).await.unwrap();
        assert!(addrs.iter().all(|addr| addr.ip().is_loopback() && addr.port() == 80));
        assert!(!addrs.is_empty());
        assert_eq!(resolve("127.0.0.1:7").await.unwrap().len(), 1);
        assert!(soon(resolve("no port here")).await.is_err());
    });
}

fn unnamed_and_abstract_unix_addresses_are_addresses<B: Backend>() {
    let name =
        format!("wakeful-net-{}-{}", std::process::id(), std::any::type_name::<B>()).into_bytes();
    let addr = UnixAddr::from_abstract_name(&name).unwrap();
    B::block_on(async {
        let listener = UnixListener::bind_addr(&addr).unwrap();
        assert_eq!(listener.local_addr().unwrap().as_abstract_name(), Some(&name[..]));
        let client = soon(UnixStream::connect_addr(&addr)).await.unwrap();
        let (server, peer) = soon(listener.accept()).await.unwrap();
        assert_eq!(client.peer_addr().unwrap().as_abstract_name(), Some(&name[..]));
        assert_eq!(server.local_addr().unwrap().as_abstract_name(), Some(&name[..]));
        assert!(client.local_addr().unwrap().is_unnamed());
        assert!(server.peer_addr().unwrap().is_unnamed() && peer.is_unnamed());
        let (one, other) = UnixStream::pair().unwrap();
        for addr in [one.local_addr(), one.peer_addr(), other.local_addr(), other.peer_addr()] {
            assert!(addr.unwrap().is_unnamed());
        }
        // One that the standard library bound, and an address that cannot be had.
        let name = [&name[..], b"-std"].concat();
        let addr = UnixAddr::from_abstract_name(&name).unwrap();
        let bound = std::os::unix::net::UnixListener::bind_addr(&addr).unwrap();
        let listener = UnixListener::from_std(bound).unwrap();
        assert_eq!(listener.local_addr().unwrap().as_abstract_name(), Some(&name[..]));
        let unnamed = one.local_addr().unwrap();
        assert_eq!(UnixListener::bind_addr(&unnamed).unwrap_err().kind(), ErrorKind::InvalidInput);
        let refused = soon(UnixStream::connect_addr(&unnamed)).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidInput);
    });
}

fn unix_sockets_listen_connect_and_wait_for_room_in_the_backlog<B: Backend>() {
    B::block_on(async {
        let directory = std::env::temp_dir().join(format!("wakeful-net-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let path = directory.join("socket");
        let std_listener = {
            let fd = rustix::net::socket(
                rustix::net::AddressFamily::UNIX,
                rustix::net::SocketType::STREAM,
                None,
            )
            .unwrap();
            rustix::net::bind(&fd, &rustix::net::SocketAddrUnix::new(&path).unwrap()).unwrap();
            rustix::net::listen(&fd, 1).unwrap();
            std::os::unix::net::UnixListener::from(fd)
        };
        let listener = UnixListener::from_std(std_listener).unwrap();
        // More than the backlog takes: the rest waits for room.
        let clients: Vec<_> = (0..20)
            .map(|number: u8| {
                let path = path.clone();
                spawn(async move {
                    let mut stream = UnixStream::connect(&path).await.unwrap();
                    stream.write_all(&[number]).await.unwrap();
                })
            })
            .collect();
        for _ in 0..4 {
            yield_now().await;
        }
        let mut seen = Vec::new();
        for _ in 0..20 {
            let (mut stream, _) = soon(listener.accept()).await.unwrap();
            let mut buf = [0; 1];
            soon(stream.read(&mut buf)).await.unwrap();
            seen.push(buf[0]);
        }
        for client in clients {
            soon(client).await.unwrap();
        }
        seen.sort_unstable();
        assert!(seen.into_iter().eq(0..20));
        assert_eq!(UnixListener::bind(&path).unwrap_err().kind(), ErrorKind::AddrInUse);
        std::fs::remove_dir_all(&directory).unwrap();
    });
}

fn a_datagram_wakes_a_receiver_and_several_may_wait<B: Backend>() {
    B::block_on(async {
        let receiver = Rc::new(UdpSocket::bind(localhost()).await.unwrap());
        let sender = UdpSocket::bind(localhost()).await.unwrap();
        let (to, from) = (receiver.local_addr().unwrap(), sender.local_addr().unwrap());
        let waiting: Vec<_> = (0..3)
            .map(|_| {
                let receiver = receiver.clone();
                spawn(async move {
                    let mut buf = [0; 4];
                    let (length, from) = receiver.recv_from(&mut buf).await.unwrap();
                    (buf[..length].to_vec(), from)
                })
            })
            .collect();
        yield_now().await;
        for text in ["one", "two", "cut off"] {
            sender.send_to(text.as_bytes(), to).await.unwrap();
        }
        let mut got = Vec::new();
        for task in waiting {
            let (bytes, sent_by) = soon(task).await.unwrap();
            assert_eq!(sent_by, from);
            got.push(bytes);
        }
        got.sort();
        assert_eq!(got, [&b"cut "[..], b"one", b"two"]);
        sender.connect(to).await.unwrap();
        sender.send(b"peek").await.unwrap();
        let mut buf = [0; 8];
        assert_eq!(soon(receiver.peek_from(&mut buf)).await.unwrap().0, 4);
        assert_eq!(receiver.recv(&mut buf).await.unwrap(), 4);
    });
}

/// Reset, or closed, while they wait in the backlog.
fn a_connection_that_its_peer_gave_up_is_no_error_of_the_listener<B: Backend>() {
    B::block_on(async {
        let listener = TcpListener::bind(localhost()).await.unwrap();
        let addr = listener.local_addr().unwrap();
        for _ in 0..20 {
            let reset = soon(TcpStream::connect(addr)).await.unwrap();
            reset.set_linger(Some(Duration::ZERO)).unwrap();
            drop(reset);
            drop(soon(TcpStream::connect(addr)).await.unwrap());
            let whole = soon(TcpStream::connect(addr)).await.unwrap();
            loop {
                let (_stream, peer) = soon(listener.accept()).await.expect("no error of ours");
                if peer == whole.local_addr().unwrap() {
                    break;
                }
            }
        }
    });
}
