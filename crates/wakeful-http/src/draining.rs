//! The server that a loop works for, and whether it drains: for handlers and layers, at no cost for those that do not ask.
//!
//! A loop of a server's group belongs to that server alone, so a thread-local is enough: nothing has to be put into each request. A loop
//! knows from its first connection on.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use send_wrapper::SendWrapper;
use wakeful::accept::{Draining, DrainingStarted};

thread_local! {
    static HERE: RefCell<Option<Draining>> = const { RefCell::new(None) };
}

/// Whether the server of this loop drains, and when it begins to. `None` on a thread that serves no connection of a [`Server`](crate::Server).
///
/// It is not `Send`; for handlers that have to be there is [`drain_begins`].
#[must_use]
pub fn draining() -> Option<Draining> {
    HERE.with_borrow(Clone::clone)
}

/// Waits until the server of this loop begins to drain: for ever, on a thread that serves no connection of a [`Server`](crate::Server). What would go on (server-sent events, a gRPC stream, a
/// WebSocket) waits for it beside its own events, and then comes to its end.
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
/// *Cancel-safe*.
pub fn drain_begins() -> DrainBegins {
    DrainBegins(draining().map(|draining| SendWrapper::new(draining.started())))
}

/// The future of [`drain_begins`].
///
/// *Threads*: `Send`, because handlers have to be; it panics when it is polled or dropped on another thread than its loop's.
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct DrainBegins(Option<SendWrapper<DrainingStarted>>);

impl Future for DrainBegins {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.0 {
            Some(started) => Pin::new(&mut **started).poll(cx),
            None => Poll::Pending,
        }
    }
}

/// This thread's loop serves connections that are told by `draining`.
pub(crate) fn enter(draining: &Draining) {
    HERE.with_borrow_mut(|here| {
        if here.is_none() {
            *here = Some(draining.clone());
        }
    });
}
