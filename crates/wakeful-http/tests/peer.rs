//! Handlers learn who sent their requests.

mod common;

use std::future::{Ready, ready};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::task::{Context, Poll};

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::{Request, StatusCode};
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use axum::routing::get;
use common::{GUARD, Gate, addr, raw, read_all, request, server};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http2;
use tower::{Service, ServiceExt};
use wakeful::LoopGroup;
use wakeful::io::LoopExecutor;
use wakeful::net::{PeerAddr, TcpStream};
use wakeful::time::timeout;
use wakeful_http::tls::PeerCertificates;
use wakeful_http::{Peer, Running, Security, Server};

fn on_a_loop<T>(test: impl Future<Output = T>) -> T {
    wakeful::block_on(timeout(GUARD, test)).expect("a hang is a failure")
}

fn text(peer: Option<Peer>) -> String {
    peer.map_or("nobody".to_owned(), |peer| peer.addr.to_string())
}

const GET: &[u8] = b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";

/// The body of the answer on a new connection, and the connection's own address.
fn ask(running: &Running) -> (String, SocketAddr) {
    let mut stream = raw(running);
    let own = stream.local_addr().unwrap();
    stream.write_all(GET).unwrap();
    let answer = read_all(stream);
    (answer.rsplit("\r\n\r\n").next().unwrap().to_owned(), own)
}

/// A client of HTTP/2, and its own address.
async fn client(running: &Running) -> (http2::SendRequest<Full<Bytes>>, SocketAddr) {
    let stream = TcpStream::connect(addr(running)).await.unwrap();
    let own = stream.local_addr().unwrap();
    let (sender, connection) = http2::handshake(LoopExecutor, stream).await.unwrap();
    wakeful::spawn(connection).detach();
    (sender, own)
}

#[test]
fn a_handler_takes_its_peer_as_an_argument_on_any_server() {
    let who = |peer: Peer| async move {
        assert_eq!((peer.security, peer.alpn), (Security::Plain, None));
        peer.socket_addr().unwrap().to_string()
    };
    let running = server().start(Router::new().route("/", get(who))).unwrap();
    let (answer, own) = ask(&running);
    assert_eq!(answer, own.to_string());
    on_a_loop(async {
        let (mut client, own) = client(&running).await;
        let answer = client.send_request(request("GET", "/", "")).await.unwrap();
        assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), own.to_string());
    });
}

#[test]
fn handlers_that_wait_beside_each_other_each_have_their_own_peer() {
    // One loop, so that they are polled by turns on one thread.
    let (gate, app) = Gate::on(Router::new());
    async fn before_and_after(request: Request<Body>, next: Next) -> Response {
        let before = text(Peer::current());
        let response = next.run(request).await;
        response.map(|_| Body::from(format!("{before} {}", text(Peer::current()))))
    }
    let one = Server::bind("127.0.0.1:0").unwrap().group(LoopGroup::builder().loops(1));
    let running = one.start(app.layer(from_fn(before_and_after))).unwrap();
    on_a_loop(async {
        let (mut first, own_first) = client(&running).await;
        let (mut second, own_second) = client(&running).await;
        let mut third = first.clone();
        let asked: Vec<_> = [&mut first, &mut second, &mut third]
            .map(|client| wakeful::spawn(client.send_request(request("GET", "/gated", ""))))
            .into();
        for _ in 0..asked.len() {
            gate.one_entered().await;
        }
        gate.open();
        for (asked, own) in asked.into_iter().zip([own_first, own_second, own_first]) {
            let answer = asked.await.unwrap().unwrap();
            let body = answer.into_body().collect().await.unwrap().to_bytes();
            assert_eq!(body, format!("{own} {own}"));
        }
    });
}

#[test]
fn a_task_of_its_own_has_no_peer() {
    let spawns = || {
        wakeful::on_this_loop(async {
            let in_task = wakeful::spawn(async { Peer::current() }).await.unwrap();
            format!("{}, {}", text(in_task), Peer::current().is_some())
        })
    };
    let running = server().start(Router::new().route("/", get(spawns))).unwrap();
    assert_eq!(ask(&running).0, "nobody, true");
    assert_eq!(Peer::current(), None);
}

#[test]
fn an_extension_says_who_it_is_and_without_a_server_it_is_500() {
    let app: Router = Router::new()
        .route("/", get(|peer: Peer| async move { text(Some(peer)) }))
        .route("/certificate", get(|_: PeerCertificates| async { "one" }));
    let ask = |path: &str, peer: Option<Peer>| {
        let mut request = Request::get(path).body(Body::empty()).unwrap();
        if let Some(peer) = peer {
            request.extensions_mut().insert(peer);
        }
        let app = app.clone();
        on_a_loop(async {
            let answer = app.oneshot(request).await.unwrap();
            let status = answer.status();
            let body = answer.into_body().collect().await.unwrap().to_bytes();
            (status, String::from_utf8(body.to_vec()).unwrap())
        })
    };
    let other = Peer::new(PeerAddr::Tcp("192.0.2.1:80".parse().unwrap()));
    assert_eq!(ask("/", Some(other)), (StatusCode::OK, "192.0.2.1:80".to_owned()));
    let (status, body) = ask("/", None);
    assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
    assert!(body.starts_with("the request has no peer"), "{body}");
    assert_eq!(ask("/certificate", None).0, StatusCode::FORBIDDEN);
}

#[test]
fn connect_info_is_the_peer_s_address() {
    let who = |ConnectInfo(addr): ConnectInfo<SocketAddr>| async move { addr.to_string() };
    let app = Router::new().route("/", get(who));
    let running =
        server().start_make_service(app.into_make_service_with_connect_info::<SocketAddr>());
    let running = running.unwrap();
    let (answer, own) = ask(&running);
    assert_eq!(answer, own.to_string());
    let app = Router::new().route("/", get(|| async { "hello" }));
    let running = server().start_make_service(app.into_make_service()).unwrap();
    assert_eq!(ask(&running).0, "hello");
}

#[test]
fn a_server_of_a_unix_socket_makes_no_service_of_an_address() {
    let directory = tempfile::tempdir().unwrap();
    let path = format!("unix:{}", directory.path().join("socket").display());
    let app: Router = Router::new();
    let error = server()
        .also_bind(path.as_str())
        .unwrap()
        .start_make_service(app.into_make_service_with_connect_info::<SocketAddr>())
        .expect_err("its clients have no address");
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
}

/// Makes no service for the first connection.
#[derive(Clone, Default)]
struct Sulky(std::sync::Arc<std::sync::atomic::AtomicUsize>);

impl Service<SocketAddr> for Sulky {
    type Response = Router;
    type Error = io::Error;
    type Future = Ready<Result<Router, io::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: SocketAddr) -> Self::Future {
        ready(match self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
            0 => Err(io::Error::other("not this one")),
            _ => Ok(Router::new().route("/", get(|| async { "hello" }))),
        })
    }
}

#[test]
fn a_connection_without_a_service_is_closed_and_the_next_one_is_served() {
    let running = server().start_make_service(Sulky::default()).unwrap();
    assert_eq!(ask(&running).0, "");
    assert_eq!(ask(&running).0, "hello");
}
