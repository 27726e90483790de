//! Pipes and FIFOs.

use std::fs::File as StdFile;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use futures_lite::io::{AsyncReadExt, AsyncWriteExt};
use rustix::fs::{CWD, Mode, OFlags, mkfifoat};
use rustix::pipe::{PipeFlags, pipe_with};
use wakeful::net::pipe::{Receiver, Sender, pipe};
use wakeful::spawn;
use wakeful::task::yield_now;

use crate::backend::Backend;
use crate::support::{is_pending, soon};

on_every_backend! {
    a_pipe_carries_more_than_it_holds,
    a_pipe_s_end_is_seen_and_its_lack_of_a_reader,
    a_sender_that_is_shut_down_is_closed,
    single_attempts_at_a_pipe_say_would_block,
    a_read_of_a_pipe_that_is_given_up_has_read_nothing,
    packets_that_come_at_once_are_all_read,
    a_fifo_waits_for_its_first_writer_and_sees_the_last_one_leave,
    a_fifo_without_an_end_waits_for_the_next_writer,
    what_is_no_fifo_or_has_no_reader_is_an_error,
    a_pipe_from_elsewhere_comes_and_goes,
    who_waits_for_a_pipe_is_told_of_the_loop_s_end,
    a_pipe_that_is_never_empty_lets_others_run,
}

/// A FIFO in the file system until this is dropped.
struct Fifo(PathBuf);

impl Fifo {
    fn new(name: &str) -> Self {
        let thread = std::thread::current().id();
        let name = format!("wakeful-{name}-{}-{thread:?}", std::process::id());
        let path = std::env::temp_dir().join(name);
        mkfifoat(CWD, &path, Mode::RUSR | Mode::WUSR).unwrap();
        Self(path)
    }
}

impl Drop for Fifo {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn is_nonblocking(fd: impl AsFd) -> bool {
    rustix::fs::fcntl_getfl(fd).unwrap().contains(OFlags::NONBLOCK)
}

fn a_pipe_carries_more_than_it_holds<B: Backend>() {
    B::block_on(async {
        let (mut sender, mut receiver) = pipe().unwrap();
        let sent: Vec<u8> = (0..1_000_000_u32).map(|number| (number * 7) as u8).collect();
        let sending = spawn({
            let sent = sent.clone();
            async move {
                sender.write_all(&sent[..300_000]).await?;
                // Through the traits as well.
                AsyncWriteExt::write_all(&mut sender, &sent[300_000..]).await?;
                AsyncWriteExt::close(&mut sender).await
            }
        });
        let mut received = vec![0; 500_000];
        soon(receiver.read_exact(&mut received)).await.unwrap();
        let rest = soon(Receiver::read_to_end(&mut receiver, &mut received)).await.unwrap();
        soon(sending).await.unwrap().unwrap();
        assert!(rest == 500_000 && received == sent);
    });
}

fn a_pipe_s_end_is_seen_and_its_lack_of_a_reader<B: Backend>() {
    B::block_on(async {
        let (mut sender, mut receiver) = pipe().unwrap();
        let reading = spawn(async move {
            let first = Receiver::read(&mut receiver, &mut [0; 8]).await.unwrap();
            let then = Receiver::read(&mut receiver, &mut [0; 8]).await.unwrap();
            (first, then, receiver)
        });
        yield_now().await;
        sender.write_all(b"word").await.unwrap();
        yield_now().await;
        drop(sender);
        let (first, then, _receiver) = soon(reading).await.unwrap();
        assert_eq!((first, then), (4, 0));

        let (mut sender, receiver) = pipe().unwrap();
        while sender.try_write(&[0; 4096]).is_ok() {}
        let writing = spawn(async move {
            let failed = Sender::write(&mut sender, b"x").await.unwrap_err();
            sender.writable().await.unwrap();
            failed
        });
        yield_now().await;
        drop(receiver);
        assert_eq!(soon(writing).await.unwrap().kind(), io::ErrorKind::BrokenPipe);
    });
}

fn a_sender_that_is_shut_down_is_closed<B: Backend>() {
    B::block_on(async {
        let (mut sender, mut receiver) = pipe().unwrap();
        sender.shutdown().await.unwrap();
        sender.shutdown().await.unwrap();
        assert_eq!(soon(Receiver::read(&mut receiver, &mut [0; 8])).await.unwrap(), 0);
        let closed = Sender::write(&mut sender, b"x").await.unwrap_err();
        assert_eq!(closed.kind(), io::ErrorKind::BrokenPipe);
        assert_eq!(sender.try_write(b"x").unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        assert!(sender.writable().await.is_err() && sender.into_blocking_fd().is_err());
    });
}

fn single_attempts_at_a_pipe_say_would_block<B: Backend>() {
    B::block_on(async {
        let (sender, receiver) = pipe().unwrap();
        let nothing = receiver.try_read(&mut [0; 8]).unwrap_err();
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
        assert!(is_pending(receiver.readable()).await);
        assert_eq!(sender.try_write_vectored(&[io::IoSlice::new(b"one")]).unwrap(), 3);
        soon(receiver.readable()).await.unwrap();
        assert_eq!(receiver.try_read_vectored(&mut [io::IoSliceMut::new(&mut [0; 8])]).unwrap(), 3);
        while sender.try_write(&[0; 4096]).is_ok() {}
        assert!(is_pending(sender.writable()).await);
        while receiver.try_read(&mut [0; 4096]).is_ok() {}
        soon(sender.writable()).await.unwrap();
        assert_eq!(sender.try_write(b"two").unwrap(), 3);
    });
}

fn a_read_of_a_pipe_that_is_given_up_has_read_nothing<B: Backend>() {
    B::block_on(async {
        let (mut sender, mut receiver) = pipe().unwrap();
        assert!(is_pending(Receiver::read(&mut receiver, &mut [0; 8])).await);
        let mut bytes = b"kept".to_vec();
        assert!(is_pending(Receiver::read_to_end(&mut receiver, &mut bytes)).await);
        assert_eq!(bytes, b"kept");
        sender.write_all(b"word").await.unwrap();
        assert_eq!(soon(Receiver::read(&mut receiver, &mut [0; 8])).await.unwrap(), 4);
    });
}

/// A read returns one of them, however much room it has (pipe(2), `O_DIRECT`).
fn packets_that_come_at_once_are_all_read<B: Backend>() {
    let (reads, writes) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::DIRECT).unwrap();
    B::block_on(async {
        let mut receiver = Receiver::from_owned_fd(reads).unwrap();
        assert!(is_pending(Receiver::read(&mut receiver, &mut [0; 8])).await);
        for packet in ["one", "and", "two"] {
            rustix::io::write(&writes, packet.as_bytes()).unwrap();
        }
        for packet in ["one", "and", "two"] {
            let mut buf = [0; 8];
            let length = soon(Receiver::read(&mut receiver, &mut buf)).await.unwrap();
            assert_eq!(&buf[..length], packet.as_bytes());
        }
    });
}

fn a_fifo_waits_for_its_first_writer_and_sees_the_last_one_leave<B: Backend>() {
    let fifo = Fifo::new("ends");
    B::block_on(async {
        let mut receiver = Receiver::open(&fifo.0).unwrap();
        assert!(is_pending(Receiver::read(&mut receiver, &mut [0; 8])).await);
        let mut sender = Sender::open(&fifo.0).unwrap();
        assert!(is_pending(Receiver::read(&mut receiver, &mut [0; 8])).await);
        sender.write_all(b"one").await.unwrap();
        assert_eq!(soon(Receiver::read(&mut receiver, &mut [0; 8])).await.unwrap(), 3);
        assert!(is_pending(Receiver::read(&mut receiver, &mut [0; 8])).await);
        drop(sender);
        assert_eq!(soon(Receiver::read(&mut receiver, &mut [0; 8])).await.unwrap(), 0);
        // The next writer.
        let mut sender = Sender::open(&fifo.0).unwrap();
        sender.write_all(b"three").await.unwrap();
        assert_eq!(soon(Receiver::read(&mut receiver, &mut [0; 8])).await.unwrap(), 5);

        // Another writer comes and goes in between.
        let mut receiver = Receiver::open(&fifo.0).unwrap();
        drop(sender);
        drop(Sender::open(&fifo.0).unwrap());
        assert_eq!(soon(Receiver::read(&mut receiver, &mut [0; 8])).await.unwrap(), 0);
    });
}

fn a_fifo_without_an_end_waits_for_the_next_writer<B: Backend>() {
    let fifo = Fifo::new("endless");
    B::block_on(async {
        let mut receiver = Receiver::open_endless(&fifo.0).unwrap();
        for _ in 0..3 {
            let mut sender = Sender::open(&fifo.0).unwrap();
            sender.write_all(b"word").await.unwrap();
            drop(sender);
            assert_eq!(soon(Receiver::read(&mut receiver, &mut [0; 8])).await.unwrap(), 4);
            assert!(is_pending(Receiver::read(&mut receiver, &mut [0; 8])).await);
        }
    });
}

fn what_is_no_fifo_or_has_no_reader_is_an_error<B: Backend>() {
    let fifo = Fifo::new("refused");
    B::block_on(async {
        let nobody = Sender::open(&fifo.0).unwrap_err();
        assert_eq!(nobody.raw_os_error(), Some(libc::ENXIO));
        let missing = Receiver::open("/no/such/fifo").unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        for refused in [
            Receiver::open("/dev/null").unwrap_err(),
            Sender::open("/dev/null").unwrap_err(),
            Receiver::from_owned_fd(StdFile::open("/dev/null").unwrap().into()).unwrap_err(),
        ] {
            assert_eq!(refused.kind(), io::ErrorKind::InvalidInput, "{refused}");
        }
    });
    assert!(pipe().unwrap_err().to_string().contains("no event loop runs"));
}

fn a_pipe_from_elsewhere_comes_and_goes<B: Backend>() {
    let (reads, writes) = pipe_with(PipeFlags::CLOEXEC).unwrap();
    assert!(!is_nonblocking(&reads));
    B::block_on(async {
        let mut receiver = Receiver::from_owned_fd(reads).unwrap();
        let mut sender = Sender::from_owned_fd(writes).unwrap();
        assert!(is_pending(Receiver::read(&mut receiver, &mut [0; 8])).await);
        sender.write_all(b"word").await.unwrap();
        assert_eq!(soon(Receiver::read(&mut receiver, &mut [0; 8])).await.unwrap(), 4);
        let (reads, writes): (OwnedFd, OwnedFd) =
            (receiver.into_blocking_fd().unwrap(), sender.into_blocking_fd().unwrap());
        assert!(!is_nonblocking(&reads) && !is_nonblocking(&writes));
        // And once more.
        let _again = (Receiver::from_owned_fd(reads).unwrap(), Sender::from_owned_fd(writes));
    });
}

fn who_waits_for_a_pipe_is_told_of_the_loop_s_end<B: Backend>() {
    let mut event_loop = B::event_loop();
    let (_sender, mut receiver) = event_loop.block_on(async { pipe().unwrap() }).unwrap();
    let mut buf = [0; 8];
    let mut reading = pin!(Receiver::read(&mut receiver, &mut buf));
    let cx = &mut Context::from_waker(Waker::noop());
    assert!(reading.as_mut().poll(cx).is_pending());
    drop(event_loop);
    assert!(matches!(reading.as_mut().poll(cx), Poll::Ready(Err(_))));
}

fn a_pipe_that_is_never_empty_lets_others_run<B: Backend>() {
    B::block_on(async {
        let (mut sender, mut receiver) = pipe().unwrap();
        let greedy = spawn(async move {
            loop {
                sender.write_all(b"x").await.unwrap();
                Receiver::read(&mut receiver, &mut [0; 1]).await.unwrap();
            }
        });
        for _ in 0..100 {
            soon(yield_now()).await;
        }
        drop(greedy);
    });
}
