//! Tells handlers and layers whether the loop's server drains. It costs nothing for those that do
//! not ask.
//!
//! A loop of a server's group belongs to that server alone, so a thread-local is enough, and
//! nothing has to be put into each request. It is set by the loop's first connection.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use wakeful::accept::{Draining, DrainingStarted};
use wakeful::log::OncePerSecond;
use wakeful::{LoopBound, LoopHandle};

use super::put_off::PutOff;
use crate::foreign_code;

thread_local! {
    static HERE: RefCell<Option<(Draining, LoopHandle)>> = const { RefCell::new(None) };
}

/// Waits until the server of this loop begins to drain. Long-lived responses (server-sent events, a
/// gRPC stream, a WebSocket) should await it together with their own events, and then end. On a
/// thread that serves no connections of a [`Server`](crate::Server) it waits for ever.
///
/// ```
/// use futures_lite::FutureExt;
/// use wakeful::time::sleep;
///
/// async fn handler() -> &'static str {
///     let news = async {
///         sleep(std::time::Duration::from_secs(3600)).await;
///         "news\n"
///     };
///     let end = async {
///         wakeful_http::drain_begins().await;
///         "no news\n"
///     };
///     news.or(end).await
/// }
/// # let _: axum::Router = axum::Router::new().route("/", axum::routing::get(handler));
/// ```
///
/// It needs neither a lock nor an allocation. On other threads, use
/// [`Readiness`](crate::Readiness).
///
/// # Cancel safety
/// Cancel-safe.
pub fn drain_begins() -> DrainBegins {
    // In the destructor of a thread-local, `HERE` may be gone, like the loop.
    let draining = HERE.try_with(|here| here.borrow().clone()).ok().flatten();
    let bound = |(draining, home): (Draining, _)| LoopBound::with_home(draining.started(), home);
    DrainBegins { started: draining.map(bound), put_off: PutOff::default() }
}

/// The future that [`drain_begins`] returns.
///
/// # Threads
/// `Send`, and may be dropped anywhere. If it is polled on a thread other than its loop's, it waits
/// for ever, and this is logged. On other threads, use [`Readiness`](crate::Readiness).
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct DrainBegins {
    /// `None`: this thread serves no connections.
    started: Option<LoopBound<DrainingStarted>>,
    put_off: PutOff,
}

impl Future for DrainBegins {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let Some(started) = &mut this.started else { return Poll::Pending };
        match started.get_mut() {
            Some(started) => ready!(Pin::new(started).poll(cx)),
            None => {
                warn_of_thread();
                return Poll::Pending;
            }
        }
        this.put_off.poll(cx)
    }
}

/// Notes that this thread's loop serves connections that learn of the drain by `draining`.
pub(crate) fn enter(draining: &Draining) {
    HERE.with_borrow_mut(|here| {
        if here.is_none() {
            *here = Some((draining.clone(), wakeful::LoopHandle::current()));
        }
    });
}

#[cold]
fn warn_of_thread() {
    static LIMIT: OncePerSecond = OncePerSecond::new();
    if let Some(count) = LIMIT.pass() {
        foreign_code::log!(
            warn,
            count,
            "`drain_begins` is awaited on another thread than its connection's loop, where it never ends: \
             use `Readiness` there"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_destructor_of_a_thread_local_may_ask_for_it() {
        struct Asks;
        impl Drop for Asks {
            fn drop(&mut self) {
                drop(drain_begins());
            }
        }
        thread_local! {
            static ASKS: RefCell<Option<Asks>> = const { RefCell::new(None) };
        }
        let thread = std::thread::spawn(|| {
            ASKS.set(Some(Asks));
            // The library's thread-local is younger than this one, and so is destroyed before it.
            drop(drain_begins());
        });
        thread.join().expect("a panic there aborts the process");
    }
}
