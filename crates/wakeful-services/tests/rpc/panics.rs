//! A handler that panics.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;
use futures_util::stream;
use tonic::body::Body;
use tonic::{Code, Request, Response, Status, Streaming};
use wakeful_http::Server;
use wakeful_http::grpc::{GrpcLayer, GrpcService};
use wakeful_services::rpc::proto::echo_server::Echo;
use wakeful_services::rpc::proto::{
    ClientStreamResponse, EchoRequest, EchoResponse, ServerStreamRequest,
};

use super::channel::*;

/// Its unary calls panic, and so do the streams that it answers by, as they are dropped.
struct Panics;

type Answers = stream::Empty<Result<EchoResponse, Status>>;

struct PanicsInItsDrop;

impl Stream for PanicsInItsDrop {
    type Item = Result<EchoResponse, Status>;

    fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Poll::Pending
    }
}

impl Drop for PanicsInItsDrop {
    fn drop(&mut self) {
        panic!("of a stream's drop, on purpose");
    }
}

#[tonic::async_trait]
impl Echo for Panics {
    async fn unary(&self, _: Request<EchoRequest>) -> Result<Response<EchoResponse>, Status> {
        panic!("of a call, on purpose")
    }

    type ServerStreamStream = PanicsInItsDrop;

    async fn server_stream(
        &self,
        _: Request<ServerStreamRequest>,
    ) -> Result<Response<PanicsInItsDrop>, Status> {
        Ok(Response::new(PanicsInItsDrop))
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

#[test]
fn a_stream_that_panics_in_its_drop_at_its_deadline_ends_by_the_deadline() {
    let running = serve(Panics, GrpcLayer::new());
    client(async {
        let mut echo = Channel::to(addr(&running)).await.echo();
        for _ in 0..3 {
            let mut request = Request::new(ServerStreamRequest::default());
            request.metadata_mut().insert("grpc-timeout", "50m".parse().unwrap());
            let mut answers = echo.server_stream(request).await.unwrap().into_inner();
            let status = answers.message().await.unwrap_err();
            assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
        }
    });
    assert_eq!(running.counts().accepted(), 1);
}

/// It panics before it has a future.
#[derive(Clone)]
struct PanicsInItsCall;

impl<B> tower_service::Service<http::Request<B>> for PanicsInItsCall {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<http::Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        assert_ne!(request.method(), http::Method::POST, "on purpose");
        ready(Ok(http::Response::new(Body::empty())))
    }
}

#[test]
fn a_service_that_panics_as_it_is_called_is_internal() {
    let server = Server::bind("127.0.0.1:0").unwrap();
    let running = server.start(GrpcService::new(PanicsInItsCall)).unwrap();
    client(async {
        let mut echo = Channel::to(addr(&running)).await.echo();
        let status = echo.unary(EchoRequest::default()).await.unwrap_err();
        assert_eq!((status.code(), status.message()), (Code::Internal, "the handler panicked"));
    });
}
