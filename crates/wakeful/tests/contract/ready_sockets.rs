//! Sockets for those who wait for readiness and then make one attempt: `readable`, `try_read` and
//! the like.

use std::future::poll_fn;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use wakeful::net::{Stream, TcpStream, UdpSocket, UnixStream};
use wakeful::readiness::Interest;
use wakeful::spawn;
use wakeful::task::yield_now;
use wakeful::time::timeout;

use crate::backend::{Backend, localhost};
use crate::support::{is_pending, soon, tcp_pair};

on_every_backend! {
    an_attempt_says_would_block_and_a_wait_ends_it,
    several_slices_are_one_attempt,
    halves_wait_each_for_its_own,
    one_reads_while_others_wait_to_be_told,
    who_reads_and_who_waits_are_both_told,
    urgent_data_is_waited_for_beside_the_rest,
    what_is_always_ready_lets_others_run,
    an_end_is_a_readiness,
    own_calls_wait_as_reads_do,
    datagrams_are_taken_by_attempts,
}

fn would_block<T: std::fmt::Debug>(result: io::Result<T>) -> bool {
    result.unwrap_err().kind() == ErrorKind::WouldBlock
}

async fn pairs() -> [(Stream, Stream); 2] {
    let (client, server) = tcp_pair().await;
    let (ours, theirs) = UnixStream::pair().unwrap();
    [(client.into(), server.into()), (ours.into(), theirs.into())]
}

fn an_attempt_says_would_block_and_a_wait_ends_it<B: Backend>() {
    B::block_on(async {
        for (ours, theirs) in pairs().await {
            assert!(would_block(ours.try_read(&mut [0; 8])));
            assert!(is_pending(ours.readable()).await);
            assert_eq!(ours.try_read(&mut []).unwrap(), 0);

            // As much as it takes.
            soon(ours.writable()).await.unwrap();
            let chunk = [7; 16 * 1024];
            let mut written = 0;
            // The kernel may find more room for a moment: what it has sent is acknowledged.
            loop {
                match ours.try_write(&chunk) {
                    Ok(count) => written += count,
                    Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
                }
                if is_pending(ours.writable()).await {
                    break;
                }
            }

            let mut read = 0;
            let mut buf = [0; 16 * 1024];
            while read < written {
                soon(theirs.readable()).await.unwrap();
                match theirs.try_read(&mut buf) {
                    Ok(count) => read += count,
                    Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
                }
            }
            assert!(would_block(theirs.try_read(&mut buf)));
            soon(ours.writable()).await.unwrap();
            assert_eq!(ours.try_write(b"more").unwrap(), 4);
            let ready = soon(theirs.ready(Interest::READABLE | Interest::WRITABLE)).await.unwrap();
            assert!(!ready.is_empty());
        }
    });
}

fn several_slices_are_one_attempt<B: Backend>() {
    B::block_on(async {
        for (ours, theirs) in pairs().await {
            let parts = [IoSlice::new(b"one"), IoSlice::new(b""), IoSlice::new(b"three")];
            soon(ours.writable()).await.unwrap();
            assert_eq!(ours.try_write_vectored(&parts).unwrap(), 8);
            soon(theirs.readable()).await.unwrap();
            let (mut first, mut second) = ([0; 3], [0; 16]);
            let mut parts = [IoSliceMut::new(&mut first), IoSliceMut::new(&mut second)];
            assert_eq!(theirs.try_read_vectored(&mut parts).unwrap(), 8);
            assert_eq!((&first, &second[..5]), (b"one", &b"three"[..]));
            let mut one = [0; 3];
            assert!(would_block(theirs.try_read_vectored(&mut [IoSliceMut::new(&mut one)])));
            assert_eq!(theirs.try_read_vectored(&mut []).unwrap(), 0);
        }
    });
}

fn halves_wait_each_for_its_own<B: Backend>() {
    B::block_on(async {
        for (ours, mut theirs) in pairs().await {
            let (read, write) = ours.into_split();
            assert!(is_pending(read.readable()).await);
            soon(write.writable()).await.unwrap();
            assert_eq!(write.try_write(b"question").unwrap(), 8);
            soon(theirs.readable()).await.unwrap();
            let mut buf = [0; 16];
            assert_eq!(theirs.try_read(&mut buf).unwrap(), 8);
            let (their_read, their_write) = theirs.split();
            assert!(is_pending(their_read.readable()).await);
            soon(their_write.writable()).await.unwrap();
            assert_eq!(their_write.try_write(b"answer").unwrap(), 6);
            soon(read.readable()).await.unwrap();
            assert_eq!(read.try_read(&mut buf).unwrap(), 6);
        }
    });
}

fn one_reads_while_others_wait_to_be_told<B: Backend>() {
    B::block_on(async {
        let (mut client, server) = tcp_pair().await;
        let server = Rc::new(server);
        let told: Vec<_> = (0..5)
            .map(|_| {
                let server = server.clone();
                spawn(async move { server.readable().await })
            })
            .collect();
        let by_hand = spawn({
            let server = server.clone();
            async move { poll_fn(|cx| server.poll_read_ready(cx)).await }
        });
        yield_now().await;
        client.write_all(b"x").await.unwrap();
        for task in told {
            soon(task).await.unwrap().unwrap();
        }
        soon(by_hand).await.unwrap().unwrap();
        soon(poll_fn(|cx| server.poll_write_ready(cx))).await.unwrap();
    });
}

fn who_reads_and_who_waits_are_both_told<B: Backend>() {
    B::block_on(async {
        let (mut client, server) = tcp_pair().await;
        let (mut read, _write) = server.into_split();
        let client = &mut client;
        for round in 0..100 {
            let mut buf = [0; 8];
            let reads = async {
                let mut reads = pin!(read.read(&mut buf));
                assert!(timeout(Duration::ZERO, reads.as_mut()).await.is_err(), "{round}");
                client.write_all(b"word").await.unwrap();
                soon(reads).await.unwrap()
            };
            assert_eq!(reads.await, 4);
            assert!(would_block(read.try_read(&mut [0; 8])));
        }
        let waits = pin!(read.readable());
        client.write_all(b"x").await.unwrap();
        soon(waits).await.unwrap();
    });
}

fn urgent_data_is_waited_for_beside_the_rest<B: Backend>() {
    B::block_on(async {
        let (mut client, server) = tcp_pair().await;
        let take = |flags| {
            let taken = rustix::net::recv(&server, &mut [0; 8], flags);
            taken.map(|taken| taken.1).map_err(|error| match error {
                Errno::INVAL => ErrorKind::WouldBlock.into(),
                error => io::Error::from(error),
            })
        };
        let urgent = || take(RecvFlags::OOB);
        assert!(would_block(server.try_io(Interest::PRIORITY, urgent)));
        client.write_all(b"plain").await.unwrap();
        soon(server.readable()).await.unwrap();
        assert!(would_block(server.try_io(Interest::PRIORITY, urgent)));
        assert!(soon(server.readable()).await.is_ok(), "the rest is still there");
        rustix::net::send(&client, b"!", SendFlags::OOB).unwrap();
        assert_eq!(soon(server.async_io(Interest::PRIORITY, urgent)).await.unwrap(), 1);
        assert!(would_block(server.try_io(Interest::PRIORITY, urgent)));
        assert!(is_pending(server.ready(Interest::PRIORITY)).await);
        let rest = soon(server.async_io(Interest::READABLE, || take(RecvFlags::empty())));
        assert_eq!(rest.await.unwrap(), 5);
    });
}

/// A peer that has ended is always ready.
fn what_is_always_ready_lets_others_run<B: Backend>() {
    B::block_on(async {
        let (client, server) = tcp_pair().await;
        drop(client);
        let greedy = spawn(async move {
            loop {
                server.async_io(Interest::READABLE, || server.try_read(&mut [0; 8])).await.unwrap();
                poll_fn(|cx| server.poll_read_ready(cx)).await.unwrap();
            }
        });
        for _ in 0..100 {
            soon(yield_now()).await;
        }
        drop(greedy);
    });
}

fn an_end_is_a_readiness<B: Backend>() {
    B::block_on(async {
        for (ours, theirs) in pairs().await {
            drop(theirs);
            let ready = soon(ours.ready(Interest::READABLE)).await.unwrap();
            assert!(ready.is_readable() && ready.is_read_closed());
            assert_eq!(ours.try_read(&mut [0; 8]).unwrap(), 0);
            soon(ours.readable()).await.unwrap();
        }
    });
}

fn own_calls_wait_as_reads_do<B: Backend>() {
    B::block_on(async {
        let (mut client, server) = tcp_pair().await;
        let peek = |server: &TcpStream| {
            let peeked = rustix::net::recv(server, &mut [0; 8], RecvFlags::PEEK);
            Ok(peeked?.1)
        };
        assert!(would_block(server.try_io(Interest::READABLE, || peek(&server))));
        let server = Rc::new(server);
        let peeking = spawn({
            let server = server.clone();
            async move { server.async_io(Interest::READABLE, || peek(&server)).await }
        });
        yield_now().await;
        client.write_all(b"word").await.unwrap();
        assert_eq!(soon(peeking).await.unwrap().unwrap(), 4);
        assert_eq!(server.try_io(Interest::READABLE, || peek(&server)).unwrap(), 4);
        assert_eq!(server.try_read(&mut [0; 8]).unwrap(), 4);
    });
}

fn datagrams_are_taken_by_attempts<B: Backend>() {
    B::block_on(async {
        let ours = UdpSocket::bind(localhost()).await.unwrap();
        let theirs = UdpSocket::bind(localhost()).await.unwrap();
        let mut buf = [0; 16];
        assert!(would_block(ours.try_recv_from(&mut buf)));
        assert!(is_pending(ours.readable()).await);
        soon(theirs.writable()).await.unwrap();
        let addr = ours.local_addr().unwrap();
        assert_eq!(theirs.try_send_to(b"one", addr).unwrap(), 3);
        soon(ours.readable()).await.unwrap();
        let from = theirs.local_addr().unwrap();
        assert_eq!(ours.try_peek_from(&mut buf).unwrap(), (3, from));
        assert_eq!(ours.try_recv_from(&mut buf).unwrap(), (3, from));
        assert!(would_block(ours.try_recv_from(&mut buf)));

        ours.connect(from).await.unwrap();
        theirs.connect(addr).await.unwrap();
        theirs.try_send(b"three").unwrap();
        assert_eq!(soon(ours.peek(&mut buf)).await.unwrap(), 5);
        assert_eq!(ours.try_recv(&mut buf).unwrap(), 5);
        assert_eq!(&buf[..5], b"three");
        assert!(would_block(ours.try_recv(&mut buf)));
    });
}
