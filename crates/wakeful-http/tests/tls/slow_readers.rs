//! Clients that read slowly, or nothing, while the last part of a response is in TLS: hyper has
//! written all of it, and the socket takes nothing more.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use axum::body::Body;
use axum::routing::get;
use futures_lite::{Stream, StreamExt, stream};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};
use socket2::{Domain, SockRef, Socket, Type};
use wakeful::LoopGroup;
use wakeful::accept::{SharedListener, WhenFull};
use wakeful_http::{GrpcCalls, Limits, MinRate, Refusal, Running, Server};

use crate::common::frames::{
    END_HEADERS, END_STREAM, HEADERS, SETTINGS, WINDOW_UPDATE, field, frame, head,
};
use crate::common::{GUARD, addr, router, until};
use crate::material::Site;
use crate::raw::{config, connect, rest};

const SHORT: Duration = Duration::from_millis(300);
const INITIAL_WINDOW: u16 = 4;
/// What is asked for as the size of a socket's buffer. The kernel takes twice as much.
const SMALL: usize = 8 * 1024;
/// More than the sockets of both sides hold, by less than what TLS holds.
const LAST: usize = 72 * 1024;
const GET_LAST: &[u8] = b"GET /last HTTP/1.1\r\nhost: x\r\n\r\n";

/// On one loop, with sockets that hold little.
fn start(site: &Site, limits: Limits) -> Running {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    SockRef::from(&listener).set_send_buffer_size(SMALL).unwrap();
    let listener = SharedListener::from_socket(listener.into()).unwrap();
    let app = router()
        .route("/last", get(|| async { vec![b'l'; LAST] }))
        .route("/begin", get(|| async { Body::from_stream(begins_and_waits()) }));
    let group = LoopGroup::builder().loops(1);
    let server = Server::from_listeners(vec![listener]).group(group).tls(site.tls());
    server.limits(limits).start(app).unwrap()
}

/// A first piece, and never another one.
fn begins_and_waits() -> impl Stream<Item = io::Result<Vec<u8>>> {
    stream::once(Ok(vec![b'b'; LAST])).chain(stream::pending())
}

/// A socket that is read as slowly as `pause` says.
struct Paced {
    stream: TcpStream,
    pause: Duration,
}

impl Read for Paced {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        thread::sleep(self.pause);
        let most = buf.len().min(1024);
        self.stream.read(&mut buf[..most])
    }
}

impl Write for Paced {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.stream.write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

type Client = StreamOwned<ClientConnection, Paced>;

/// A client whose socket holds little. It has made its handshake.
fn small(site: &Site, addr: SocketAddr) -> Client {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(SMALL).unwrap();
    socket.connect(&addr.into()).unwrap();
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(GUARD)).unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let session = ClientConnection::new(Arc::new(config(&site.ca())), name).unwrap();
    let mut client = StreamOwned::new(session, Paced { stream, pause: Duration::ZERO });
    while client.conn.is_handshaking() {
        client.conn.complete_io(&mut client.sock).unwrap();
    }
    client
}

/// Asks for a response, of which it has read nothing when the server's HTTP has written all.
fn asks_and_reads_nothing(site: &Site, running: &Running) -> Client {
    let before = running.http_counts().responses(2);
    let mut client = small(site, addr(running));
    client.write_all(GET_LAST).unwrap();
    let counts = running.http_counts();
    until("it is written", || counts.responses(2) > before && counts.in_flight() == 0);
    client
}

fn refused(running: &Running, refusal: Refusal) -> u64 {
    running.http_counts().refused(refusal)
}

/// The body of the response.
fn body(client: &mut Client) -> Vec<u8> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        client.read_exact(&mut byte).unwrap();
        head.extend(byte);
    }
    let mut body = vec![0; LAST];
    client.read_exact(&mut body).unwrap();
    body
}

#[test]
fn a_client_that_does_not_read_the_end_of_a_response_is_aborted() {
    let site = Site::new();
    let rate = MinRate::new(1000, SHORT);
    let running = start(&site, Limits::new().idle_timeout(SHORT).min_rate(rate));
    let stuck = asks_and_reads_nothing(&site, &running);
    until("it is aborted", || refused(&running, Refusal::SlowResponse) == 1);
    until("it is closed", || running.counts().open() == 0);
    assert_eq!(refused(&running, Refusal::IdleTimeout), 0);
    // Nor does it hold up a drain.
    let other = asks_and_reads_nothing(&site, &running);
    assert_eq!(running.shutdown(GUARD).unwrap(), 0);
    drop((stuck, other));
}

/// It takes longer than an idle connection may, and far longer than the minimum rate's window.
#[test]
fn who_reads_the_end_of_a_response_slowly_gets_it_all() {
    let site = Site::new();
    let rate = MinRate::new(1000, Duration::from_secs(1));
    let running = start(&site, Limits::new().idle_timeout(SHORT).min_rate(rate));
    let mut slow = asks_and_reads_nothing(&site, &running);
    slow.sock.pause = Duration::from_millis(50);
    let mut part = Read::by_ref(&mut slow).take(LAST as u64 / 3);
    let mut answer = Vec::new();
    part.read_to_end(&mut answer).unwrap();
    assert_eq!(refused(&running, Refusal::IdleTimeout), 0, "it was not idle");
    // The kernel has the rest of the response long before the client, so now it may be.
    slow.read_to_end(&mut answer).unwrap();
    assert!(answer.ends_with(&[b'l'; LAST]));
    assert_eq!(refused(&running, Refusal::SlowResponse), 0);
    assert_eq!(refused(&running, Refusal::IdleTimeout), 1);
}

#[test]
fn the_last_response_comes_whole_though_another_request_was_sent_before_it() {
    let site = Site::new();
    let running = start(&site, Limits::new().max_requests_per_connection(1));
    let mut client = asks_and_reads_nothing(&site, &running);
    client.write_all(GET_LAST).unwrap();
    // The kernel has the rest of the response long before the client.
    client.sock.pause = Duration::from_millis(5);
    assert_eq!(body(&mut client), [b'l'; LAST]);
    drop(client);
    until("it is closed", || running.counts().open() == 0);
}

#[test]
fn a_silent_connection_makes_room_before_one_whose_response_is_not_sent() {
    let site = Site::new();
    let never = 100 * GUARD;
    let limits = Limits::new()
        .max_connections(2)
        .when_full(WhenFull::Replace)
        .idle_timeout(never)
        .min_rate(None);
    let running = start(&site, limits);
    let mut unsent = asks_and_reads_nothing(&site, &running);
    let mut silent = TcpStream::connect(addr(&running)).unwrap();
    silent.set_read_timeout(Some(GUARD)).unwrap();
    until("both are open", || running.counts().open() == 2);
    // As long as it takes to be taken for silent.
    thread::sleep(Duration::from_millis(100));
    let mut newcomer = connect(addr(&running), config(&site.ca()));
    newcomer.write_all(crate::raw::CLOSING_GET).unwrap();
    assert!(rest(&mut newcomer).unwrap().ends_with("hello"));
    assert_eq!(silent.read(&mut [0]).unwrap(), 0, "it made room");
    assert_eq!(body(&mut unsent), [b'l'; LAST]);
}

/// The call itself is exempt, and its stream has all the room there is.
#[test]
fn an_http2_client_that_takes_nothing_is_aborted_though_h2_has_written_all() {
    let site = Site::new();
    let limits = Limits::new().min_rate(MinRate::new(1000, SHORT));
    let running = start(&site, limits.grpc_calls(GrpcCalls::Unlimited));
    let mut client = small(&site, addr(&running));
    let most = (1_u32 << 31) - 1;
    let window = [&INITIAL_WINDOW.to_be_bytes()[..], &most.to_be_bytes()].concat();
    let call = [head("GET", "/begin"), field("content-type", "application/grpc")].concat();
    let asked = [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
        frame(SETTINGS, 0, 0, &window),
        frame(WINDOW_UPDATE, 0, 0, &(most - 65_535).to_be_bytes()),
        frame(HEADERS, END_STREAM | END_HEADERS, 1, &call),
    ];
    client.write_all(&asked.concat()).unwrap();
    until("it is aborted", || refused(&running, Refusal::SlowResponse) == 1);
    until("it is closed", || running.counts().open() == 0);
    drop(client);
}
