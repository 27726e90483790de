//! HTTP/2 on either side, and gRPC through the proxy.

use std::net::SocketAddr;

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
    let proxy = proxy(&[to], |settings| settings.connections = 4);
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
    assert_eq!(proxy.counts().requests(0), 101);
}

#[test]
fn a_backend_of_http1_is_told_what_http2_said() {
    let backend = Backend::mirror();
    let proxy = proxy(&[backend.addr], |_| {});
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
    let proxy = proxy(&[to], |settings| settings.version = HttpVersion::Http2);
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
    let proxy = proxy(&[tcp(&server.local_addrs()[0])], |s| s.version = HttpVersion::Http2);
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
    until("nothing is under way", || proxy.counts().in_flight(0) == 0);
}
