//! The service of one connection, and the bodies of its responses, seen from outside. A request that nobody wants to know of goes through unchanged, with an empty pointer beside it.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Buf;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use hyper::service::Service;
use pin_project_lite::pin_project;
use wakeful::net::PeerAddr;

use super::exchange::Exchange;
use super::{Observer, Peer};

pub(crate) struct Observed<S> {
    service: S,
    peer: Peer,
    observer: Rc<Observer>,
}

impl<S> Observed<S> {
    pub(crate) fn new(service: S, addr: PeerAddr, observer: Rc<Observer>) -> Self {
        Self { service, peer: Peer { addr }, observer }
    }
}

impl<S, R, B> Service<Request<R>> for Observed<S>
where
    S: Service<Request<R>, Response = Response<B>>,
    B: Body,
{
    type Response = Response<ObservedBody<B>>;
    type Error = S::Error;
    type Future = ObservedFuture<S::Future>;

    #[inline(always)]
    fn call(&self, mut request: Request<R>) -> Self::Future {
        let exchange = self.observer.begin(&mut request, self.peer);
        let entered = exchange.as_deref().map(|exchange| exchange.span.enter());
        let future = self.service.call(request);
        drop(entered);
        ObservedFuture { future, exchange }
    }
}

pin_project! {
    pub(crate) struct ObservedFuture<F> {
        #[pin]
        future: F,
        exchange: Option<Box<Exchange>>,
    }
}

impl<F, B, E> Future for ObservedFuture<F>
where
    F: Future<Output = Result<Response<B>, E>>,
    B: Body,
{
    type Output = Result<Response<ObservedBody<B>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let entered = this.exchange.as_deref().map(|exchange| exchange.span.enter());
        let result = ready!(this.future.poll(cx));
        drop(entered);
        let mut exchange = this.exchange.take();
        Poll::Ready(result.map(|mut response| {
            if let Some(exchange) = &mut exchange {
                exchange.respond(&mut response);
            }
            response.map(|body| ObservedBody { body, exchange })
        }))
    }
}

pin_project! {
    pub(crate) struct ObservedBody<B> {
        #[pin]
        body: B,
        exchange: Option<Box<Exchange>>,
    }
}

impl<B: Body> Body for ObservedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let mut this = self.project();
        let Some(exchange) = this.exchange else { return this.body.poll_frame(cx) };
        let frame = exchange.span.in_scope(|| this.body.as_mut().poll_frame(cx));
        let frame = ready!(frame);
        let is_end = match &frame {
            None => exchange.took(0, true),
            Some(Ok(frame)) => {
                let bytes = frame.data_ref().map_or(0, Buf::remaining);
                exchange.took(bytes, this.body.is_end_stream())
            }
            Some(Err(_)) => true,
        };
        if is_end {
            *this.exchange = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
