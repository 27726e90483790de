//! One connection with TLS: the handshake, the choice of the protocol, and then HTTP as without
//! TLS.
//!
//! It stays on its loop, because its keys and counters cannot be moved. If a client has begun its
//! handshake when the server begins to drain, it may finish the handshake and send its first
//! request. A connection on which the client has sent nothing yet is closed, as without TLS.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::time::Duration;

use http::{Request, Response};
use http_body::Body;
use hyper::rt::Write;
use hyper::service::Service;
use wakeful::accept::Draining;
use wakeful::net::{PeerAddr, Stream};
use wakeful::time::{Deadline, now, timeout};

use super::first_request::{drained, first_request, until};
use super::replaceable::Replaceable;
use crate::connection::{ConnectionState, MovableState, Protocol, Rewound};
use crate::counts::Refusal;
use crate::error::BoxError;
use crate::foreign_code;
use crate::http1;
use crate::http2;
use crate::loop_state::LoopState;
use crate::peer::Peer;
use crate::request::{ConnectionService, RequestBody};
use crate::tls::{AcceptError, Alpn, PeerCertificates, ServerTls, TlsStream};

/// How long after its handshake a client may send its first request although the server drains. A
/// client that has made a handshake is probably about to send one.
const FIRST_REQUEST: Duration = Duration::from_secs(1);

/// Serves it until it closes.
pub(crate) async fn serve<S, B>(
    (mut stream, peer): (Stream, PeerAddr),
    draining: Draining,
    service: S,
    movable: MovableState,
    loop_state: Rc<LoopState>,
    tls: ServerTls,
    replaceable: Option<Rc<Replaceable>>,
) where
    S: Service<Request<RequestBody>, Response = Response<B>> + 'static,
    S::Future: 'static,
    S::Error: Into<BoxError>,
    B: Body + 'static,
    B::Error: Into<BoxError>,
{
    let drained = drained(&draining, &movable, &loop_state);
    let begun = until(drained, pin!(tls.begin(&mut stream))).await;
    let stream = match begun {
        None => return,
        Some(Ok(begun)) => tls.finish(stream, begun).await,
        Some(Err(error)) => Err(error),
    };
    let mut stream = match stream {
        Ok(stream) => stream,
        Err(error) => {
            // `TlsCounts` does not count these either.
            let refusal = match error {
                AcceptError::Silent => Refusal::NoRequest,
                _ => Refusal::Tls,
            };
            loop_state.refuse(refusal);
            return foreign_code::log!(debug, %peer, %error, "no TLS");
        }
    };
    let alpn = stream.alpn();
    let certificates = stream.peer_certificates().map(|chain| PeerCertificates(chain.into()));
    let begins = now();
    let until_asked = begins + FIRST_REQUEST;
    let too_late = async {
        draining.started().await;
        // A request that is on its way now gets as long as without TLS.
        Deadline::at(until_asked.max(now() + loop_state.linger())).await;
    };
    let Some((detected, start)) =
        first_request(&mut stream, &[], alpn, too_late, &movable, &loop_state, peer).await
    else {
        return goodbye(stream).await;
    };
    let io = Rewound { start, stream };
    let protocol = match alpn {
        None => detected,
        Some(Alpn::Http1) => Protocol::Http1,
        Some(Alpn::Http2) => Protocol::Http2,
    };
    let identity = Peer::new(peer).over_tls(alpn);
    let state = ConnectionState::new(loop_state, protocol, movable, identity);
    state.may_ask_since(begins);
    if let Some(replaceable) = replaceable {
        replaceable.begins(&state);
    }
    let service = Identified { service, certificates };
    let service = ConnectionService::new(service, state.clone());
    let result = match protocol {
        Protocol::Http1 => http1::serve_here(io, service, &state, &draining).await,
        Protocol::Http2 => http2::serve(io, service, &state, &draining).await,
    };
    if let Err(error) = result {
        foreign_code::log!(debug, %peer, %error, "the connection ended with an error");
    }
}

/// Ends a connection on which nothing will be sent, in TLS's way. It does not wait for a client
/// that does not take the few bytes at once.
async fn goodbye(mut stream: TlsStream<Stream>) {
    let _ = timeout(Duration::ZERO, poll_fn(|cx| Pin::new(&mut stream).poll_shutdown(cx))).await;
}

/// Tells handlers the client's identity, if the client has shown one.
struct Identified<S> {
    service: S,
    certificates: Option<PeerCertificates>,
}

impl<S: Service<Request<RequestBody>>> Service<Request<RequestBody>> for Identified<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    #[inline(always)]
    fn call(&self, mut request: Request<RequestBody>) -> S::Future {
        if let Some(certificates) = &self.certificates {
            request.extensions_mut().insert(certificates.clone());
        }
        self.service.call(request)
    }
}
