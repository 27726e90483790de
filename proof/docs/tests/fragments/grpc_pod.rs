//! docs/grpc.md: the whole program, of a service that is generated as the page says.

use std::error::Error;
use std::io;
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use proto::greeter_server::GreeterServer;
use proto::{GreetReply, GreetRequest};
use tonic::service::Routes;
use tonic::{Request, Response, Status};
use wakeful::accept::Descriptors;
use wakeful::log::{LossyWriter, report_panics};
use wakeful::{EventLoop, IdlePolicy, LoopGroup};
use wakeful_http::grpc::{GrpcLayer, health_reporter};
use wakeful_http::tls::ServerTls;
use wakeful_http::{DrainPlan, Limits, Readiness, Server};

mod proto {
    tonic::include_proto!("greeter");
}

struct Greeter;

#[tonic::async_trait]
impl proto::greeter_server::Greeter for Greeter {
    async fn greet(&self, request: Request<GreetRequest>) -> Result<Response<GreetReply>, Status> {
        let greeting = format!("hello, {}", request.into_inner().name);
        Ok(Response::new(GreetReply { greeting }))
    }
}

#[wakeful::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let log = LossyWriter::new(io::stderr());
    report_panics(&log);
    let _flush = log.flush_on_drop(Duration::from_secs(1));
    tracing_subscriber::fmt().with_ansi(false).with_writer(move || log.clone()).init();
    Descriptors::raise_limit()?;

    let (reporter, health) = health_reporter();
    reporter.set_serving::<GreeterServer<Greeter>>().await;
    let calls = Routes::new(GreeterServer::new(Greeter).max_decoding_message_size(1 << 20))
        .add_service(health)
        .into_axum_router()
        .layer(GrpcLayer::new().max_deadline(Duration::from_secs(10)));

    let tls = ServerTls::from_files("/tls/tls.crt", "/tls/tls.key")?;
    wakeful::spawn(tls.clone().reload_on_change(Duration::from_secs(60))).detach();
    let (pre_drain, grace) = (Duration::from_secs(5), Duration::from_secs(20));
    let parks = || EventLoop::builder().idle(IdlePolicy::Park);
    let server = Server::bind_tls("0.0.0.0:50051", tls)?
        .group(LoopGroup::builder().event_loop(parks()))
        .limits(Limits::new().max_connections(2_000).max_requests(64))
        .drain_plan(DrainPlan::new().pre_drain(pre_drain).grace(grace));

    // For the kubelet: without TLS, and on a loop of its own.
    let group = LoopGroup::builder().loops(1).event_loop(parks());
    let probes = probes(server.readiness());
    let _probes = Server::bind("0.0.0.0:8090")?.group(group).start(probes)?;
    server.run(calls).await?;
    Ok(())
}

fn probes(readiness: Readiness) -> Router {
    let readyz = async move || match readiness.is_ready() {
        true => (StatusCode::OK, "ready\n"),
        false => (StatusCode::SERVICE_UNAVAILABLE, "draining\n"),
    };
    Router::new().route("/healthz", get(|| async { "ok\n" })).route("/readyz", get(readyz))
}

/// For the test.
pub(crate) fn pages(readiness: Readiness) -> Router {
    probes(readiness)
}

/// What the page generates for reflection, too.
mod with_descriptors {
    mod proto {
        tonic::include_proto!("greeter");
        pub const FILE_DESCRIPTOR_SET: &[u8] =
            include_bytes!(concat!(env!("OUT_DIR"), "/greeter.bin"));
    }

    #[test]
    fn reflection_takes_the_descriptors() {
        assert!(wakeful_http::grpc::Reflection::of([proto::FILE_DESCRIPTOR_SET]).is_ok());
    }
}

#[test]
fn the_page_s_proto_file_is_the_one_that_is_compiled() {
    let blocks = doc_pages::blocks("proto");
    assert!(!blocks.is_empty());
    for block in blocks {
        assert_eq!(block.text, include_str!("../../proto/greeter.proto"), "{}", block.place);
    }
}
