//! The bytes themselves: writes and reads of all sizes, both ways at once, over sockets that take
//! little at a time.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io::{self, ErrorKind, IoSlice, Read as _, Write as _};
use std::os::fd::AsFd;
use std::os::unix::net;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::rt::{Read, ReadBuf, ReadBufCursor, Write};
use wakeful::net::UnixStream;
use wakeful::time::{sleep, timeout};
use wakeful_http::tls::{AcceptError, TlsStream};

use crate::material::Site;

type Shared = Rc<RefCell<TlsStream<UnixStream>>>;

/// Numbers that look like chance and are the same every time (Knuth's MMIX generator).
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % limit
    }

    /// Mostly a few bytes, now and then more than a record.
    fn size(&mut self) -> usize {
        match self.below(4) {
            0 => 1 + self.below(16),
            1 => 1 + self.below(1000),
            2 => 1 + self.below(17_000),
            _ => 1 + self.below(80_000),
        }
    }
}

fn payload(seed: u64, length: usize) -> Vec<u8> {
    let mut dice = Dice(seed);
    (0..length).map(|_| u8::try_from(dice.below(256)).unwrap()).collect()
}

async fn send(stream: Shared, seed: u64, bytes: Vec<u8>) {
    let mut dice = Dice(seed);
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        let now = &rest[..dice.size().min(rest.len())];
        let written = match dice.below(2) {
            0 => poll_fn(|cx| Pin::new(&mut *stream.borrow_mut()).poll_write(cx, now)).await,
            _ => {
                let (one, other) = now.split_at(dice.below(now.len()));
                let slices = [IoSlice::new(one), IoSlice::new(other)];
                poll_fn(|cx| Pin::new(&mut *stream.borrow_mut()).poll_write_vectored(cx, &slices))
                    .await
            }
        };
        let written = written.unwrap();
        assert!((1..=now.len()).contains(&written));
        rest = &rest[written..];
        if dice.below(4) == 0 {
            poll_fn(|cx| Pin::new(&mut *stream.borrow_mut()).poll_flush(cx)).await.unwrap();
        }
    }
    poll_fn(|cx| Pin::new(&mut *stream.borrow_mut()).poll_shutdown(cx)).await.unwrap();
}

async fn receive(stream: Shared, seed: u64) -> Vec<u8> {
    let (mut dice, mut all) = (Dice(seed), Vec::new());
    loop {
        let mut room = vec![0; dice.size()];
        let mut buf = ReadBuf::new(&mut room);
        poll_fn(|cx| Pin::new(&mut *stream.borrow_mut()).poll_read(cx, buf.unfilled()))
            .await
            .unwrap();
        if buf.filled().is_empty() {
            return all;
        }
        all.extend_from_slice(buf.filled());
    }
}

/// A socket's buffers hold less than a record.
fn narrow(stream: &UnixStream) {
    let options = socket2::SockRef::from(stream);
    options.set_send_buffer_size(1).unwrap();
    options.set_recv_buffer_size(1).unwrap();
    assert!(options.send_buffer_size().unwrap() < 16 * 1024, "{:?}", stream.as_fd());
}

#[test]
fn every_byte_arrives_in_order_both_ways_at_once() {
    let site = Site::new();
    let (server, client) = (site.tls(), site.client().build().unwrap());
    for seed in 1..=8 {
        let (server, client) = (server.clone(), client.clone());
        wakeful::block_on(async move {
            let (one, other) = UnixStream::pair().unwrap();
            narrow(&one);
            narrow(&other);
            let accepting = wakeful::spawn(async move { server.accept(one).await.unwrap() });
            let client = client.connect(other, "localhost").await.unwrap();
            let server = accepting.await.unwrap();
            let length = 600_000 + usize::try_from(seed).unwrap();
            let ends = [(server, seed), (client, seed + 100)];
            let [one, other] = ends.map(|(stream, seed)| {
                let stream = Rc::new(RefCell::new(stream));
                wakeful::spawn(send(stream.clone(), seed, payload(seed, length))).detach();
                wakeful::spawn(receive(stream, seed + 10))
            });
            assert!(one.await.unwrap() == payload(seed + 100, length), "seed {seed}");
            assert!(other.await.unwrap() == payload(seed, length), "seed {seed}");
        });
    }
}

#[test]
fn a_stream_that_its_peer_cuts_off_ends_by_an_error() {
    let site = Site::new();
    let (server, client) = (site.tls(), site.client().build().unwrap());
    wakeful::block_on(async move {
        for says_so in [true, false] {
            let (one, other) = UnixStream::pair().unwrap();
            let accepting = wakeful::spawn({
                let server = server.clone();
                async move { server.accept(one).await.unwrap() }
            });
            let mut client = client.connect(other, "localhost").await.unwrap();
            poll_fn(|cx| Pin::new(&mut client).poll_flush(cx)).await.unwrap();
            let mut server = accepting.await.unwrap();
            if says_so {
                poll_fn(|cx| Pin::new(&mut client).poll_shutdown(cx)).await.unwrap();
            }
            drop(client);
            let mut room = [0; 1];
            let mut buf = ReadBuf::new(&mut room);
            let end = poll_fn(|cx| Pin::new(&mut server).poll_read(cx, buf.unfilled())).await;
            let cut_off = (!says_so).then_some(ErrorKind::UnexpectedEof);
            assert_eq!(end.err().map(|error| error.kind()), cut_off);
        }
    });
}

/// A stream that breaks the rules: it says that it would block, and wakes nobody.
#[derive(Debug)]
struct WouldBlock;

impl Read for WouldBlock {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        _: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Poll::Pending
    }
}

impl Write for WouldBlock {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Err(ErrorKind::WouldBlock.into()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[test]
fn a_stream_that_would_block_and_wakes_nobody_fails() {
    let client = Site::new().client().build().unwrap();
    wakeful::block_on(async move {
        let connecting = timeout(Duration::from_secs(10), client.connect(WouldBlock, "localhost"));
        connecting.await.expect("a hang is a failure").unwrap_err();
    });
}

/// A stream by TLS is a stream that TLS runs over, as through a proxy.
#[test]
fn tls_runs_over_tls() {
    let site = Site::new();
    let (server, client) = (site.tls(), site.client().build().unwrap());
    wakeful::block_on(async move {
        let (one, other) = UnixStream::pair().unwrap();
        let accepting = wakeful::spawn(async move {
            let outer = server.accept(one).await.unwrap();
            server.accept(outer).await.unwrap()
        });
        let outer = client.connect(other, "localhost").await.unwrap();
        let mut client = client.connect(outer, "localhost").await.unwrap();
        let mut server = accepting.await.unwrap();
        let sent = payload(1, 5000);
        let length = poll_fn(|cx| Pin::new(&mut client).poll_write(cx, &sent)).await.unwrap();
        assert_eq!(length, sent.len());
        poll_fn(|cx| Pin::new(&mut client).poll_flush(cx)).await.unwrap();
        let mut room = vec![0; 5000];
        let mut buf = ReadBuf::new(&mut room);
        while buf.filled().len() < sent.len() {
            poll_fn(|cx| Pin::new(&mut server).poll_read(cx, buf.unfilled())).await.unwrap();
        }
        assert_eq!(buf.filled(), sent);
    });
}

#[test]
fn a_writer_that_waits_is_not_forgotten_when_the_reader_meets_an_error() {
    let site = Site::new();
    let (server, client) = (site.tls(), site.client().build().unwrap());
    wakeful::block_on(async move {
        let (one, other) = UnixStream::pair().unwrap();
        narrow(&one);
        let mut raw = net::UnixStream::from(other.as_fd().try_clone_to_owned().unwrap());
        let accepting = wakeful::spawn(async move { server.accept(one).await.unwrap() });
        let _client = client.connect(other, "localhost").await.unwrap();
        let server = Rc::new(RefCell::new(accepting.await.unwrap()));
        let writer = wakeful::spawn(send(server.clone(), 1, payload(1, 600_000)));
        sleep(Duration::from_millis(100)).await;
        // A record that nobody has encrypted.
        raw.write_all(b"\x17\x03\x03\x00\x18and this is not even a record").unwrap();
        let read = wakeful::spawn(async move {
            let mut room = [0; 1];
            let mut buf = ReadBuf::new(&mut room);
            poll_fn(|cx| Pin::new(&mut *server.borrow_mut()).poll_read(cx, buf.unfilled())).await
        });
        assert!(read.await.unwrap().is_err());
        let drain = async {
            let mut room = [0; 4096];
            while !matches!(raw.read(&mut room), Ok(0)) {
                sleep(Duration::from_millis(1)).await;
            }
        };
        let ended = timeout(Duration::from_secs(20), futures_util::future::join(writer, drain));
        assert!(ended.await.is_ok(), "it waits for ever");
    });
}

#[test]
fn a_client_in_plain_that_reads_nothing_is_not_waited_for() {
    let server = Site::new().tls();
    wakeful::block_on(async move {
        let (one, other) = UnixStream::pair().unwrap();
        while one.try_write(&[0; 4096]).is_ok() {}
        let raw = net::UnixStream::from(other.as_fd().try_clone_to_owned().unwrap());
        (&raw).write_all(b"G").unwrap();
        let accepted = timeout(Duration::from_secs(20), server.accept(one)).await;
        let refused = accepted.expect("it does not wait for ever").unwrap_err();
        assert!(matches!(refused, AcceptError::NotTls { first: b'G' }), "{refused}");
    });
}
