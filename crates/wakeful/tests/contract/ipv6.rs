//! Sockets of IPv6, and those that take both families.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use wakeful::accept::{AcceptStrategy, Connection, ConnectionServer, Placement, SharedListener};
use wakeful::net::{ListenAddr, Stream, TcpListener, TcpSocket, TcpStream, UdpSocket, resolve};

use crate::backend::Backend;
use crate::backend::driven::skip;
use crate::background::LONG;
use crate::support::soon;

on_every_backend! {
    a_connection_over_ipv6_is_one_like_any_other,
    a_listener_on_all_addresses_takes_both_families,
    a_listener_of_ipv6_alone_leaves_the_port_to_ipv4,
    connect_goes_on_to_the_other_family,
    options_of_ipv6_are_set_and_kept,
    datagrams_go_over_ipv6_and_come_from_both_families,
    a_server_takes_both_families_with_every_strategy,
    a_connection_over_ipv6_moves_to_another_loop,
}

const LOCALHOST: SocketAddr = SocketAddr::new(IpAddr::V6(Ipv6Addr::LOCALHOST), 0);
const EVERYWHERE: SocketAddr = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0);

/// To be called on the test's own thread.
fn needs_ipv6() {
    if std::net::TcpListener::bind(LOCALHOST).is_err() {
        skip("this machine has no IPv6: nothing can be bound to [::1]");
    }
}

/// Like [`needs_ipv6`], for tests that need `[::]` to accept IPv4 by default.
fn needs_both_families() {
    needs_ipv6();
    let only = std::fs::read_to_string("/proc/sys/net/ipv6/bindv6only");
    if only.is_ok_and(|only| only.trim() == "1") {
        skip("net.ipv6.bindv6only keeps IPv4 from sockets that are bound to [::]");
    }
}

/// The two ways to a listener on `[::]`.
fn both_ways(port: u16) -> [SocketAddr; 2] {
    [(Ipv4Addr::LOCALHOST, port).into(), (Ipv6Addr::LOCALHOST, port).into()]
}

fn a_connection_over_ipv6_is_one_like_any_other<B: Backend>() {
    needs_ipv6();
    B::block_on(async {
        let listener = TcpListener::bind("[::1]:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        assert!(addr.is_ipv6() && addr.ip().is_loopback());
        for mut client in [
            soon(TcpStream::connect(addr)).await.unwrap(),
            soon(TcpStream::connect(("::1", addr.port()))).await.unwrap(),
            soon(TcpSocket::new_v6().unwrap().connect(addr)).await.unwrap(),
        ] {
            assert_eq!(client.peer_addr().unwrap(), addr);
            let (mut server, peer) = soon(listener.accept()).await.unwrap();
            assert_eq!(peer, client.local_addr().unwrap());
            assert_eq!(server.local_addr().unwrap(), addr);
            client.write_all(b"hello").await.unwrap();
            let mut buf = [0; 8];
            assert_eq!(soon(server.read(&mut buf)).await.unwrap(), 5);
            server.shutdown().await.unwrap();
            assert_eq!(soon(client.read(&mut buf)).await.unwrap(), 0);
        }
        drop(listener);
        let error = soon(TcpStream::connect(addr)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        assert_eq!(resolve("[::1]:7").await.unwrap(), [(Ipv6Addr::LOCALHOST, 7).into()]);
    });
}

fn a_listener_on_all_addresses_takes_both_families<B: Backend>() {
    needs_both_families();
    B::block_on(async {
        let by_hand = TcpSocket::new_v6().unwrap();
        by_hand.set_only_v6(false).unwrap();
        by_hand.bind(EVERYWHERE).unwrap();
        for listener in [TcpListener::bind("[::]:0").await.unwrap(), by_hand.listen(16).unwrap()] {
            let port = listener.local_addr().unwrap().port();
            for addr in both_ways(port) {
                let mut client = soon(TcpStream::connect(addr)).await.unwrap();
                let (mut server, peer) = soon(listener.accept()).await.unwrap();
                // Over IPv4 it is one of IPv6, too, as RFC 4291 (2.5.5.2) writes it.
                assert!(peer.is_ipv6());
                let from = client.local_addr().unwrap();
                assert_eq!((peer.ip().to_canonical(), peer.port()), (from.ip(), from.port()));
                assert_eq!(server.local_addr().unwrap().ip().to_canonical(), addr.ip());
                server.write_all(b"both").await.unwrap();
                assert_eq!(soon(client.read(&mut [0; 8])).await.unwrap(), 4);
            }
        }
    });
}

fn a_listener_of_ipv6_alone_leaves_the_port_to_ipv4<B: Backend>() {
    needs_ipv6();
    B::block_on(async {
        let socket = TcpSocket::new_v6().unwrap();
        socket.set_only_v6(true).unwrap();
        assert!(socket.only_v6().unwrap());
        socket.bind(EVERYWHERE).unwrap();
        let six = socket.listen(16).unwrap();
        let port = six.local_addr().unwrap().port();
        let [over_four, over_six] = both_ways(port);
        let error = soon(TcpStream::connect(over_four)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        let four = match TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).await {
            Ok(four) => four,
            // Another program was faster.
            Err(error) if error.kind() == ErrorKind::AddrInUse => return,
            Err(error) => panic!("{error}"),
        };
        let _client = soon(TcpStream::connect(over_four)).await.unwrap();
        assert!(soon(four.accept()).await.unwrap().1.is_ipv4());
        let _client = soon(TcpStream::connect(over_six)).await.unwrap();
        assert!(soon(six.accept()).await.unwrap().1.is_ipv6());
    });
}

fn connect_goes_on_to_the_other_family<B: Backend>() {
    needs_ipv6();
    B::block_on(async {
        for family in ["127.0.0.1:0", "[::1]:0"] {
            let listener = TcpListener::bind(family).await.unwrap();
            let open = listener.local_addr().unwrap();
            let closed = both_ways(open.port()).into_iter().find(|addr| addr.ip() != open.ip());
            let addrs = [closed.unwrap(), open];
            let client = soon(TcpStream::connect(&addrs)).await.unwrap();
            assert_eq!(client.peer_addr().unwrap(), open);
            // Nobody has the first of them (RFC 3849), and the second is in use.
            let nobodys = "[2001:db8::1]:0".parse().unwrap();
            let bound = TcpListener::bind(&[nobodys, open, LOCALHOST]).await.unwrap();
            assert!(bound.local_addr().unwrap().ip().is_loopback());
        }
    });
}

fn options_of_ipv6_are_set_and_kept<B: Backend>() {
    needs_ipv6();
    const CLASS: u32 = 0x28;
    B::block_on(async {
        let set_up = || {
            let socket = TcpSocket::new_v6().unwrap();
            socket.set_tclass_v6(CLASS).unwrap();
            socket.set_tos_v4(CLASS).unwrap();
            socket.set_nodelay(true).unwrap();
            socket.bind(LOCALHOST).unwrap();
            socket
        };
        let listener = set_up().listen(16).unwrap();
        let client = soon(set_up().connect(listener.local_addr().unwrap())).await.unwrap();
        let (server, _) = soon(listener.accept()).await.unwrap();
        for stream in [&client, &server] {
            assert_eq!(stream.tclass_v6().unwrap(), CLASS);
            assert!(stream.nodelay().unwrap());
            assert!(stream.tcp_info().unwrap().send_mss > 0);
        }
        let nobodys = "[2001:db8::1]:0".parse().unwrap();
        let error = TcpSocket::new_v6().unwrap().bind(nobodys).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AddrNotAvailable);
    });
}

fn datagrams_go_over_ipv6_and_come_from_both_families<B: Backend>() {
    needs_both_families();
    B::block_on(async {
        let all = UdpSocket::bind("[::]:0").await.unwrap();
        let port = all.local_addr().unwrap().port();
        for (to, from) in both_ways(port).into_iter().zip(["127.0.0.1:0", "[::1]:0"]) {
            let client = UdpSocket::bind(from).await.unwrap();
            client.send_to(b"hello", to).await.unwrap();
            let mut buf = [0; 8];
            let (length, from) = soon(all.recv_from(&mut buf)).await.unwrap();
            assert_eq!(length, 5);
            assert_eq!(from.ip().to_canonical(), to.ip());
            all.send_to(b"back", from).await.unwrap();
            assert_eq!(soon(client.recv(&mut buf)).await.unwrap(), 4);
        }
    });
}

fn a_server_takes_both_families_with_every_strategy<B: Backend>() {
    needs_both_families();
    for strategy in [
        AcceptStrategy::Exclusive,
        AcceptStrategy::ReusePort,
        AcceptStrategy::Dispatch(Placement::RoundRobin),
    ] {
        let listener = SharedListener::bind(&ListenAddr::Tcp(EVERYWHERE)).unwrap();
        let port = listener.socket_addr().unwrap().port();
        let server =
            ConnectionServer::new(vec![listener]).strategy(strategy).group(B::group().loops(2));
        let handler = async |mut connection: Connection| {
            let peer = connection.peer.to_string();
            let _ = connection.stream.write_all(peer.as_bytes()).await;
        };
        let serving = server.start(move || handler).unwrap();
        for _ in 0..4 {
            for addr in both_ways(port) {
                let mut client = std::net::TcpStream::connect(addr).unwrap();
                client.set_read_timeout(Some(LONG)).unwrap();
                let mut peer = String::new();
                client.read_to_string(&mut peer).unwrap();
                let peer: SocketAddr = peer.parse().unwrap();
                let from = client.local_addr().unwrap();
                assert_eq!((peer.ip().to_canonical(), peer.port()), (from.ip(), from.port()));
            }
        }
        drop(serving);
    }
}

fn a_connection_over_ipv6_moves_to_another_loop<B: Backend>() {
    needs_ipv6();
    let group = B::group().loops(1).build().unwrap();
    let other = group.handles()[0].clone();
    B::block_on(async {
        let listener = TcpListener::bind(LOCALHOST).await.unwrap();
        let mut client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, peer) = soon(listener.accept()).await.unwrap();
        let detached = server.detach();
        assert_eq!(detached.peer_addr().unwrap().to_string(), peer.to_string());
        client.write_all(b"moved").unwrap();
        let read = other.spawn(move || async move {
            let mut stream: Stream = detached.attach().unwrap().stream;
            stream.read(&mut [0; 8]).await
        });
        assert_eq!(soon(read.unwrap()).await.unwrap().unwrap(), 5);
    });
    group.shutdown(Duration::from_secs(10)).unwrap();
}
