//! Tells a loop's connections that the server drains, or that it needs their places, without a lock
//! and without a cost per request.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use slab::Slab;

use super::gives_way::{GivesWay, Standing};
use crate::sys::panics;

/// Tells a connection's handler when the server drains. The handler should then answer what it has
/// received, and close the connection.
///
/// A server that drains still accepts the connections that waited in the kernel's backlog. The
/// handler of such a connection finds at once that the drain has started, although a request may
/// have arrived. So it should read first, and close the connection only if there is nothing to
/// read.
///
/// # Threads
/// Neither `Send` nor `Sync`: it stays on its loop's thread, like the connection.
#[derive(Debug, Clone, Default)]
pub struct Draining(Rc<State>);

#[derive(Debug, Default)]
struct State {
    started: Cell<bool>,
    waiting: RefCell<Slab<Waiting>>,
}

/// A connection that waits for the drain.
struct Waiting {
    waker: Waker,
    /// The connection itself, if the server may ask it to close.
    connection: Option<Rc<dyn GivesWay>>,
    /// The server has asked it to close, and it has not noticed yet.
    is_asked: bool,
}

impl fmt::Debug for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiting").field("is_asked", &self.is_asked).finish_non_exhaustive()
    }
}

impl State {
    fn is_waiting_for(&self, place: Option<usize>, waker: &Waker) -> bool {
        let waiting = self.waiting.borrow();
        let kept = place.and_then(|place| waiting.get(place));
        kept.is_some_and(|kept| kept.waker.will_wake(waker) && !kept.is_asked)
    }
}

impl Draining {
    /// Waits until the server begins to drain, or its loop ends.
    ///
    /// # Cancel safety
    /// Cancel-safe.
    pub fn started(&self) -> DrainingStarted {
        DrainingStarted { state: self.0.clone(), place: None, connection: None, is_asked: false }
    }

    /// Like [`started`](Self::started), but also completes when the server asks this connection to
    /// close. A server does this when it has reached its [limit of
    /// connections](super::ConnectionServer::max_connections) and other connections wait. The
    /// connection should then finish and close, as in a drain. Each loop begins with the connection
    /// that has been idle longest. It asks busy connections only if the idle ones are not enough. A
    /// connection that does not await this future is never asked.
    ///
    /// # Cancel safety
    /// Cancel-safe. If the server has asked, and the future is dropped before it completes, the
    /// request is lost.
    ///
    /// ```
    /// # use std::cell::Cell;
    /// # use std::rc::Rc;
    /// # use std::time::Instant;
    /// # use wakeful::accept::{Connection, GivesWay, Standing};
    /// struct Echo {
    ///     idle_since: Cell<Instant>,
    /// }
    ///
    /// impl GivesWay for Echo {
    ///     fn standing(&self) -> Standing {
    ///         Standing::Idle(self.idle_since.get())
    ///     }
    /// }
    ///
    /// async fn serve(connection: Connection) {
    ///     let Connection { mut stream, draining, .. } = connection;
    ///     let echo = Rc::new(Echo { idle_since: Cell::new(Instant::now()) });
    ///     let answer = async {
    ///         let mut buf = [0; 512];
    ///         while let Ok(read @ 1..) = stream.read(&mut buf).await
    ///             && stream.write_all(&buf[..read]).await.is_ok()
    ///         {
    ///             echo.idle_since.set(Instant::now());
    ///         }
    ///     };
    ///     futures_lite::future::or(answer, draining.started_or_asked(echo.clone())).await;
    /// }
    /// ```
    pub fn started_or_asked(&self, connection: Rc<dyn GivesWay>) -> DrainingStarted {
        let mut started = self.started();
        started.connection = Some(connection);
        started
    }

    /// Returns whether the server has begun to drain.
    #[must_use]
    pub fn is_started(&self) -> bool {
        self.0.started.get()
    }

    pub(super) fn start(&self) {
        self.0.started.set(true);
        for (_, Waiting { waker, connection, .. }) in self.0.waiting.take() {
            panics::wake(waker);
            panics::discard(connection);
        }
    }

    /// The number of places. No connection waits at a place from this number on.
    pub(super) fn places(&self) -> usize {
        self.0.waiting.borrow().capacity()
    }

    /// What the connection at `place` is doing, if the server may ask it to close.
    pub(super) fn standing(&self, place: usize) -> Option<Standing> {
        let waiting = self.0.waiting.borrow();
        let Waiting { connection, is_asked: false, .. } = waiting.get(place)? else { return None };
        // `standing` is user code, so nothing is borrowed while it runs. A connection whose code
        // panics stays, and keeps no other one from being asked.
        let connection = connection.clone()?;
        drop(waiting);
        let mut standing = None;
        panics::contain(|| standing = Some(connection.standing()));
        standing
    }

    /// Asks the connection at `place` to close.
    pub(super) fn ask(&self, place: usize) {
        let mut waiting = self.0.waiting.borrow_mut();
        let Some(one) = waiting.get_mut(place) else { return };
        one.is_asked = true;
        let waker = std::mem::replace(&mut one.waker, Waker::noop().clone());
        drop(waiting);
        panics::wake(waker);
    }
}

/// Starts the drain when it is dropped, which happens at the latest when its loop ends. A task of
/// another executor may wait for the drain, and nothing else would tell it.
#[derive(Debug)]
pub(super) struct StartsAtEnd(pub(super) Draining);

impl Drop for StartsAtEnd {
    fn drop(&mut self) {
        self.0.start();
    }
}

/// The future of [`Draining::started`] and of [`Draining::started_or_asked`].
#[must_use = "futures do nothing unless awaited"]
pub struct DrainingStarted {
    state: Rc<State>,
    place: Option<usize>,
    /// The connection, if the server may ask it to close. It is here until the wait has a place.
    connection: Option<Rc<dyn GivesWay>>,
    is_asked: bool,
}

impl fmt::Debug for DrainingStarted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DrainingStarted")
            .field("state", &self.state)
            .field("place", &self.place)
            .finish_non_exhaustive()
    }
}

impl DrainingStarted {
    fn is_ready(&mut self) -> bool {
        let started = self.state.started.get();
        if started {
            // The start of the drain has emptied all places.
            self.place = None;
        }
        started || self.is_asked
    }

    /// Was this connection asked to close? If so, it gives its place up.
    #[cold]
    fn hears(&mut self) -> bool {
        let Some(place) = self.place else { return false };
        let mut waiting = self.state.waiting.borrow_mut();
        if waiting.get(place).is_some_and(|kept| kept.is_asked) {
            let kept = waiting.try_remove(place);
            drop(waiting);
            (self.place, self.is_asked) = (None, true);
            panics::discard(kept);
        }
        self.is_asked
    }
}

impl Future for DrainingStarted {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        if this.is_ready() {
            return Poll::Ready(());
        }
        if this.state.is_waiting_for(this.place, cx.waker()) {
            return Poll::Pending;
        }
        // The waker's clone is user code, which may start the drain or wait for it, so nothing is
        // borrowed while it runs.
        let waker = cx.waker().clone();
        if this.is_ready() || this.hears() {
            return Poll::Ready(());
        }
        let mut waiting = this.state.waiting.borrow_mut();
        let old = match this.place.and_then(|place| waiting.get_mut(place)) {
            Some(entry) => Some(std::mem::replace(&mut entry.waker, waker)),
            None => {
                let connection = this.connection.take();
                this.place = Some(waiting.insert(Waiting { waker, connection, is_asked: false }));
                None
            }
        };
        drop(waiting);
        panics::discard(old);
        Poll::Pending
    }
}

impl Drop for DrainingStarted {
    fn drop(&mut self) {
        if let Some(place) = self.place.filter(|_| !self.state.started.get()) {
            let waiting = self.state.waiting.borrow_mut().try_remove(place);
            panics::discard(waiting);
        }
    }
}

#[cfg(all(test, not(wakeful_loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    /// A waker that counts its wakes and panics in each.
    #[derive(Default)]
    struct Panics(AtomicUsize);

    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
            panic!("a waker that panics, on purpose");
        }
    }

    #[test]
    fn a_waker_that_panics_keeps_no_other_from_hearing_of_the_start() {
        let (draining, panics) = (Draining::default(), Arc::new(Panics::default()));
        let waker = panics.clone().into();
        let mut cx = Context::from_waker(&waker);
        let mut waiting = [(); 3].map(|()| draining.started());
        for one in &mut waiting {
            assert!(Pin::new(one).poll(&mut cx).is_pending());
        }
        draining.start();
        assert_eq!(panics.0.load(Ordering::Relaxed), waiting.len());
        assert!(waiting.iter_mut().all(|one| Pin::new(one).poll(&mut cx).is_ready()));
    }
}
