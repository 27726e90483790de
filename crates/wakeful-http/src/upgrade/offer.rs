//! From a request that asks for an upgrade, by the response that decides, to the end of hyper's
//! connection.
//!
//! hyper puts an extension of its own into each request that may be upgraded, and so says which do.
//! It ends a connection by an upgrade only if the last response was one; that response is what
//! [`Offers`] keeps. What was offered is fulfilled or refused, whatever is dropped on the way.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use wakeful::LoopBound;
use wakeful::log::OncePerSecond;

use super::error::UpgradeError;
use super::upgraded::{Io, Upgraded};
use crate::foreign_code;

/// An upgrade that a request asks for.
#[derive(Debug, Clone)]
pub(crate) struct Offer(Arc<LoopBound<RefCell<State>>>);

#[derive(Debug)]
enum State {
    /// For the response, and then for the end of the connection.
    Waiting(Option<Waker>),
    Fulfilled(Upgraded),
    Refused,
}

impl Offer {
    fn new() -> Self {
        let state = RefCell::new(State::Waiting(None));
        Self(Arc::new(LoopBound::new(state)))
    }

    pub(super) fn poll(&self, cx: &mut Context<'_>) -> Poll<Result<Upgraded, UpgradeError>> {
        let Some(state) = self.0.get() else {
            return Poll::Ready(Err(UpgradeError::OtherThread));
        };
        // A waker's clone and drop may be anybody's code: nothing is borrowed meanwhile.
        let waiting = State::Waiting(Some(cx.waker().clone()));
        let before = state.replace(waiting);
        if matches!(before, State::Waiting(_)) {
            return Poll::Pending;
        }
        drop(state.replace(State::Refused));
        match before {
            State::Fulfilled(upgraded) => Poll::Ready(Ok(upgraded)),
            State::Waiting(_) | State::Refused => Poll::Ready(Err(UpgradeError::Refused)),
        }
    }

    fn becomes(&self, next: State) {
        // The connection's own, so this is its thread.
        let Some(state) = self.0.get() else { return };
        let before = std::mem::replace(&mut *state.borrow_mut(), next);
        if let State::Waiting(Some(waker)) = before {
            foreign_code::wake(waker);
        }
    }

    /// Nobody but the connection has it any more.
    fn is_abandoned(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }

    /// Gives the connection to who waits for it, and waits until that one has dropped it. Dropped
    /// before, it closes the connection.
    pub(crate) async fn fulfil(self, io: impl Io + 'static, unread: Bytes) {
        let (upgraded, held) = Upgraded::held(io, unread);
        self.becomes(State::Fulfilled(upgraded));
        // If nobody waits, that was the last of it.
        drop(self);
        held.await;
    }
}

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
        // `with_upgrades`: who takes it is refused by its absence.
        request.extensions_mut().remove::<hyper::upgrade::OnUpgrade>()?;
        let offer = Offer::new();
        request.extensions_mut().insert(offer.clone());
        let method = request.method().clone();
        Some(Offered { offer: Some(offer), method, offers: self.clone() })
    }
}

impl Drop for Offers {
    fn drop(&mut self) {
        if let Some(offer) = self.accepted.take() {
            offer.becomes(State::Refused);
        }
    }
}

/// A request that was offered an upgrade, until its response decides. Dropped before, it is
/// refused.
pub(crate) struct Offered {
    offer: Option<Offer>,
    method: Method,
    offers: Rc<Offers>,
}

impl Offered {
    /// A response that changes to a protocol that nobody takes up would be the connection's silent
    /// end: it becomes 500.
    #[cold]
    pub(crate) fn correct<B>(&self, response: &mut Response<B>) {
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
        let status = response.status();
        let is_tunnel = self.method == Method::CONNECT && status.is_success();
        if status == StatusCode::SWITCHING_PROTOCOLS || is_tunnel {
            self.offers.accepted.set(self.offer.take());
        }
    }
}

impl Drop for Offered {
    fn drop(&mut self) {
        if let Some(offer) = self.offer.take() {
            offer.becomes(State::Refused);
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
            "{what}. hyper's `upgrade::on` and axum's `WebSocketUpgrade` do not work here: use \
             `wakeful_http::upgrade::on`, or `wakeful_http::ws::WebSocketUpgrade`"
        );
    }
}
