//! From a request that asks for an upgrade, by the response that decides, to the end of hyper's connection.
//!
//! hyper puts an extension of its own into each request that may be upgraded, and so says which do. It ends a connection by an upgrade only if the last response was one; that response is what
//! [`Offers`] keeps. What was offered is fulfilled or refused, whatever is dropped on the way.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use send_wrapper::SendWrapper;

use super::upgraded::Io;
use super::{UpgradeError, Upgraded};

/// An upgrade that a request asks for.
#[derive(Debug, Clone)]
pub(crate) struct Offer(SendWrapper<Rc<RefCell<State>>>);

#[derive(Debug)]
enum State {
    /// For the response, and then for the end of the connection.
    Waiting(Option<Waker>),
    Fulfilled(Upgraded),
    Refused,
}

impl Offer {
    fn new() -> Self {
        Self(SendWrapper::new(Rc::new(RefCell::new(State::Waiting(None)))))
    }

    pub(super) fn poll(&self, cx: &mut Context<'_>) -> Poll<Result<Upgraded, UpgradeError>> {
        let mut state = self.0.borrow_mut();
        match std::mem::replace(&mut *state, State::Refused) {
            State::Waiting(_) => {
                *state = State::Waiting(Some(cx.waker().clone()));
                Poll::Pending
            }
            State::Fulfilled(upgraded) => Poll::Ready(Ok(upgraded)),
            State::Refused => Poll::Ready(Err(UpgradeError::Refused)),
        }
    }

    fn becomes(&self, next: State) {
        let before = std::mem::replace(&mut *self.0.borrow_mut(), next);
        if let State::Waiting(Some(waker)) = before {
            waker.wake();
        }
    }

    /// Gives the connection to who waits for it, and waits until that one has dropped it.
    pub(crate) async fn fulfil(self, io: impl Io + 'static, unread: Bytes) {
        let (upgraded, dropped) = Upgraded::watched(io, unread);
        self.becomes(State::Fulfilled(upgraded));
        // If nobody waits, that was the last of it.
        drop(self);
        dropped.await;
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
        // hyper puts it into requests that ask for an upgrade, and none else; most have no extension at all.
        request.extensions().get::<hyper::upgrade::OnUpgrade>()?;
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

/// A request that was offered an upgrade, until its response decides. Dropped before, it is refused.
pub(crate) struct Offered {
    offer: Option<Offer>,
    method: Method,
    offers: Rc<Offers>,
}

impl Offered {
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
