//! Greets by gRPC, and asks other greeters: a server whose handlers are clients.

use std::time::Duration;

use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Response, Status};

pub mod proto {
    tonic::include_proto!("greeter");
}

pub use proto::greeter_server::GreeterServer;

use proto::greeter_client::GreeterClient;
use proto::{GreetReply, GreetRequest, PassOnRequest};

/// Greets, and knows the next greeter.
pub struct Greeter {
    next: Endpoint,
}

impl Greeter {
    /// With the next greeter's address.
    pub fn new(next: String) -> Result<Self, tonic::transport::Error> {
        Ok(Self { next: Endpoint::from_shared(format!("http://{next}"))? })
    }
}

#[tonic::async_trait]
impl proto::greeter_server::Greeter for Greeter {
    async fn greet(&self, request: Request<GreetRequest>) -> Result<Response<GreetReply>, Status> {
        let GreetRequest { name } = request.into_inner();
        if name.is_empty() {
            return Err(Status::invalid_argument("nobody to greet"));
        }
        // So that calls of one connection overlap.
        tokio::time::sleep(Duration::from_millis(name.len() as u64 % 7)).await;
        Ok(Response::new(GreetReply { greeting: format!("hello, {name}") }))
    }

    async fn pass_on(
        &self,
        request: Request<PassOnRequest>,
    ) -> Result<Response<GreetReply>, Status> {
        let PassOnRequest { name, hops } = request.into_inner();
        let channel: Channel = self.next.connect_lazy();
        let mut next = GreeterClient::new(channel);
        match hops.checked_sub(1) {
            None => next.greet(GreetRequest { name }).await,
            Some(hops) => next.pass_on(PassOnRequest { name, hops }).await,
        }
    }
}
