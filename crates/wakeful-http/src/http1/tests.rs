//! Tests when a connection leaves that is always wanted on another loop; and how one ends whose io
//! cannot be shut down.

use std::convert::Infallible;
use std::io;
use std::task::Context;
use std::time::Duration;

use axum::body::Body as AxumBody;
use futures_lite::AsyncWriteExt;
use http::{StatusCode, header};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Buf, Bytes};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::service::service_fn;
use wakeful::JoinHandle;
use wakeful::net::{Stream, TcpStream, UnixStream};
use wakeful::task::yield_now;
use wakeful::time::timeout;

use crate::connection::{MovableState, Protocol};
use crate::counts::Refusal;
use crate::drain::Readiness;
use crate::limits::MinRate;
use crate::loop_state::{LoopState, ServerState};
use crate::observe::Observe;
use crate::peer::Peer;

use super::*;

/// More bytes than the socket takes at once.
const LARGE: usize = 4 << 20;

fn state(limits: Limits) -> Rc<ConnectionState> {
    let server = ServerState::new(limits, 1, Readiness::new());
    let loop_state = LoopState::of_next_loop(&server, &Observe::new());
    let (movable, peer) = (MovableState::new(None, None), Peer::new(PeerAddr::Unix));
    ConnectionState::new(loop_state, Protocol::Http1, movable, peer)
}

async fn leave<S, B>(
    stream: Stream,
    unread: &[u8],
    service: S,
) -> End<Rewound, ConnectionService<S>>
where
    S: Service<Request<RequestBody>, Response = Response<B>, Error = Infallible> + 'static,
    B: Body + 'static,
    B::Error: Into<BoxError>,
{
    let io = Rewound { start: Bytes::copy_from_slice(unread), stream };
    let state = state(Limits::default());
    let service = ConnectionService::new(service, state.clone());
    run(io, service, &state, &Draining::default(), || true).await.unwrap()
}

/// Serves a connection, and returns whether it left, when it has ended.
fn leaves<S, B>(stream: UnixStream, service: S) -> JoinHandle<bool>
where
    S: Service<Request<RequestBody>, Response = Response<B>, Error = Infallible> + 'static,
    B: Body + 'static,
    B::Error: Into<BoxError>,
{
    wakeful::spawn(async move {
        matches!(leave(stream.into(), b"", service).await, End::BetweenRequests { .. })
    })
}

async fn say_path(request: Request<RequestBody>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::new(Full::new(request.uri().path().to_owned().into())))
}

async fn read_until(stream: &mut UnixStream, end: &str) -> String {
    let (mut text, mut buf) = (Vec::new(), [0; 1024]);
    while !text.ends_with(end.as_bytes()) {
        let read = stream.read(&mut buf).await.unwrap();
        assert!(read > 0, "closed behind {:?}", String::from_utf8_lossy(&text));
        text.extend_from_slice(&buf[..read]);
    }
    String::from_utf8(text).unwrap()
}

/// Time enough to leave.
async fn turns() {
    for _ in 0..50 {
        yield_now().await;
    }
}

#[test]
fn between_two_requests_it_leaves_with_what_has_come_of_the_next_one() {
    wakeful::block_on(async {
        let (mut client, server) = UnixStream::pair().unwrap();
        let requests =
            "GET /a HTTP/1.1\r\nhost: x\r\n\r\nGET /b HTTP/1.1\r\nhost: x\r\n\r\nGET /c HT";
        client.write_all(requests.as_bytes()).await.unwrap();
        let End::BetweenRequests { io: Rewound { stream, .. }, unread, .. } =
            leave(server.into(), b"", service_fn(say_path)).await
        else {
            panic!("it closed")
        };
        assert_eq!(unread, b"GET /c HT");
        let answers = read_until(&mut client, "/b").await;
        assert_eq!(answers.matches("HTTP/1.1 200").count(), 2, "{answers}");
        assert!(answers.contains("/a"), "{answers}");
        client.write_all(b"TP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        let End::BetweenRequests { unread, .. } =
            leave(stream, &unread, service_fn(say_path)).await
        else {
            panic!("it closed")
        };
        assert!(unread.is_empty());
        let answer = read_until(&mut client, "/c").await;
        assert!(!answer.contains("connection: close"), "{answer}");
    });
}

#[test]
fn before_its_first_request_it_stays() {
    wakeful::block_on(async {
        let (mut client, server) = UnixStream::pair().unwrap();
        let leaves = leaves(server, service_fn(say_path));
        client.write_all(b"GET /first HT").await.unwrap();
        turns().await;
        client.write_all(b"TP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        let answer = read_until(&mut client, "/first").await;
        assert!(!answer.contains("connection: close"), "{answer}");
        assert!(leaves.await.unwrap());
    });
}

#[test]
fn a_response_is_taken_to_its_end() {
    wakeful::block_on(async {
        let (mut client, server) = UnixStream::pair().unwrap();
        let (pieces, body) = async_channel::unbounded::<Result<Bytes, Infallible>>();
        let (answer, may_answer) = async_channel::bounded::<()>(1);
        let service = service_fn(move |_| {
            let (body, may_answer) = (body.clone(), may_answer.clone());
            async move {
                may_answer.recv().await.unwrap();
                Ok(Response::new(AxumBody::from_stream(body)))
            }
        });
        let leaves = leaves(server, service);
        client.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        turns().await;
        assert!(!leaves.is_finished(), "the service works");
        answer.send(()).await.unwrap();
        let head = read_until(&mut client, "\r\n\r\n").await;
        assert!(!head.contains("connection: close"), "{head}");
        for piece in ["one", "two"] {
            pieces.send(Ok(piece.into())).await.unwrap();
            read_until(&mut client, &format!("{piece}\r\n")).await;
            turns().await;
            assert!(!leaves.is_finished(), "the body has not ended");
        }
        pieces.close();
        read_until(&mut client, "0\r\n\r\n").await;
        assert!(leaves.await.unwrap());
    });
}

/// The response comes before the whole request body. So the rest of the body could be taken for a
/// request. And when the body has come, the request is over, but a large response is still being
/// written.
#[test]
fn a_request_is_taken_to_its_end_too_and_a_response_that_nobody_reads() {
    for size in [3, LARGE] {
        wakeful::block_on(async {
            let (mut client, server) = UnixStream::pair().unwrap();
            let service = service_fn(move |request: Request<RequestBody>| {
                wakeful::spawn(request.into_body().collect()).detach();
                async move { Ok(Response::new(Full::new(Bytes::from(vec![b'w'; size])))) }
            });
            let leaves = leaves(server, service);
            let request = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n1";
            client.write_all(request).await.unwrap();
            let head = read_until_header_ends(&mut client).await;
            assert!(!head.contains("connection: close"), "{head}");
            turns().await;
            assert!(!leaves.is_finished(), "{size}: half of the request's body has come");
            client.write_all(b"2").await.unwrap();
            if size == LARGE {
                turns().await;
                assert!(!leaves.is_finished(), "the response is not written");
            }
            read_exactly(&mut client, size).await;
            turns().await;
            // hyper drops that body with the next request. So the connection leaves after that
            // request or the following one.
            while !leaves.is_finished() {
                client.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
                let head = read_until_header_ends(&mut client).await;
                assert!(!head.contains("connection: close"), "{head}");
                read_exactly(&mut client, size).await;
                turns().await;
            }
            assert!(leaves.await.unwrap());
        });
    }
}

async fn read_exactly(stream: &mut UnixStream, size: usize) {
    let (mut read, mut buf) = (0, vec![0; 64 * 1024]);
    while read < size {
        let most = buf.len().min(size - read);
        let count = stream.read(&mut buf[..most]).await.unwrap();
        assert!(count > 0 && buf[..count].iter().all(|byte| *byte == b'w'));
        read += count;
    }
}

/// Reads byte by byte, so that nothing of the body is read.
async fn read_until_header_ends(stream: &mut UnixStream) -> String {
    let mut text = Vec::new();
    while !text.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        assert_eq!(stream.read(&mut byte).await.unwrap(), 1);
        text.extend_from_slice(&byte);
    }
    String::from_utf8(text).unwrap()
}

#[test]
fn a_connection_that_closes_or_is_upgraded_never_leaves() {
    let upgrade = "connection: upgrade\r\nupgrade: websocket\r\n";
    for (request, status) in [
        ("GET / HTTP/1.0\r\n\r\n".to_owned(), "200"),
        ("GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n".to_owned(), "200"),
        (format!("GET / HTTP/1.1\r\nhost: x\r\n{upgrade}\r\nframes"), "101"),
    ] {
        wakeful::block_on(async {
            let (mut client, server) = UnixStream::pair().unwrap();
            let service = service_fn(|mut request: Request<RequestBody>| async move {
                turns().await;
                let mut response = Response::new(Full::new(Bytes::new()));
                if let Some(protocol) = request.headers().get(header::UPGRADE).cloned() {
                    // The upgrade is taken, and closed at once.
                    wakeful::spawn(crate::upgrade::on(&mut request)).detach();
                    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
                    response.headers_mut().insert(header::UPGRADE, protocol);
                }
                Ok(response)
            });
            let leaves = leaves(server, service);
            client.write_all(request.as_bytes()).await.unwrap();
            let answer = read_until_header_ends(&mut client).await;
            assert_eq!(answer.split(' ').nth(1), Some(status), "{answer}");
            assert!(!leaves.await.unwrap(), "{request}");
        });
    }
}

/// Its data has several chunks, and shows only the first one to vectored writes.
struct Chunks(Vec<Bytes>);

impl Buf for Chunks {
    fn remaining(&self) -> usize {
        self.0.iter().map(Bytes::len).sum()
    }

    fn chunk(&self) -> &[u8] {
        self.0.first().map_or(&[], |first| first)
    }

    fn advance(&mut self, mut count: usize) {
        while count > 0 {
            let taken = count.min(self.0[0].len());
            self.0[0].advance(taken);
            count -= taken;
            if self.0[0].is_empty() {
                self.0.remove(0);
            }
        }
    }
}

#[test]
fn data_with_several_chunks_is_written_in_order() {
    wakeful::block_on(async {
        let (mut client, server) = UnixStream::pair().unwrap();
        let service = service_fn(async |_: Request<RequestBody>| {
            let pieces = (0..10).map(|n| {
                let chunk = |half| Bytes::from(format!("{half} of {n}, "));
                Ok::<_, Infallible>(Frame::data(Chunks(vec![chunk("one half"), chunk("another")])))
            });
            Ok(Response::new(StreamBody::new(futures_lite::stream::iter(pieces))))
        });
        let leaves = leaves(server, service);
        client.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        let answer = read_until(&mut client, "0\r\n\r\n").await;
        let expected: String = (0..10)
            .map(|n| {
                let text = format!("one half of {n}, another of {n}, ");
                format!("{:X}\r\n{text}\r\n", text.len())
            })
            .collect();
        assert!(answer.ends_with(&format!("\r\n\r\n{expected}0\r\n\r\n")), "{answer}");
        assert!(leaves.await.unwrap());
    });
}

/// The socket has no room for the response's header, and the request's body is not read. So hyper
/// ends before it has written that header.
#[test]
fn an_upgrade_waits_until_its_response_is_written() {
    wakeful::block_on(async {
        let (mut client, server) = UnixStream::pair().unwrap();
        let service = service_fn(async |mut request: Request<RequestBody>| {
            let upgrading = crate::upgrade::on(&mut request);
            wakeful::spawn(async move {
                let mut upgraded = upgrading.await.unwrap();
                upgraded.write_all(b"upgraded").await.unwrap();
            })
            .detach();
            let response = Response::builder().status(StatusCode::SWITCHING_PROTOCOLS);
            Ok::<_, Infallible>(response.body(Full::new(Bytes::new())).unwrap())
        });
        let mut filled = 0;
        while let Ok(count) = server.try_write(&[b'w'; 1000]) {
            filled += count;
        }
        let leaves = leaves(server, service);
        let request = "POST / HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: echo\r\n\
            content-length: 1000\r\n\r\n";
        client.write_all(request.as_bytes()).await.unwrap();
        turns().await;
        read_exactly(&mut client, filled).await;
        let answer = read_until_header_ends(&mut client).await;
        assert!(answer.starts_with("HTTP/1.1 101"), "{answer}");
        read_until(&mut client, "upgraded").await;
        assert!(!leaves.await.unwrap());
    });
}

/// As TLS where the socket has taken all but the last message.
struct NeverShut(Stream);

impl Read for NeverShut {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Read::poll_read(Pin::new(&mut self.0), cx, buf)
    }
}

impl Write for NeverShut {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Write::poll_write(Pin::new(&mut self.0), cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Write::poll_flush(Pin::new(&mut self.0), cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Pending
    }
}

impl Io for NeverShut {}

impl Liveness for NeverShut {
    fn resets_at_close(&self) {}

    fn is_gone(&self) -> bool {
        self.0.is_gone()
    }

    fn unsent(&self) -> usize {
        1
    }

    fn at_risk(&self) -> usize {
        1
    }

    fn plain_tcp(&self) -> Option<&TcpStream> {
        None
    }
}

#[test]
fn a_client_that_does_not_take_the_last_message_is_aborted() {
    let window = Duration::from_millis(50);
    let state = state(Limits::new().min_rate(MinRate::new(1000, window)));
    wakeful::block_on(async {
        let (mut client, server) = UnixStream::pair().unwrap();
        let request = "GET /last HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
        client.write_all(request.as_bytes()).await.unwrap();
        let service = ConnectionService::new(service_fn(say_path), state.clone());
        let draining = Draining::default();
        let served = serve_here(NeverShut(server.into()), service, &state, &draining);
        timeout(Duration::from_secs(20), served).await.expect("it ends").unwrap();
        read_until(&mut client, "/last").await;
    });
    assert_eq!(state.loop_state().counts().refused(Refusal::SlowResponse), 1);
}

#[test]
fn a_request_after_a_move_has_its_time_from_its_first_byte_on() {
    let server = ServerState::new(Limits::default(), 1, Readiness::new());
    let loop_state = LoopState::of_next_loop(&server, &Observe::new());
    let before = MovableState::new(None, None);
    before.one_more();
    let movable = MovableState::unpack(before.pack());
    let arrived = movable.arrived();
    // It is idle on this loop until its next request begins to come.
    while wakeful::time::now() <= arrived {
        std::thread::yield_now();
    }
    let peer = Peer::new(PeerAddr::Unix);
    let state = ConnectionState::new(loop_state, Protocol::Http1, movable, peer);
    assert!(state.silent_since().is_some_and(|since| since > arrived));
}
