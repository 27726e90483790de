//! WebSockets, driven by tungstenite's client: messages, limits, mistakes, handshakes, and the
//! drain.

mod common;

use std::cell::Cell;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use async_channel::{Receiver, Sender};
use async_tungstenite::tungstenite::handshake::client::generate_key;
use async_tungstenite::tungstenite::http::Request as Handshake;
use async_tungstenite::tungstenite::protocol::frame::Frame;
use async_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};
use async_tungstenite::{WebSocketStream, client_async};
use axum::Router;
use axum::response::Response;
use axum::routing::any;
use futures_util::{SinkExt, StreamExt};
use wakeful::net::TcpStream;
use wakeful_http::Running;
use wakeful_http::ws::{CloseCode, CloseFrame, Error, Message, WebSocket, WebSocketUpgrade};

use common::*;

async fn echo(mut socket: WebSocket) {
    // What is held over an await need not be `Send`.
    let count = Rc::new(Cell::new(0));
    while let Some(Ok(message)) = socket.recv().await {
        count.set(count.get() + 1);
        if (message.is_text() || message.is_binary()) && socket.send(message).await.is_err() {
            return;
        }
    }
}

fn app() -> Router {
    let limited = |ws: WebSocketUpgrade| async { ws.max_message_size(1000).on_upgrade(echo) };
    let spoken = |ws: WebSocketUpgrade| async { ws.protocols(["v2", "v1"]).on_upgrade(echo) };
    let lingering = |ws: WebSocketUpgrade| async { ws.linger(GUARD).on_upgrade(goodbye) };
    let closing = |ws: WebSocketUpgrade| async { ws.on_upgrade(close) };
    Router::new()
        .route("/ws", any(async |ws: WebSocketUpgrade| -> Response { ws.on_upgrade(echo) }))
        .route("/limited", any(limited))
        .route("/spoken", any(spoken))
        .route("/lingering", any(lingering))
        .route("/closing", any(closing))
        .route("/texts", any(async |ws: WebSocketUpgrade| -> Response { ws.on_upgrade(texts) }))
        .route("/all", any(async |ws: WebSocketUpgrade| -> Response { ws.on_upgrade(all) }))
}

/// Leaves at the first message of another kind, such as a Close.
async fn texts(mut socket: WebSocket) {
    while let Some(Ok(Message::Text(_))) = socket.recv().await {}
}

/// Sends back what comes, a Close, too.
async fn all(mut socket: WebSocket) {
    while let Some(Ok(message)) = socket.recv().await {
        if socket.send(message).await.is_err() {
            return;
        }
    }
}

/// Has the last word when the server drains.
async fn goodbye(mut socket: WebSocket) {
    let told = async {
        wakeful_http::drain_begins().await;
        true
    };
    let left = async {
        while let Some(Ok(_)) = socket.recv().await {}
        false
    };
    if futures_lite::future::or(told, left).await {
        socket.send(Message::text("goodbye")).await.unwrap();
        socket.close(Some(frame(CloseCode::Normal, "done"))).await.unwrap();
    }
}

async fn close(socket: WebSocket) {
    socket.close(Some(frame(CloseCode::Library(4000), "as agreed"))).await.unwrap();
}

fn frame(code: CloseCode, reason: &'static str) -> CloseFrame {
    CloseFrame { code, reason: reason.into() }
}

type Client = WebSocketStream<TcpStream>;

async fn connect(addr: SocketAddr, path: &str) -> Client {
    let stream = TcpStream::connect(addr).await.unwrap();
    stream.set_nodelay(true).unwrap();
    client_async(format!("ws://{addr}{path}"), stream).await.unwrap().0
}

/// What the server closes with, when nothing else comes before.
async fn closed(client: &mut Client) -> CloseFrame {
    match client.next().await.unwrap().unwrap() {
        Message::Close(Some(frame)) => frame,
        other => panic!("{other:?}"),
    }
}

#[test]
fn messages_of_every_kind_and_size_come_back() {
    let running = server().start(app()).unwrap();
    wakeful::block_on(async {
        let mut client = connect(addr(&running), "/ws").await;
        for size in [0, 1, 125, 126, 65_535, 65_536, 3 << 20] {
            for message in [Message::text("ü".repeat(size / 2)), Message::binary(vec![7; size])] {
                client.send(message.clone()).await.unwrap();
                assert!(client.next().await.unwrap().unwrap() == message, "{size}");
            }
        }
        client.send(Message::Ping("are you there".into())).await.unwrap();
        assert_eq!(client.next().await.unwrap().unwrap(), Message::Pong("are you there".into()));
        // In three frames, with a ping among them.
        let piece = |data, text: &'static str, last| {
            Message::Frame(Frame::message(text.as_bytes(), OpCode::Data(data), last))
        };
        for message in [
            piece(Data::Text, "one ", false),
            piece(Data::Continue, "two ", false),
            Message::Ping("ping".into()),
            piece(Data::Continue, "three", true),
        ] {
            client.send(message).await.unwrap();
        }
        assert_eq!(client.next().await.unwrap().unwrap(), Message::Pong("ping".into()));
        assert_eq!(client.next().await.unwrap().unwrap(), Message::text("one two three"));

        client.close(Some(frame(CloseCode::Normal, "bye"))).await.unwrap();
        assert_eq!(closed(&mut client).await, frame(CloseCode::Normal, "bye"));
        assert!(client.next().await.is_none());
    });
    until("the connection is closed", || running.counts().open() == 0);
    assert_eq!(running.shutdown(GUARD).unwrap(), 0);
}

#[test]
fn a_client_s_close_is_answered_though_the_handler_does_not_read_on() {
    let running = server().start(app()).unwrap();
    wakeful::block_on(async {
        for path in ["/ws", "/texts", "/all"] {
            let mut client = connect(addr(&running), path).await;
            client.close(Some(frame(CloseCode::Normal, "bye"))).await.unwrap();
            assert_eq!(closed(&mut client).await, frame(CloseCode::Normal, "bye"), "{path}");
            assert!(client.next().await.is_none());
        }
    });
    assert_eq!(running.shutdown(GUARD).unwrap(), 0);
}

#[test]
fn what_breaks_the_protocol_or_a_limit_is_told_so_by_its_close_code() {
    let running = server().start(app()).unwrap();
    let text = OpCode::Data(Data::Text);
    wakeful::block_on(async {
        let mut client = connect(addr(&running), "/limited").await;
        client.send(Message::text("x".repeat(1000))).await.unwrap();
        assert_eq!(client.next().await.unwrap().unwrap().len(), 1000);
        // More than the server reads before it closes: the Close arrives all the same.
        let large = client.send(Message::text("x".repeat(300_000))).await;
        assert!(large.is_ok(), "{large:?}");
        assert_eq!(closed(&mut client).await.code, CloseCode::Size);

        let mut client = connect(addr(&running), "/limited").await;
        for (opcode, last) in [(text, false), (OpCode::Data(Data::Continue), true)] {
            let piece = Frame::message(vec![b'x'; 501], opcode, last);
            client.send(Message::Frame(piece)).await.unwrap();
        }
        assert_eq!(closed(&mut client).await.code, CloseCode::Size);

        let mut client = connect(addr(&running), "/ws").await;
        let piece = Frame::message(vec![0xff, 0xfe], text, true);
        client.send(Message::Frame(piece)).await.unwrap();
        assert_eq!(closed(&mut client).await.code, CloseCode::Invalid);

        let mut client = connect(addr(&running), "/ws").await;
        let piece = Frame::message(vec![], OpCode::Data(Data::Continue), true);
        client.send(Message::Frame(piece)).await.unwrap();
        assert_eq!(closed(&mut client).await.code, CloseCode::Protocol);

        // Not masked: beneath tungstenite, which would.
        let mut client = connect(addr(&running), "/ws").await;
        client.get_mut().write_all(b"\x81\x01x").await.unwrap();
        assert_eq!(closed(&mut client).await.code, CloseCode::Protocol);

        // Lengths of 5 and of 300 bytes, in more bytes than they need.
        for header in [&b"\x82\xfe\x00\x05"[..], b"\x82\xff\x00\x00\x00\x00\x00\x00\x01\x2c"] {
            let mut client = connect(addr(&running), "/ws").await;
            client.send(Message::text("right")).await.unwrap();
            assert_eq!(client.next().await.unwrap().unwrap().into_data(), "right");
            // What comes before it, even in the same read, is heard.
            let before = b"\x81\x86\0\0\0\0before";
            client.get_mut().write_all(&[before, header, &[0; 304]].concat()).await.unwrap();
            assert_eq!(client.next().await.unwrap().unwrap().into_data(), "before");
            assert_eq!(closed(&mut client).await.code, CloseCode::Protocol);
        }
    });
    until("all are closed", || running.counts().open() == 0);
    assert_eq!(running.shutdown(GUARD).unwrap(), 0);
}

#[test]
fn a_frame_that_no_message_can_hold_is_refused_before_there_is_memory_for_it() {
    let frames = |ws: WebSocketUpgrade| async { ws.max_frame_size(usize::MAX).on_upgrade(echo) };
    let both = |ws: WebSocketUpgrade| async {
        ws.max_message_size(usize::MAX).max_frame_size(usize::MAX).on_upgrade(echo)
    };
    let short = |ws: WebSocketUpgrade| async { ws.max_message_size(1).on_upgrade(echo) };
    let app = app().route("/frames", any(frames)).route("/both", any(both));
    let running = server().start(app.route("/short", any(short))).unwrap();
    wakeful::block_on(async {
        for path in ["/frames", "/both"] {
            let mut client = connect(addr(&running), path).await;
            client.send(Message::text("right")).await.unwrap();
            assert_eq!(client.next().await.unwrap().unwrap().into_data(), "right");
            // Of the frame, only its header: the length, and the mask.
            let header = [&[0x82, 0xff][..], &(1_u64 << 62).to_be_bytes(), &[0; 4]].concat();
            client.get_mut().write_all(&header).await.unwrap();
            assert_eq!(closed(&mut client).await.code, CloseCode::Size, "{path}");
        }
        // A ping is no message.
        let mut client = connect(addr(&running), "/short").await;
        client.send(Message::Ping(vec![7; 125].into())).await.unwrap();
        assert_eq!(client.next().await.unwrap().unwrap(), Message::Pong(vec![7; 125].into()));
        client.send(Message::text("xy")).await.unwrap();
        assert_eq!(closed(&mut client).await.code, CloseCode::Size);
    });
    until("all are closed", || running.counts().open() == 0);
    assert_eq!(running.shutdown(GUARD).unwrap(), 0);
}

#[test]
fn a_buffer_that_no_memory_can_hold_is_the_greatest_one_and_no_panic() {
    let greatest =
        |ws: WebSocketUpgrade| async { ws.read_buffer_size(usize::MAX).on_upgrade(echo) };
    let running = server().start(app().route("/greatest", any(greatest))).unwrap();
    wakeful::block_on(async {
        let mut client = connect(addr(&running), "/greatest").await;
        client.send(Message::text("right")).await.unwrap();
        assert_eq!(client.next().await.unwrap().unwrap().into_data(), "right");
    });
    until("it is closed", || running.counts().open() == 0);
    assert_eq!(running.handles().iter().map(|it| it.metrics().panics).sum::<u64>(), 0);
}

#[test]
fn the_server_chooses_among_the_subprotocols_that_the_client_offers() {
    let running = server().start(app()).unwrap();
    let addr = addr(&running);
    wakeful::block_on(async {
        for (offered, chosen) in [("v1, v2", Some("v2")), ("v1", Some("v1")), ("", None)] {
            let stream = TcpStream::connect(addr).await.unwrap();
            let mut request = Handshake::get(format!("ws://{addr}/spoken"))
                .header("host", "x")
                .header("connection", "keep-alive, Upgrade")
                .header("upgrade", "WebSocket")
                .header("sec-websocket-version", "13")
                .header("sec-websocket-key", generate_key());
            if !offered.is_empty() {
                request = request.header("sec-websocket-protocol", offered);
            }
            let opened = client_async(request.body(()).unwrap(), stream).await;
            let (_, response) = opened.unwrap();
            let answer = response.headers().get("sec-websocket-protocol");
            assert_eq!(answer.map(|value| value.to_str().unwrap()), chosen);
        }
    });
}

#[test]
fn a_request_that_is_no_handshake_is_told_what_it_lacks() {
    let running = server().start(app()).unwrap();
    let upgrade = "connection: upgrade\r\nupgrade: websocket\r\n";
    let version = "sec-websocket-version: 13\r\n";
    let key = "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    for (start, headers, status, says) in [
        ("POST /ws HTTP/1.1", format!("{upgrade}{version}{key}"), 405, "by GET"),
        ("GET /ws HTTP/1.1", format!("{version}{key}"), 426, "\r\nupgrade: websocket\r\n"),
        (
            "GET /ws HTTP/1.1",
            format!("connection: upgrade\r\nupgrade: h2c\r\n{version}{key}"),
            426,
            "upgrade",
        ),
        ("GET /ws HTTP/1.1", format!("{upgrade}{version}"), 400, "sec-websocket-key"),
        (
            "GET /ws HTTP/1.1",
            format!("{upgrade}{version}sec-websocket-key: x\r\n"),
            400,
            "sec-websocket-key",
        ),
        // 15 bytes, 17 bytes, and no base64.
        (
            "GET /ws HTTP/1.1",
            format!("{upgrade}{version}sec-websocket-key: AAAAAAAAAAAAAAAAAAAA\r\n"),
            400,
            "16 bytes",
        ),
        (
            "GET /ws HTTP/1.1",
            format!("{upgrade}{version}sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAAA=\r\n"),
            400,
            "16 bytes",
        ),
        (
            "GET /ws HTTP/1.1",
            format!("{upgrade}{version}sec-websocket-key: AAAAAAAAAAAAAAAAAAAA-A==\r\n"),
            400,
            "16 bytes",
        ),
        ("GET /ws HTTP/1.1", format!("{upgrade}{key}"), 426, "\r\nsec-websocket-version: 13\r\n"),
        ("GET /ws HTTP/1.0", format!("{upgrade}{version}{key}"), 426, "cannot be upgraded"),
        // The key and its answer of RFC 6455.
        (
            "GET /ws HTTP/1.1",
            format!("{upgrade}{version}{key}"),
            101,
            "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=",
        ),
    ] {
        use std::io::Write as _;
        let mut stream = raw(&running);
        let close = if status == 101 { "" } else { "connection: close\r\n" };
        write!(stream, "{start}\r\nhost: x\r\n{headers}{close}\r\n").unwrap();
        // One that is opened is closed by its client.
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let answer = read_all(stream);
        assert!(answer.contains(&format!(" {status} ")), "{answer}");
        assert!(answer.contains(says), "{says}: {answer}");
    }
    assert_eq!(running.shutdown(GUARD).unwrap(), 0);
}

#[test]
fn a_drain_closes_sockets_with_1001_and_is_not_held_up() {
    let running = server().start(app()).unwrap();
    let addr = addr(&running);
    let (open, opened) = async_channel::bounded(1);
    let client = std::thread::spawn(move || {
        wakeful::block_on(async {
            let mut client = connect(addr, "/ws").await;
            client.send(Message::text("x")).await.unwrap();
            client.next().await.unwrap().unwrap();
            open.send(()).await.unwrap();
            assert_eq!(closed(&mut client).await, frame(CloseCode::Away, "the server is draining"));
            // Answered by tungstenite as it reads on.
            assert!(client.next().await.is_none());
        });
    });
    opened.recv_blocking().unwrap();
    assert_eq!(running.shutdown(GUARD).unwrap(), 0);
    client.join().unwrap();
}

#[test]
fn a_handler_that_is_told_of_the_drain_may_have_the_last_word() {
    let running = server().start(app()).unwrap();
    let addr = addr(&running);
    let (open, opened) = async_channel::bounded(1);
    let client = std::thread::spawn(move || {
        wakeful::block_on(async {
            let mut client = connect(addr, "/lingering").await;
            client.send(Message::Ping("".into())).await.unwrap();
            client.next().await.unwrap().unwrap();
            open.send(()).await.unwrap();
            assert_eq!(client.next().await.unwrap().unwrap(), Message::text("goodbye"));
            assert_eq!(closed(&mut client).await, frame(CloseCode::Normal, "done"));
            assert!(client.next().await.is_none());
        });
    });
    opened.recv_blocking().unwrap();
    assert_eq!(running.shutdown(GUARD).unwrap(), 0);
    client.join().unwrap();
}

#[test]
fn a_client_that_answers_no_close_is_aborted_with_the_grace_period() {
    let running = server().start(app()).unwrap();
    let addr = addr(&running);
    let client = wakeful::block_on(async {
        let mut client = connect(addr, "/ws").await;
        client.send(Message::text("x")).await.unwrap();
        client.next().await.unwrap().unwrap();
        client.into_inner().detach()
    });
    assert_eq!(running.shutdown(Duration::from_millis(100)).unwrap(), 1);
    drop(client);
}

#[test]
fn the_server_s_close_waits_for_the_client_s() {
    let running = server().start(app()).unwrap();
    wakeful::block_on(async {
        let mut client = connect(addr(&running), "/closing").await;
        assert_eq!(closed(&mut client).await, frame(CloseCode::Library(4000), "as agreed"));
        assert!(client.next().await.is_none());
        // The server closed the connection, and did not reset it.
        assert_eq!(client.get_mut().read(&mut [0; 1]).await.unwrap(), 0);
        match client.send(Message::text("x")).await.unwrap_err() {
            Error::AlreadyClosed | Error::ConnectionClosed | Error::Protocol(_) => {}
            other => panic!("{other:?}"),
        }
    });
    until("the connection is closed", || running.counts().open() == 0);
}

/// Writes in a task of its own, as fast as it can, beside the one that reads.
async fn flood(socket: WebSocket, ended: Sender<()>) {
    let (mut sink, mut stream) = socket.split();
    let writer = wakeful::spawn(async move {
        let message = Message::binary(vec![7; 1 << 16]);
        while SinkExt::send(&mut sink, message.clone()).await.is_ok() {}
    });
    while let Some(Ok(_)) = StreamExt::next(&mut stream).await {}
    writer.await.unwrap();
    ended.send(()).await.unwrap();
}

/// A server of [`flood`], and a receiver that gets a message when each one ends.
fn flooding() -> (Running, Receiver<()>) {
    let (ended, ends) = async_channel::unbounded();
    let open = async move |ws: WebSocketUpgrade| ws.on_upgrade(|socket| flood(socket, ended));
    (server().start(Router::new().route("/flood", any(open))).unwrap(), ends)
}

struct PanicsInItsDrop;

impl Drop for PanicsInItsDrop {
    fn drop(&mut self) {
        panic!("of a drop, on purpose")
    }
}

/// What uses a socket, and panics as it is polled and dropped.
struct PanicsTwice(PanicsInItsDrop);

impl Future for PanicsTwice {
    type Output = ();

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        let _ = &self.0;
        panic!("of a handler, on purpose")
    }
}

#[test]
fn what_is_to_use_a_socket_may_panic_as_do_its_drops() {
    let open = async |ws: WebSocketUpgrade| {
        let (used, unused) = (PanicsInItsDrop, PanicsInItsDrop);
        let failed = move |_| {
            let _unused = unused;
        };
        let callback = move |_| {
            // Not in the drop of what is called.
            std::mem::forget(used);
            PanicsTwice(PanicsInItsDrop)
        };
        ws.on_upgrade_or(callback, failed)
    };
    let running = server().start(app().route("/panics", any(open))).unwrap();
    wakeful::block_on(async {
        let mut client = connect(addr(&running), "/panics").await;
        let end = client.next().await;
        assert!(!matches!(end, Some(Ok(_))), "{end:?}");
        let mut client = connect(addr(&running), "/ws").await;
        client.send(Message::text("x")).await.unwrap();
        assert_eq!(client.next().await.unwrap().unwrap(), Message::text("x"));
    });
    assert_eq!(running.shutdown(GUARD).unwrap(), 0);
}

/// Pongs that nobody reads wait in memory, so a server that read all pings would grow with them.
#[test]
fn a_client_that_pings_and_reads_no_pongs_is_read_no_further() {
    const MOST: usize = 64 << 20;
    let running = server().start(app()).unwrap();
    wakeful::block_on(async {
        let mut client = connect(addr(&running), "/ws").await;
        client.send(Message::Ping(vec![7; 100].into())).await.unwrap();
        client.next().await.unwrap().unwrap();
        let stream = client.get_mut();
        let pings = [&[0x89, 0x80 | 100, 0, 0, 0, 0][..], &[7; 100]].concat().repeat(1000);
        let (mut taken, pause) = (0, Duration::from_millis(500));
        while taken < MOST
            && let Ok(written) =
                wakeful::time::timeout(pause, stream.write(&pings[taken % pings.len()..])).await
        {
            taken += written.unwrap();
        }
        assert!(taken < MOST, "{taken} bytes of pings were read");
        // A client that reads again is served again.
        let mut rest = pings[taken % pings.len()..].to_vec();
        rest.extend([0x81, 0x80 | 3, 0, 0, 0, 0, b'e', b'n', b'd']);
        let (mut pongs, mut piece) = (Vec::new(), vec![0; 1 << 16]);
        while !pongs.ends_with(b"\x81\x03end") {
            if !rest.is_empty()
                && let Ok(written) =
                    wakeful::time::timeout(Duration::ZERO, stream.write(&rest)).await
            {
                rest.drain(..written.unwrap());
            }
            let read = wakeful::time::timeout(GUARD, stream.read(&mut piece)).await;
            pongs.extend_from_slice(&piece[..read.unwrap().unwrap()]);
        }
    });
    assert_eq!(running.shutdown(GUARD).unwrap(), 0);
}

/// The socket's buffers are full, or what was sent has come.
async fn a_while() {
    wakeful::time::sleep(Duration::from_millis(200)).await;
}

#[test]
fn a_half_that_writes_is_not_forgotten_when_the_other_half_sends_the_close_of_a_drain() {
    let (running, ends) = flooding();
    let drain = wakeful::block_on(async {
        let mut client = connect(addr(&running), "/flood").await;
        a_while().await;
        let drain = std::thread::spawn(move || running.shutdown(GUARD).unwrap());
        a_while().await;
        while let Some(Ok(_)) = client.next().await {}
        drain
    });
    assert_eq!(drain.join().unwrap(), 0);
    ends.recv_blocking().unwrap();
}

#[test]
fn a_half_that_writes_is_not_forgotten_when_the_other_half_tells_of_a_mistake() {
    let (running, ends) = flooding();
    let has_ended = wakeful::block_on(async {
        let mut client = connect(addr(&running), "/flood").await;
        a_while().await;
        // A frame of a kind that there is not. What follows is read as well.
        for bytes in [&[0xff, 0x80, 0, 0, 0, 0][..], b"more", b"and more"] {
            client.get_mut().write_all(bytes).await.unwrap();
            a_while().await;
        }
        let close = loop {
            if let Message::Close(close) = client.next().await.unwrap().unwrap() {
                break close;
            }
        };
        assert_eq!(close.map(|close| close.code), Some(CloseCode::Protocol));
        drop(client);
        wakeful::time::timeout(GUARD, ends.recv()).await.is_ok()
    });
    assert_eq!(running.shutdown(GUARD).unwrap(), 0);
    assert!(has_ended);
}

#[test]
fn a_busy_client_of_a_handler_that_leaves_when_it_cannot_send_is_told_of_the_drain() {
    let running = server().start(app()).unwrap();
    let addr = addr(&running);
    let (open, opened) = async_channel::bounded(1);
    let client = std::thread::spawn(move || {
        wakeful::block_on(async {
            let client = connect(addr, "/ws").await;
            let (mut sink, mut stream) = client.split();
            // Never waits for an answer, as who sends events does.
            let writer = wakeful::spawn(async move {
                let message = Message::binary(vec![7; 10_000]);
                while SinkExt::send(&mut sink, message.clone()).await.is_ok() {}
            });
            let mut echoes = 0;
            let end = loop {
                match StreamExt::next(&mut stream).await {
                    Some(Ok(Message::Binary(_))) => echoes += 1,
                    other => break other,
                }
                if echoes == 100 {
                    open.send(()).await.unwrap();
                }
            };
            drop(writer);
            end
        })
    });
    opened.recv_blocking().unwrap();
    assert_eq!(running.shutdown(GUARD).unwrap(), 0);
    let end = client.join().unwrap().unwrap().unwrap();
    assert_eq!(end, Message::Close(Some(frame(CloseCode::Away, "the server is draining"))));
}
