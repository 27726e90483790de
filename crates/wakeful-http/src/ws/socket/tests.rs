use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Wake, Waker};

use async_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use bytes::Bytes;
use futures_lite::AsyncReadExt;
use futures_util::{FutureExt, SinkExt, StreamExt};
use wakeful::net::UnixStream;
use wakeful::task::yield_now;
use wakeful::time::{now, pause, timeout};

use super::super::CloseCode;
use super::super::connection::CLOSE_WAIT;
use super::*;
use crate::foreign_code::Wakes;
use crate::read_ration::AT_ONCE;
use crate::upgrade::Upgraded;

const LONG: Duration = Duration::from_secs(60);

/// A text message of one letter, as a client sends it.
const X: &[u8] = &[0x81, 0x80 | 1, 0, 0, 0, 0, b'x'];

/// A ping of the client, without a payload.
const PING: &[u8] = &[0x89, 0x80, 0, 0, 0, 0];

async fn pair() -> (UnixStream, WebSocket) {
    let (client, stream) = UnixStream::pair().unwrap();
    let io = Followed::new(Upgraded::behind(Bytes::new(), stream));
    let inner = WebSocketStream::from_raw_socket(io, Role::Server, None).await;
    (client, WebSocket::new(inner, None, Duration::ZERO))
}

/// Sends until the sockets can hold no more.
async fn fill(socket: &mut WebSocket) {
    let piece = Message::binary(vec![7; 1 << 16]);
    while timeout(Duration::from_secs(1), socket.send(piece.clone())).await.is_ok() {}
}

#[test]
fn a_client_that_reads_nothing_has_no_more_than_the_time_of_a_close() {
    wakeful::block_on(async {
        pause();
        let (client, mut socket) = pair().await;
        fill(&mut socket).await;
        let begun = now();
        let closed = timeout(LONG, socket.close(None)).await;
        closed.expect("it does not wait for ever").unwrap();
        assert!(now() - begun >= CLOSE_WAIT);
        drop(client);
    });
}

struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("of a waker, on purpose")
    }
}

impl Drop for Panics {
    fn drop(&mut self) {
        panic!("of a waker's drop, on purpose")
    }
}

fn poll_by_one_that_panics(socket: &mut WebSocket) {
    let theirs = Waker::from(Arc::new(Panics));
    let polled = Pin::new(socket).poll_next(&mut Context::from_waker(&theirs));
    assert!(polled.is_pending());
}

#[test]
fn small_messages_without_end_leave_their_loop_to_others() {
    const MESSAGES: usize = 5000;
    wakeful::block_on(async {
        for message in [X, PING] {
            let (mut client, mut socket) = pair().await;
            client.write_all(&message.repeat(MESSAGES)).await.unwrap();
            let mut reads = pin!(async move {
                for _ in 0..MESSAGES {
                    socket.recv().await.unwrap().unwrap();
                }
            });
            let mut polls = 0;
            poll_fn(|cx| {
                polls += 1;
                reads.as_mut().poll(cx)
            })
            .await;
            assert!(polls > MESSAGES / 128, "{polls} polls");
        }
    });
}

#[test]
fn empty_frames_without_end_leave_their_loop_to_others() {
    /// Not the message's last frame.
    const FRAME: &[u8] = &[0x00, 0x80, 0, 0, 0, 0];
    wakeful::block_on(async {
        let (mut client, stream) = UnixStream::pair().unwrap();
        let io = Followed::new(Upgraded::behind(Bytes::new(), stream));
        let config = WebSocketConfig::default().read_buffer_size(8 << 10);
        let inner = WebSocketStream::from_raw_socket(io, Role::Server, Some(config)).await;
        let mut socket = WebSocket::new(inner, None, Duration::ZERO);
        client.write_all(&[0x01, 0x80, 0, 0, 0, 0]).await.unwrap();
        // As much as the socket has room for.
        let held = client.write(&FRAME.repeat(1 << 20)).await.unwrap();
        assert!(held > AT_ONCE, "{held} bytes");
        let wakes = Arc::new(Wakes::default());
        let (waker, mut polls) = (Waker::from(wakes.clone()), 0);
        while wakes.count() >= polls {
            polls += 1;
            let polled = Pin::new(&mut socket).poll_next(&mut Context::from_waker(&waker));
            assert!(polled.is_pending());
            yield_now().await;
        }
        assert!(polls > held / AT_ONCE, "{polls} polls for {held} bytes");
    });
}

#[test]
fn a_waker_that_panics_in_its_drop_costs_no_later_wake() {
    wakeful::block_on(async {
        pause();
        let (mut client, mut socket) = pair().await;
        poll_by_one_that_panics(&mut socket);
        let reads = wakeful::spawn(async move { socket.recv().await.unwrap().unwrap() });
        yield_now().await;
        client.write_all(X).await.unwrap();
        let read = timeout(LONG, reads).await.expect("it is woken").unwrap();
        assert_eq!(read, Message::text("x"));
    });
}

#[test]
fn a_half_that_writes_is_woken_though_the_other_one_s_waker_panics() {
    wakeful::block_on(async {
        pause();
        let (mut client, mut socket) = pair().await;
        fill(&mut socket).await;
        poll_by_one_that_panics(&mut socket);
        let writes = wakeful::spawn(async move { socket.send(Message::text("x")).await });
        yield_now().await;
        let mut taken = vec![0; 1 << 20];
        while !writes.is_finished() {
            let read = timeout(LONG, client.read(&mut taken)).await;
            assert!(read.expect("it writes on").unwrap() > 0);
            yield_now().await;
        }
        writes.await.unwrap().unwrap();
    });
}

/// A socket whose Close is sent, and not answered.
async fn closing() -> (UnixStream, WebSocket) {
    let (client, mut socket) = pair().await;
    socket.connection().begin_to_close(CloseCode::Away, "");
    (client, socket)
}

#[test]
fn a_socket_that_is_dropped_behind_its_close_sends_it_and_waits_for_the_client_s() {
    wakeful::block_on(async {
        pause();
        let (mut client, socket) = closing().await;
        drop(socket);
        // More than a Close is read, and it is not reset.
        client.write_all(&X.repeat(1000)).await.unwrap();
        let mut close = [0; 4];
        client.read_exact(&mut close).await.unwrap();
        assert_eq!(close, [0x88, 2, 3, 0xe9]);
        client.write_all(&X.repeat(1000)).await.unwrap();
        yield_now().await;
        client.write_all(CLOSE).await.unwrap();
        let begun = now();
        let end = timeout(LONG, client.read(&mut close)).await;
        assert_eq!(end.expect("it closes").unwrap(), 0);
        assert!(now() - begun < CLOSE_WAIT);

        let (mut client, socket) = closing().await;
        drop(socket);
        let begun = now();
        while timeout(LONG, client.read(&mut close)).await.expect("it closes").unwrap() > 0 {}
        assert!(now() - begun >= CLOSE_WAIT);
    });
}

/// Expects that a dropped socket reads on, and that this Close comes.
async fn assert_reads_on(mut client: UnixStream, expected: &[u8]) {
    client.write_all(&X.repeat(1000)).await.expect("it is not closed yet");
    let mut all = Vec::new();
    let reads = timeout(LONG, client.read_to_end(&mut all)).await;
    reads.expect("it closes").expect("it is not reset");
    assert!(all.ends_with(expected), "{:?}", all.last_chunk::<8>());
}

#[test]
fn a_socket_that_is_dropped_behind_a_close_of_its_handler_reads_on() {
    wakeful::block_on(async {
        pause();
        let (client, mut socket) = pair().await;
        socket.send(Message::Close(None)).await.unwrap();
        drop(socket);
        assert_reads_on(client, &[0x88, 0]).await;

        let (client, mut socket) = pair().await;
        SinkExt::close(&mut socket).await.unwrap();
        drop(socket);
        assert_reads_on(client, &[0x88, 0]).await;

        // There is no room for this Close yet.
        let (client, mut socket) = pair().await;
        fill(&mut socket).await;
        timeout(Duration::from_secs(1), SinkExt::close(&mut socket)).await.unwrap_err();
        drop(socket);
        assert_reads_on(client, &[0x88, 0]).await;
    });
}

/// Each way in which a handler may send a Close itself.
async fn close_by_the_handler(socket: &mut WebSocket, as_a_sink: bool) {
    if as_a_sink {
        SinkExt::close(socket).await.unwrap();
    } else {
        socket.send(Message::Close(None)).await.unwrap();
    }
}

#[test]
fn a_handler_that_reads_on_behind_its_own_close_waits_no_longer_than_the_time_of_a_close() {
    wakeful::block_on(async {
        pause();
        for as_a_sink in [false, true] {
            let (mut client, mut socket) = pair().await;
            close_by_the_handler(&mut socket, as_a_sink).await;
            // What comes within the time is still received.
            let begun = now();
            client.write_all(X).await.unwrap();
            assert_eq!(socket.recv().await.unwrap().unwrap(), Message::text("x"));
            let end = timeout(LONG, socket.recv()).await.expect("it does not wait for ever");
            assert!(end.is_none() && now() - begun >= CLOSE_WAIT);

            // The client's Close is the end, too.
            let (mut client, mut socket) = pair().await;
            close_by_the_handler(&mut socket, as_a_sink).await;
            let begun = now();
            client.write_all(&[X, CLOSE].concat()).await.unwrap();
            assert_eq!(socket.recv().await.unwrap().unwrap(), Message::text("x"));
            assert_eq!(socket.recv().await.unwrap().unwrap(), Message::Close(None));
            assert!(socket.recv().await.is_none() && now() - begun < CLOSE_WAIT);
        }
    });
}

#[test]
fn a_half_that_reads_waits_no_longer_than_the_time_of_a_close_that_the_other_half_sends() {
    wakeful::block_on(async {
        pause();
        for as_a_sink in [false, true] {
            let (client, socket) = pair().await;
            let (mut sink, mut stream) = socket.split();
            let reads = wakeful::spawn(async move { stream.next().await.is_none() });
            yield_now().await;
            if as_a_sink {
                sink.close().await.unwrap();
            } else {
                sink.send(Message::Close(None)).await.unwrap();
            }
            let has_ended = timeout(LONG, reads).await.expect("it does not wait for ever");
            assert!(has_ended.unwrap());
            drop(client);
        }
    });
}

/// The pings before the Close of the client are not answered any more, so there is no pong that has
/// to wait for room.
#[test]
fn a_client_s_close_is_read_behind_pings_that_come_after_the_handler_s_own() {
    wakeful::block_on(async {
        pause();
        let (mut client, mut socket) = pair().await;
        fill(&mut socket).await;
        let closes = timeout(Duration::from_secs(1), SinkExt::close(&mut socket)).await;
        closes.expect_err("there is no room");
        let ping = [&[0x89, 0x80 | 100, 0, 0, 0, 0][..], &[7; 100]].concat();
        let sends = wakeful::spawn(async move {
            client.write_all(&ping.repeat(1000)).await.unwrap();
            client.write_all(CLOSE).await.unwrap();
            client
        });
        let begun = now();
        let last = timeout(LONG, async {
            let mut last = None;
            while let Some(Ok(message)) = socket.recv().await {
                last = Some(message);
                if last == Some(Message::Close(None)) {
                    break;
                }
            }
            last
        });
        assert_eq!(last.await.expect("it reads on"), Some(Message::Close(None)));
        assert!(now() - begun < CLOSE_WAIT);
        drop(sends.await.unwrap());
    });
}

/// A client's Close, without a code.
const CLOSE: &[u8] = &[0x88, 0x80, 0, 0, 0, 0];

/// A socket that has no room, and has read its client's Close.
async fn full_and_closed() -> (UnixStream, WebSocket) {
    let (mut client, mut socket) = pair().await;
    fill(&mut socket).await;
    client.write_all(CLOSE).await.unwrap();
    assert_eq!(socket.recv().await.unwrap().unwrap(), Message::Close(None));
    (client, socket)
}

/// What a half may wait for that sends to a client that reads nothing.
#[derive(Debug, Clone, Copy)]
enum Sends {
    Messages,
    Flush,
    Close,
}

/// Expects that both halves of this socket end, the one that waits for room, too.
async fn assert_halves_end(socket: WebSocket, sends: Sends) {
    let (mut sink, mut stream) = socket.split();
    let writes = wakeful::spawn(async move {
        match sends {
            Sends::Messages => loop {
                sink.send(Message::binary(vec![7; 1 << 16])).await?;
            },
            Sends::Flush => sink.flush().await,
            Sends::Close => sink.close().await,
        }
    });
    let reads =
        wakeful::spawn(async move { while stream.next().await.is_some_and(|it| it.is_ok()) {} });
    timeout(LONG, reads).await.expect("the reader ends").unwrap();
    let written: Result<(), Error> = timeout(LONG, writes).await.expect("the writer ends").unwrap();
    assert!(matches!(written, Err(Error::ConnectionClosed)), "{sends:?}: {written:?}");
}

#[test]
fn a_half_that_waits_for_room_ends_when_the_other_half_gives_its_client_up() {
    wakeful::block_on(async {
        pause();
        for sends in [Sends::Messages, Sends::Flush, Sends::Close] {
            // The server's Close is not answered.
            let (client, mut socket) = pair().await;
            fill(&mut socket).await;
            socket.connection().begin_to_close(CloseCode::Away, "");
            assert_halves_end(socket, sends).await;
            drop(client);

            // There is no room for the answer to the client's Close, or to a frame of no kind.
            for last in [CLOSE, &[0xff, 0x80, 0, 0, 0, 0]] {
                let (mut client, mut socket) = pair().await;
                fill(&mut socket).await;
                client.write_all(last).await.unwrap();
                assert_halves_end(socket, sends).await;
                drop(client);
            }
        }
    });
}

/// Expects the messages of [`fill`], each of them whole, and then this Close. The client begins to
/// read only after a while.
async fn assert_is_answered(mut client: UnixStream, close: &[u8]) {
    const MESSAGE: usize = (1 << 16) + 10;
    wakeful::time::sleep(Duration::from_secs(1)).await;
    let mut all = Vec::new();
    timeout(LONG, client.read_to_end(&mut all)).await.expect("it closes").unwrap();
    let end = all.split_off(all.len() / MESSAGE * MESSAGE);
    assert_eq!(end, close, "after {} bytes", all.len());
}

#[test]
fn the_answer_to_a_client_s_close_is_sent_though_there_is_no_room_for_it_at_first() {
    wakeful::block_on(async {
        pause();
        // Who leaves at the Close.
        let (client, socket) = full_and_closed().await;
        drop(socket);
        assert_is_answered(client, &[0x88, 0]).await;

        // Who reads to the end.
        let (client, mut socket) = full_and_closed().await;
        let reads = wakeful::spawn(async move { socket.recv().await.is_none() });
        assert_is_answered(client, &[0x88, 0]).await;
        assert!(reads.await.unwrap());

        // Who leaves while it reads to the end.
        let (client, mut socket) = full_and_closed().await;
        timeout(Duration::from_millis(100), socket.recv()).await.expect_err("there is no room");
        drop(socket);
        assert_is_answered(client, &[0x88, 0]).await;

        let (client, socket) = full_and_closed().await;
        let closes = wakeful::spawn(socket.close(None));
        assert_is_answered(client, &[0x88, 0]).await;
        closes.await.unwrap().unwrap();

        // Who closes as a sink does, and keeps the socket.
        let (mut client, mut socket) = full_and_closed().await;
        let closes = wakeful::spawn(async move {
            SinkExt::close(&mut socket).await.unwrap();
            socket
        });
        let mut taken = vec![0; 1 << 20];
        while !closes.is_finished() {
            timeout(LONG, client.read(&mut taken)).await.expect("it sends").unwrap();
            yield_now().await;
        }
        drop(closes.await.unwrap());
    });
}

#[test]
fn a_close_that_waits_for_room_is_sent_though_the_client_s_own_comes_first() {
    wakeful::block_on(async {
        pause();
        let (mut client, mut socket) = pair().await;
        fill(&mut socket).await;
        socket.connection().begin_to_close(CloseCode::Away, "");
        client.write_all(CLOSE).await.unwrap();
        assert_eq!(socket.recv().await.unwrap().unwrap(), Message::Close(None));
        let reads = wakeful::spawn(async move { socket.recv().await.is_none() });
        assert_is_answered(client, &[0x88, 2, 3, 0xe9]).await;
        assert!(reads.await.unwrap());
    });
}

#[test]
fn a_client_that_makes_no_room_for_the_answer_to_its_close_has_the_time_of_a_close() {
    wakeful::block_on(async {
        pause();
        let (client, mut socket) = full_and_closed().await;
        let begun = now();
        let end = timeout(LONG, socket.recv()).await.expect("it does not wait for ever");
        assert!(end.is_none());
        assert!(now() - begun >= CLOSE_WAIT);
        drop(client);
    });
}

#[test]
fn a_client_with_pongs_that_wait_in_front_of_the_answer_has_no_more_than_the_time_of_a_close() {
    wakeful::block_on(async {
        pause();
        let (mut client, mut socket) = pair().await;
        fill(&mut socket).await;
        client.write_all(&PING.repeat(10)).await.unwrap();
        client.write_all(CLOSE).await.unwrap();
        while !socket.recv().await.unwrap().unwrap().is_close() {}
        let begun = now();
        loop {
            let mut cx = Context::from_waker(Waker::noop());
            let polled = Pin::new(&mut socket).poll_next(&mut cx);
            if socket.is_terminated() {
                // Nothing would wake it for another poll.
                assert!(matches!(polled, Poll::Ready(None)), "{polled:?}");
                break;
            }
            assert!(polled.is_pending() && now() - begun < LONG);
            wakeful::time::sleep(Duration::from_secs(1)).await;
        }
        assert!(now() - begun >= CLOSE_WAIT);
        drop(client);
    });
}

#[test]
fn a_socket_that_ends_with_its_loop_is_not_read_on() {
    wakeful::block_on(async {
        let both = closing().await;
        wakeful::spawn(async move {
            let _both = both;
            std::future::pending::<()>().await;
        })
        .detach();
        yield_now().await;
    });
}

#[test]
fn the_answer_to_a_ping_comes_before_a_close_of_the_handler() {
    wakeful::block_on(async {
        for way in 0..3 {
            let (mut client, mut socket) = pair().await;
            client.write_all(PING).await.unwrap();
            assert!(matches!(socket.recv().await, Some(Ok(Message::Ping(_)))));
            match way {
                // The client does not answer.
                0 => drop(socket.close(None).now_or_never()),
                1 => socket.send(Message::Close(None)).await.unwrap(),
                _ => SinkExt::close(&mut socket).await.unwrap(),
            }
            let mut kinds = [0; 4];
            client.read_exact(&mut kinds).await.unwrap();
            assert_eq!((kinds[0], kinds[2]), (0x8a, 0x88), "way {way}");
        }
    });
}
