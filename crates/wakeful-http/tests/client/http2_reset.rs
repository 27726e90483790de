//! HTTP/2 servers that answer, and reset the connection before the client has read the answers. The
//! frames are written by hand.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use futures_lite::future::poll_once;
use socket2::SockRef;
use wakeful_http::client::Target;

use super::stream_limit::requests;
use super::*;

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// Two of these are more than a client reads before it writes, and less than the kernel takes for
/// it.
const LARGE: usize = 45_000;

fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let [.., a, b, c] = payload.len().to_be_bytes();
    let mut frame = vec![a, b, c, kind, flags, 0, 0, 0, stream];
    frame.extend_from_slice(payload);
    frame
}

/// A response without its end, or with it.
fn response(stream: u8, size: usize, end: u8) -> Vec<u8> {
    let body = vec![b'x'; size];
    // `:status: 200` of the static table.
    let mut frames = frame(1, END_HEADERS, stream, &[0x88]);
    let pieces = body.chunks(16_000).collect::<Vec<_>>();
    for (number, piece) in pieces.iter().enumerate() {
        let is_last = number + 1 == pieces.len();
        frames.extend(frame(0, if is_last { end } else { 0 }, stream, piece));
    }
    frames
}

fn ping() -> Vec<u8> {
    frame(6, 0, 0, &[0; 8])
}

/// A server on a thread.
struct Server {
    addr: SocketAddr,
    /// Is told when the first connection's requests have come.
    asked: async_channel::Receiver<()>,
    go: mpsc::Sender<()>,
    has_reset: mpsc::Receiver<()>,
}

impl Server {
    /// On its first connection it waits for that many requests, and then for
    /// [`answer_and_reset`](Self::answer_and_reset). On every other connection it answers each
    /// request.
    fn start(streams: usize, answers: Vec<u8>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let (ask, asked) = async_channel::unbounded();
        let (go, may_go) = mpsc::channel();
        let (reset, has_reset) = mpsc::channel();
        thread::spawn(move || {
            let mut stream = listener.accept().unwrap().0;
            read_requests(&mut stream, streams);
            ask.send_blocking(()).unwrap();
            may_go.recv().unwrap();
            stream.write_all(&answers).unwrap();
            while is_unacknowledged(&stream) {
                thread::sleep(Duration::from_millis(1));
            }
            SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
            drop(stream);
            reset.send(()).unwrap();
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                thread::spawn(move || {
                    read_requests(&mut stream, 1);
                    stream.write_all(&response(1, 3, END_STREAM)).unwrap();
                    while !matches!(stream.read(&mut [0; 4096]), Ok(0) | Err(_)) {}
                });
            }
        });
        Self { addr, asked, go, has_reset }
    }

    /// When the requests have come, blocks the loop until the client's kernel has the answers and
    /// the reset.
    async fn answer_and_reset(&self) {
        self.asked.recv().await.unwrap();
        self.go.send(()).unwrap();
        self.has_reset.recv().unwrap();
    }
}

fn read_requests(stream: &mut std::net::TcpStream, streams: usize) {
    stream.write_all(&frame(4, 0, 0, &[])).unwrap();
    let (mut bytes, mut buf) = (Vec::new(), [0; 4096]);
    while requests(&bytes) < streams {
        let read = stream.read(&mut buf).unwrap();
        assert!(read > 0);
        bytes.extend_from_slice(&buf[..read]);
    }
}

/// Has the other side's kernel not yet got all that was written?
fn is_unacknowledged(stream: &std::net::TcpStream) -> bool {
    let hex = |addr: SocketAddr| format!(":{:04X}", addr.port());
    let (local, peer) = (hex(stream.local_addr().unwrap()), hex(stream.peer_addr().unwrap()));
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let mut lines = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let line = lines.find(|fields| fields[1].ends_with(&local) && fields[2].ends_with(&peer));
    !line.expect("the connection is there")[4].starts_with("00000000:")
}

type PiecesClient = wakeful_http::client::Client<Pieces>;

fn pieces_client(addr: SocketAddr) -> (PiecesClient, Host<Pieces>) {
    let client = Client::builder().max_connections(1).build::<Pieces>();
    let host = client.host(&Target::from(addr).version(HttpVersion::Http2));
    (client, host)
}

/// A request with a body of these pieces.
fn of_pieces(method: &str, body: Pieces) -> Request<Pieces> {
    Request::builder().method(method).uri("/").body(body).unwrap()
}

fn without_body(method: &str) -> Request<Pieces> {
    of_pieces(method, StreamBody::new(futures_util::stream::empty().boxed_local()))
}

async fn length(response: Result<Response<ResponseBody>, ClientError>) -> usize {
    response.unwrap().into_body().collect().await.unwrap().to_bytes().len()
}

/// The client answers the ping before it has read all responses.
#[test]
fn whole_responses_that_came_before_a_reset_are_read() {
    on_a_loop(async {
        let responses = [1, 3].map(|stream| response(stream, LARGE, END_STREAM)).concat();
        let server = Server::start(2, [ping(), responses].concat());
        let (client, host) = http2(Client::builder().max_connections(1), server.addr);
        let sent = ["GET", "POST"].map(|method| {
            let host = host.clone();
            wakeful::spawn(async move { length(host.send(request(method, "/", "")).await).await })
        });
        server.answer_and_reset().await;
        for sent in sent {
            assert_eq!(sent.await.unwrap(), LARGE);
        }
        until(|| host.connections() == 0).await;
        assert_eq!((client.counts().opened(), client.counts().retried()), (1, 0));
    });
}

/// The client writes a piece of a request's body before it has read the responses. The next request
/// is sent before it has read them all.
#[test]
fn a_connection_that_was_reset_gets_no_more_requests_while_its_responses_are_read() {
    on_a_loop(async {
        let responses = [1, 3].map(|stream| response(stream, LARGE, END_STREAM)).concat();
        let server = Server::start(2, responses);
        let (client, host) = pieces_client(server.addr);
        let (sender, body) = pieces();
        let sent = [without_body("GET"), of_pieces("POST", body)].map(|request| {
            let host = host.clone();
            wakeful::spawn(async move { length(host.send(request).await).await })
        });
        server.answer_and_reset().await;
        // It is dropped when it is written, or discarded.
        let held = Arc::new(());
        struct Piece(#[allow(dead_code)] Arc<()>);
        impl AsRef<[u8]> for Piece {
            fn as_ref(&self) -> &[u8] {
                &[0; 1 << 14]
            }
        }
        sender.send(Bytes::from_owner(Piece(held.clone()))).await.unwrap();
        drop(sender);
        until(|| Arc::strong_count(&held) == 1).await;
        let mut next = Box::pin(host.send(without_body("POST")));
        assert!(poll_once(&mut next).await.is_none());
        for sent in sent {
            assert_eq!(sent.await.unwrap(), LARGE);
        }
        assert_eq!(length(next.await).await, 3);
        assert_eq!((client.counts().opened(), client.counts().retried()), (2, 0));
    });
}

/// The server does not want the rest of the request, and says so (RFC 9113, 8.1).
#[test]
fn a_whole_response_to_a_request_that_goes_on_is_read_before_a_reset() {
    on_a_loop(async {
        let responses = [1, 3].map(|stream| response(stream, LARGE, END_STREAM)).concat();
        let no_error = [3, 1].map(|stream| frame(3, 0, stream, &[0; 4])).concat();
        let server = Server::start(2, [ping(), responses, no_error].concat());
        let (client, host) = pieces_client(server.addr);
        let (senders, bodies): (Vec<_>, Vec<_>) = [pieces(), pieces()].into_iter().unzip();
        let sent = bodies.into_iter().map(|body| {
            let host = host.clone();
            wakeful::spawn(async move { length(host.send(of_pieces("POST", body)).await).await })
        });
        let sent = sent.collect::<Vec<_>>();
        server.answer_and_reset().await;
        for sent in sent {
            assert_eq!(sent.await.unwrap(), LARGE);
        }
        assert_eq!(client.counts().opened(), 1);
        drop(senders);
    });
}

#[test]
fn what_a_reset_cuts_off_is_an_error_or_is_sent_again() {
    on_a_loop(async {
        for method in ["GET", "POST"] {
            let half = response(1, LARGE, 0);
            let whole = response(3, LARGE, END_STREAM);
            let server = Server::start(3, [ping(), half, whole].concat());
            let (client, host) = http2(Client::builder().max_connections(1), server.addr);
            let sent = [(); 3].map(|()| {
                let host = host.clone();
                wakeful::spawn(async move {
                    let body = host.send(request(method, "/", "")).await?.into_body();
                    Ok(body.collect().await?.to_bytes().len())
                })
            });
            server.answer_and_reset().await;
            let [half, whole, none] = sent;
            let error = half.await.unwrap().unwrap_err();
            assert!(matches!(error, ClientError::Body { .. }), "{error}");
            assert_eq!(whole.await.unwrap().unwrap(), LARGE);
            let none = none.await.unwrap();
            if method == "GET" {
                assert_eq!(none.unwrap(), 3);
            } else {
                let error = none.unwrap_err();
                assert!(matches!(error, ClientError::Exchange { .. }), "{error}");
            }
            let connections = if method == "GET" { 2 } else { 1 };
            assert_eq!(client.counts().opened(), connections);
        }
    });
}
