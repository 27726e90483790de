//! TCP sockets before they connect or listen, connections that are in progress, and what the kernel
//! says of one.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use wakeful::net::{TcpListener, TcpSocket, TcpState, TcpStream};
use wakeful::spawn;
use wakeful::task::yield_now;
use wakeful::time::timeout;

use crate::backend::Backend;
use crate::support::{is_pending, soon, tcp_pair};

on_every_backend! {
    a_socket_is_bound_before_it_connects_and_before_it_listens,
    what_is_set_before_is_kept_by_the_connection_and_handed_on_by_the_listener,
    sockets_that_reuse_the_port_listen_beside_each_other,
    a_socket_may_be_bound_to_an_interface,
    fast_open_delivers_the_same_bytes,
    an_address_that_cannot_be_had_is_an_error_that_says_so,
    a_socket_of_the_other_family_is_an_error,
    a_connect_that_never_answers_is_given_up_without_a_trace,
    a_connection_that_was_begun_elsewhere_is_waited_for,
    a_connection_in_progress_is_used_as_it_is,
    a_socket_from_elsewhere_connects,
    the_kernel_says_what_it_knows_of_a_connection,
}

const LOCALHOST: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

fn bound(addr: SocketAddr) -> TcpSocket {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_reuseaddr(true).unwrap();
    socket.bind(addr).unwrap();
    socket
}

fn a_socket_is_bound_before_it_connects_and_before_it_listens<B: Backend>() {
    // It needs no loop before.
    let socket = bound(LOCALHOST);
    let addr = socket.local_addr().unwrap();
    assert_ne!(addr.port(), 0);
    let refused = socket.listen(16).unwrap_err();
    assert!(refused.to_string().contains("no event loop runs on this thread"), "{refused}");
    B::block_on(async {
        let listener = bound(LOCALHOST).listen(16).unwrap();
        let addr = listener.local_addr().unwrap();
        let socket = bound(([127, 0, 0, 2], 0).into());
        let from = socket.local_addr().unwrap();
        let mut client = soon(socket.connect(addr)).await.unwrap();
        assert_eq!(client.local_addr().unwrap(), from);
        let (mut server, peer) = soon(listener.accept()).await.unwrap();
        assert_eq!(peer, from);
        client.write_all(b"hello").await.unwrap();
        let mut buf = [0; 8];
        assert_eq!(soon(server.read(&mut buf)).await.unwrap(), 5);

        // One that was not bound gets a port.
        let anywhere = TcpSocket::new_v4().unwrap().listen(1).unwrap();
        assert_ne!(anywhere.local_addr().unwrap().port(), 0);
        let closed = bound(LOCALHOST).local_addr().unwrap();
        let error = soon(bound(LOCALHOST).connect(closed)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    });
}

fn what_is_set_before_is_kept_by_the_connection_and_handed_on_by_the_listener<B: Backend>() {
    const TOS: u32 = 0x28;
    let set_up = || {
        let socket = bound(LOCALHOST);
        assert!(socket.reuseaddr().unwrap());
        assert!(!socket.nodelay().unwrap() && !socket.keepalive().unwrap());
        assert_eq!(socket.linger().unwrap(), None);
        socket.set_nodelay(true).unwrap();
        socket.set_keepalive(Duration::from_secs(60), Duration::from_secs(5), 3).unwrap();
        socket.set_linger(Some(Duration::ZERO)).unwrap();
        socket.set_send_buffer_size(32 * 1024).unwrap();
        socket.set_recv_buffer_size(48 * 1024).unwrap();
        socket.set_tos_v4(TOS).unwrap();
        assert!(socket.take_error().unwrap().is_none());
        socket
    };
    let is_set_up = |stream: &TcpStream| {
        assert!(stream.nodelay().unwrap() && stream.keepalive().unwrap());
        assert_eq!(stream.linger().unwrap(), Some(Duration::ZERO));
        // The kernel doubles them.
        assert_eq!(stream.send_buffer_size().unwrap(), 64 * 1024);
        assert_eq!(stream.recv_buffer_size().unwrap(), 96 * 1024);
        assert_eq!(stream.tos_v4().unwrap(), TOS);
    };
    B::block_on(async {
        let listener = set_up().listen(16).unwrap();
        let client = soon(set_up().connect(listener.local_addr().unwrap())).await.unwrap();
        let (server, _) = soon(listener.accept()).await.unwrap();
        is_set_up(&client);
        is_set_up(&server);
        client.unset_keepalive().unwrap();
        assert!(!client.keepalive().unwrap());
        for quickack in [false, true] {
            client.set_quickack(quickack).unwrap();
            assert_eq!(client.quickack().unwrap(), quickack);
        }
    });
}

fn sockets_that_reuse_the_port_listen_beside_each_other<B: Backend>() {
    B::block_on(async {
        let sharing = |addr| {
            let socket = TcpSocket::new_v4().unwrap();
            assert!(!socket.reuseport().unwrap());
            socket.set_reuseport(true).unwrap();
            assert!(socket.reuseport().unwrap());
            socket.bind(addr).unwrap();
            socket.listen(16).unwrap()
        };
        let one = sharing(LOCALHOST);
        let addr = one.local_addr().unwrap();
        let other = sharing(addr);
        let alone = TcpSocket::new_v4().unwrap();
        assert_eq!(alone.bind(addr).unwrap_err().kind(), ErrorKind::AddrInUse);
        let _client = soon(TcpStream::connect(addr)).await.unwrap();
        soon(futures_lite::future::or(one.accept(), other.accept())).await.unwrap();
    });
}

fn a_socket_may_be_bound_to_an_interface<B: Backend>() {
    B::block_on(async {
        let listener = TcpListener::bind(LOCALHOST).await.unwrap();
        let socket = TcpSocket::new_v4().unwrap();
        assert_eq!(socket.device().unwrap(), None);
        socket.bind_device(Some(b"lo")).unwrap();
        assert_eq!(socket.device().unwrap().as_deref(), Some(&b"lo"[..]));
        let client = soon(socket.connect(listener.local_addr().unwrap())).await.unwrap();
        assert_eq!(client.device().unwrap().as_deref(), Some(&b"lo"[..]));
        let socket = TcpSocket::new_v4().unwrap();
        assert!(socket.bind_device(Some(b"no such one")).is_err());
    });
}

/// Whether or not this machine allows it, and whether or not there is a cookie.
fn fast_open_delivers_the_same_bytes<B: Backend>() {
    B::block_on(async {
        let socket = bound(LOCALHOST);
        socket.set_fastopen_backlog(16).unwrap();
        assert_eq!(socket.fastopen_backlog().unwrap(), 16);
        let listener = socket.listen(16).unwrap();
        let addr = listener.local_addr().unwrap();
        for _ in 0..3 {
            let socket = TcpSocket::new_v4().unwrap();
            assert!(!socket.fastopen_connect().unwrap());
            match socket.set_fastopen_connect(true) {
                Ok(()) => assert!(socket.fastopen_connect().unwrap()),
                Err(error) => {
                    assert_eq!(error.raw_os_error(), Some(Errno::OPNOTSUPP.raw_os_error()));
                }
            }
            let mut client = soon(socket.connect(addr)).await.unwrap();
            // More than the first segment takes.
            let bytes = vec![7; 100_000];
            let expected = bytes.len();
            let sending = spawn(async move {
                client.write_all(&bytes).await.unwrap();
                let mut answer = [0; 8];
                client.read(&mut answer).await.unwrap()
            });
            let (mut server, _) = soon(listener.accept()).await.unwrap();
            let (mut got, mut buf) = (0, vec![0; 10_000]);
            while got < expected {
                got += soon(server.read(&mut buf)).await.unwrap();
            }
            assert_eq!(got, expected);
            server.write_all(b"done").await.unwrap();
            assert_eq!(soon(sending).await.unwrap(), 4);
        }
    });
}

fn an_address_that_cannot_be_had_is_an_error_that_says_so<B: Backend>() {
    B::block_on(async {
        // TEST-NET-1 (RFC 5737): nobody has it.
        let nobodys: SocketAddr = ([192, 0, 2, 1], 0).into();
        let by_hand = TcpSocket::new_v4().unwrap();
        for error in
            [TcpListener::bind(nobodys).await.unwrap_err(), by_hand.bind(nobodys).unwrap_err()]
        {
            assert_eq!(error.kind(), ErrorKind::AddrNotAvailable);
            assert!(error.to_string().contains("no network interface"), "{error}");
        }
        // The socket is as it was.
        by_hand.bind(LOCALHOST).unwrap();
        assert!(by_hand.bind(LOCALHOST).is_err(), "it is bound");

        // The same two ends cannot be connected twice.
        let listener = TcpListener::bind(LOCALHOST).await.unwrap();
        let addr = listener.local_addr().unwrap();
        let socket = bound(LOCALHOST);
        let from = socket.local_addr().unwrap();
        let _client = soon(socket.connect(addr)).await.unwrap();
        let error = soon(bound(from).connect(addr)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AddrNotAvailable);
        assert!(error.to_string().contains("local port"), "{error}");
        soon(TcpStream::connect(addr)).await.unwrap();
    });
}

fn a_socket_of_the_other_family_is_an_error<B: Backend>() {
    B::block_on(async {
        let six: SocketAddr = "[::1]:1".parse().unwrap();
        let socket = TcpSocket::new_v4().unwrap();
        assert!(socket.bind(six).is_err());
        assert!(socket.only_v6().is_err() && socket.set_only_v6(true).is_err());
        assert!(socket.tclass_v6().is_err());
        assert!(soon(socket.connect(six)).await.is_err());
    });
}

/// A listener whose backlog is full, so that the kernel answers no further connection. The stream
/// is what fills it.
async fn deaf() -> (TcpListener, TcpStream) {
    let listener = bound(LOCALHOST).listen(0).unwrap();
    let fills = soon(TcpStream::connect(listener.local_addr().unwrap())).await.unwrap();
    (listener, fills)
}

/// How many sockets of this machine have asked `addr` for a connection and have no answer.
fn asking(addr: SocketAddr) -> usize {
    const SYN_SENT: &str = "02";
    let port = format!(":{:04X}", addr.port());
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let is_it = |line: &&str| {
        let mut fields = line.split_ascii_whitespace().skip(2);
        fields.next().is_some_and(|to| to.ends_with(&port)) && fields.next() == Some(SYN_SENT)
    };
    table.lines().filter(is_it).count()
}

fn a_connect_that_never_answers_is_given_up_without_a_trace<B: Backend>() {
    B::block_on(async {
        let (listener, _fills) = deaf().await;
        let addr = listener.local_addr().unwrap();
        let brief = Duration::from_millis(10);
        {
            let mut connecting = pin!(TcpStream::connect(addr));
            assert!(timeout(brief, connecting.as_mut()).await.is_err());
            let mut by_hand = pin!(TcpSocket::new_v4().unwrap().connect(addr));
            assert!(timeout(brief, by_hand.as_mut()).await.is_err());
            assert_eq!(asking(addr), 2);
        }
        assert_eq!(asking(addr), 0);
        let task = spawn(TcpStream::connect(addr));
        yield_now().await;
        assert_eq!(asking(addr), 1);
        task.abort();
        assert!(soon(task).await.is_err());
        assert_eq!(asking(addr), 0);

        // The listener has heard of none of them.
        soon(listener.accept()).await.unwrap();
        assert!(is_pending(listener.accept()).await);
        let client = soon(TcpStream::connect(addr)).await.unwrap();
        let (_, peer) = soon(listener.accept()).await.unwrap();
        assert_eq!(peer, client.local_addr().unwrap());
    });
}

/// What another library would hand over.
fn begun(addr: SocketAddr) -> std::net::TcpStream {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let fd = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None);
    let fd = fd.unwrap();
    assert_eq!(rustix::net::connect(&fd, &addr), Err(Errno::INPROGRESS));
    fd.into()
}

fn a_connection_that_was_begun_elsewhere_is_waited_for<B: Backend>() {
    B::block_on(async {
        let listener = TcpListener::bind(LOCALHOST).await.unwrap();
        let addr = listener.local_addr().unwrap();
        let mut client = soon(TcpStream::connect_in_progress(begun(addr))).await.unwrap();
        assert_eq!(client.peer_addr().unwrap(), addr);
        let (mut server, _) = soon(listener.accept()).await.unwrap();
        server.write_all(b"hello").await.unwrap();
        assert_eq!(soon(client.read(&mut [0; 8])).await.unwrap(), 5);

        let closed = bound(LOCALHOST).local_addr().unwrap();
        let error = soon(TcpStream::connect_in_progress(begun(closed))).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);

        let (deaf, _fills) = deaf().await;
        let addr = deaf.local_addr().unwrap();
        assert!(is_pending(TcpStream::connect_in_progress(begun(addr))).await);
        assert_eq!(asking(addr), 0, "given up, it is closed");

        // There is nothing to wait for, or not any more.
        let never = TcpSocket::new_v4().unwrap().into_std();
        let taken = begun(closed);
        assert!(taken.take_error().unwrap().is_some());
        for socket in [never, taken] {
            let error = soon(TcpStream::connect_in_progress(socket)).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotConnected);
        }
    });
}

fn a_connection_in_progress_is_used_as_it_is<B: Backend>() {
    B::block_on(async {
        let listener = TcpListener::bind(LOCALHOST).await.unwrap();
        let addr = listener.local_addr().unwrap();
        let mut client = TcpStream::from_std(begun(addr)).unwrap();
        soon(client.write_all(b"hello")).await.unwrap();
        let (mut server, _) = soon(listener.accept()).await.unwrap();
        assert_eq!(soon(server.read(&mut [0; 8])).await.unwrap(), 5);

        // Where it fails, both directions say so, and so does who asks.
        let closed = bound(LOCALHOST).local_addr().unwrap();
        let mut reads = TcpStream::from_std(begun(closed)).unwrap();
        let error = soon(reads.read(&mut [0; 8])).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        let mut writes = TcpStream::from_std(begun(closed)).unwrap();
        let error = soon(writes.write(b"x")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        let asks = TcpStream::from_std(begun(closed)).unwrap();
        soon(asks.writable()).await.unwrap();
        let error = asks.take_error().unwrap().expect("nobody listens there");
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        assert!(asks.take_error().unwrap().is_none(), "it was taken");

        let (deaf, _fills) = deaf().await;
        let mut waits = TcpStream::from_std(begun(deaf.local_addr().unwrap())).unwrap();
        assert!(is_pending(waits.write(b"x")).await);
        assert!(is_pending(waits.read(&mut [0; 8])).await);
    });
}

fn a_socket_from_elsewhere_connects<B: Backend>() {
    B::block_on(async {
        let listener = TcpListener::bind(LOCALHOST).await.unwrap();
        let addr = listener.local_addr().unwrap();
        let flags = SocketFlags::CLOEXEC;
        let fd = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None);
        let socket = TcpSocket::from_std(fd.unwrap().into()).unwrap();
        socket.set_nodelay(true).unwrap();
        // It does not block: here, too, the connection is given up.
        let (deaf, _fills) = deaf().await;
        let blocking = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None);
        let blocking = TcpSocket::from_std(blocking.unwrap().into()).unwrap();
        assert!(is_pending(blocking.connect(deaf.local_addr().unwrap())).await);
        let client = soon(socket.connect(addr)).await.unwrap();
        assert!(client.nodelay().unwrap());

        let socket = bound(LOCALHOST);
        let from = socket.local_addr().unwrap();
        let std = socket.into_std();
        assert_eq!(std.local_addr().unwrap(), from);
        assert_eq!(rustix::net::connect(&std, &addr), Err(Errno::INPROGRESS));
    });
}

fn the_kernel_says_what_it_knows_of_a_connection<B: Backend>() {
    B::block_on(async {
        let (mut client, mut server) = tcp_pair().await;
        client.write_all(&[7; 1_000]).await.unwrap();
        let mut read = 0;
        while read < 1_000 {
            read += soon(server.read(&mut [0; 1_000])).await.unwrap();
        }
        let (ours, theirs) = (client.tcp_info().unwrap(), server.tcp_info().unwrap());
        assert_eq!((ours.state, theirs.state), (TcpState::Established, TcpState::Established));
        assert_eq!((ours.bytes_sent, theirs.bytes_received), (1_000, 1_000));
        assert_eq!((ours.bytes_received, theirs.bytes_sent), (0, 0));
        assert_eq!((ours.total_retransmitted, ours.lost, ours.bytes_not_sent), (0, 0, 0));
        assert!(ours.rtt > Duration::ZERO && ours.rtt < Duration::from_secs(10), "{ours:?}");
        assert!(ours.min_rtt <= ours.rtt + ours.rtt_variance * 4, "{ours:?}");
        assert!(ours.congestion_window > 0 && ours.send_mss > 0 && ours.path_mtu > 0, "{ours:?}");

        client.shutdown().await.unwrap();
        assert_eq!(soon(server.read(&mut [0; 1])).await.unwrap(), 0);
        assert_eq!(server.tcp_info().unwrap().state, TcpState::CloseWait);
        drop(server);
        assert_eq!(soon(client.read(&mut [0; 1])).await.unwrap(), 0);

        let (deaf, _fills) = deaf().await;
        let asks = TcpStream::from_std(begun(deaf.local_addr().unwrap())).unwrap();
        assert_eq!(asks.tcp_info().unwrap().state, TcpState::SynSent);
    });
}
