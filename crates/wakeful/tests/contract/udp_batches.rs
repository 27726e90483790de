//! UDP in batches: many datagrams by one system call, with their ECN marks and addresses.

use std::future::poll_fn;
use std::io::{self, ErrorKind, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;

use wakeful::net::quinn_udp::{BATCH_SIZE, EcnCodepoint, RecvMeta, Transmit};
use wakeful::net::{BatchUdpSocket, UdpSocket};
use wakeful::spawn;
use wakeful::task::yield_now;

use crate::backend::Backend;
use crate::support::{is_pending, soon};

on_every_backend! {
    a_buffer_is_cut_into_datagrams_and_these_are_joined,
    several_buffers_are_filled_at_once,
    batches_wait_as_other_operations_do,
    a_batch_to_nobody_is_an_error_that_passes,
}

async fn bound() -> (BatchUdpSocket, SocketAddr) {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let addr = socket.local_addr().unwrap();
    (BatchUdpSocket::new(socket).unwrap(), addr)
}

fn datagram(destination: SocketAddr, contents: &[u8]) -> Transmit<'_> {
    Transmit { destination, ecn: None, contents, segment_size: None, src_ip: None }
}

fn would_block<T: std::fmt::Debug>(result: io::Result<T>) -> bool {
    result.unwrap_err().kind() == ErrorKind::WouldBlock
}

fn a_buffer_is_cut_into_datagrams_and_these_are_joined<B: Backend>() {
    B::block_on(async {
        let ((one, from), (other, to)) = (bound().await, bound().await);
        assert!(!one.may_fragment());
        let segments = one.max_transmit_segments().min(10);
        if segments == 1 {
            eprintln!("no GSO here: one datagram for each buffer");
        }
        let contents: Vec<u8> = (0..segments * 1000 - 1).map(|at| at as u8).collect();
        let transmit = Transmit {
            ecn: Some(EcnCodepoint::Ce),
            segment_size: (segments > 1).then_some(1000),
            src_ip: Some(IpAddr::V4(Ipv4Addr::LOCALHOST)),
            ..datagram(to, &contents)
        };
        soon(one.send(&transmit)).await.unwrap();

        let mut received = Vec::new();
        let mut buf = vec![0; 2000 * other.max_receive_segments()];
        while received.len() < contents.len() {
            let mut meta = [RecvMeta::default()];
            let mut bufs = [IoSliceMut::new(&mut buf)];
            assert_eq!(soon(other.recv(&mut bufs, &mut meta)).await.unwrap(), 1);
            let [meta] = meta;
            assert_eq!((meta.addr, meta.ecn), (from, Some(EcnCodepoint::Ce)));
            assert_eq!(meta.dst_ip, Some(IpAddr::V4(Ipv4Addr::LOCALHOST)));
            assert!(meta.stride == 1000 || meta.len == meta.stride, "{meta:?}");
            received.extend_from_slice(&buf[..meta.len]);
        }
        assert_eq!(received, contents);
        assert_eq!(other.local_addr().unwrap(), to);
        assert_eq!(other.peer_addr().unwrap_err().kind(), ErrorKind::NotConnected);
    });
}

fn several_buffers_are_filled_at_once<B: Backend>() {
    B::block_on(async {
        let (receiver, to) = bound().await;
        let mut memory = vec![[0; 100]; BATCH_SIZE + 1];
        let mut meta = [RecvMeta::default(); BATCH_SIZE + 1];
        {
            let mut bufs: Vec<_> = memory.iter_mut().map(|buf| IoSliceMut::new(buf)).collect();
            assert!(would_block(receiver.try_recv(&mut bufs, &mut meta)));
            // Without a buffer nothing is waited for.
            assert_eq!(receiver.try_recv(&mut bufs, &mut []).unwrap(), 0);
            assert_eq!(soon(receiver.recv(&mut [], &mut meta)).await.unwrap(), 0);
            let polled = poll_fn(|cx| receiver.poll_recv(cx, &mut bufs, &mut []));
            assert_eq!(soon(polled).await.unwrap(), 0);
        }
        soon(receiver.writable()).await.unwrap();
        let (mut senders, mut open) = (Vec::new(), Vec::new());
        for number in 0..=BATCH_SIZE {
            let (sender, from) = bound().await;
            sender.send(&datagram(to, &[number as u8; 50])).await.unwrap();
            senders.push(from);
            // Or the kernel gives its port to a later one.
            open.push(sender);
        }
        soon(receiver.readable()).await.unwrap();
        let mut bufs: Vec<_> = memory.iter_mut().map(|buf| IoSliceMut::new(buf)).collect();
        // Of different senders: nothing is joined. The shorter of both counts.
        assert_eq!(receiver.try_recv(&mut bufs, &mut []).unwrap(), 0);
        assert_eq!(receiver.try_recv(&mut [], &mut meta).unwrap(), 0);
        assert_eq!(receiver.try_recv(&mut bufs, &mut meta[..1]).unwrap(), 1);
        assert_eq!(meta[0].addr, senders[0]);
        assert_eq!(receiver.try_recv(&mut bufs, &mut meta).unwrap(), BATCH_SIZE);
        drop(bufs);
        for ((meta, from), buf) in meta.iter().zip(&senders[1..]).zip(&memory) {
            assert_eq!((meta.addr, meta.len), (*from, 50));
            let number = senders.iter().position(|sender| sender == from).unwrap();
            assert_eq!(buf[..50], [number as u8; 50]);
        }
    });
}

fn batches_wait_as_other_operations_do<B: Backend>() {
    B::block_on(async {
        let ((sender, _), (receiver, to)) = (bound().await, bound().await);
        let receiver = Rc::new(receiver);
        let receive = |receiver: &Rc<BatchUdpSocket>| {
            let receiver = receiver.clone();
            spawn(async move {
                let (mut buf, mut meta) = ([0; 100], [RecvMeta::default()]);
                receiver.recv(&mut [IoSliceMut::new(&mut buf)], &mut meta).await.unwrap();
                meta[0].len
            })
        };
        let mut tasks: Vec<_> = (0..3).map(|_| receive(&receiver)).collect();
        tasks.push(spawn({
            let receiver = receiver.clone();
            async move {
                let (mut buf, mut meta) = ([0; 100], [RecvMeta::default()]);
                let mut bufs = [IoSliceMut::new(&mut buf)];
                poll_fn(|cx| receiver.poll_recv(cx, &mut bufs, &mut meta)).await.unwrap();
                meta[0].len
            }
        }));
        yield_now().await;
        // Of different lengths, the longer one later: nothing is joined.
        for length in 1..=4 {
            let transmit = datagram(to, &b"word"[..length]);
            soon(poll_fn(|cx| sender.poll_send(cx, &transmit))).await.unwrap();
        }
        let mut lengths = Vec::new();
        for task in tasks {
            lengths.push(soon(task).await.unwrap());
        }
        lengths.sort_unstable();
        assert_eq!(lengths, [1, 2, 3, 4]);
        assert!(
            is_pending(
                receiver.recv(&mut [IoSliceMut::new(&mut [0; 8])], &mut [RecvMeta::default(),])
            )
            .await
        );
        sender.try_send(&datagram(to, b"x")).unwrap();
        soon(receiver.readable()).await.unwrap();
    });
}

fn a_batch_to_nobody_is_an_error_that_passes<B: Backend>() {
    B::block_on(async {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let (peer, nobody) = bound().await;
        drop(peer);
        socket.connect(nobody).await.unwrap();
        let socket = BatchUdpSocket::new(socket).unwrap();
        assert_eq!(socket.peer_addr().unwrap(), nobody);
        socket.send(&datagram(nobody, b"is anybody there")).await.unwrap();
        let (mut buf, mut meta) = ([0; 8], [RecvMeta::default()]);
        let mut bufs = [IoSliceMut::new(&mut buf)];
        let refused = soon(socket.recv(&mut bufs, &mut meta)).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        assert!(is_pending(socket.recv(&mut bufs, &mut meta)).await);
        let too_long = socket.send(&datagram(nobody, &[0; 65_508])).await.unwrap_err();
        assert_eq!(too_long.raw_os_error(), Some(libc::EMSGSIZE));
    });
}
