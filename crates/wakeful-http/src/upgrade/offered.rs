//! The way of an upgrade: a request asks for it, the response decides about it, and hyper's
//! connection ends.
//!
//! hyper puts its own extension into each request that may be upgraded, which shows which requests
//! these are. It ends a connection by an upgrade only if the last response was an upgrade, and
//! [`Offers`] keeps the offer of that response. Each offer is fulfilled or refused, whatever is
//! dropped on the way.

use std::cell::Cell;
use std::rc::Rc;

use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use wakeful::log::OncePerSecond;

#[cfg(feature = "tokio")]
use super::as_hyper::HyperUpgrade;
use super::offer::Offer;
use crate::foreign_code;

/// The offers of one HTTP/1 connection.
#[derive(Default)]
pub(crate) struct Offers {
    /// The offer whose response was an upgrade. hyper does not call its service after such a
    /// response.
    accepted: Cell<Option<Offer>>,
}

impl Offers {
    /// The offer by which the connection has ended, if there is one.
    pub(crate) fn accepted(&self) -> Option<Offer> {
        self.accepted.take()
    }

    /// Has the last response accepted an offer?
    pub(crate) fn have_accepted(&self) -> bool {
        let accepted = self.accepted.take();
        let have_accepted = accepted.is_some();
        self.accepted.set(accepted);
        have_accepted
    }

    /// Offers the upgrade that `request` asks for, if it asks for one.
    #[inline]
    pub(crate) fn offer(self: &Rc<Self>, request: &mut Request<Incoming>) -> Option<Offered> {
        // hyper puts its extension only into requests that ask for an upgrade, and most others have
        // no extension at all. The extension is useless, because the connection does not run as
        // hyper's `with_upgrades`. So it is removed, and code that wants it is refused by its
        // absence, or gets one that works.
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

/// A request that was offered an upgrade, until its response decides. If it is dropped before, the
/// offer is refused.
pub(crate) struct Offered {
    offer: Option<Offer>,
    /// The virtual connection, for code that uses hyper's upgrades.
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

    /// Corrects the response. If it changes to a protocol that no code takes up, the connection
    /// would end silently, so it becomes a 500.
    #[cold]
    pub(crate) fn correct<B>(&mut self, response: &mut Response<B>) {
        let status = response.status();
        if status.is_informational() && status != StatusCode::SWITCHING_PROTOCOLS {
            return refuse_interim(response);
        }
        #[cfg(feature = "tokio")]
        if let Some((of_hyper, offer)) = self.of_hyper.take().zip(self.offer.as_ref())
            && self.is_upgrade(response)
            && of_hyper.hand_over(offer)
        {
            return;
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
            StatusCode::UPGRADE_REQUIRED
                if response.extensions().get::<KnownRefusal>().is_none() =>
            {
                advise("a handler answered 426 to a request that asks for an upgrade");
            }
            _ => {}
        }
    }

    /// Decides about the offer by the response.
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

/// Turns a 1xx response into a 500, because a 1xx cannot be the final response to a request. (Only
/// a change of protocol that the request asked for can.) hyper would end the whole connection.
#[cold]
pub(crate) fn refuse_interim<B>(response: &mut Response<B>) {
    static LIMIT: OncePerSecond = OncePerSecond::new();
    let status = std::mem::replace(response.status_mut(), StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().clear();
    if let Some(count) = LIMIT.pass() {
        foreign_code::log!(
            error,
            count,
            "a handler answered {status}, which is not a final response here: answered 500"
        );
    }
}

/// Marks a 426 of code that knows this crate's upgrades: the crate itself, or a proxy that passes
/// on a backend's answer. Such a 426 is no mistake, so no advice is logged.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub struct KnownRefusal;

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
