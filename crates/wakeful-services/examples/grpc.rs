//! A gRPC service of one's own, with a handler that uses what is not `Send`:
//! `cargo run -p wakeful-services --example grpc`, then
//! `grpcurl -plaintext -d '{"message": "hello"}' 127.0.0.1:50051 wakeful.echo.v1.Echo/Unary`.
//!
//! tonic asks handlers for `Send` futures. A handler here never leaves the loop of its connection,
//! so a `SendWrapper` around what is not `Send` (or around the whole future, as here) is all it
//! needs.

use std::cell::Cell;
use std::rc::Rc;

use send_wrapper::SendWrapper;
use tonic::service::Routes;
use tonic::{Request, Response, Status, Streaming};
use wakeful_http::grpc::{GrpcLayer, Reflection, health_reporter};
use wakeful_http::{GrpcCalls, Limits, Server};
use wakeful_services::rpc::proto::echo_server::{Echo, EchoServer};
use wakeful_services::rpc::proto::{
    ClientStreamResponse, EchoRequest, EchoResponse, FILE_DESCRIPTOR_SET, ServerStreamRequest,
};

thread_local! {
    /// Each loop is a thread, and counts its own: without a lock, and without an atomic.
    static CALLS: Rc<Cell<u64>> = Rc::default();
}

struct Counting;

#[tonic::async_trait]
impl Echo for Counting {
    async fn unary(&self, request: Request<EchoRequest>) -> Result<Response<EchoResponse>, Status> {
        let handler = async move {
            let calls = CALLS.with(Rc::clone);
            calls.set(calls.get() + 1);
            // The `Rc` lives across an await: this future is not `Send`.
            wakeful::task::yield_now().await;
            let message = format!("{}, call {} here", request.into_inner().message, calls.get());
            Ok(Response::new(EchoResponse { message, ..EchoResponse::default() }))
        };
        SendWrapper::new(handler).await
    }

    type ServerStreamStream = Streaming<EchoResponse>;

    async fn server_stream(
        &self,
        _: Request<ServerStreamRequest>,
    ) -> Result<Response<Self::ServerStreamStream>, Status> {
        Err(Status::unimplemented("see the service of `wakeful serve rpc`"))
    }

    async fn client_stream(
        &self,
        _: Request<Streaming<EchoRequest>>,
    ) -> Result<Response<ClientStreamResponse>, Status> {
        Err(Status::unimplemented("see the service of `wakeful serve rpc`"))
    }

    type BidiStreamStream = Streaming<EchoResponse>;

    async fn bidi_stream(
        &self,
        _: Request<Streaming<EchoRequest>>,
    ) -> Result<Response<Self::BidiStreamStream>, Status> {
        Err(Status::unimplemented("see the service of `wakeful serve rpc`"))
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (_reporter, health) = health_reporter();
    let reflection = Reflection::of([FILE_DESCRIPTOR_SET])?;
    let routes = Routes::new(EchoServer::new(Counting))
        .add_service(health)
        .add_service(reflection.v1())
        .add_service(reflection.v1alpha());
    let app = routes.into_axum_router().layer(GrpcLayer::new());
    let limits = Limits::new().grpc_calls(GrpcCalls::Unlimited);
    Server::bind("127.0.0.1:50051")?.limits(limits).serve(app)?;
    Ok(())
}
