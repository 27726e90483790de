//! What becomes of a socket's bytes when it is closed, given up on, or moved to another loop: none
//! is lost, none comes twice.

use std::future::Future;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::time::Duration;

use wakeful::net::{Attached, DetachedStream, TcpListener, TcpStream, UnixStream};
use wakeful::task::yield_now;
use wakeful::time::timeout;
use wakeful::{LoopHandle, spawn};

use crate::backend::driven::Driven;
use crate::backend::{Backend, localhost};
use crate::background::LONG;
use crate::support::{soon, tcp_pair, would_wake};

on_every_backend! {
    connect_write_and_close_at_once_delivers_the_bytes_and_the_end,
    a_close_with_unread_data_resets_and_one_behind_the_end_does_not,
    a_read_timeout_takes_no_byte_and_leaves_the_stream_usable,
    a_write_timeout_writes_no_byte_and_leaves_the_stream_usable,
    a_stream_that_left_its_loop_and_is_closed_is_nobody_s_event,
    a_connection_moved_between_loops_under_load_loses_and_repeats_no_byte,
    a_stream_moves_with_an_active_read_that_is_given_up,
}

/// What the stream's byte at `at` is.
fn byte(at: usize) -> u8 {
    (at * 31 + at / 256) as u8
}

fn connect_write_and_close_at_once_delivers_the_bytes_and_the_end<B: Backend>() {
    B::block_on(async {
        let listener = TcpListener::bind(localhost()).await.unwrap();
        let addr = listener.local_addr().unwrap();
        for length in [1, 100, 100_000] {
            let client = spawn(async move {
                let mut client = TcpStream::connect(addr).await.unwrap();
                client.write_all(&vec![7; length]).await.unwrap();
            });
            // Small ones are written and closed before anybody accepts.
            if length < 1_000 {
                soon(client).await.unwrap();
            }
            let (mut server, _) = soon(listener.accept()).await.unwrap();
            let (mut got, mut buf) = (0, [0; 4096]);
            loop {
                let read = soon(server.read(&mut buf)).await.unwrap();
                if read == 0 {
                    break;
                }
                assert!(buf[..read].iter().all(|byte| *byte == 7));
                got += read;
            }
            assert_eq!(got, length);
        }
    });
}

/// RFC 2525, 2.17: what the peer has sent and nobody reads is lost, and it is told.
fn a_close_with_unread_data_resets_and_one_behind_the_end_does_not<B: Backend>() {
    B::block_on(async {
        let mut buf = [0; 16];
        for waits in [false, true] {
            let (client, mut server) = tcp_pair().await;
            server.write_all(b"nobody reads it").await.unwrap();
            soon(client.readable()).await.unwrap();
            let error = if waits {
                let reading = spawn(async move { server.read(&mut [0; 16]).await });
                yield_now().await;
                drop(client);
                soon(reading).await.unwrap().unwrap_err()
            } else {
                drop(client);
                soon(server.read(&mut buf)).await.unwrap_err()
            };
            assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        }

        // So does one whose half is dropped, and one that was taken off its loop.
        let (client, mut server) = tcp_pair().await;
        server.write_all(b"nobody reads it").await.unwrap();
        soon(client.readable()).await.unwrap();
        drop(client.detach());
        assert_eq!(
            soon(server.read(&mut buf)).await.unwrap_err().kind(),
            ErrorKind::ConnectionReset
        );

        // One that shuts down its side, and reads to the end, loses nothing.
        let (mut client, mut server) = tcp_pair().await;
        let answers = spawn(async move {
            let mut buf = [0; 16];
            let mut asked = Vec::new();
            loop {
                let read = server.read(&mut buf).await.unwrap();
                if read == 0 {
                    break;
                }
                asked.extend_from_slice(&buf[..read]);
            }
            server.write_all(b"answer").await.unwrap();
            asked
        });
        client.write_all(b"question").await.unwrap();
        client.shutdown().await.unwrap();
        let mut answer = Vec::new();
        loop {
            let read = soon(client.read(&mut buf)).await.unwrap();
            if read == 0 {
                break;
            }
            answer.extend_from_slice(&buf[..read]);
        }
        drop(client);
        assert_eq!(answer, b"answer");
        assert_eq!(soon(answers).await.unwrap(), b"question");
    });
}

fn a_read_timeout_takes_no_byte_and_leaves_the_stream_usable<B: Backend>() {
    B::block_on(async {
        let (mut client, mut server) = tcp_pair().await;
        let mut buf = [0; 8];
        for round in 0..5_u8 {
            let read = timeout(Duration::from_micros(200), server.read(&mut buf)).await;
            assert!(read.is_err(), "nothing was sent");
            client.write_all(&[round]).await.unwrap();
            assert_eq!(soon(server.read(&mut buf)).await.unwrap(), 1);
            assert_eq!(buf[0], round);
        }
        // A timeout that has passed already does not lose what is there.
        client.write_all(b"there").await.unwrap();
        soon(server.peek(&mut buf)).await.unwrap();
        let read = timeout(Duration::ZERO, server.read(&mut buf)).await;
        assert_eq!(read.expect("what is ready wins").unwrap(), 5);
    });
}

fn a_write_timeout_writes_no_byte_and_leaves_the_stream_usable<B: Backend>() {
    B::block_on(async {
        let (mut client, mut server) = tcp_pair().await;
        let mut written = 0;
        let piece = |from: usize| (from..from + 10_000).map(byte).collect::<Vec<_>>();
        // Until nothing fits for so long that the write is given up.
        let brief = Duration::from_millis(2);
        while let Ok(count) = timeout(brief, client.write(&piece(written))).await {
            written += count.unwrap();
        }
        let more = 100_000;
        let until = written + more;
        let writer = spawn(async move {
            while written < until {
                let bytes = piece(written);
                let most = bytes.len().min(until - written);
                written += client.write(&bytes[..most]).await.unwrap();
            }
        });
        let (mut at, mut buf) = (0, vec![0; 9_000]);
        loop {
            let read = soon(server.read(&mut buf)).await.unwrap();
            if read == 0 {
                break;
            }
            assert!(buf[..read].iter().enumerate().all(|(i, b)| *b == byte(at + i)), "at {at}");
            at += read;
        }
        writer.await.unwrap();
        assert_eq!(at, until);
    });
}

fn a_stream_that_left_its_loop_and_is_closed_is_nobody_s_event<B: Backend>() {
    let mut event_loop = B::event_loop();
    let (mut peer, socket) = StdUnixStream::pair().unwrap();
    let mut left = event_loop
        .block_on(async {
            let mut stream = UnixStream::from_std(socket).unwrap();
            let active = timeout(Duration::ZERO, stream.read(&mut [0; 1])).await;
            assert!(active.is_err(), "it waited, and was given up");
            stream.into_std()
        })
        .unwrap();
    event_loop.take_turn(Some(Duration::ZERO)).unwrap();
    peer.write_all(b"for whoever has it").unwrap();
    assert!(!would_wake(&mut event_loop));
    left.set_nonblocking(false).unwrap();
    let mut buf = [0; 18];
    left.read_exact(&mut buf).unwrap();
    assert_eq!(&buf, b"for whoever has it");
    drop(left);
    assert!(!would_wake(&mut event_loop));
    assert_eq!(peer.write(b"x").unwrap_err().kind(), ErrorKind::BrokenPipe);
}

const BYTES: usize = 2_000_000;

/// Reads some of the connection here, uses a part of it, then moves it to the next of the loops,
/// until it ends.
async fn reads_and_moves_on(
    detached: DetachedStream,
    mut at: usize,
    hops: usize,
    loops: Vec<LoopHandle>,
    done: async_channel::Sender<(usize, usize)>,
) {
    let Attached { mut stream, mut unread } = detached.attach().unwrap();
    let mut buf = [0; 5_000];
    for _ in 0..3 {
        let read = stream.read(&mut buf).await.unwrap();
        unread.extend_from_slice(&buf[..read]);
        let used = if read == 0 { unread.len() } else { unread.len() - unread.len() % 1_000 };
        assert!(unread[..used].iter().enumerate().all(|(i, b)| *b == byte(at + i)), "at {at}");
        unread.drain(..used);
        at += used;
        if read == 0 {
            done.send((at, hops)).await.unwrap();
            return;
        }
    }
    let stream = stream.detach().with_unread(unread);
    let next = loops[hops % loops.len()].clone();
    let moved = next.spawn(move || -> std::pin::Pin<Box<dyn Future<Output = ()>>> {
        Box::pin(reads_and_moves_on(stream, at, hops + 1, loops, done))
    });
    moved.unwrap().detach();
}

fn a_connection_moved_between_loops_under_load_loses_and_repeats_no_byte<B: Backend>() {
    let group = B::group().loops(2).build().unwrap();
    let loops = group.handles().to_vec();
    let (done, is_done) = async_channel::bounded(8);
    B::block_on(async {
        for _ in 0..8 {
            let (mut client, server) = tcp_pair().await;
            let (stream, loops, done) = (server.detach(), loops.clone(), done.clone());
            let first = loops[0].clone();
            let moved = first.spawn(move || reads_and_moves_on(stream, 0, 1, loops, done));
            moved.unwrap().detach();
            spawn(async move {
                let mut at = 0;
                while at < BYTES {
                    let piece: Vec<_> = (at..(at + 7_777).min(BYTES)).map(byte).collect();
                    client.write_all(&piece).await.unwrap();
                    at += piece.len();
                }
            })
            .detach();
        }
        drop(done);
        for _ in 0..8 {
            let (got, hops) = soon(is_done.recv()).await.expect("a connection was lost");
            assert_eq!(got, BYTES);
            assert!(hops > BYTES / 5_000 / 3, "{hops}");
        }
    });
    group.shutdown(LONG).unwrap();
}

/// The read borrows the stream: it has to be given up before the stream can move, and has then
/// taken nothing.
fn a_stream_moves_with_an_active_read_that_is_given_up<B: Backend>() {
    let group = B::group().loops(2).build().unwrap();
    let (one, other) = (group.handles()[0].clone(), group.handles()[1].clone());
    B::block_on(async {
        for _ in 0..20 {
            let (mut client, server) = tcp_pair().await;
            let server = server.detach();
            let moved = one.spawn(move || async move {
                let mut stream = server.attach().unwrap().stream;
                let mut buf = [0; 8];
                let active = timeout(Duration::ZERO, stream.read(&mut buf)).await;
                assert!(active.is_err(), "it waited");
                stream.detach()
            });
            let moved = soon(moved.unwrap()).await.unwrap();
            client.write_all(b"moved").await.unwrap();
            yield_now().await;
            let read = other.spawn(move || async move {
                let mut stream = moved.attach().unwrap().stream;
                let mut buf = [0; 8];
                let read = stream.read(&mut buf).await.unwrap();
                buf[..read].to_vec()
            });
            assert_eq!(soon(read.unwrap()).await.unwrap(), b"moved");
        }
    });
}
