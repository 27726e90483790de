//! From a request that asks for an upgrade, by the response that decides, to the end of hyper's
//! connection.
//!
//! hyper puts an extension of its own into each request that may be upgraded, and so says which do.
//! It ends a connection by an upgrade only if the last response was one; that response is what
//! [`Offers`] keeps. What was offered is fulfilled or refused, whatever is dropped on the way.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use futures_util::future::{FusedFuture, FutureExt};
use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use wakeful::LoopBound;
use wakeful::log::OncePerSecond;

#[cfg(feature = "tokio")]
use super::as_hyper::HyperUpgrade;
use super::error::UpgradeError;
use super::upgraded::{Io, Upgraded};
use crate::foreign_code;

/// An upgrade that a request asks for.
#[derive(Debug, Clone)]
pub(crate) struct Offer(Arc<LoopBound<Shared>>);

#[derive(Debug)]
struct Shared {
    state: RefCell<State>,
    /// Who has it has it by hyper's `OnUpgrade`.
    by_hyper: Rc<Cell<bool>>,
    /// hyper's `OnUpgrade` is fulfilled.
    #[cfg(feature = "tokio")]
    is_handed_over: Cell<bool>,
}

#[derive(Debug)]
enum State {
    /// For the response, and then for the end of the connection.
    Waiting(Wakers),
    Fulfilled(Upgraded),
    Refused,
}

type Wakers = [Option<Waker>; 3];

/// Who waits for an [`Offer`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asker {
    Own,
    #[cfg(feature = "tokio")]
    HyperReads,
    #[cfg(feature = "tokio")]
    HyperWrites,
}

impl Offer {
    fn new() -> Self {
        Self(Arc::new(LoopBound::new(Shared {
            state: RefCell::new(State::Waiting(Wakers::default())),
            by_hyper: Rc::default(),
            #[cfg(feature = "tokio")]
            is_handed_over: Cell::new(false),
        })))
    }

    pub(super) fn poll(
        &self,
        asker: Asker,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Upgraded, UpgradeError>> {
        let Some(shared) = self.0.get() else {
            return Poll::Ready(Err(UpgradeError::OtherThread));
        };
        // A waker's clone and drop may be anybody's code: nothing is borrowed meanwhile.
        let mut waker = Some(cx.waker().clone());
        let before = {
            let state = &mut *shared.state.borrow_mut();
            match state {
                State::Waiting(wakers) => {
                    std::mem::swap(&mut wakers[asker as usize], &mut waker);
                    None
                }
                _ => Some(std::mem::replace(state, State::Refused)),
            }
        };
        foreign_code::discard(waker);
        match before {
            None => Poll::Pending,
            Some(State::Fulfilled(upgraded)) => {
                shared.by_hyper.set(asker != Asker::Own);
                Poll::Ready(Ok(upgraded))
            }
            Some(State::Waiting(_) | State::Refused) => Poll::Ready(Err(UpgradeError::Refused)),
        }
    }

    fn becomes(&self, next: State) {
        // The connection's own, so this is its thread.
        let Some(shared) = self.0.get() else { return };
        let before = std::mem::replace(&mut *shared.state.borrow_mut(), next);
        if let State::Waiting(wakers) = before {
            wakers.into_iter().flatten().for_each(foreign_code::wake);
        }
    }

    /// Nobody but the connection has it any more.
    fn is_abandoned(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }

    /// Gives the connection to who waits for it, and waits until that one has dropped it. Who has
    /// it by hyper's `OnUpgrade` does not know that the server drains, and is waited for until
    /// `drained` at most: then it has what the drain of others takes.
    pub(crate) async fn fulfil(
        self,
        io: impl Io + 'static,
        unread: Bytes,
        drained: impl Future<Output = ()>,
    ) {
        let (upgraded, dropped) = Upgraded::watched(io, unread);
        let by_hyper = self.0.get().map(|shared| shared.by_hyper.clone());
        self.becomes(State::Fulfilled(upgraded));
        // If nobody waits, that was the last of it.
        drop(self);
        let (mut dropped, mut drained) = (pin!(dropped), pin!(drained.fuse()));
        poll_fn(|cx| {
            let is_drained = drained.is_terminated() || drained.as_mut().poll(cx).is_ready();
            if is_drained && by_hyper.as_ref().is_some_and(|by_hyper| by_hyper.get()) {
                return Poll::Ready(());
            }
            dropped.as_mut().poll(cx)
        })
        .await;
    }
}

#[cfg(feature = "tokio")]
impl Offer {
    /// hyper's `OnUpgrade` was not fulfilled yet: what stands for it has no connection to read.
    pub(super) fn is_on_no_wire(&self) -> bool {
        self.0.get().is_some_and(|shared| !shared.is_handed_over.get())
    }

    pub(super) fn is_handed_over(&self) {
        if let Some(shared) = self.0.get() {
            shared.is_handed_over.set(true);
        }
    }

    pub(super) fn bind(&self, upgraded: Upgraded) -> LoopBound<Upgraded> {
        LoopBound::with_home(upgraded, self.0.home().clone())
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
        // `with_upgrades`: who takes it is refused by its absence, or gets one that does.
        request.extensions_mut().remove::<hyper::upgrade::OnUpgrade>()?;
        Some(Offered::new(request, self.clone()))
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
    /// The same, for who asks for hyper's.
    #[cfg(feature = "tokio")]
    of_hyper: Option<HyperUpgrade>,
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
            of_hyper
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
            "{what}. hyper's `upgrade::on` and axum's `WebSocketUpgrade` work with Tokio on each loop \
             (`Server::tokio`); without it use `wakeful_http::upgrade::on`, or \
             `wakeful_http::ws::WebSocketUpgrade`"
        );
    }
}
