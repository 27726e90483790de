//! One connection, from its first byte to its last.

use std::rc::Rc;

use http::{Request, Response, StatusCode};
use http_body::Body;
use hyper::service::Service;
use wakeful::accept::{Connection, WhenFull};
use wakeful::net::{PeerAddr, Stream};

use super::first_request::{drained, first_request};
use super::replaceable::Replaceable;
use super::tls_connection;
use crate::connection::{ConnectionState, MovableState, Protocol, Rewound, unasked_answer};
use crate::counts::Refusal;
use crate::drain;
use crate::error::BoxError;
use crate::foreign_code;
use crate::http1;
use crate::http2;
use crate::limits::peers::{PeerKey, TooMany};
use crate::loop_state::LoopState;
use crate::peer::Peer;
use crate::request::{ConnectionService, RequestBody};
use crate::tls::ServerTls;

/// Serves `connection` until it closes, or moves to another loop. Errors of a single connection are
/// the client's fault, and are logged at debug level.
pub(crate) async fn serve<S, B>(
    connection: Connection,
    service: S,
    loop_state: Rc<LoopState>,
    tls: Option<ServerTls>,
) where
    S: Service<Request<RequestBody>, Response = Response<B>> + 'static,
    S::Future: 'static,
    S::Error: Into<BoxError>,
    B: Body + 'static,
    B::Error: Into<BoxError>,
{
    if loop_state.limits().when_full == WhenFull::Wait {
        return serve_to_its_end(connection, service, loop_state, tls, None).await;
    }
    let (draining, of_loop) = (connection.draining.clone(), loop_state.clone());
    let replaceable = Replaceable::new();
    let known = Some(replaceable.clone());
    // This future is boxed, so that a connection of another server is no larger.
    let serving = Box::pin(serve_to_its_end(connection, service, loop_state, tls, known));
    replaceable.serve(serving, &draining, &of_loop).await;
}

async fn serve_to_its_end<S, B>(
    connection: Connection,
    service: S,
    loop_state: Rc<LoopState>,
    tls: Option<ServerTls>,
    replaceable: Option<Rc<Replaceable>>,
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
    let movable = match carried {
        Some(carried) => Ok(MovableState::unpack(*carried)),
        None => begin(peer, &loop_state),
    };
    let movable = match movable {
        Ok(movable) => movable,
        Err(TooMany { lingers }) => {
            loop_state.refuse(Refusal::PeerConnections);
            // With TLS an answer would need a handshake, whose cost the limit should save.
            if tls.is_none() {
                let (status, io) = (StatusCode::SERVICE_UNAVAILABLE, &mut stream);
                match lingers {
                    Some(_place) => unasked_answer::send(io, status, &loop_state).await,
                    None => unasked_answer::send_at_once(io, status, &loop_state),
                }
            }
            return;
        }
    };
    if let Stream::Tcp(stream) = &stream
        && let Err(error) = stream.set_nodelay(true)
    {
        loop_state.refuse(Refusal::NoRequest);
        foreign_code::log!(debug, %peer, %error, "the client has gone already");
        return;
    }
    if let Some(tls) = tls {
        // This future is boxed, so that a connection without TLS is no larger.
        return Box::pin(tls_connection::serve(
            (stream, peer),
            draining,
            service,
            movable,
            loop_state,
            tls,
            replaceable,
        ))
        .await;
    }
    let drained = drained(&draining, &movable, &loop_state);
    let Some((protocol, start)) =
        first_request(&mut stream, &unread, None, drained, &movable, &loop_state, peer).await
    else {
        return;
    };
    let io = Rewound { start, stream };
    let state = ConnectionState::new(loop_state, protocol, movable, Peer::new(peer));
    if let Some(replaceable) = replaceable {
        replaceable.begins(&state);
    }
    let service = ConnectionService::new(service, state.clone());
    let result = match protocol {
        Protocol::Http1 => http1::serve(io, service, peer, &state, &draining, &moving).await,
        Protocol::Http2 => http2::serve(io, service, &state, &draining).await,
    };
    if let Err(error) = result {
        foreign_code::log!(debug, %peer, %error, "the connection ended with an error");
    }
}

/// Makes a connection's state, if its peer may have one more connection.
fn begin(peer: PeerAddr, loop_state: &LoopState) -> Result<MovableState, TooMany> {
    let place = match (loop_state.peers(), peer) {
        (Some(peers), PeerAddr::Tcp(addr)) => peers.enter(PeerKey::new(addr))?,
        _ => None,
    };
    Ok(MovableState::new(loop_state.limits().max_age, place))
}
