//! docs/grpc.md
//!
//! In the place of what tonic generates from a reader's proto file: the echo service of `serve
//! rpc`, under the name of a greeter.

use std::error::Error;
use std::net::SocketAddr;
use std::pin::Pin;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use futures_core::Stream;
use futures_util::StreamExt;
use tonic::service::Routes;
use tonic::{Request, Response, Status, Streaming};
use wakeful::PerLoop;
use wakeful_http::client::{Client, HttpVersion, Target};
use wakeful_http::grpc::{GrpcLayer, Reflection, health_reporter};
use wakeful_http::{GrpcCalls, Limits, Server, drain_begins};

mod proto {
    pub(super) use wakeful_services::rpc::proto::FILE_DESCRIPTOR_SET;
    pub(super) use wakeful_services::rpc::proto::echo_client::EchoClient as GreeterClient;
    pub(super) use wakeful_services::rpc::proto::echo_server::Echo;
    pub(super) use wakeful_services::rpc::proto::echo_server::EchoServer as GreeterServer;
    pub(super) use wakeful_services::rpc::proto::{
        ClientStreamResponse, EchoRequest as HelloRequest, EchoResponse as HelloReply,
        ServerStreamRequest,
    };
}

use proto::{GreeterClient, GreeterServer, HelloReply, HelloRequest};

struct Greeter;

type Replies = Pin<Box<dyn Stream<Item = Result<HelloReply, Status>> + Send>>;

#[tonic::async_trait]
impl proto::Echo for Greeter {
    async fn unary(&self, request: Request<HelloRequest>) -> Result<Response<HelloReply>, Status> {
        let HelloRequest { message, .. } = request.into_inner();
        let peer = wakeful_http::Peer::current();
        let message = format!("hello, {message} at {}", peer.expect("a handler has one").addr);
        Ok(Response::new(HelloReply { message, ..HelloReply::default() }))
    }

    type ServerStreamStream = Replies;

    /// One reply, and no other one until the drain.
    async fn server_stream(
        &self,
        _: Request<proto::ServerStreamRequest>,
    ) -> Result<Response<Replies>, Status> {
        let one = futures_util::stream::iter([Ok(HelloReply::default())]);
        let news = one.chain(futures_util::stream::pending());
        Ok(Response::new(Box::pin(until_drain(news))))
    }

    async fn client_stream(
        &self,
        request: Request<Streaming<HelloRequest>>,
    ) -> Result<Response<proto::ClientStreamResponse>, Status> {
        let mut requests = request.into_inner();
        while requests.message().await?.is_some() {}
        Ok(Response::new(proto::ClientStreamResponse::default()))
    }

    type BidiStreamStream = Replies;

    async fn bidi_stream(
        &self,
        request: Request<Streaming<HelloRequest>>,
    ) -> Result<Response<Replies>, Status> {
        let reply = |request: Result<_, Status>| request.map(|_| HelloReply::default());
        Ok(Response::new(Box::pin(request.into_inner().map(reply))))
    }
}

fn start() -> Result<(), Box<dyn Error>> {
    let (reporter, health) = health_reporter();
    let reflection = Reflection::of([proto::FILE_DESCRIPTOR_SET])?;
    let calls = Routes::new(GreeterServer::new(Greeter).max_decoding_message_size(1 << 20))
        .add_service(health)
        .add_service(reflection.v1())
        .add_service(reflection.v1alpha())
        .into_axum_router()
        .layer(GrpcLayer::new());
    Server::bind("0.0.0.0:50051")?.serve(calls)?;
    Ok(())
}

fn silent_clients(server: Server) -> Server {
    let limits = Limits::new().grpc_calls(GrpcCalls::Unlimited);
    let server = server.limits(limits);
    server
}

fn both(calls: Router) -> Router {
    let rest = Router::new().route("/hello", get(|| async { "hello\n" }));
    let app = calls.reset_fallback().merge(rest);
    app
}

fn until_drain<T>(news: impl Stream<Item = T> + Send) -> impl Stream<Item = T> + Send {
    news.take_until(drain_begins())
}

use wakeful_http::client::GrpcService;

type Clients = PerLoop<Client<tonic::body::Body>>;

async fn greet(clients: Clients, target: Target) -> Result<String, Status> {
    wakeful::on_this_loop(async move {
        let host = clients.with(|client| client.host(&target.version(HttpVersion::Http2)));
        let mut request = Request::new(HelloRequest::default());
        request.set_timeout(Duration::from_secs(2));
        let reply = GreeterClient::new(GrpcService::new(host)).unary(request).await?;
        Ok(reply.into_inner().message)
    })
    .await
}

/// They are run, not only compiled.
mod tests {
    use axum::http;
    use axum::http::StatusCode;
    use futures_util::stream;
    use http_body_util::{BodyExt, Empty};
    use tonic::Code;
    use tonic_health::pb::HealthCheckRequest;
    use tonic_health::pb::health_client::HealthClient;
    use wakeful::LoopGroup;
    use wakeful::time::{sleep, timeout};
    use wakeful_http::tls::{ClientTls, ServerTls};
    use wakeful_http::{DrainPlan, MinRate, Refusal, Running};

    use super::*;

    const GUARD: Duration = Duration::from_secs(60);
    const UNIMPLEMENTED: (StatusCode, &[u8]) = (StatusCode::OK, b"12");

    fn calls() -> Router {
        let (_, health) = health_reporter();
        let reflection = Reflection::of([proto::FILE_DESCRIPTOR_SET]).unwrap();
        Routes::new(GreeterServer::new(Greeter).max_decoding_message_size(100))
            .add_service(health)
            .add_service(reflection.v1())
            .into_axum_router()
            .layer(GrpcLayer::new())
    }

    fn running(limits: Limits) -> Running {
        let server = Server::bind("127.0.0.1:0").unwrap().limits(limits);
        server.group(LoopGroup::builder().loops(1)).start(both(calls())).unwrap()
    }

    fn target(running: &Running) -> Target {
        running.local_addrs()[0].clone().into()
    }

    fn greeter(
        client: &Client<tonic::body::Body>,
        running: &Running,
    ) -> GreeterClient<GrpcService<tonic::body::Body>> {
        let host = client.host(&target(running).version(HttpVersion::Http2));
        GreeterClient::new(GrpcService::new(host))
    }

    fn on_a_loop<T>(test: impl Future<Output = T>) -> T {
        wakeful::block_on(timeout(GUARD, test)).expect("a hang is a failure")
    }

    #[test]
    fn rest_and_grpc_share_a_port_and_each_has_its_own_answer_to_an_unknown_path() {
        let running = running(Limits::new());
        on_a_loop(async {
            let greeting = greet(PerLoop::new(Client::new), target(&running)).await.unwrap();
            assert!(greeting.starts_with("hello,  at 127.0.0.1:"), "{greeting}");
            let client = Client::<Empty<axum::body::Bytes>>::new();
            let addr = &running.local_addrs()[0];
            for (path, status) in [("hello", StatusCode::OK), ("other", StatusCode::NOT_FOUND)] {
                let get = http::Request::get(format!("http://{addr}/{path}"));
                let response = client.send(get.body(Empty::new()).unwrap()).await.unwrap();
                assert_eq!(response.status(), status, "{path}");
            }
            // With the fallback of tonic's routes it would be 200.
            let alone = Server::bind("127.0.0.1:0").unwrap().start(calls()).unwrap();
            let get = http::Request::get(format!("http://{}/other", alone.local_addrs()[0]));
            let response = client.send(get.body(Empty::new()).unwrap()).await.unwrap();
            assert_eq!(
                (response.status(), response.headers()["grpc-status"].as_bytes()),
                UNIMPLEMENTED
            );
            let client = Client::new();
            let host = client.host(&target(&running).version(HttpVersion::Http2));
            let unknown = http::Request::post("/other.Service/Method")
                .header("content-type", "application/grpc")
                .body(tonic::body::Body::empty())
                .unwrap();
            assert_eq!(host.send(unknown).await.unwrap().status(), StatusCode::NOT_FOUND);
            let too_large = HelloRequest { message: "x".repeat(200), ..HelloRequest::default() };
            let status = greeter(&client, &running).unary(too_large).await.unwrap_err();
            assert_eq!(status.code(), Code::OutOfRange, "{status:?}");
        });
    }

    #[test]
    fn an_interceptor_refuses_and_health_knows_a_service_by_its_name() {
        let refuse = |_: Request<()>| Err(Status::unauthenticated("no token"));
        let (reporter, health) = health_reporter();
        let calls = Routes::new(GreeterServer::with_interceptor(Greeter, refuse));
        let calls = calls.add_service(health).into_axum_router().layer(GrpcLayer::new());
        let running = Server::bind("127.0.0.1:0").unwrap().start(calls).unwrap();
        on_a_loop(async {
            let client = Client::new();
            let status = greeter(&client, &running).unary(HelloRequest::default()).await;
            assert_eq!(status.unwrap_err().code(), Code::Unauthenticated);
            let host = client.host(&target(&running).version(HttpVersion::Http2));
            let mut health = HealthClient::new(GrpcService::new(host));
            let named = HealthCheckRequest { service: "wakeful.echo.v1.Echo".to_owned() };
            assert_eq!(health.check(named.clone()).await.unwrap_err().code(), Code::NotFound);
            reporter.set_serving::<GreeterServer<Greeter>>().await;
            let status = health.check(named).await.unwrap().into_inner().status();
            assert_eq!(status.as_str_name(), "SERVING");
        });
    }

    /// What `grpc_pod::main` puts together, on free ports.
    #[test]
    fn over_tls_health_knows_the_service_and_probes_need_no_tls() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name| folder.path().join(name);
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        std::fs::write(path("tls.crt"), made.cert.pem()).unwrap();
        std::fs::write(path("tls.key"), made.signing_key.serialize_pem()).unwrap();
        let tls = ServerTls::from_files(path("tls.crt"), path("tls.key")).unwrap();
        on_a_loop(async {
            let (reporter, health) = health_reporter();
            reporter.set_serving::<GreeterServer<Greeter>>().await;
            let calls = Routes::new(GreeterServer::new(Greeter)).add_service(health);
            let group = LoopGroup::builder().loops(1);
            let server = Server::bind_tls("127.0.0.1:0", tls).unwrap().group(group.clone());
            let pages = crate::grpc_pod::pages(server.readiness());
            let pages = Server::bind("127.0.0.1:0").unwrap().group(group).start(pages).unwrap();
            let running = server.start(wakeful_http::grpc::GrpcService::new(calls)).unwrap();

            let trusts = ClientTls::builder().ca(path("tls.crt")).build().unwrap();
            let client = Client::builder().tls(trusts).build();
            let addr = running.local_addrs()[0].to_string().parse().unwrap();
            let target: Target = "https://localhost".parse().unwrap();
            let host = client.host(&target.at(addr).version(HttpVersion::Http2));
            let mut health = HealthClient::new(GrpcService::new(host));
            let named = HealthCheckRequest { service: "wakeful.echo.v1.Echo".to_owned() };
            let status = health.check(named.clone()).await.unwrap().into_inner().status();
            assert_eq!(status.as_str_name(), "SERVING");

            let probe = Client::<Empty<axum::body::Bytes>>::new();
            let status = async |page: &str| {
                let get = http::Request::get(format!("http://{}{page}", pages.local_addrs()[0]));
                probe.send(get.body(Empty::new()).unwrap()).await.unwrap().status()
            };
            assert_eq!(status("/readyz").await, StatusCode::OK);
            // It is still there at the end of the test, and is aborted then.
            let plan = DrainPlan::new().pre_drain(GUARD).grace(GUARD);
            wakeful::spawn(running.drained(plan)).detach();
            while status("/readyz").await != StatusCode::SERVICE_UNAVAILABLE {}
            assert_eq!(status("/healthz").await, StatusCode::OK);
            let status = health.check(named).await.unwrap().into_inner().status();
            assert_eq!(status.as_str_name(), "NOT_SERVING");
        });
    }

    #[test]
    fn the_client_over_a_host_says_unknown_where_nobody_listens() {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let status = on_a_loop(greet(PerLoop::new(Client::new), free.into())).unwrap_err();
        assert_eq!(status.code(), Code::Unknown, "{status:?}");
    }

    /// A client that says one thing, and then nothing, or hardly anything.
    fn says(every: Option<Duration>) -> impl Stream<Item = HelloRequest> + Send {
        stream::iter([HelloRequest::default()]).chain(match every {
            None => stream::pending().left_stream(),
            Some(every) => stream::unfold((), move |()| async move {
                sleep(every).await;
                Some((HelloRequest::default(), ()))
            })
            .right_stream(),
        })
    }

    #[test]
    fn with_the_limits_of_all_a_client_that_is_silent_ends_its_stream_and_a_silent_server_does_not()
    {
        let running = running(Limits::new().body_timeout(Duration::from_millis(200)));
        on_a_loop(async {
            let client = Client::new();
            let mut greeter = greeter(&client, &running);
            let request = proto::ServerStreamRequest::default();
            let mut news = greeter.server_stream(request).await.unwrap().into_inner();
            news.message().await.unwrap().unwrap();
            let mut replies = greeter.bidi_stream(says(None)).await.unwrap().into_inner();
            replies.message().await.unwrap().unwrap();
            let status = replies.message().await.unwrap_err();
            assert!(format!("{status:?}").contains("CANCEL"), "{status:?}");
            let status = greeter.client_stream(says(None)).await.unwrap_err();
            assert!(status.message().contains("408"), "{status:?}");
            assert_eq!(running.http_counts().refused(Refusal::BodyTimeout), 2);
            // It has been silent for longer.
            let next = timeout(Duration::from_millis(1), news.message()).await;
            assert!(next.is_err(), "{next:?}");
        });
    }

    #[test]
    fn a_client_that_sends_little_ends_its_stream_too() {
        let rate = MinRate::new(240, Duration::from_millis(500));
        let running = running(Limits::new().min_rate(rate));
        on_a_loop(async {
            let client = Client::new();
            let little = says(Some(Duration::from_millis(100)));
            let mut replies =
                greeter(&client, &running).bidi_stream(little).await.unwrap().into_inner();
            let status = loop {
                match replies.message().await {
                    Ok(reply) => assert!(reply.is_some(), "it does not end by itself"),
                    Err(status) => break status,
                }
            };
            assert!(format!("{status:?}").contains("CANCEL"), "{status:?}");
            assert_eq!(running.http_counts().refused(Refusal::SlowRequest), 1);
        });
    }

    #[test]
    fn a_stream_that_ends_with_the_drain_ends_well_and_health_says_not_serving() {
        let running = running(Limits::new().grpc_calls(GrpcCalls::Unlimited));
        on_a_loop(async {
            let client = Client::new();
            let mut greeter = greeter(&client, &running);
            let request = proto::ServerStreamRequest::default();
            let mut news = greeter.server_stream(request).await.unwrap().into_inner();
            news.message().await.unwrap().unwrap();
            let host = client.host(&target(&running).version(HttpVersion::Http2));
            let mut health = HealthClient::new(GrpcService::new(host));
            let all = HealthCheckRequest::default();
            let mut watched = health.watch(all).await.unwrap().into_inner();
            let status = watched.message().await.unwrap().unwrap().status();
            assert_eq!(status.as_str_name(), "SERVING");
            let drained = wakeful::spawn(running.drained(DrainPlan::new().grace(GUARD)));
            let status = watched.message().await.unwrap().unwrap().status();
            assert_eq!(status.as_str_name(), "NOT_SERVING");
            assert_eq!(watched.message().await.unwrap_err().code(), Code::Unavailable);
            assert!(news.message().await.unwrap().is_none(), "it has ended, without an error");
            drop((client, health, greeter, news, watched));
            assert_eq!(drained.await.unwrap().unwrap(), 0);
        });
    }
}
