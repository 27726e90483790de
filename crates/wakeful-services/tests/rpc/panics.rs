//! A handler that panics.

use futures_util::stream;
use tonic::{Code, Request, Response, Status, Streaming};
use wakeful_http::grpc::GrpcLayer;
use wakeful_services::rpc::proto::echo_server::Echo;
use wakeful_services::rpc::proto::{
    ClientStreamResponse, EchoRequest, EchoResponse, ServerStreamRequest,
};

use super::channel::*;

/// Its unary calls panic.
struct Panics;

type Answers = stream::Empty<Result<EchoResponse, Status>>;

#[tonic::async_trait]
impl Echo for Panics {
    async fn unary(&self, _: Request<EchoRequest>) -> Result<Response<EchoResponse>, Status> {
        panic!("of a call, on purpose")
    }

    type ServerStreamStream = Answers;

    async fn server_stream(
        &self,
        _: Request<ServerStreamRequest>,
    ) -> Result<Response<Answers>, Status> {
        Ok(Response::new(stream::empty()))
    }

    async fn client_stream(
        &self,
        _: Request<Streaming<EchoRequest>>,
    ) -> Result<Response<ClientStreamResponse>, Status> {
        Ok(Response::new(ClientStreamResponse::default()))
    }

    type BidiStreamStream = Answers;

    async fn bidi_stream(
        &self,
        _: Request<Streaming<EchoRequest>>,
    ) -> Result<Response<Answers>, Status> {
        Ok(Response::new(stream::empty()))
    }
}

#[test]
fn a_call_whose_handler_panics_is_internal_and_the_connection_goes_on() {
    let running = serve(Panics, GrpcLayer::new());
    client(async {
        let mut echo = Channel::to(addr(&running)).await.echo();
        for _ in 0..3 {
            let status = echo.unary(EchoRequest::default()).await.unwrap_err();
            assert_eq!((status.code(), status.message()), (Code::Internal, "the handler panicked"));
            echo.client_stream(stream::empty()).await.unwrap();
        }
    });
    assert_eq!(running.counts().accepted(), 1);
}
