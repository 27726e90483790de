//! UDP: connected and not, by hand, into a buffer's room, to groups, and what errors of the network
//! do to a loop.

#![allow(unsafe_code)] // `IP_RECVERR`, which no crate here sets.

use std::cell::Cell;
use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket as StdUdp};
use std::os::fd::{AsFd, AsRawFd};
use std::rc::Rc;
use std::time::Duration;

use rustix::io::Errno;
use wakeful::net::UdpSocket;
use wakeful::readiness::{AsyncFd, Interest};
use wakeful::task::yield_now;
use wakeful::time::sleep;
use wakeful::{LoopHandle, spawn};

use crate::backend::Backend;
use crate::support::{destroy, is_pending, soon};

on_every_backend! {
    sockets_are_polled_by_hand,
    one_polls_by_hand_while_others_wait,
    who_polls_by_hand_lets_others_run_and_is_told_of_the_loop_s_end,
    a_datagram_is_appended_to_a_buffer_s_room,
    what_is_peeked_at_stays,
    a_connected_socket_hears_its_peer_alone,
    a_socket_that_is_destroyed_is_an_error_for_who_waits,
    a_datagram_that_is_too_long_is_an_error,
    broadcast_is_asked_for,
    members_of_a_group_hear_what_is_sent_to_it,
    options_are_what_they_were_set_to,
    a_socket_goes_back_to_std,
    an_error_queue_that_nobody_reads_wakes_no_loop,
    who_waits_beside_an_error_queue_gets_its_datagrams_and_does_not_spin,
}

const LOCALHOST: &str = "127.0.0.1:0";

async fn bound() -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind(LOCALHOST).await.unwrap();
    let addr = socket.local_addr().unwrap();
    (socket, addr)
}

async fn connected() -> (UdpSocket, UdpSocket) {
    let ((one, one_addr), (other, other_addr)) = (bound().await, bound().await);
    one.connect(other_addr).await.unwrap();
    other.connect(one_addr).await.unwrap();
    (one, other)
}

fn would_block<T: std::fmt::Debug>(result: io::Result<T>) -> bool {
    result.unwrap_err().kind() == ErrorKind::WouldBlock
}

fn sockets_are_polled_by_hand<B: Backend>() {
    B::block_on(async {
        let ((one, one_addr), (other, other_addr)) = (bound().await, bound().await);
        let mut buf = [0; 16];
        assert!(is_pending(poll_fn(|cx| other.poll_recv_from(cx, &mut buf))).await);
        let sent = soon(poll_fn(|cx| one.poll_send_to(cx, b"one", other_addr))).await.unwrap();
        assert_eq!(sent, 3);
        let sender = soon(poll_fn(|cx| other.poll_peek_sender(cx))).await.unwrap();
        assert_eq!(sender, one_addr);
        let peeked = soon(poll_fn(|cx| other.poll_peek_from(cx, &mut buf))).await.unwrap();
        assert_eq!(peeked, (3, one_addr));
        let received = soon(poll_fn(|cx| other.poll_recv_from(cx, &mut buf))).await.unwrap();
        assert_eq!((received, &buf[..3]), ((3, one_addr), &b"one"[..]));
        assert!(is_pending(poll_fn(|cx| other.poll_peek_sender(cx))).await);

        let (one, other) = connected().await;
        let receiving = spawn(async move {
            let mut buf = [0; 16];
            let length = poll_fn(|cx| other.poll_recv(cx, &mut buf)).await.unwrap();
            buf[..length].to_vec()
        });
        yield_now().await;
        assert_eq!(soon(poll_fn(|cx| one.poll_send(cx, b"three"))).await.unwrap(), 5);
        assert_eq!(soon(receiving).await.unwrap(), b"three");
    });
}

fn one_polls_by_hand_while_others_wait<B: Backend>() {
    B::block_on(async {
        let (receiver, addr) = bound().await;
        let receiver = Rc::new(receiver);
        let by_hand = spawn({
            let receiver = receiver.clone();
            async move { poll_fn(|cx| receiver.poll_recv_from(cx, &mut [0; 8])).await }
        });
        let waiting: Vec<_> = (0..3)
            .map(|_| {
                let receiver = receiver.clone();
                spawn(async move { receiver.recv_from(&mut [0; 8]).await })
            })
            .collect();
        yield_now().await;
        let (sender, from) = bound().await;
        for _ in 0..4 {
            sender.send_to(b"x", addr).await.unwrap();
        }
        for task in waiting.into_iter().chain([by_hand]) {
            assert_eq!(soon(task).await.unwrap().unwrap(), (1, from));
        }
    });
}

fn who_polls_by_hand_lets_others_run_and_is_told_of_the_loop_s_end<B: Backend>() {
    let mut event_loop = B::event_loop();
    let sends = event_loop.block_on(async {
        let ((sender, _), (_receiver, addr)) = (bound().await, bound().await);
        let greedy = spawn(async move {
            loop {
                // The receiver's buffer overflows, and takes no more.
                poll_fn(|cx| sender.poll_send_to(cx, b"x", addr)).await.unwrap();
            }
        });
        for _ in 0..5 {
            soon(yield_now()).await;
        }
        drop(greedy);
        bound().await.0
    });
    let socket = sends.unwrap();
    drop(event_loop);
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    let mut poll = || socket.poll_recv(&mut cx, &mut [0; 8]);
    assert!(matches!(poll(), std::task::Poll::Ready(Err(_))), "the loop has ended");
}

fn a_datagram_is_appended_to_a_buffer_s_room<B: Backend>() {
    B::block_on(async {
        let (one, other) = connected().await;
        let from = one.local_addr().unwrap();
        let mut buf = Vec::new();
        for no_room in [
            other.recv_buf(&mut buf).await,
            other.recv_buf_from(&mut buf).await.map(|_| 0),
            other.try_recv_buf(&mut buf),
        ] {
            assert_eq!(no_room.unwrap_err().kind(), ErrorKind::InvalidInput);
        }
        buf.reserve_exact(8);
        assert!(is_pending(other.recv_buf(&mut buf)).await);
        assert!(would_block(other.try_recv_buf(&mut buf)));
        for text in ["one", "two", "cut off"] {
            one.send(text.as_bytes()).await.unwrap();
        }
        assert_eq!(soon(other.recv_buf(&mut buf)).await.unwrap(), 3);
        assert_eq!(other.try_recv_buf_from(&mut buf).unwrap(), (3, from));
        assert_eq!(soon(other.recv_buf_from(&mut buf)).await.unwrap(), (2, from));
        assert_eq!((&buf[..], buf.capacity()), (&b"onetwocu"[..], 8));
        assert!(other.try_recv_buf(&mut buf).is_err());
        buf.reserve(8);
        assert!(would_block(other.try_recv_buf(&mut buf)), "the rest of a datagram is lost");
    });
}

fn what_is_peeked_at_stays<B: Backend>() {
    B::block_on(async {
        let (one, other) = connected().await;
        let from = one.local_addr().unwrap();
        let mut buf = [0; 16];
        assert!(would_block(other.try_peek(&mut buf)));
        assert!(would_block(other.try_peek_sender()));
        assert!(is_pending(other.peek_sender()).await);
        one.send(b"word").await.unwrap();
        assert_eq!(soon(other.peek_sender()).await.unwrap(), from);
        assert_eq!(other.try_peek_sender().unwrap(), from);
        assert_eq!(other.try_peek(&mut buf).unwrap(), 4);
        assert_eq!(other.try_recv(&mut buf).unwrap(), 4);
        assert!(would_block(other.try_peek_sender()));
    });
}

fn a_socket_that_is_destroyed_is_an_error_for_who_waits<B: Backend>() {
    B::block_on(async {
        let (socket, _other) = connected().await;
        let (local, peer) = (socket.local_addr().unwrap(), socket.peer_addr().unwrap());
        let socket = Rc::new(socket);
        let waiting = spawn({
            let socket = socket.clone();
            async move { socket.recv(&mut [0; 8]).await }
        });
        yield_now().await;
        if destroy("--udp", local, peer).is_err() || socket.peer_addr().is_ok() {
            return eprintln!("skipped: no ss, or it may not end a socket here");
        }
        let error = soon(waiting).await.unwrap().unwrap_err();
        assert_eq!(Errno::from_io_error(&error), Some(Errno::CONNABORTED));
    });
}

fn a_connected_socket_hears_its_peer_alone<B: Backend>() {
    B::block_on(async {
        let (socket, addr) = bound().await;
        let unconnected = socket.peer_addr().unwrap_err();
        assert_eq!(unconnected.kind(), ErrorKind::NotConnected);
        let ((peer, peer_addr), (stranger, _)) = (bound().await, bound().await);
        socket.connect(peer_addr).await.unwrap();
        assert_eq!(socket.peer_addr().unwrap(), peer_addr);
        stranger.send_to(b"stranger", addr).await.unwrap();
        assert!(is_pending(socket.recv(&mut [0; 16])).await);
        peer.send_to(b"peer", addr).await.unwrap();
        assert_eq!(soon(socket.recv(&mut [0; 16])).await.unwrap(), 4);

        // The next operation returns the error, once, that the datagram reached no socket.
        drop(peer);
        socket.send(b"is anybody there").await.unwrap();
        let refused = soon(socket.recv(&mut [0; 16])).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        assert!(is_pending(socket.recv(&mut [0; 16])).await);
        socket.send(b"still nobody").await.unwrap();
        soon(socket.readable()).await.unwrap();
        let taken = socket.take_error().unwrap().expect("an error");
        assert_eq!(taken.kind(), ErrorKind::ConnectionRefused);
        assert!(socket.take_error().unwrap().is_none());
        assert!(would_block(socket.try_recv(&mut [0; 16])));
    });
}

fn a_datagram_that_is_too_long_is_an_error<B: Backend>() {
    B::block_on(async {
        let (one, other) = connected().await;
        let too_long = one.send(&[0; 65_508]).await.unwrap_err();
        assert_eq!(too_long.raw_os_error(), Some(Errno::MSGSIZE.raw_os_error()));
        assert_eq!(one.send(&[7; 65_507]).await.unwrap(), 65_507);
        assert_eq!(soon(other.recv(&mut vec![0; 65_536])).await.unwrap(), 65_507);
        one.send(b"").await.unwrap();
        assert_eq!(soon(other.recv(&mut [0; 8])).await.unwrap(), 0, "an empty one is one");
    });
}

fn broadcast_is_asked_for<B: Backend>() {
    B::block_on(async {
        let receiver = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).await.unwrap();
        let port = receiver.local_addr().unwrap().port();
        let everybody = SocketAddr::from((Ipv4Addr::new(127, 255, 255, 255), port));
        let (sender, from) = bound().await;
        assert!(!sender.broadcast().unwrap());
        let refused = sender.send_to(b"all", everybody).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::PermissionDenied);
        sender.set_broadcast(true).unwrap();
        assert!(sender.broadcast().unwrap());
        sender.send_to(b"all", everybody).await.unwrap();
        assert_eq!(soon(receiver.recv_from(&mut [0; 8])).await.unwrap(), (3, from));
    });
}

fn members_of_a_group_hear_what_is_sent_to_it<B: Backend>() {
    B::block_on(async {
        let member = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).await.unwrap();
        let port = member.local_addr().unwrap().port();
        // Nobody else's: what one socket of the host has joined, all of them hear.
        let [high, low] = port.to_be_bytes();
        let group_ip = Ipv4Addr::new(239, 255, high, low);
        let group = SocketAddr::from((group_ip, port));
        let (sender, from) = bound().await;
        sender.set_multicast_if_v4(Ipv4Addr::LOCALHOST).unwrap();
        assert_eq!(sender.multicast_if_v4().unwrap(), Ipv4Addr::LOCALHOST);
        member.join_multicast_v4(group_ip, Ipv4Addr::LOCALHOST).unwrap();
        let again = member.join_multicast_v4(group_ip, Ipv4Addr::LOCALHOST).unwrap_err();
        assert_eq!(again.kind(), ErrorKind::AddrInUse);
        sender.send_to(b"all", group).await.unwrap();
        assert_eq!(soon(member.recv_from(&mut [0; 8])).await.unwrap(), (3, from));

        member.leave_multicast_v4(group_ip, Ipv4Addr::LOCALHOST).unwrap();
        sender.send_to(b"all", group).await.unwrap();
        assert!(is_pending(member.recv_from(&mut [0; 8])).await);
        let left = member.leave_multicast_v4(group_ip, Ipv4Addr::LOCALHOST).unwrap_err();
        assert_eq!(left.kind(), ErrorKind::AddrNotAvailable);
    });
    B::block_on(async {
        let Ok(member) = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).await else {
            return eprintln!("skipped: no IPv6 here");
        };
        let loopback = rustix::net::netdevice::name_to_index(&member, "lo").unwrap();
        let port = member.local_addr().unwrap().port();
        // Within this interface.
        let group_ip = Ipv6Addr::new(0xff01, 0, 0, 0, 0, 0, 0x77, port);
        let group = SocketAddr::from((group_ip, port));
        if let Err(error) = member.join_multicast_v6(&group_ip, loopback) {
            return eprintln!("skipped: no multicast of IPv6 here: {error}");
        }
        let sender = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).await.unwrap();
        sender.set_multicast_if_v6(loopback).unwrap();
        assert_eq!(sender.multicast_if_v6().unwrap(), loopback);
        if let Err(error) = sender.send_to(b"all", group).await {
            return eprintln!("skipped: no route for multicast of IPv6 here: {error}");
        }
        assert_eq!(soon(member.recv_from(&mut [0; 8])).await.unwrap().0, 3);
        member.leave_multicast_v6(&group_ip, loopback).unwrap();
        sender.send_to(b"all", group).await.unwrap();
        assert!(is_pending(member.recv_from(&mut [0; 8])).await);
    });
}

fn options_are_what_they_were_set_to<B: Backend>() {
    B::block_on(async {
        let (socket, _) = bound().await;
        socket.set_ttl(7).unwrap();
        assert_eq!(socket.ttl().unwrap(), 7);
        assert_eq!(socket.set_ttl(0).unwrap_err().kind(), ErrorKind::InvalidInput);
        assert_eq!(socket.multicast_ttl_v4().unwrap(), 1);
        socket.set_multicast_ttl_v4(8).unwrap();
        assert_eq!(socket.multicast_ttl_v4().unwrap(), 8);
        assert!(socket.multicast_loop_v4().unwrap());
        socket.set_multicast_loop_v4(false).unwrap();
        assert!(!socket.multicast_loop_v4().unwrap());

        let Ok(socket) = UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).await else {
            return eprintln!("skipped: no IPv6 here");
        };
        socket.set_multicast_hops_v6(9).unwrap();
        assert_eq!(socket.multicast_hops_v6().unwrap(), 9);
        assert!(socket.multicast_loop_v6().unwrap());
        socket.set_multicast_loop_v6(false).unwrap();
        assert!(!socket.multicast_loop_v6().unwrap());
        // One of IPv6 sends to itself, too.
        let addr = socket.local_addr().unwrap();
        socket.send_to(b"me", addr).await.unwrap();
        assert_eq!(soon(socket.recv_from(&mut [0; 8])).await.unwrap(), (2, addr));
    });
}

fn a_socket_goes_back_to_std<B: Backend>() {
    B::block_on(async {
        let (one, other) = connected().await;
        let one: StdUdp = one.into_std();
        one.send(b"std").unwrap();
        assert_eq!(soon(other.recv(&mut [0; 8])).await.unwrap(), 3);
        let one = UdpSocket::from_std(one).unwrap();
        other.send(b"back").await.unwrap();
        assert_eq!(soon(one.recv(&mut [0; 8])).await.unwrap(), 4);
    });
}

/// Has the kernel queue errors of the network on the socket, to be read by `MSG_ERRQUEUE`.
fn queue_errors(socket: impl AsFd) {
    let on: libc::c_int = 1;
    // SAFETY: the pointer and the length are those of a value that lives until the call returns.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_IP,
            libc::IP_RECVERR,
            (&raw const on).cast(),
            size_of_val(&on) as libc::socklen_t,
        )
    };
    assert_eq!(result, 0, "{}", io::Error::last_os_error());
}

/// A socket with an error in its queue, and the address to send it something.
async fn with_a_queued_error() -> (UdpSocket, SocketAddr) {
    let (socket, addr) = bound().await;
    queue_errors(&socket);
    let nobody = bound().await.1;
    socket.send_to(b"is anybody there", nobody).await.unwrap();
    let refused = soon(socket.recv(&mut [0; 16])).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    (socket, addr)
}

/// How many turns the loop takes while it has nothing to do but a timer.
async fn turns_of_an_idle_while() -> u64 {
    let turns = || LoopHandle::current().metrics().turns;
    let before = turns();
    for _ in 0..5 {
        sleep(Duration::from_millis(5)).await;
    }
    turns() - before
}

/// Of the timers, and of what came late. A loop that spins takes thousands.
const FEW: u64 = 50;

fn an_error_queue_that_nobody_reads_wakes_no_loop<B: Backend>() {
    B::block_on(async {
        let (socket, addr) = bound().await;
        queue_errors(&socket);
        let nobody = bound().await.1;
        socket.send_to(b"is anybody there", nobody).await.unwrap();
        let turns = turns_of_an_idle_while().await;
        assert!(turns < FEW, "{turns} turns with an error that nobody takes");
        assert!(soon(socket.recv(&mut [0; 16])).await.is_err());
        let turns = turns_of_an_idle_while().await;
        assert!(turns < FEW, "{turns} turns with a queue that nobody reads");
        let (sender, from) = bound().await;
        sender.send_to(b"x", addr).await.unwrap();
        assert_eq!(soon(socket.recv_from(&mut [0; 16])).await.unwrap(), (1, from));
    });
}

fn who_waits_beside_an_error_queue_gets_its_datagrams_and_does_not_spin<B: Backend>() {
    B::block_on(async {
        let (socket, addr) = with_a_queued_error().await;
        let socket = Rc::new(socket);
        let (watched, watched_addr) = with_a_queued_error().await;
        let watched = AsyncFd::new(watched.into_std()).unwrap();
        let received = Rc::new(Cell::new(0));
        let count = {
            let received = received.clone();
            move || received.set(received.get() + 1)
        };
        let by_recv = spawn({
            let (socket, count) = (socket.clone(), count.clone());
            async move {
                loop {
                    socket.recv(&mut [0; 16]).await.unwrap();
                    count();
                }
            }
        });
        let attempts = Rc::new(Cell::new(0));
        let attempt = {
            let attempts = attempts.clone();
            move || attempts.set(attempts.get() + 1)
        };
        let by_own_calls = spawn({
            let (socket, count, attempt) = (socket.clone(), count.clone(), attempt.clone());
            let receive = move |socket: &UdpSocket| {
                attempt();
                Ok(rustix::net::recv(socket, &mut [0; 16], rustix::net::RecvFlags::empty())?)
            };
            async move {
                loop {
                    socket.async_io(Interest::READABLE, || receive(&socket)).await.unwrap();
                    count();
                }
            }
        });
        let by_guard = spawn(async move {
            loop {
                let mut guard = watched.readable().await.unwrap();
                attempt();
                if let Ok(result) = guard.try_io(|socket| socket.recv(&mut [0; 16])) {
                    result.unwrap();
                    count();
                }
            }
        });
        let turns = turns_of_an_idle_while().await;
        assert!(turns < FEW, "{turns} turns beside a queue that nobody reads");
        assert!(attempts.get() < FEW, "{} attempts beside it", attempts.get());

        let (sender, _) = bound().await;
        for number in 1..=20 {
            sender.send_to(b"x", addr).await.unwrap();
            sender.send_to(b"x", watched_addr).await.unwrap();
            let both = async {
                while received.get() < 2 * number {
                    yield_now().await;
                }
            };
            soon(both).await;
        }
        drop((by_recv, by_own_calls, by_guard));
    });
}
