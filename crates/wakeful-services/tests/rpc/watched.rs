//! A service whose handlers never end, and tell where they begin and where they are dropped.

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::thread::{self, ThreadId};

use async_channel::{Receiver, Sender, unbounded};
use futures_core::Stream;
use send_wrapper::SendWrapper;
use tonic::{Request, Response, Status, Streaming};
use wakeful_services::rpc::proto::echo_server::Echo;
use wakeful_services::rpc::proto::{
    ClientStreamResponse, EchoRequest, EchoResponse, ServerStreamRequest,
};

/// What a handler tells.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    Began(ThreadId),
    Dropped(ThreadId),
}

pub struct Watched {
    events: Sender<Event>,
}

impl Watched {
    pub fn new() -> (Self, Receiver<Event>) {
        let (events, seen) = unbounded();
        (Self { events }, seen)
    }

    fn begin(&self) -> Guard {
        self.events.try_send(Event::Began(thread::current().id())).unwrap();
        Guard { events: self.events.clone(), _not_send: SendWrapper::new(Rc::new(())) }
    }
}

/// A handler has begun, and then it is dropped on the same loop.
pub fn assert_dropped_on_its_loop(seen: &Receiver<Event>) {
    futures_lite::future::block_on(is_dropped_on_its_loop(seen, || {}));
}

/// Like the function above, but calls `between` between the two events.
pub async fn is_dropped_on_its_loop(seen: &Receiver<Event>, between: impl FnOnce()) {
    let Event::Began(began) = seen.recv().await.unwrap() else { panic!("it never began") };
    between();
    assert_eq!(seen.recv().await.unwrap(), Event::Dropped(began));
}

pub struct Guard {
    events: Sender<Event>,
    _not_send: SendWrapper<Rc<()>>,
}

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.events.try_send(Event::Dropped(thread::current().id()));
    }
}

/// `count` messages, each of them ready at once, and then none, but no end.
pub struct Endless {
    number: u64,
    count: u64,
    _guard: Guard,
}

impl Stream for Endless {
    type Item = Result<EchoResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.number == self.count {
            return Poll::Pending;
        }
        self.number += 1;
        Poll::Ready(Some(Ok(EchoResponse { number: self.number, ..EchoResponse::default() })))
    }
}

#[tonic::async_trait]
impl Echo for Watched {
    async fn unary(&self, _: Request<EchoRequest>) -> Result<Response<EchoResponse>, Status> {
        let _guard = self.begin();
        std::future::pending().await
    }

    type ServerStreamStream = Endless;

    async fn server_stream(
        &self,
        request: Request<ServerStreamRequest>,
    ) -> Result<Response<Endless>, Status> {
        let count = request.into_inner().count;
        Ok(Response::new(Endless { number: 0, count, _guard: self.begin() }))
    }

    async fn client_stream(
        &self,
        request: Request<Streaming<EchoRequest>>,
    ) -> Result<Response<ClientStreamResponse>, Status> {
        let _guard = self.begin();
        let mut requests = request.into_inner();
        while requests.message().await?.is_some() {}
        Ok(Response::new(ClientStreamResponse::default()))
    }

    type BidiStreamStream = Endless;

    async fn bidi_stream(
        &self,
        _: Request<Streaming<EchoRequest>>,
    ) -> Result<Response<Endless>, Status> {
        Ok(Response::new(Endless { number: 0, count: 1, _guard: self.begin() }))
    }
}
