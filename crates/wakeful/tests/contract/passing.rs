//! Descriptors that go with the bytes of Unix sockets of every kind.

use std::fs::File;
use std::io::{self, ErrorKind, PipeReader, Read, Write, pipe};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::rc::Rc;
use std::time::Duration;

use rustix::io::{FdFlags, fcntl_getfd};
use rustix::net::sockopt::set_socket_passcred;
use wakeful::net::{UnixDatagram, UnixSeqpacket, UnixStream};
use wakeful::spawn;
use wakeful::task::yield_now;
use wakeful::time::timeout;

use crate::backend::Backend;
use crate::support::{is_pending, soon, tcp_pair};

on_every_backend! {
    descriptors_arrive_with_their_bytes_and_close_with_an_exec,
    descriptors_pass_between_halves_of_unix_streams_and_of_no_others,
    as_many_as_the_kernel_takes_arrive_and_more_are_refused,
    descriptors_of_a_stream_arrive_with_their_message,
    bytes_that_fill_the_buffer_bring_no_descriptors_of_later_ones,
    other_ways_to_receive_close_them,
    what_is_given_up_has_passed_nothing,
    a_datagram_says_who_sent_the_descriptors,
    credentials_leave_the_descriptors_room,
}

/// Calls `$test` with a connected pair of each kind.
macro_rules! for_each_kind {
    ($test:ident) => {
        let (ours, theirs) = UnixStream::pair().unwrap();
        $test!(ours, theirs);
        let (ours, theirs) = UnixDatagram::pair().unwrap();
        $test!(ours, theirs);
        let (ours, theirs) = UnixSeqpacket::pair().unwrap();
        $test!(ours, theirs);
    };
}

fn would_block<T: std::fmt::Debug>(result: io::Result<T>) -> bool {
    result.unwrap_err().kind() == ErrorKind::WouldBlock
}

/// What is written to `writer` comes out of `reader`, and then the end: no copy of it is left.
fn is_the_last_of(mut reader: PipeReader, writer: OwnedFd) {
    let mut writer = File::from(writer);
    writer.write_all(b"through").unwrap();
    drop(writer);
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    assert_eq!(text, "through");
}

/// Nobody has the other end of the pipe any more.
fn is_closed(mut reader: &PipeReader) {
    assert_eq!(reader.read(&mut [0; 1]).unwrap(), 0, "the end, and no wait for one");
}

fn descriptors_arrive_with_their_bytes_and_close_with_an_exec<B: Backend>() {
    macro_rules! arrive {
        ($ours:ident, $theirs:ident) => {
            let (mut buf, mut fds) = ([0; 16], Vec::new());
            assert!(would_block($theirs.try_recv_with_fds(&mut buf, &mut fds)));
            let (reader, writer) = pipe().unwrap();
            let send = [writer.as_fd(), $ours.as_fd()];
            assert_eq!($ours.send_with_fds(b"a pipe", &send).await.unwrap(), 6);
            drop(writer);
            let received = soon($theirs.recv_with_fds(&mut buf, &mut fds));
            assert_eq!(received.await.unwrap(), 6);
            assert_eq!(&buf[..6], b"a pipe");
            for fd in &fds {
                assert!(fcntl_getfd(fd).unwrap().contains(FdFlags::CLOEXEC));
            }
            assert_eq!(fds.len(), 2);
            is_the_last_of(reader, fds.swap_remove(0));
            // Without descriptors it is as any other way to send and to receive, and what is in the
            // list stays.
            assert_eq!($ours.try_send_with_fds(b"none", &[]).unwrap(), 4);
            assert_eq!($theirs.try_recv_with_fds(&mut buf, &mut fds).unwrap(), 4);
            assert_eq!(fds.len(), 1);
            assert!(would_block($theirs.try_recv_with_fds(&mut buf, &mut fds)));
            assert!(is_pending($theirs.recv_with_fds(&mut buf, &mut fds)).await);
        };
    }
    B::block_on(async {
        for_each_kind!(arrive);
        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(ours);
        let mut fds = Vec::new();
        assert_eq!(soon(theirs.recv_with_fds(&mut [0; 8], &mut fds)).await.unwrap(), 0);
        assert_eq!(theirs.recv_with_fds(&mut [], &mut fds).await.unwrap(), 0);
        let (ours, theirs) = UnixSeqpacket::pair().unwrap();
        // A packet without a byte may have descriptors, too.
        let (reader, writer) = pipe().unwrap();
        ours.send_with_fds(b"", &[writer.as_fd()]).await.unwrap();
        drop((ours, writer));
        assert_eq!(soon(theirs.recv_with_fds(&mut [0; 8], &mut fds)).await.unwrap(), 0);
        is_the_last_of(reader, fds.pop().unwrap());
        assert_eq!(soon(theirs.recv_with_fds(&mut [0; 8], &mut fds)).await.unwrap(), 0);
        assert!(fds.is_empty());
    });
}

fn descriptors_pass_between_halves_of_unix_streams_and_of_no_others<B: Backend>() {
    B::block_on(async {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (_our_read, our_write) = ours.into_split();
        let (their_read, _their_write) = theirs.into_split();
        let (mut buf, mut fds) = ([0; 16], Vec::new());
        assert!(would_block(their_read.try_recv_with_fds(&mut buf, &mut fds)));
        let waiting = async { soon(their_read.recv_with_fds(&mut buf, &mut fds)).await.unwrap() };
        let (reader, writer) = pipe().unwrap();
        let sending = async {
            yield_now().await;
            our_write.send_with_fds(b"a pipe", &[writer.as_fd()]).await.unwrap()
        };
        assert_eq!(futures_util::future::join(waiting, sending).await, (6, 6));
        drop(writer);
        is_the_last_of(reader, fds.pop().unwrap());
        let (reader, writer) = pipe().unwrap();
        assert_eq!(our_write.try_send_with_fds(b"x", &[writer.as_fd()]).unwrap(), 1);
        drop(writer);
        assert_eq!(their_read.try_recv_with_fds(&mut buf, &mut fds).unwrap(), 1);
        is_the_last_of(reader, fds.pop().unwrap());
        drop(our_write);
        assert_eq!(soon(their_read.recv_with_fds(&mut buf, &mut fds)).await.unwrap(), 0);

        // Over TCP the kernel would send the bytes, and say nothing of the descriptors.
        let (ours, theirs) = tcp_pair().await;
        let (_our_read, our_write) = ours.into_split();
        let (their_read, _their_write) = theirs.into_split();
        let (_reader, writer) = pipe().unwrap();
        let sent = our_write.send_with_fds(b"a pipe", &[writer.as_fd()]).await;
        assert_eq!(sent.unwrap_err().kind(), ErrorKind::InvalidInput);
        let received = their_read.try_recv_with_fds(&mut buf, &mut fds).unwrap_err();
        assert_eq!(received.kind(), ErrorKind::InvalidInput);
        assert!(would_block(their_read.try_read(&mut buf)), "nothing was sent");
    });
}

fn as_many_as_the_kernel_takes_arrive_and_more_are_refused<B: Backend>() {
    macro_rules! most {
        ($ours:ident, $theirs:ident) => {
            let (reader, writer) = pipe().unwrap();
            let too_many = [writer.as_fd(); 254];
            for refused in [
                $ours.send_with_fds(b"too many", &too_many).await,
                $ours.try_send_with_fds(b"too many", &too_many),
            ] {
                let error = refused.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::InvalidInput);
                assert!(error.to_string().contains("253"), "{error}");
            }
            assert!(would_block($theirs.try_recv(&mut [0; 16])));
            $ours.send_with_fds(b"most", &too_many[1..]).await.unwrap();
            drop(writer);
            let mut fds = Vec::new();
            soon($theirs.recv_with_fds(&mut [0; 16], &mut fds)).await.unwrap();
            assert_eq!(fds.len(), 253);
            let last = fds.pop().unwrap();
            drop(fds);
            is_the_last_of(reader, last);
        };
    }
    trait TryRecv {
        fn try_recv(&self, buf: &mut [u8]) -> io::Result<usize>;
    }
    impl TryRecv for UnixStream {
        fn try_recv(&self, buf: &mut [u8]) -> io::Result<usize> {
            self.try_read(buf)
        }
    }
    B::block_on(async {
        for_each_kind!(most);
        let (ours, theirs) = UnixStream::pair().unwrap();
        let error = ours.send_with_fds(b"", &[theirs.as_fd()]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "the kernel would lose it");
        assert_eq!(ours.send_with_fds(b"", &[]).await.unwrap(), 0);
    });
}

fn descriptors_of_a_stream_arrive_with_their_message<B: Backend>() {
    B::block_on(async {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        let (reader, writer) = pipe().unwrap();
        ours.write_all(b"plain").await.unwrap();
        ours.send_with_fds(b"first", &[writer.as_fd()]).await.unwrap();
        ours.write_all(b"plain").await.unwrap();
        ours.send_with_fds(b"second", &[writer.as_fd(), writer.as_fd()]).await.unwrap();
        drop(writer);
        let (mut bytes, mut counts) = (Vec::new(), Vec::new());
        let mut buf = [0; 64];
        while bytes.len() < 21 {
            let mut fds = Vec::new();
            let length = soon(theirs.recv_with_fds(&mut buf, &mut fds)).await.unwrap();
            bytes.extend_from_slice(&buf[..length]);
            counts.push((bytes.len(), fds.len()));
        }
        assert_eq!(bytes, b"plainfirstplainsecond");
        assert_eq!(counts, [(10, 1), (21, 2)]);
        is_closed(&reader);

        // Read in pieces, they come with the first.
        let (reader, writer) = pipe().unwrap();
        ours.send_with_fds(b"pieces", &[writer.as_fd()]).await.unwrap();
        drop(writer);
        let mut fds = Vec::new();
        for at in 0..3 {
            let read = soon(theirs.recv_with_fds(&mut buf[2 * at..2 * at + 2], &mut fds));
            assert_eq!((read.await.unwrap(), fds.len()), (2, 1));
        }
        assert_eq!(&buf[..6], b"pieces");
        is_the_last_of(reader, fds.pop().unwrap());

        // A part may be taken; all descriptors are sent then.
        let (reader, writer) = pipe().unwrap();
        let long = vec![7; 1 << 22];
        let sent = ours.send_with_fds(&long, &[writer.as_fd()]).await.unwrap();
        drop(writer);
        assert!(sent < long.len());
        let mut ours = ours;
        let rest = spawn(async move { ours.write_all(&long[sent..]).await });
        let (mut got, mut buf) = (0, vec![0; 100_000]);
        while got < 1 << 22 {
            got += soon(theirs.recv_with_fds(&mut buf, &mut fds)).await.unwrap();
        }
        soon(rest).await.unwrap().unwrap();
        assert_eq!(fds.len(), 1);
        is_the_last_of(reader, fds.pop().unwrap());
    });
}

fn bytes_that_fill_the_buffer_bring_no_descriptors_of_later_ones<B: Backend>() {
    B::block_on(async {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (first_reader, first) = pipe().unwrap();
        let (second_reader, second) = pipe().unwrap();
        ours.send_with_fds(b"before", &[]).await.unwrap();
        ours.send_with_fds(b"first", &[first.as_fd()]).await.unwrap();
        ours.send_with_fds(b"between", &[]).await.unwrap();
        ours.send_with_fds(b"second", &[second.as_fd()]).await.unwrap();
        drop((first, second));
        let mut received = Vec::new();
        for (length, count) in [(2, 0), (4, 0), (1, 1), (4, 0), (3, 0), (4, 0), (6, 1)] {
            let (mut buf, mut fds) = (vec![0; length], Vec::new());
            assert_eq!(theirs.recv_with_fds(&mut buf, &mut fds).await.unwrap(), length);
            assert_eq!(fds.len(), count, "with {:?}", String::from_utf8_lossy(&buf));
            received.append(&mut fds);
        }
        let second = received.pop().unwrap();
        is_the_last_of(first_reader, received.pop().unwrap());
        is_the_last_of(second_reader, second);
        assert!(would_block(theirs.try_recv_with_fds(&mut [0; 8], &mut received)));
    });
}

fn other_ways_to_receive_close_them<B: Backend>() {
    B::block_on(async {
        let mut buf = [0; 16];
        let (reader, writer) = pipe().unwrap();
        let send = [writer.as_fd()];
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        ours.send_with_fds(b"read", &send).await.unwrap();
        assert_eq!(soon(theirs.peek(&mut buf)).await.unwrap(), 4);
        assert_eq!(soon(theirs.read(&mut buf)).await.unwrap(), 4);
        ours.send_with_fds(b"try", &send).await.unwrap();
        soon(theirs.readable()).await.unwrap();
        assert_eq!(theirs.try_read(&mut buf).unwrap(), 3);

        let (ours, theirs) = UnixDatagram::pair().unwrap();
        for _ in 0..3 {
            ours.send_with_fds(b"datagram", &send).await.unwrap();
        }
        assert_eq!(soon(theirs.peek_from(&mut buf)).await.unwrap().0, 8);
        assert_eq!(soon(theirs.recv(&mut buf)).await.unwrap(), 8);
        assert_eq!(soon(theirs.recv_from(&mut buf)).await.unwrap().0, 8);
        // Descriptors that are not received are closed with the receiver.
        drop(theirs);

        let (ours, theirs) = UnixSeqpacket::pair().unwrap();
        ours.send_with_fds(b"packet", &send).await.unwrap();
        assert_eq!(soon(theirs.recv(&mut buf)).await.unwrap(), 6);
        drop(writer);
        is_closed(&reader);
    });
}

/// Fills the socket until a send of descriptors would wait, and gives that up; then what waits to
/// be received. Returns how many bytes were sent.
macro_rules! given_up {
    ($ours:ident, $theirs:ident) => {
        let (reader, writer) = pipe().unwrap();
        let brief = Duration::from_millis(2);
        let mut sent = 0;
        loop {
            let fds: &[BorrowedFd<'_>] = &[writer.as_fd()];
            match timeout(brief, $ours.send_with_fds(&[7; 4096], fds)).await {
                Ok(count) => sent += count.unwrap(),
                Err(_) => break,
            }
            assert!(sent < 1 << 26);
        }
        drop(writer);
        let (mut fds, mut got, mut messages) = (Vec::new(), 0, 0);
        let mut buf = [0; 4096];
        while got < sent {
            fds.clear();
            let received = soon($theirs.recv_with_fds(&mut buf, &mut fds));
            got += received.await.unwrap();
            messages += fds.len();
        }
        fds.clear();
        assert_eq!(got, sent);
        assert!(messages >= sent / 4096);
        is_closed(&reader);

        // Receives that are given up leave all as it was.
        assert!(timeout(brief, $theirs.recv_with_fds(&mut buf, &mut fds)).await.is_err());
        let (reader, writer) = pipe().unwrap();
        let theirs = Rc::new($theirs);
        let tasks: Vec<_> = (0..3)
            .map(|_| {
                let theirs = theirs.clone();
                spawn(async move {
                    let mut fds = Vec::new();
                    let count = theirs.recv_with_fds(&mut [0; 16], &mut fds).await.unwrap();
                    (count, fds)
                })
            })
            .collect();
        yield_now().await;
        let mut tasks = tasks.into_iter();
        tasks.next().unwrap().abort();
        for _ in tasks.as_slice() {
            $ours.send_with_fds(b"next", &[writer.as_fd()]).await.unwrap();
        }
        // Which task takes which is not promised.
        for task in tasks {
            let (count, fds) = soon(task).await.unwrap();
            assert_eq!((count, fds.len()), (4, 1));
        }
        drop(writer);
        is_closed(&reader);
    };
}

fn what_is_given_up_has_passed_nothing<B: Backend>() {
    B::block_on(async {
        for_each_kind!(given_up);
    });
}

fn a_datagram_says_who_sent_the_descriptors<B: Backend>() {
    B::block_on(async {
        let receiver = UnixDatagram::autobind().unwrap();
        let sender = UnixDatagram::autobind().unwrap();
        let (to, from) = (receiver.local_addr().unwrap(), sender.local_addr().unwrap());
        let (reader, writer) = pipe().unwrap();
        sender.send_to_with_fds(b"a pipe", &to, &[writer.as_fd()]).await.unwrap();
        drop(writer);
        // Bytes that do not fit are lost, but descriptors are not.
        let (mut buf, mut fds) = ([0; 3], Vec::new());
        let (length, sent_by) =
            soon(receiver.recv_from_with_fds(&mut buf, &mut fds)).await.unwrap();
        assert_eq!((length, &buf), (3, b"a p"));
        assert_eq!(sent_by.as_abstract_name(), from.as_abstract_name());
        is_the_last_of(reader, fds.pop().unwrap());
        assert!(is_pending(receiver.recv(&mut buf)).await);
        let too_many = [sender.as_fd(); 254];
        let error = sender.send_to_with_fds(b"", &to, &too_many).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
    });
}

/// `SO_PASSCRED`: they come with the descriptors, in front of them.
fn credentials_leave_the_descriptors_room<B: Backend>() {
    macro_rules! with_credentials {
        ($ours:ident, $theirs:ident) => {
            set_socket_passcred(&$theirs, true).unwrap();
            let (reader, writer) = pipe().unwrap();
            let send = [writer.as_fd(); 253];
            $ours.send_with_fds(b"most", &send).await.unwrap();
            drop(writer);
            let mut fds = Vec::new();
            soon($theirs.recv_with_fds(&mut [0; 16], &mut fds)).await.unwrap();
            assert_eq!(fds.len(), 253);
            drop(fds);
            is_closed(&reader);
        };
    }
    B::block_on(async {
        for_each_kind!(with_credentials);
    });
}
