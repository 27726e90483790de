//! Unix sockets that keep the ends of messages, addresses of every kind, and who the peer is.

use std::cell::Cell;
use std::future::{pending, poll_fn};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram as StdUnixDatagram};
use std::rc::Rc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};
use wakeful::net::{
    UdpSocket, UnixDatagram, UnixListener, UnixSeqpacket, UnixSeqpacketListener, UnixStream,
};
use wakeful::readiness::Interest;
use wakeful::spawn;
use wakeful::task::yield_now;
use wakeful::time::timeout;

use crate::backend::Backend;
use crate::support::{is_pending, soon};

on_every_backend! {
    datagrams_go_by_paths_abstract_names_and_in_pairs,
    a_sender_waits_for_room_in_a_queue_that_others_have_filled,
    a_hand_written_send_waits_for_room_as_any_other,
    a_connected_sender_is_told_of_room,
    a_send_that_is_given_up_has_sent_nothing,
    several_receive_datagrams_and_single_attempts_say_would_block,
    a_sender_with_the_longest_path_is_no_panic,
    packets_keep_their_ends_and_the_end_is_seen,
    packets_are_listened_for_and_wait_for_room_in_the_backlog,
    a_descriptor_of_another_kind_is_no_socket_of_packets,
    a_message_that_is_too_long_is_an_error_and_nothing_else,
    the_kernel_chooses_a_name_for_who_wants_one,
    the_peer_of_a_connection_or_pair_is_known,
}

fn would_block<T: std::fmt::Debug>(result: io::Result<T>) -> bool {
    result.unwrap_err().kind() == ErrorKind::WouldBlock
}

/// A directory for socket files, which goes with this.
struct Directory(std::path::PathBuf);

impl Directory {
    fn new<B: Backend>(name: &str) -> Self {
        let name = format!("wakeful-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str) -> std::path::PathBuf {
        self.0.join(name)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn datagrams_go_by_paths_abstract_names_and_in_pairs<B: Backend>() {
    let directory = Directory::new::<B>("datagrams");
    let (server_path, client_path) = (directory.file("server"), directory.file("client"));
    let name = format!("wakeful-datagrams-{}", std::process::id());
    let named = SocketAddr::from_abstract_name(&name).unwrap();
    B::block_on(async {
        let mut buf = [0; 16];
        let server = UnixDatagram::bind(&server_path).unwrap();
        let client = UnixDatagram::bind(&client_path).unwrap();
        assert_eq!(client.send_to(b"question", &server_path).await.unwrap(), 8);
        let (length, from) = soon(server.recv_from(&mut buf)).await.unwrap();
        assert_eq!((&buf[..length], from.as_pathname()), (&b"question"[..], Some(&*client_path)));
        assert_eq!(server.try_send_to_addr(b"answer", &from).unwrap(), 6);
        assert_eq!(soon(client.recv(&mut buf)).await.unwrap(), 6);
        assert_eq!(UnixDatagram::bind(&server_path).unwrap_err().kind(), ErrorKind::AddrInUse);
        let nowhere = client.send_to(b"", directory.file("nobody")).await.unwrap_err();
        assert_eq!(nowhere.kind(), ErrorKind::NotFound);

        let abstractly = UnixDatagram::bind_addr(&named).unwrap();
        assert_eq!(abstractly.local_addr().unwrap().as_abstract_name(), Some(name.as_bytes()));
        let sender = UnixDatagram::unbound().unwrap();
        assert_eq!(sender.peer_addr().unwrap_err().kind(), ErrorKind::NotConnected);
        sender.connect_addr(&named).unwrap();
        assert_eq!(sender.peer_addr().unwrap().as_abstract_name(), Some(name.as_bytes()));
        sender.send(b"cut off").await.unwrap();
        let (length, from) = soon(abstractly.recv_from(&mut buf[..3])).await.unwrap();
        assert_eq!(&buf[..length], b"cut");
        assert!(from.is_unnamed());
        drop(abstractly);
        let refused = sender.send(b"too late").await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        sender.connect(&server_path).unwrap();
        sender.send(b"").await.unwrap();
        assert_eq!(soon(server.recv_from(&mut buf)).await.unwrap().0, 0, "an empty datagram");

        let (one, other) = UnixDatagram::pair().unwrap();
        assert!(one.local_addr().unwrap().is_unnamed() && one.peer_addr().unwrap().is_unnamed());
        one.send(b"pair").await.unwrap();
        assert_eq!(soon(other.peek(&mut buf)).await.unwrap(), 4);
        let other = other.into_std();
        assert_eq!(other.recv(&mut buf).unwrap(), 4);
        let other = UnixDatagram::from_std(other).unwrap();
        let unnamed = one.local_addr().unwrap();
        for refused in [
            UnixDatagram::bind_addr(&unnamed).map(drop),
            one.connect_addr(&unnamed),
            one.send_to_addr(b"", &unnamed).await.map(drop),
        ] {
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidInput);
        }
        drop(other);
        assert!(one.send(b"gone").await.is_err());
    });
}

/// The receiver's queue is full of what a second socket has sent.
fn full(addr: &SocketAddr) -> (StdUnixDatagram, usize) {
    let filler = StdUnixDatagram::unbound().unwrap();
    filler.set_nonblocking(true).unwrap();
    let mut sent = 0;
    while filler.send_to_addr(b"filler", addr).is_ok() {
        sent += 1;
    }
    assert!(sent > 0);
    (filler, sent)
}

fn a_sender_waits_for_room_in_a_queue_that_others_have_filled<B: Backend>() {
    B::block_on(async {
        let receiver = UnixDatagram::autobind().unwrap();
        let addr = receiver.local_addr().unwrap();
        let (_filler, sent) = full(&addr);
        let sender = Rc::new(UnixDatagram::unbound().unwrap());
        soon(sender.writable()).await.unwrap();
        assert!(would_block(sender.try_send_to_addr(b"late", &addr)));
        let sending = spawn({
            let (sender, addr) = (sender.clone(), addr.clone());
            async move { sender.send_to_addr(b"late", &addr).await }
        });
        assert!(is_pending(std::future::pending::<()>()).await);
        assert!(!sending.is_finished());
        // The same socket may send elsewhere meanwhile, and is writable.
        let other = UnixDatagram::autobind().unwrap();
        let elsewhere = other.local_addr().unwrap();
        soon(sender.send_to_addr(b"elsewhere", &elsewhere)).await.unwrap();
        soon(sender.writable()).await.unwrap();
        let mut buf = [0; 16];
        for _ in 0..sent {
            assert_eq!(soon(receiver.recv(&mut buf)).await.unwrap(), 6);
        }
        assert_eq!(soon(receiver.recv(&mut buf)).await.unwrap(), 4);
        assert_eq!(soon(sending).await.unwrap().unwrap(), 4);
    });
}

/// Room in a queue that others have filled, in the sender's own buffer, and in the queue of a third
/// socket that it is connected to.
fn a_hand_written_send_waits_for_room_as_any_other<B: Backend>() {
    let directory = Directory::new::<B>("hand-written");
    B::block_on(async {
        let receiver = UnixDatagram::bind(directory.file("receiver")).unwrap();
        let addr = receiver.local_addr().unwrap();
        let (_filler, sent) = full(&addr);
        let sender = Rc::new(UnixDatagram::unbound().unwrap());
        // A poll that was given up has sent nothing.
        assert!(is_pending(poll_fn(|cx| sender.poll_send_to_addr(cx, b"lost", &addr))).await);
        let sending = spawn({
            let (sender, path) = (sender.clone(), directory.file("receiver"));
            async move { poll_fn(|cx| sender.poll_send_to(cx, b"late", &path)).await }
        });
        assert!(is_pending(pending::<()>()).await && !sending.is_finished());
        let mut buf = [0; 16];
        for _ in 0..sent {
            assert_eq!(soon(receiver.recv(&mut buf)).await.unwrap(), 6);
        }
        assert_eq!(soon(poll_fn(|cx| receiver.poll_recv(cx, &mut buf))).await.unwrap(), 4);
        assert_eq!(&buf[..4], b"late");
        assert_eq!(soon(sending).await.unwrap().unwrap(), 4);
        assert!(would_block(receiver.try_recv(&mut buf)), "it came once");

        // Connected to a third one whose queue is full.
        let third = UnixDatagram::autobind().unwrap();
        let _filler = full(&third.local_addr().unwrap());
        sender.connect_addr(&third.local_addr().unwrap()).unwrap();
        let by_hand = poll_fn(|cx| sender.poll_send_to_addr(cx, b"beside", &addr));
        assert_eq!(soon(by_hand).await.unwrap(), 6);
        let _filler = full(&addr);
        let by_hand = spawn({
            let (sender, addr) = (sender.clone(), addr.clone());
            async move { poll_fn(|cx| sender.poll_send_to_addr(cx, b"both", &addr)).await }
        });
        assert!(is_pending(pending::<()>()).await && !by_hand.is_finished());
        while receiver.try_recv(&mut buf).is_ok() {}
        assert_eq!(soon(by_hand).await.unwrap().unwrap(), 4);
        let missing = poll_fn(|cx| sender.poll_send_to(cx, b"", directory.file("missing"))).await;
        assert_eq!(missing.unwrap_err().kind(), ErrorKind::NotFound);
        let unnamed = UnixDatagram::unbound().unwrap().local_addr().unwrap();
        let unnamed = poll_fn(|cx| sender.poll_send_to_addr(cx, b"", &unnamed)).await;
        assert_eq!(unnamed.unwrap_err().kind(), ErrorKind::InvalidInput);

        // What is always ready gives way.
        let stop = Rc::new(Cell::new(false));
        let drained = StdUnixDatagram::bind(directory.file("drained")).unwrap();
        let greedy = spawn({
            let (stop, path) = (stop.clone(), directory.file("drained"));
            async move {
                while !stop.get() {
                    poll_fn(|cx| sender.poll_send_to(cx, b"x", &path)).await.unwrap();
                    drained.recv(&mut [0; 16]).unwrap();
                }
            }
        });
        spawn(async move { stop.set(true) }).await.unwrap();
        soon(greedy).await.unwrap();
    });
}

fn a_connected_sender_is_told_of_room<B: Backend>() {
    B::block_on(async {
        let receiver = UnixDatagram::autobind().unwrap();
        let addr = receiver.local_addr().unwrap();
        let (_filler, sent) = full(&addr);
        let sender = UnixDatagram::unbound().unwrap();
        sender.connect_addr(&addr).unwrap();
        assert!(would_block(sender.try_send(b"late")));
        assert!(is_pending(sender.writable()).await);
        let sending = spawn(async move { sender.send(b"late").await });
        yield_now().await;
        let mut buf = [0; 16];
        for _ in 0..sent {
            assert_eq!(soon(receiver.recv(&mut buf)).await.unwrap(), 6);
        }
        assert_eq!(soon(sending).await.unwrap().unwrap(), 4);
        assert_eq!(soon(receiver.recv(&mut buf)).await.unwrap(), 4);
        // With its own address, it need not be connected to wait.
        let (_filler, sent) = full(&addr);
        let sender = UnixDatagram::unbound().unwrap();
        sender.connect_addr(&addr).unwrap();
        let sending = spawn(async move { sender.send_to_addr(b"late", &addr).await });
        yield_now().await;
        for _ in 0..sent {
            soon(receiver.recv(&mut buf)).await.unwrap();
        }
        assert_eq!(soon(sending).await.unwrap().unwrap(), 4);
    });
}

fn a_send_that_is_given_up_has_sent_nothing<B: Backend>() {
    B::block_on(async {
        let receiver = UnixDatagram::autobind().unwrap();
        let addr = receiver.local_addr().unwrap();
        let (_filler, sent) = full(&addr);
        let unconnected = UnixDatagram::unbound().unwrap();
        let connected = UnixDatagram::unbound().unwrap();
        connected.connect_addr(&addr).unwrap();
        assert!(is_pending(unconnected.send_to_addr(b"given up", &addr)).await);
        assert!(is_pending(connected.send(b"given up")).await);
        let mut buf = [0; 16];
        for _ in 0..sent {
            assert_eq!(soon(receiver.recv(&mut buf)).await.unwrap(), 6);
        }
        assert!(is_pending(receiver.recv(&mut buf)).await);
        // A receive that was given up takes nothing either.
        connected.send(b"next").await.unwrap();
        assert_eq!(soon(receiver.recv(&mut buf)).await.unwrap(), 4);
    });
}

fn several_receive_datagrams_and_single_attempts_say_would_block<B: Backend>() {
    B::block_on(async {
        let (ours, theirs) = UnixDatagram::pair().unwrap();
        let ours = Rc::new(ours);
        let mut buf = [0; 16];
        assert!(would_block(ours.try_recv(&mut buf)));
        assert!(would_block(ours.try_recv_from(&mut buf)));
        assert!(is_pending(ours.readable()).await);
        let waiting: Vec<_> = (0..3)
            .map(|_| {
                let ours = ours.clone();
                spawn(async move {
                    let mut buf = [0; 16];
                    ours.recv(&mut buf).await.map(|length| buf[..length].to_vec())
                })
            })
            .collect();
        yield_now().await;
        for text in ["one", "two", "three"] {
            assert_eq!(theirs.try_send(text.as_bytes()).unwrap(), text.len());
        }
        let mut got = Vec::new();
        for task in waiting {
            got.push(soon(task).await.unwrap().unwrap());
        }
        got.sort();
        assert_eq!(got, [&b"one"[..], b"three", b"two"]);

        let by_hand = spawn({
            let ours = ours.clone();
            async move { poll_fn(|cx| ours.poll_recv(cx, &mut [0; 16])).await }
        });
        yield_now().await;
        assert_eq!(soon(poll_fn(|cx| theirs.poll_send(cx, b"by hand"))).await.unwrap(), 7);
        assert_eq!(soon(by_hand).await.unwrap().unwrap(), 7);
        theirs.send(b"four").await.unwrap();
        let ready = soon(ours.ready(Interest::READABLE)).await.unwrap();
        assert!(ready.is_readable());
        assert_eq!(ours.try_peek(&mut buf).unwrap(), 4);
        assert_eq!(ours.try_peek_from(&mut buf).unwrap().0, 4);
        assert_eq!(soon(ours.peek_from(&mut buf)).await.unwrap().0, 4);
        let (length, from) = soon(poll_fn(|cx| ours.poll_recv_from(cx, &mut buf))).await.unwrap();
        assert!(from.is_unnamed());
        assert_eq!(&buf[..length], b"four");
        assert!(would_block(ours.try_recv(&mut buf)));
        assert!(is_pending(poll_fn(|cx| ours.poll_read_ready(cx))).await);
    });
}

fn a_sender_with_the_longest_path_is_no_panic<B: Backend>() {
    let directory = Directory::new::<B>("longest");
    // As many bytes as the kernel takes; the standard library takes one fewer.
    let mut path = directory.0.as_os_str().as_bytes().to_vec();
    path.push(b'/');
    path.resize(108, b'x');
    let socket = |kind| {
        let fd = rustix::net::socket(AddressFamily::UNIX, kind, None).unwrap();
        rustix::net::bind(&fd, &SocketAddrUnix::new(&path[..]).unwrap()).unwrap();
        fd
    };
    B::block_on(async {
        let receiver = UnixDatagram::autobind().unwrap();
        let addr = receiver.local_addr().unwrap();
        let sender = UnixDatagram::from_std(socket(SocketType::DGRAM).into()).unwrap();
        sender.send_to_addr(b"hello", &addr).await.unwrap();
        let (length, from) = soon(receiver.recv_from(&mut [0; 16])).await.unwrap();
        assert!(length == 5 && from.is_unnamed(), "{from:?}");
        std::fs::remove_file(std::ffi::OsStr::from_bytes(&path)).unwrap();

        let listener = UnixSeqpacketListener::autobind().unwrap();
        let client = socket(SocketType::SEQPACKET);
        let addr = listener.local_addr().unwrap();
        let name = SocketAddrUnix::new_abstract_name(addr.as_abstract_name().unwrap()).unwrap();
        rustix::net::connect(&client, &name).unwrap();
        assert!(soon(listener.accept()).await.unwrap().1.is_unnamed());
    });
}

fn packets_keep_their_ends_and_the_end_is_seen<B: Backend>() {
    B::block_on(async {
        let (ours, theirs) = UnixSeqpacket::pair().unwrap();
        let mut buf = [0; 16];
        assert!(would_block(ours.try_recv(&mut buf)));
        assert!(is_pending(ours.recv(&mut buf)).await);
        theirs.send(b"one").await.unwrap();
        theirs.try_send(b"cut off").unwrap();
        soon(poll_fn(|cx| theirs.poll_send(cx, b"three"))).await.unwrap();
        assert_eq!(soon(ours.peek(&mut buf)).await.unwrap(), 3);
        assert_eq!(soon(ours.recv(&mut buf)).await.unwrap(), 3);
        assert_eq!(soon(ours.recv(&mut buf[..3])).await.unwrap(), 3);
        soon(ours.readable()).await.unwrap();
        assert_eq!(ours.try_peek(&mut buf).unwrap(), 5);
        assert_eq!(soon(poll_fn(|cx| ours.poll_recv(cx, &mut buf))).await.unwrap(), 5);
        assert_eq!(&buf[..5], b"three");

        // Until nothing fits, and again when there is room.
        let mut sent = 0_u32;
        while let Ok(result) = timeout(Duration::from_millis(2), ours.send(&[7; 4096])).await {
            assert_eq!(result.unwrap(), 4096);
            sent += 1;
        }
        let sending = spawn(async move {
            ours.send(&[8; 4096]).await.unwrap();
            ours.shutdown_side(std::net::Shutdown::Write).unwrap();
            ours
        });
        let mut buf = [0; 5000];
        for _ in 0..sent {
            assert_eq!(soon(theirs.recv(&mut buf)).await.unwrap(), 4096);
            assert_eq!(buf[4095], 7);
        }
        assert_eq!(soon(theirs.recv(&mut buf)).await.unwrap(), 4096);
        assert_eq!(buf[0], 8);
        let ours = soon(sending).await.unwrap();
        assert_eq!(soon(theirs.recv(&mut buf)).await.unwrap(), 0, "the end");
        theirs.send(b"still open").await.unwrap();
        assert_eq!(soon(ours.recv(&mut buf)).await.unwrap(), 10);
        drop(theirs);
        assert_eq!(soon(ours.recv(&mut buf)).await.unwrap(), 0);
        assert_eq!(ours.send(b"x").await.unwrap_err().kind(), ErrorKind::BrokenPipe);
    });
}

fn packets_are_listened_for_and_wait_for_room_in_the_backlog<B: Backend>() {
    let directory = Directory::new::<B>("packets");
    let path = directory.file("socket");
    B::block_on(async {
        let fd = rustix::net::socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
        rustix::net::bind(&fd, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        rustix::net::listen(&fd, 1).unwrap();
        let listener = UnixSeqpacketListener::from_fd(fd).unwrap();
        assert!(is_pending(listener.accept()).await);
        let clients: Vec<_> = (0..20)
            .map(|number: u8| {
                let path = path.clone();
                spawn(async move {
                    let client = UnixSeqpacket::connect(&path).await.unwrap();
                    client.send(&[number]).await.unwrap();
                    assert_eq!(soon(client.recv(&mut [0; 1])).await.unwrap(), 0);
                })
            })
            .collect();
        let mut seen = Vec::new();
        for round in 0..20 {
            let accepted = match round % 2 {
                0 => soon(listener.accept()).await,
                _ => soon(poll_fn(|cx| listener.poll_accept(cx))).await,
            };
            let (server, from) = accepted.unwrap();
            assert!(from.is_unnamed());
            let mut buf = [0; 1];
            soon(server.recv(&mut buf)).await.unwrap();
            seen.push(buf[0]);
        }
        for client in clients {
            soon(client).await.unwrap();
        }
        seen.sort_unstable();
        assert!(seen.into_iter().eq(0..20));
        let in_use = UnixSeqpacketListener::bind(&path).unwrap_err();
        assert_eq!(in_use.kind(), ErrorKind::AddrInUse);
        // Another kind of socket listens there.
        let wrong = UnixStream::connect(&path).await.unwrap_err();
        assert_eq!(wrong.raw_os_error(), Some(Errno::PROTOTYPE.raw_os_error()));

        let name = format!("wakeful-packets-{}", std::process::id());
        let addr = SocketAddr::from_abstract_name(&name).unwrap();
        let listener = UnixSeqpacketListener::bind_addr(&addr).unwrap();
        let listener = UnixSeqpacketListener::from_fd(listener.into_fd()).unwrap();
        let client = UnixSeqpacket::connect_addr(&addr).await.unwrap();
        let (server, _) = soon(listener.accept()).await.unwrap();
        for named in [client.peer_addr(), server.local_addr(), listener.local_addr()] {
            assert_eq!(named.unwrap().as_abstract_name(), Some(name.as_bytes()));
        }
        let moved = UnixSeqpacket::from_fd(server.into_fd()).unwrap();
        client.send(b"moved").await.unwrap();
        assert_eq!(soon(moved.recv(&mut [0; 16])).await.unwrap(), 5);
    });
}

fn a_descriptor_of_another_kind_is_no_socket_of_packets<B: Backend>() {
    B::block_on(async {
        let stream: OwnedFd = UnixStream::pair().unwrap().0.into_std().into();
        let tcp: OwnedFd = std::net::TcpListener::bind("127.0.0.1:0").unwrap().into();
        for fd in [stream, tcp] {
            let second = fd.try_clone().unwrap();
            assert_eq!(UnixSeqpacket::from_fd(fd).unwrap_err().kind(), ErrorKind::InvalidInput);
            let listener = UnixSeqpacketListener::from_fd(second);
            assert_eq!(listener.unwrap_err().kind(), ErrorKind::InvalidInput);
        }
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(UnixSeqpacket::from_fd(file.into()).is_err());
    });
}

fn a_message_that_is_too_long_is_an_error_and_nothing_else<B: Backend>() {
    fn is_too_long<T: std::fmt::Debug>(result: io::Result<T>) -> bool {
        result.unwrap_err().raw_os_error() == Some(Errno::MSGSIZE.raw_os_error())
    }

    B::block_on(async {
        let long = vec![7; 1 << 23];
        let mut buf = [0; 16];

        let receiver = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let to = receiver.local_addr().unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        assert!(is_too_long(soon(sender.send_to(&long[..65_508], to)).await));
        assert!(is_too_long(sender.try_send_to(&long, to)));
        sender.connect(to).await.unwrap();
        assert!(is_too_long(soon(sender.send(&long)).await));
        soon(sender.send(b"short")).await.unwrap();
        assert_eq!(soon(receiver.recv(&mut buf)).await.unwrap(), 5);

        let receiver = UnixDatagram::autobind().unwrap();
        let to = receiver.local_addr().unwrap();
        let sender = UnixDatagram::unbound().unwrap();
        assert!(is_too_long(soon(sender.send_to_addr(&long, &to)).await));
        assert!(is_too_long(sender.try_send_to_addr(&long, &to)));
        sender.connect_addr(&to).unwrap();
        assert!(is_too_long(soon(sender.send(&long)).await));
        soon(sender.send(b"short")).await.unwrap();
        assert_eq!(soon(receiver.recv(&mut buf)).await.unwrap(), 5);

        let (ours, theirs) = UnixSeqpacket::pair().unwrap();
        assert!(is_too_long(soon(ours.send(&long)).await));
        assert!(is_too_long(ours.try_send_with_fds(&long, &[])));
        soon(ours.send(b"short")).await.unwrap();
        assert_eq!(soon(theirs.recv(&mut buf)).await.unwrap(), 5);
    });
}

fn the_kernel_chooses_a_name_for_who_wants_one<B: Backend>() {
    B::block_on(async {
        let listener = UnixListener::autobind().unwrap();
        let addr = listener.local_addr().unwrap();
        assert!(addr.as_abstract_name().is_some_and(|name| !name.is_empty()));
        let client = soon(UnixStream::connect_addr(&addr)).await.unwrap();
        assert_eq!(client.peer_addr().unwrap().as_abstract_name(), addr.as_abstract_name());
        let other = UnixListener::autobind().unwrap().local_addr().unwrap();
        assert_ne!(other.as_abstract_name(), addr.as_abstract_name());
    });
}

fn the_peer_of_a_connection_or_pair_is_known<B: Backend>() {
    let of_this_process = |cred: wakeful::net::UCred| {
        assert_eq!(cred.uid(), rustix::process::geteuid().as_raw());
        assert_eq!(cred.gid(), rustix::process::getegid().as_raw());
        assert_eq!(cred.pid(), Some(rustix::process::getpid().as_raw_pid()));
    };
    B::block_on(async {
        let (one, other) = UnixStream::pair().unwrap();
        of_this_process(one.peer_cred().unwrap());
        of_this_process(other.peer_cred().unwrap());
        of_this_process(UnixDatagram::pair().unwrap().0.peer_cred().unwrap());
        of_this_process(UnixSeqpacket::pair().unwrap().1.peer_cred().unwrap());

        let listener = UnixSeqpacketListener::autobind().unwrap();
        let addr = listener.local_addr().unwrap();
        let client = soon(UnixSeqpacket::connect_addr(&addr)).await.unwrap();
        let (server, _) = soon(listener.accept()).await.unwrap();
        of_this_process(client.peer_cred().unwrap());
        of_this_process(server.peer_cred().unwrap());

        // Whoever sends to it is not its peer.
        let alone = UnixDatagram::autobind().unwrap();
        assert_eq!(alone.peer_cred().unwrap_err().kind(), ErrorKind::NotConnected);
    });
}
