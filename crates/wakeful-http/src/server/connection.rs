//! One connection, from its first byte to its last.

use std::rc::Rc;

use http::{Request, Response, StatusCode};
use http_body::Body;
use hyper::service::Service;
use wakeful::accept::Connection;
use wakeful::net::{PeerAddr, Stream};

use super::first_request::{drained, first_request};
use super::tls_connection;
use crate::connection::deadlines::Watch;
use crate::connection::lingering_close;
use crate::connection::movable_state::Life;
use crate::connection::protocol::{Protocol, Rewound};
use crate::counts::Refusal;
use crate::drain;
use crate::error::BoxError;
use crate::http1;
use crate::http2;
use crate::limits::peers::{Peer, TooMany};
use crate::loop_state::Local;
use crate::panics;
use crate::request::RequestBody;
use crate::request::service::ConnectionService;
use crate::tls::ServerTls;

/// Serves `connection` until it closes, or goes on to another loop. What goes wrong with a single
/// connection is the client's, and is logged at debug level.
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
    let Connection { mut stream, peer, draining, unread, moving, .. } = connection;
    drain::enter(&draining);
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
        return lingering_close::answer(&mut io, StatusCode::SERVICE_UNAVAILABLE, &local).await;
    };
    if let Stream::Tcp(stream) = &stream
        && let Err(error) = stream.set_nodelay(true)
    {
        local.refuse(Refusal::NoRequest);
        panics::log!(debug, %peer, %error, "the client has gone already");
        return;
    }
    if let Some(tls) = tls {
        // Boxed: a connection without TLS is no larger for it.
        return Box::pin(tls_connection::serve(stream, peer, draining, service, life, local, tls))
            .await;
    }
    let drained = drained(&draining, &local);
    let Some((protocol, start)) =
        first_request(&mut stream, &unread, drained, &life, &local, peer).await
    else {
        return;
    };
    let io = Rewound { start, stream };
    let watch = Watch::new(local, protocol, life);
    let service = ConnectionService::new(service, peer, watch.clone());
    let result = match protocol {
        Protocol::Http1 => http1::serve(io, service, peer, &watch, &draining, &moving).await,
        Protocol::Http2 => http2::serve(io, service, &watch, &draining).await,
    };
    if let Err(error) = result {
        panics::log!(debug, %peer, %error, "the connection ended with an error");
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
