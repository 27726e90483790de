//! gRPC: services that tonic generates, served by [`Server`](crate::Server) without tonic's
//! transport and without a tokio runtime (feature `grpc`).
//!
//! ```no_run
//! use tonic::service::Routes;
//! use wakeful_http::grpc::{self, GrpcLayer, Reflection};
//! # const FILE_DESCRIPTOR_SET: &[u8] = &[];
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (reporter, health) = grpc::health_reporter();
//! let reflection = Reflection::of([FILE_DESCRIPTOR_SET])?;
//! let routes = Routes::new(health).add_service(reflection.v1()).add_service(reflection.v1alpha());
//! // .add_service(GreeterServer::new(Greeter))
//! let app = routes.into_axum_router().layer(GrpcLayer::new());
//! wakeful_http::Server::bind("127.0.0.1:50051")?.serve(app)?;
//! # drop(reporter);
//! # Ok(())
//! # }
//! ```
//!
//! Use tonic with only the features `codegen` and `router`: its features `transport`, `server` and
//! `channel` add a tokio runtime. If clients stream, and may be silent for 30 s, exempt calls from
//! the time limits of requests by [`Limits::grpc_calls`](crate::Limits::grpc_calls). tonic limits
//! the size of a client's messages, also after decompression: `max_decoding_message_size` of a
//! generated server, 4 MiB by default.
//!
//! # Handlers
//! tonic requires futures and streams that are `Send`. `wakeful::time` is `Send`. Put other values
//! (`Rc`, sockets) into a `send_wrapper::SendWrapper`: a handler is polled and dropped only on the
//! loop of its connection, so the wrapper's check never fails. The example `grpc` of
//! wakeful-services shows how.

// `layer` ends calls at their deadline and streams when the server drains, by means of
// `request_body` and `response_body`, through which the trailers pass; `timeout` reads
// `grpc-timeout`, `shutdown` waits for the drain; `health` and `reflection` are the two services
// that clients expect.

mod health;
mod layer;
mod messages;
mod reflection;
mod request_body;
mod response_body;
mod shutdown;
mod timeout;

pub use self::health::{DrainingHealth, HealthUpdates, health_reporter};
pub use self::layer::{CallFuture, GrpcLayer, GrpcService};
pub use self::reflection::{InvalidDescriptors, Reflection};
pub use self::request_body::CallRequestBody;
pub use self::response_body::CallResponseBody;
