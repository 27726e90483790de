//! An upgrade that a request asks for. Code that has the request's extensions waits for it, and the
//! connection fulfils or refuses it.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{FusedFuture, FutureExt};
use wakeful::LoopBound;
#[cfg(feature = "tokio")]
use wakeful::LoopHandle;

use super::error::UpgradeError;
use super::upgraded::{Io, Upgraded};
use crate::foreign_code;
use crate::lingering_close;

/// How long a client may send nothing, after its user has closed the connection and dropped it.
const LINGER: Duration = Duration::from_secs(2);

/// An upgrade that a request asks for.
#[derive(Debug, Clone)]
pub(crate) struct Offer(Arc<LoopBound<Shared>>);

#[derive(Debug)]
struct Shared {
    state: RefCell<State>,
    /// How many [`Asker::Own`] there are.
    askers: Cell<u32>,
    /// Whether hyper's `OnUpgrade` has taken the connection, or may still take it.
    by_hyper: Rc<Cell<bool>>,
    /// Whether hyper's `OnUpgrade` is fulfilled.
    #[cfg(feature = "tokio")]
    is_handed_over: Cell<bool>,
    /// Whether this thread has dropped the io that hyper's `OnUpgrade` gives.
    #[cfg(feature = "tokio")]
    is_dropped_here: Cell<bool>,
}

#[derive(Debug)]
enum State {
    /// Wakers that wait for the response, and then for the end of the connection.
    Waiting(Wakers),
    Fulfilled(Upgraded),
    Refused,
}

type Wakers = Vec<(Asker, Waker)>;

/// A waiter for an [`Offer`]. When the offer is fulfilled, the first waiter that polls gets the
/// connection, and the others are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asker {
    /// One of several waiters, if the request's extensions were cloned.
    Own(u32),
    #[cfg(feature = "tokio")]
    HyperReads,
    #[cfg(feature = "tokio")]
    HyperWrites,
}

impl Offer {
    pub(super) fn new() -> Self {
        Self(Arc::new(LoopBound::new(Shared {
            state: RefCell::new(State::Waiting(Wakers::default())),
            askers: Cell::default(),
            by_hyper: Rc::default(),
            #[cfg(feature = "tokio")]
            is_handed_over: Cell::new(false),
            #[cfg(feature = "tokio")]
            is_dropped_here: Cell::new(false),
        })))
    }

    /// Makes one more waiter.
    pub(super) fn asker(&self) -> Asker {
        // On another thread the waiter is refused when it polls.
        Asker::Own(self.0.get().map_or(0, |shared| shared.askers.replace(shared.askers.get() + 1)))
    }

    pub(super) fn poll(
        &self,
        asker: Asker,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Upgraded, UpgradeError>> {
        let Some(shared) = self.0.get() else {
            return Poll::Ready(Err(UpgradeError::OtherThread));
        };
        // The clone and the drop of a waker may run user code, so nothing is borrowed meanwhile.
        let mut waker = Some(cx.waker().clone());
        let before = {
            let state = &mut *shared.state.borrow_mut();
            match state {
                State::Waiting(wakers) => {
                    match (wakers.iter_mut().find(|(known, _)| *known == asker), waker.take()) {
                        (Some((_, known)), Some(new)) => {
                            waker = Some(std::mem::replace(known, new));
                        }
                        (_, new) => wakers.extend(new.map(|new| (asker, new))),
                    }
                    None
                }
                _ => Some(std::mem::replace(state, State::Refused)),
            }
        };
        foreign_code::discard(waker);
        match before {
            None => Poll::Pending,
            Some(State::Fulfilled(upgraded)) => {
                shared.by_hyper.set(!matches!(asker, Asker::Own(_)));
                Poll::Ready(Ok(upgraded))
            }
            Some(State::Waiting(_) | State::Refused) => Poll::Ready(Err(UpgradeError::Refused)),
        }
    }

    /// Called when the response was no upgrade, or could not be sent.
    pub(super) fn refuse(&self) {
        self.becomes(State::Refused);
    }

    fn becomes(&self, next: State) {
        // Only the connection calls this, so this is its thread.
        let Some(shared) = self.0.get() else { return };
        let before = std::mem::replace(&mut *shared.state.borrow_mut(), next);
        if let State::Waiting(wakers) = before {
            wakers.into_iter().for_each(|(_, waker)| foreign_code::wake(waker));
        }
    }

    /// Does only the connection still have the offer?
    pub(super) fn is_abandoned(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }

    /// Gives the connection to the first waiter, and waits until the waiter's code has dropped it.
    /// Code that has it by hyper's `OnUpgrade` cannot learn of a drain, so this waits for such code
    /// only until `drained`. If this future is dropped, it closes the connection.
    pub(crate) async fn fulfil(
        self,
        mut io: impl Io + 'static,
        unread: Bytes,
        drained: impl Future<Output = ()>,
    ) {
        // Requests show where they end. The next protocol may end with its connection.
        io.require_close_notify();
        let (upgraded, mut held) = Upgraded::held(io, unread);
        let by_hyper = self.0.get().map(|shared| shared.by_hyper.clone());
        self.becomes(State::Fulfilled(upgraded));
        // If nobody waits, this was the last reference.
        drop(self);
        let mut drained = pin!(drained.fuse());
        let is_left = poll_fn(|cx| {
            let is_drained = drained.is_terminated() || drained.as_mut().poll(cx).is_ready();
            if is_drained && by_hyper.as_ref().is_some_and(|by_hyper| by_hyper.get()) {
                return Poll::Ready(true);
            }
            Pin::new(&mut held).poll(cx).map(|()| false)
        });
        if is_left.await {
            held.leave();
        } else if let Some(mut io) = held.lingering() {
            lingering_close::linger_while_it_reads(&mut *io, LINGER, |io| Io::unsent(&**io)).await;
        }
    }
}

#[cfg(feature = "tokio")]
impl Offer {
    /// Is hyper's `OnUpgrade` not fulfilled yet, so that the virtual connection has no real one to
    /// read?
    pub(super) fn is_on_no_wire(&self) -> bool {
        self.0.get().is_some_and(|shared| !shared.is_handed_over.get())
    }

    pub(super) fn is_handed_over(&self) {
        if let Some(shared) = self.0.get() {
            shared.is_handed_over.set(true);
        }
    }

    /// Code that has hyper's `OnUpgrade` may have the connection for a long time before it uses it.
    pub(super) fn is_left_to_hyper(&self) {
        if let Some(shared) = self.0.get() {
            shared.by_hyper.set(true);
        }
    }

    /// Notes the drop of the io that hyper's `OnUpgrade` gives. Its user may drop it on any thread.
    pub(super) fn drops_io(&self) {
        if let Some(shared) = self.0.get() {
            shared.is_dropped_here.set(true);
        }
    }

    pub(super) fn is_dropped_here(&self) -> bool {
        self.0.get().is_some_and(|shared| shared.is_dropped_here.get())
    }

    /// Is this the thread of the connection's loop?
    pub(super) fn is_here(&self) -> bool {
        self.0.get().is_some()
    }

    pub(super) fn home(&self) -> &LoopHandle {
        self.0.home()
    }

    pub(super) fn bind(&self, upgraded: Upgraded) -> LoopBound<Upgraded> {
        LoopBound::with_home(upgraded, self.home().clone())
    }
}
