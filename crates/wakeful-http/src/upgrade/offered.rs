//! From a request that asks for an upgrade, by the response that decides, to the end of hyper's
//! connection.
//!
//! hyper puts an extension of its own into each request that may be upgraded, and so says which do.
//! It ends a connection by an upgrade only if the last response was one; that response is what
//! [`Offers`] keeps. What was offered is fulfilled or refused, whatever is dropped on the way.

use std::cell::Cell;
use std::rc::Rc;

use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use wakeful::log::OncePerSecond;

#[cfg(feature = "tokio")]
use super::as_hyper::HyperUpgrade;
use super::offer::Offer;
use crate::foreign_code;

/// What one connection of HTTP/1 was asked for.
#[derive(Default)]
pub(crate) struct Offers {
    /// The response to it was an upgrade. hyper asks its service nothing behind such a response.
    accepted: Cell<Option<Offer>>,
}

impl Offers {
    /// The one by which the connection has ended, if it has.
    pub(crate) fn accepted(&self) -> Option<Offer> {
        self.accepted.take()
    }

    /// Offers the upgrade that `request` asks for, if it asks for one.
    #[inline]
    pub(crate) fn offer(self: &Rc<Self>, request: &mut Request<Incoming>) -> Option<Offered> {
        // hyper puts it into requests that ask for an upgrade, and none else; most have no
        // extension at all. It comes to nothing, because the connection does not run as hyper's
        // `with_upgrades`: who takes it is refused by its absence, or gets one that does.
        request.extensions_mut().remove::<hyper::upgrade::OnUpgrade>()?;
        Some(Offered::new(request, self.clone()))
    }
}

impl Drop for Offers {
    fn drop(&mut self) {
        if let Some(offer) = self.accepted.take() {
            offer.refuse();
        }
    }
}

/// A request that was offered an upgrade, until its response decides. Dropped before, it is
/// refused.
pub(crate) struct Offered {
    offer: Option<Offer>,
    /// The same, for who asks for hyper's.
    #[cfg(feature = "tokio")]
    of_hyper: Option<Box<HyperUpgrade>>,
    method: Method,
    offers: Rc<Offers>,
}

impl Offered {
    #[cold]
    fn new(request: &mut Request<Incoming>, offers: Rc<Offers>) -> Self {
        let offer = Offer::new();
        #[cfg(feature = "tokio")]
        let of_hyper = HyperUpgrade::prepare(&offer).map(|(of_hyper, on_upgrade)| {
            request.extensions_mut().insert(on_upgrade);
            Box::new(of_hyper)
        });
        request.extensions_mut().insert(offer.clone());
        Self {
            offer: Some(offer),
            #[cfg(feature = "tokio")]
            of_hyper,
            method: request.method().clone(),
            offers,
        }
    }

    /// Does `response` end HTTP on the connection?
    fn is_upgrade<B>(&self, response: &Response<B>) -> bool {
        let status = response.status();
        let is_tunnel = self.method == Method::CONNECT && status.is_success();
        status == StatusCode::SWITCHING_PROTOCOLS || is_tunnel
    }

    /// A response that changes to a protocol that nobody takes up would be the connection's silent
    /// end: it becomes 500.
    #[cold]
    pub(crate) fn correct<B>(&mut self, response: &mut Response<B>) {
        #[cfg(feature = "tokio")]
        if let Some((of_hyper, offer)) = self.of_hyper.take().zip(self.offer.as_ref())
            && self.is_upgrade(response)
        {
            of_hyper.hand_over(offer);
        }
        if !self.offer.as_ref().is_none_or(Offer::is_abandoned) {
            return;
        }
        match response.status() {
            StatusCode::SWITCHING_PROTOCOLS => {
                *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
                response.headers_mut().clear();
                advise("a handler answered 101 and did not take the upgrade: answered 500");
            }
            StatusCode::UPGRADE_REQUIRED if response.extensions().get::<OwnRefusal>().is_none() => {
                advise("a handler answered 426 to a request that asks for an upgrade");
            }
            _ => {}
        }
    }

    /// The response decides.
    pub(crate) fn answered<B>(mut self, response: &Response<B>) {
        if self.is_upgrade(response) {
            self.offers.accepted.set(self.offer.take());
        }
    }
}

impl Drop for Offered {
    fn drop(&mut self) {
        if let Some(offer) = self.offer.take() {
            offer.refuse();
        }
    }
}

/// A handler's response that cannot be the last one of its request, which asked for no upgrade,
/// becomes 500. With HTTP/2 it would end the whole connection.
#[cold]
pub(crate) fn refuse_interim<B>(response: &mut Response<B>) {
    static LIMIT: OncePerSecond = OncePerSecond::new();
    let status = std::mem::replace(response.status_mut(), StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().clear();
    if let Some(count) = LIMIT.pass() {
        foreign_code::log!(
            error,
            count,
            "a handler answered {status} to a request that asks for no upgrade: answered 500"
        );
    }
}

/// Marks a response by which this crate itself refuses an upgrade.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OwnRefusal;

#[cold]
fn advise(what: &'static str) {
    static LIMIT: OncePerSecond = OncePerSecond::new();
    if let Some(count) = LIMIT.pass() {
        foreign_code::log!(
            error,
            count,
            "{what}. hyper's `upgrade::on` and axum's `WebSocketUpgrade` work with Tokio \
             (`Server::tokio`, `Server::tokio_handle`); without it use `wakeful_http::upgrade::on`, or \
             `wakeful_http::ws::WebSocketUpgrade`"
        );
    }
}
