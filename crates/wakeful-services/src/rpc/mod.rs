//! The gRPC service `wakeful.echo.v1.Echo`, which echoes in all four kinds of call. It also has the
//! health and reflection services. Use it with grpcurl, ghz, and clients in any language.
//!
//! The service is defined in `proto/wakeful/echo/v1/echo.proto`. The Rust code in `generated/` is
//! generated from that file; `tests/generated.rs` checks that both agree.
//!
//! A request without the content type of gRPC (JSON, gRPC-Web) gets 415. Deadlines are enforced.
//! When the server drains, the health service answers NOT_SERVING, and unary calls finish. Streams
//! end with UNAVAILABLE after a second, or sooner if the grace period is short.

mod echo;

use std::io;
use std::time::Duration;

use tonic::codec::CompressionEncoding;
use tonic::service::Routes;
use tonic_health::ServingStatus;
use wakeful::accept::{Descriptors, SharedListener};
use wakeful_http::GrpcCalls;
use wakeful_http::grpc::{self, GrpcLayer, Reflection};

use self::echo::Echoing;
pub use self::echo::MAX_DELAY;
use self::proto::echo_server::{EchoServer, SERVICE_NAME};
use crate::ServeOptions;
use crate::admin::{self, RunningService};
use crate::scrape::Scrape;

/// The code that tonic generates from the proto file: messages, the server's trait, and a client.
#[allow(
    missing_docs,
    missing_debug_implementations,
    unreachable_pub,
    clippy::all,
    clippy::pedantic
)]
pub mod proto {
    include!("generated/wakeful.echo.v1.rs");

    /// The proto file as an encoded `FileDescriptorSet`.
    pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!("generated/wakeful.echo.v1.bin");
}

/// How long streams may continue when the server drains.
const LINGER: Duration = Duration::from_secs(1);

/// The settings of the gRPC service.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a setter returns the changed options"]
pub struct RpcOptions {
    max_message: usize,
}

impl RpcOptions {
    /// Returns the default settings.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the maximum size of a received message, in bytes. A call with a larger message gets
    /// OUT_OF_RANGE. A compressed message may be no larger either before or after decompression. If
    /// it is too large only after that, the call gets RESOURCE_EXHAUSTED. The default is 4 MiB.
    pub fn max_message(mut self, bytes: usize) -> Self {
        self.max_message = bytes;
        self
    }
}

impl Default for RpcOptions {
    fn default() -> Self {
        Self { max_message: 4 << 20 }
    }
}

/// Starts the service on `listeners`. Only their own deadlines limit the time of calls
/// ([`GrpcCalls::Unlimited`], which overrides `options`). The listeners of `admin` answer
/// `/healthz`, `/readyz`, `/metrics` and `/workers`, on a separate loop.
///
/// # Errors
/// The loops cannot be started.
pub fn start(
    options: &ServeOptions,
    rpc: &RpcOptions,
    listeners: Vec<SharedListener>,
    admin: Vec<SharedListener>,
) -> io::Result<RunningService> {
    let (reporter, health) = grpc::health_reporter();
    futures_lite::future::block_on(
        reporter.set_service_status(SERVICE_NAME, ServingStatus::Serving),
    );
    let reflection = Reflection::of([proto::FILE_DESCRIPTOR_SET]).map_err(io::Error::other)?;
    let echo = EchoServer::new(Echoing)
        .max_decoding_message_size(rpc.max_message)
        // Compressed requests are accepted. Answers are not compressed, because clients announce
        // that they accept compression whether or not it is worth its cost.
        .accept_compressed(CompressionEncoding::Gzip);
    let routes = Routes::new(echo)
        .add_service(health)
        .add_service(reflection.v1())
        .add_service(reflection.v1alpha());
    let layer = GrpcLayer::new().linger(LINGER.min(options.grace / 2)).refuse_other_types();
    let router = routes.prepare().into_axum_router().layer(layer);
    let limits = options.limits.clone().grpc_calls(GrpcCalls::Unlimited);
    let descriptors = admin::descriptors(Descriptors::default(), &admin);
    let server = options.http_server(listeners).limits(limits).descriptors(descriptors);
    let server = server.start(router)?;
    let registry = admin::registry(&server, options);
    RunningService::new(server, admin, Scrape::new(registry, options.reports.clone())?)
}
