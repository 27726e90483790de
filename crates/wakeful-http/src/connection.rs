//! One connection, from its first byte to its last.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use http::{Request, Response, StatusCode};
use http_body::Body;
use hyper::service::Service;
use wakeful::accept::{Connection, Draining};
use wakeful::net::{PeerAddr, Stream};
use wakeful::time::{sleep, timeout};

use crate::body::RequestBody;
use crate::life::Life;
use crate::limits::peers::{Peer, TooMany};
use crate::local::Local;
use crate::protocol::{Protocol, Rewound, detect};
use crate::service::ConnectionService;
use crate::tls::ServerTls;
use crate::watch::Watch;
use crate::{BoxError, Refusal, draining, http1, http2, refuse, secured};

/// Serves `connection` until it closes, or goes on to another loop. What goes wrong with a single connection is the client's, and is logged at
/// debug level.
pub(crate) async fn serve<S, B>(
    connection: Connection,
    service: S,
    local: Rc<Local>,
    tls: Option<ServerTls>,
) where
    S: Service<Request<RequestBody>, Response = Response<B>> + 'static,
    S::Future: 'static,
    S::Error: Into<BoxError>,
    B: Body + 'static,
    B::Error: Into<BoxError>,
{
    let Connection { stream, peer, draining, unread, moving, .. } = connection;
    draining::enter(&draining);
    let carried = moving.carried().and_then(|carried| carried.downcast().ok());
    let life = match carried {
        Some(carried) => Ok(Life::unpack(*carried)),
        None => begin(peer, &local),
    };
    let Ok(life) = life else {
        local.refuse(Refusal::PeerConnections);
        if tls.is_some() {
            // To answer takes a handshake, which is what should not be spent.
            return;
        }
        let mut io = Rewound { start: unread.into(), stream };
        return refuse::answer(&mut io, StatusCode::SERVICE_UNAVAILABLE, &local).await;
    };
    if let Stream::Tcp(stream) = &stream
        && let Err(error) = stream.set_nodelay(true)
    {
        local.refuse(Refusal::NoRequest);
        tracing::debug!(%peer, %error, "the client has gone already");
        return;
    }
    if let Some(tls) = tls {
        // Boxed: a connection without TLS is no larger for it.
        return Box::pin(secured::serve(stream, peer, draining, service, life, local, tls)).await;
    }
    let limits = local.limits();
    let (patience, late) = match life.served() {
        0 => (limits.header_timeout, Refusal::HeaderTimeout),
        _ => (limits.idle_timeout, Refusal::IdleTimeout),
    };
    let detected = until_drained(&draining, &local, detect(stream, &unread));
    let (protocol, io) = match timeout(patience, detected).await {
        Ok(Some(Ok(Some(found)))) => found,
        // Nobody waits for an answer.
        Ok(None) => return,
        Ok(Some(Ok(None))) if life.served() > 0 => return,
        Ok(Some(Ok(None))) => return local.refuse(Refusal::NoRequest),
        Ok(Some(Err(error))) => {
            local.refuse(Refusal::NoRequest);
            return tracing::debug!(%peer, %error, "no request came");
        }
        Err(error) => {
            local.refuse(late);
            return tracing::debug!(%peer, %error, "no request came");
        }
    };
    let watch = Watch::new(local, protocol, life);
    let service = ConnectionService::new(service, peer, watch.clone());
    let result = match protocol {
        Protocol::Http1 => http1::serve(io, service, peer, &watch, &draining, &moving).await,
        Protocol::Http2 => http2::serve(io, service, &watch, &draining).await,
    };
    if let Err(error) = result {
        tracing::debug!(%peer, %error, "the connection ended with an error");
    }
}

/// A connection's life begins, if its peer may have one more.
fn begin(peer: PeerAddr, local: &Local) -> Result<Life, TooMany> {
    let place = match (local.peers(), peer) {
        (Some(peers), PeerAddr::Tcp(addr)) => peers.enter(Peer::new(addr))?,
        _ => None,
    };
    Ok(Life::new(local.limits().max_age, place))
}

/// `future`'s output; `None` when the draining begins before, and nothing comes of what may be on its way.
pub(crate) async fn until_drained<F: Future>(
    draining: &Draining,
    local: &Local,
    future: F,
) -> Option<F::Output> {
    let lingered = async {
        draining.started().await;
        sleep(local.linger()).await;
    };
    until(lingered, future).await
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
