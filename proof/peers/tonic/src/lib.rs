//! What both programs serve: the unary call of `wakeful.echo.v1.Echo`.

use tonic::{Request, Response, Status, Streaming};

use self::proto::echo_server::{Echo, EchoServer};
use self::proto::{ClientStreamResponse, EchoRequest, EchoResponse, ServerStreamRequest};

/// The code that tonic generates.
#[allow(missing_docs, clippy::all, clippy::pedantic)]
pub mod proto {
    include!("../../../../crates/wakeful-services/src/rpc/generated/wakeful.echo.v1.rs");
}

/// The service, as tonic's documentation has it.
#[must_use]
pub fn service() -> EchoServer<Echoing> {
    EchoServer::new(Echoing)
}

/// Answers with what it receives.
#[derive(Debug, Clone, Copy)]
pub struct Echoing;

type Answers<T> = tonic::codegen::BoxStream<T>;

#[tonic::async_trait]
impl Echo for Echoing {
    type ServerStreamStream = Answers<EchoResponse>;
    type BidiStreamStream = Answers<EchoResponse>;

    async fn unary(&self, request: Request<EchoRequest>) -> Result<Response<EchoResponse>, Status> {
        let EchoRequest { message, payload, .. } = request.into_inner();
        Ok(Response::new(EchoResponse { message, payload, number: 0 }))
    }

    async fn server_stream(
        &self,
        _: Request<ServerStreamRequest>,
    ) -> Result<Response<Self::ServerStreamStream>, Status> {
        Err(only_unary())
    }

    async fn client_stream(
        &self,
        _: Request<Streaming<EchoRequest>>,
    ) -> Result<Response<ClientStreamResponse>, Status> {
        Err(only_unary())
    }

    async fn bidi_stream(
        &self,
        _: Request<Streaming<EchoRequest>>,
    ) -> Result<Response<Self::BidiStreamStream>, Status> {
        Err(only_unary())
    }
}

fn only_unary() -> Status {
    Status::unimplemented("this server is for comparisons, and knows the unary call only")
}
