//! HTTP/2 on either side, and gRPC through the proxy.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use wakeful::LoopGroup;
use wakeful::time::timeout;
use wakeful_http::Server;
use wakeful_http::client::{
    Client, ClientError, GrpcService, Host, HttpVersion, ResponseBody, Target,
};

use crate::common::*;

fn on_a_loop(test: impl Future<Output = ()>) {
    wakeful::block_on(timeout(GUARD, test)).expect("a hang is a failure");
}

fn host(addr: SocketAddr) -> Host<Full<Bytes>> {
    Client::new().host(&Target::from(addr).version(HttpVersion::Http2))
}

fn request(method: &str, path: &str, body: impl Into<Bytes>) -> Request<Full<Bytes>> {
    let request = Request::builder().method(method).uri(format!("http://example.org{path}"));
    request.body(Full::new(body.into())).unwrap()
}

async fn text(response: Result<Response<ResponseBody>, ClientError>) -> String {
    let body = response.unwrap().into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(body.to_vec()).unwrap()
}

#[test]
fn clients_of_http2_share_backends_of_http1() {
    let (_service, to) = service();
    let proxy = proxy(&[to], |settings| settings.connections(4));
    on_a_loop(async {
        let host = host(addr(&proxy));
        let requests =
            (0..100).map(|_| async { text(host.send(request("GET", "/", "")).await).await });
        for text in futures_util::future::join_all(requests).await {
            assert!(text.contains("wakeful serve http"));
        }
        let large = "x".repeat(1 << 20);
        assert!(text(host.send(request("POST", "/echo", large.clone())).await).await == large);
        assert_eq!(host.connections(), 1);
    });
    assert!(proxy.counts().connections_opened() <= 4);
    assert_eq!(proxy.counts().backends()[0].requests(), 101);
}

/// HTTP/2 has no upgrades.
#[test]
fn a_426_for_a_client_of_http2_names_no_protocol() {
    let backend = Backend::saying(
        "HTTP/1.1 426 Upgrade Required\r\nconnection: upgrade\r\nupgrade: websocket\r\ncontent-length: 0\r\n\r\n",
    );
    let proxy = proxy(&[backend.addr], |settings| settings);
    on_a_loop(async {
        let response = host(addr(&proxy)).send(request("GET", "/", "")).await.unwrap();
        assert_eq!(response.status(), 426);
        for name in ["upgrade", "connection"] {
            assert!(!response.headers().contains_key(name), "{name}");
        }
    });
}

#[test]
fn a_backend_of_http1_is_told_what_http2_said() {
    let backend = Backend::mirror();
    let proxy = proxy(&[backend.addr], |settings| settings);
    on_a_loop(async {
        let mut asked = request("GET", "/a?b", "");
        asked.headers_mut().append("cookie", "a=1".parse().unwrap());
        asked.headers_mut().append("cookie", "b=2".parse().unwrap());
        let seen = text(host(addr(&proxy)).send(asked).await).await.to_lowercase();
        assert!(seen.starts_with("get /a?b http/1.1\r\n"), "{seen}");
        for line in [
            "host: example.org",
            "cookie: a=1; b=2",
            "forwarded: for=127.0.0.1;host=example.org;proto=http",
        ] {
            assert!(seen.contains(&format!("\r\n{line}\r\n")), "{line}: {seen}");
        }
        assert!(seen.contains("\r\nvia: 2.0 wakeful-"), "{seen}");
    });
}

#[test]
fn backends_of_http2_share_a_connection_for_all_clients() {
    let (_service, to) = service();
    let proxy = proxy(&[to], |settings| settings.version(HttpVersion::Http2));
    for _ in 0..10 {
        assert!(get(addr(&proxy), "/").contains("wakeful serve http"));
    }
    let large = "x".repeat(1 << 20);
    let post = format!(
        "POST /echo HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n{:x}\r\n{large}\r\n0\r\n\r\n",
        large.len()
    );
    assert_eq!(
        ask(addr(&proxy), &post).matches('x').count(),
        large.len() + "transfer-encoding: chunked".matches('x').count()
    );
    assert_eq!(proxy.counts().connections_opened(), 1);
}

#[test]
fn grpc_goes_through_with_its_trailers_and_streams() {
    let (reporter, health) = tonic_health::server::health_reporter();
    let server = Server::bind("127.0.0.1:0").unwrap().group(LoopGroup::builder().loops(1));
    let server = server.start(health).unwrap();
    let proxy = proxy(&[tcp(&server.local_addrs()[0])], |s| s.version(HttpVersion::Http2));
    on_a_loop(async {
        reporter.set_service_status("known", tonic_health::ServingStatus::Serving).await;
        let client = Client::<tonic::body::Body>::new();
        let target = Target::from(addr(&proxy)).version(HttpVersion::Http2);
        let mut client = HealthClient::new(GrpcService::new(client.host(&target)));
        let asked = HealthCheckRequest { service: "known".to_owned() };
        let status = client.check(asked.clone()).await.unwrap().into_inner();
        assert_eq!(status.status(), ServingStatus::Serving);
        let unknown = HealthCheckRequest { service: "unknown".to_owned() };
        assert_eq!(client.check(unknown).await.unwrap_err().code(), tonic::Code::NotFound);
        let mut watch = client.watch(asked).await.unwrap().into_inner();
        assert_eq!(watch.message().await.unwrap().unwrap().status(), ServingStatus::Serving);
        reporter.set_service_status("known", tonic_health::ServingStatus::NotServing).await;
        assert_eq!(watch.message().await.unwrap().unwrap().status(), ServingStatus::NotServing);
    });
    until("nothing is under way", || proxy.counts().backends()[0].in_flight() == 0);
}

/// A frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(payload.len()).unwrap();
    [&[0, 0, length, kind, flags, 0, 0, 0, stream], payload].concat()
}

/// Reads frames up to one of headers, and returns what these begin with.
fn first_of_headers(stream: &mut TcpStream) -> u8 {
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).unwrap();
        let mut payload = vec![0; usize::from(head[1]) << 8 | usize::from(head[2])];
        stream.read_exact(&mut payload).unwrap();
        if head[3] == 1 {
            return payload[0];
        }
    }
}

/// As nginx does, which ends a connection after a number of requests.
#[test]
fn a_call_of_grpc_that_has_come_whole_is_sent_again_if_a_goaway_leaves_it_out() {
    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let settings = frame(4, 0, 0, b"");
    let backend = Backend::start({
        let settings = settings.clone();
        move |this, stream| {
            let is_first = this.connections() == 1;
            stream.read_exact(&mut [0; PREFACE.len()]).unwrap();
            stream.write_all(&settings).unwrap();
            first_of_headers(stream);
            // The last stream is 0; or :status 204, which ends its stream.
            let goaway = frame(7, 0, 0, &[0; 8]);
            let answer = frame(1, 5, 1, &[0x89]);
            stream.write_all(if is_first { &goaway } else { &answer }).unwrap();
            let _ = stream.read_to_end(&mut Vec::new());
        }
    });
    let proxy = proxy(&[backend.addr], |settings| settings.version(HttpVersion::Http2));
    let mut client = TcpStream::connect(addr(&proxy)).unwrap();
    client.set_read_timeout(Some(GUARD)).unwrap();
    // POST, http, /, and by name :authority and content-type.
    let headers = b"\x83\x86\x84\x41\x01x\x5f\x10application/grpc";
    let call = [frame(1, 4, 1, headers), frame(0, 1, 1, b"\0\0\0\0\0")].concat();
    client.write_all(&[PREFACE, &settings, &call].concat()).unwrap();
    assert_eq!(first_of_headers(&mut client), 0x89, "what the second connection was answered");
    assert_eq!(backend.connections(), 2);
}
