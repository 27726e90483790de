//! Readiness: an event reaches the socket that it was meant for or nobody, and no bytes are left
//! lying.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::io::{IoSlice, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Waker};
use std::time::Duration;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use rustix::time::{ClockId, clock_gettime};
use wakeful::net::{UdpSocket, UnixStream};
use wakeful::spawn;
use wakeful::task::yield_now;
use wakeful::time::timeout;

use crate::backend::driven::Driven;
use crate::backend::{Backend, localhost};
use crate::support::{soon, tcp_pair, would_wake};

on_every_backend! {
    an_end_that_came_with_the_data_is_seen_behind_a_short_read,
    after_a_drop_no_event_comes_also_for_a_number_that_is_used_again,
    a_duplicate_that_outlives_ours_does_not_make_the_loop_spin,
    bytes_behind_urgent_data_are_not_left_lying,
    bytes_behind_attached_descriptors_are_not_left_lying,
    the_first_event_of_a_batch_may_end_who_the_others_are_for,
    waiters_that_are_gone_cost_a_datagram_nothing,
}

fn an_end_that_came_with_the_data_is_seen_behind_a_short_read<B: Backend>() {
    B::block_on(async {
        for _ in 0..200 {
            let (client, mut server) = tcp_pair().await;
            let mut client = client;
            client.write_all(b"bye").await.unwrap();
            drop(client);
            let mut buf = [0; 64];
            assert_eq!(soon(server.read(&mut buf)).await.unwrap(), 3);
            assert_eq!(soon(server.read(&mut buf)).await.unwrap(), 0);
        }
    });
}

fn after_a_drop_no_event_comes_also_for_a_number_that_is_used_again<B: Backend>() {
    B::block_on(async {
        for _ in 0..100 {
            let (client, mut server) = tcp_pair().await;
            let woken = Rc::new(Cell::new(0));
            let count = woken.clone();
            let reading = spawn(async move {
                let mut buf = [0; 1];
                let mut read = Box::pin(server.read(&mut buf));
                poll_fn(|cx| {
                    count.set(count.get() + 1);
                    read.as_mut().poll(cx)
                })
                .await
            });
            yield_now().await;
            assert_eq!(woken.get(), 1);
            // An event for it, and in the same turn its end and a new socket on its number.
            let mut client = client;
            client.write_all(b"x").await.unwrap();
            reading.abort();
            assert!(reading.await.unwrap_err().is_cancelled());
            // The kernel gives the lowest free number out: often the one that was just closed.
            let (_one, mut other) = UnixStream::pair().unwrap();
            let silent = timeout(Duration::from_micros(200), other.read(&mut [0; 1])).await;
            assert!(silent.is_err(), "nobody wrote to it");
            assert_eq!(woken.get(), 1);
        }
    });
}

fn a_duplicate_that_outlives_ours_does_not_make_the_loop_spin<B: Backend>() {
    let mut event_loop = B::event_loop();
    let (mut peer, socket) = StdUnixStream::pair().unwrap();
    let duplicate = socket.try_clone().unwrap();
    event_loop.block_on(async { drop(UnixStream::from_std(socket).unwrap()) }).unwrap();
    for _ in 0..5 {
        peer.write_all(b"to the duplicate").unwrap();
        assert!(!would_wake(&mut event_loop));
    }
    drop(duplicate);
}

fn bytes_behind_urgent_data_are_not_left_lying<B: Backend>() {
    B::block_on(async {
        for _ in 0..50 {
            let (client, mut server) = tcp_pair().await;
            client.set_nodelay(true).unwrap();
            rustix::net::send(&client, b"abc!", SendFlags::OOB).unwrap();
            rustix::net::send(&client, b"def", SendFlags::empty()).unwrap();
            let mut bytes = Vec::new();
            let mut buf = [0; 64];
            while bytes.len() < 6 {
                let read = soon(server.read(&mut buf)).await.unwrap();
                bytes.extend_from_slice(&buf[..read]);
            }
            assert_eq!(bytes, b"abcdef");
        }
    });
}

fn bytes_behind_attached_descriptors_are_not_left_lying<B: Backend>() {
    B::block_on(async {
        for _ in 0..50 {
            let (sender, mut receiver) = UnixStream::pair().unwrap();
            let attached = std::fs::File::open("/dev/null").unwrap();
            let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            let fds = [attached.as_fd()];
            assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
            let flags = SendFlags::empty();
            rustix::net::sendmsg(&sender, &[IoSlice::new(b"abc")], &mut control, flags).unwrap();
            rustix::net::send(&sender, b"def", flags).unwrap();
            let mut bytes = Vec::new();
            let mut buf = [0; 64];
            while bytes.len() < 6 {
                let read = soon(receiver.read(&mut buf)).await.unwrap();
                bytes.extend_from_slice(&buf[..read]);
            }
            assert_eq!(bytes, b"abcdef");
        }
    });
}

fn the_first_event_of_a_batch_may_end_who_the_others_are_for<B: Backend>() {
    B::block_on(async {
        type Tasks = Rc<RefCell<Vec<wakeful::JoinHandle<()>>>>;
        for _ in 0..20 {
            let (tasks, finished) = (Tasks::default(), Rc::new(Cell::new(0)));
            let mut peers = Vec::new();
            for _ in 0..10 {
                let (peer, mut stream) = UnixStream::pair().unwrap();
                peers.push(peer);
                let (all, finished) = (tasks.clone(), finished.clone());
                let task = spawn(async move {
                    stream.read(&mut [0; 1]).await.unwrap();
                    finished.set(finished.get() + 1);
                    all.borrow().iter().for_each(wakeful::JoinHandle::abort);
                });
                tasks.borrow_mut().push(task);
            }
            yield_now().await;
            for peer in &mut peers {
                peer.write_all(b"x").await.unwrap();
            }
            while !tasks.borrow().iter().all(wakeful::JoinHandle::is_finished) {
                yield_now().await;
            }
            assert!(finished.get() >= 1);
        }
    });
}

/// Compared with what datagrams cost before, in CPU time of this thread. A look at each place that
/// a waiter ever had costs more than a hundred times as much.
fn waiters_that_are_gone_cost_a_datagram_nothing<B: Backend>() {
    const GONE: usize = 100_000;
    let mut event_loop = B::event_loop();
    let socket = event_loop.block_on(UdpSocket::bind(localhost())).unwrap().unwrap();
    let peer = std::net::UdpSocket::bind(localhost()).unwrap();
    peer.connect(socket.local_addr().unwrap()).unwrap();
    let mut cx = Context::from_waker(Waker::noop());
    let mut datagrams = || {
        let cpu_time = || Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap();
        let begin = cpu_time();
        for _ in 0..200 {
            let mut buf = [0; 1];
            let mut receiving = pin!(socket.recv(&mut buf));
            assert!(receiving.as_mut().poll(&mut cx).is_pending());
            peer.send(b"x").unwrap();
            while receiving.as_mut().poll(&mut cx).is_pending() {
                event_loop.take_turn(Some(Duration::ZERO)).unwrap();
            }
        }
        cpu_time() - begin
    };
    let before = datagrams();
    let mut bufs = vec![[0; 1]; GONE];
    let mut waiting: Vec<_> = bufs.iter_mut().map(|buf| Box::pin(socket.recv(buf))).collect();
    for receiving in &mut waiting {
        assert!(receiving.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    drop(waiting);
    let after = datagrams();
    assert!(after < 10 * before, "{before:?} before, {after:?} after {GONE} waiters are gone");
}
