//! One connection, from its first byte to its last.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::rt::{Read, Write};
use hyper::server::conn::http2;
use hyper::service::Service;
use wakeful::accept::{Connection, Draining};
use wakeful::io::{LoopExecutor, LoopTimer};
use wakeful::net::Stream;
use wakeful::time::timeout;

use crate::protocol::{Protocol, detect};
use crate::tls::ServerTls;
use crate::{BoxError, draining, http1, secured};

/// hyper's least; the defaults are larger.
pub(crate) const SMALLEST_HEADER_LIMIT: usize = 8 * 1024;

#[derive(Debug, Clone)]
pub(crate) struct Limits {
    pub(crate) header_read_timeout: Duration,
    pub(crate) max_header_size: usize,
}

/// Serves `connection` until it closes, or goes on to another loop. What goes wrong with a single connection is the client's, and is logged at
/// debug level.
pub(crate) async fn serve<S, B>(
    connection: Connection,
    service: S,
    limits: Limits,
    tls: Option<ServerTls>,
) where
    S: Service<Request<Incoming>, Response = Response<B>> + 'static,
    S::Future: 'static,
    S::Error: Into<BoxError>,
    B: Body + 'static,
    B::Error: Into<BoxError>,
{
    let Connection { stream, peer, draining, unread, moving, .. } = connection;
    draining::enter(&draining);
    if let Stream::Tcp(stream) = &stream
        && let Err(error) = stream.set_nodelay(true)
    {
        tracing::debug!(%peer, %error, "the client has gone already");
        return;
    }
    if let Some(tls) = tls {
        // Boxed: a connection without TLS is no larger for it.
        return Box::pin(secured::serve(stream, peer, draining, service, limits, tls)).await;
    }
    let detected = until_drained(&draining, detect(stream, &unread));
    let first = timeout(limits.header_read_timeout, detected).await;
    let (protocol, io) = match first {
        Ok(Some(Ok(Some(found)))) => found,
        // It never sent a request: nobody waits for an answer.
        Ok(None | Some(Ok(None))) => return,
        Ok(Some(Err(error))) => return tracing::debug!(%peer, %error, "no request came"),
        Err(elapsed) => return tracing::debug!(%peer, error = %elapsed, "no request came"),
    };
    let result = match protocol {
        Protocol::Http1 => http1::serve(io, service, peer, &limits, &draining, &moving).await,
        // It stays on its loop: the state of its streams and header tables cannot be taken along.
        Protocol::Http2 => serve_http2(io, service, &limits, &draining).await,
    };
    if let Err(error) = result {
        tracing::debug!(%peer, %error, "the connection ended with an error");
    }
}

/// Serves it until it closes.
pub(crate) async fn serve_http2<IO, S, B>(
    io: IO,
    service: S,
    limits: &Limits,
    draining: &Draining,
) -> hyper::Result<()>
where
    IO: Read + Write + Unpin + 'static,
    S: Service<Request<Incoming>, Response = Response<B>> + 'static,
    S::Future: 'static,
    S::Error: Into<BoxError>,
    B: Body + 'static,
    B::Error: Into<BoxError>,
{
    let header_list = u32::try_from(limits.max_header_size).unwrap_or(u32::MAX);
    let connection = http2::Builder::new(LoopExecutor)
        .timer(LoopTimer)
        .max_header_list_size(header_list)
        .serve_connection(io, service);
    drive(connection, http2::Connection::graceful_shutdown, draining).await
}

/// `future`'s output; `None` when the draining begins before.
pub(crate) async fn until_drained<F: Future>(draining: &Draining, future: F) -> Option<F::Output> {
    until(draining.started(), future).await
}

/// `future`'s output; `None` when `end` comes before.
pub(crate) async fn until<F: Future>(
    end: impl Future<Output = ()>,
    future: F,
) -> Option<F::Output> {
    let (mut future, mut end) = (pin!(future), pin!(end));
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => end.as_mut().poll(cx).map(|()| None),
    })
    .await
}

/// Runs hyper's connection to its end; when the draining begins, tells it once to finish what it is
/// doing and to take no more.
async fn drive<C: Future>(
    connection: C,
    graceful_shutdown: fn(Pin<&mut C>),
    draining: &Draining,
) -> C::Output {
    let (mut connection, mut drained) = (pin!(connection), pin!(draining.started()));
    let mut told = false;
    poll_fn(|cx| {
        if !told && drained.as_mut().poll(cx).is_ready() {
            told = true;
            graceful_shutdown(connection.as_mut());
        }
        connection.as_mut().poll(cx)
    })
    .await
}
