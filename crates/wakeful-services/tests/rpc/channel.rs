//! Servers, and tonic's client over hyper's connection on our sockets.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http2;
use tonic::body::Body;
use tonic::service::Routes;
use wakeful::io::{LoopExecutor, LoopTimer};
use wakeful::net::{ListenAddr, TcpStream};
use wakeful::{IdlePolicy, LoopGroup};
use wakeful_http::grpc::GrpcLayer;
use wakeful_http::{Running, Server};
use wakeful_services::options::ServeOptions;
use wakeful_services::rpc::proto::echo_client::EchoClient;
use wakeful_services::rpc::proto::echo_server::{Echo, EchoServer};
use wakeful_services::rpc::{self, RpcOptions};

/// A hang is a failure, in its own time.
pub const GUARD: Duration = Duration::from_secs(20);

/// The service of `wakeful serve rpc`, on one loop.
pub fn service(rpc_options: &RpcOptions) -> Running {
    let options = ServeOptions::new()
        .listen(vec!["127.0.0.1:0".parse().unwrap()])
        .loops(1)
        .concentrate(None)
        .moves(None)
        .idle(IdlePolicy::Park)
        .grace(GUARD);
    let listeners = options.bind().unwrap();
    rpc::start(&options, rpc_options, listeners, Vec::new()).unwrap().into_server()
}

/// Another one, on one loop.
pub fn serve(echo: impl Echo, layer: GrpcLayer) -> Running {
    let routes = Routes::new(EchoServer::new(echo)).into_axum_router().layer(layer);
    let server = Server::bind("127.0.0.1:0").unwrap().group(LoopGroup::builder().loops(1));
    server.start(routes).unwrap()
}

pub fn addr(running: &Running) -> SocketAddr {
    match running.local_addrs()[0] {
        ListenAddr::Tcp(addr) => addr,
        _ => unreachable!("bound to TCP"),
    }
}

/// One connection.
#[derive(Clone)]
pub struct Channel(pub http2::SendRequest<Body>, SocketAddr);

impl Channel {
    pub async fn to(addr: SocketAddr) -> Self {
        let stream = TcpStream::connect(addr).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let (sender, connection) =
            http2::Builder::new(LoopExecutor).timer(LoopTimer).handshake(stream).await.unwrap();
        wakeful::spawn(connection).detach();
        Self(sender, addr)
    }

    pub fn echo(&self) -> EchoClient<Self> {
        EchoClient::with_origin(self.clone(), self.origin()).max_decoding_message_size(usize::MAX)
    }

    pub fn origin(&self) -> http::Uri {
        format!("http://{}", self.1).parse().unwrap()
    }
}

impl tower_service::Service<Request<Body>> for Channel {
    type Response = Response<Incoming>;
    type Error = hyper::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>>>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.0.send_request(request))
    }
}

/// Runs a client on a loop of its own, and gives it up when it hangs.
pub fn client<F: Future>(future: F) -> F::Output {
    wakeful::block_on(async {
        wakeful::time::timeout(GUARD, future).await.expect("the client hangs")
    })
}
