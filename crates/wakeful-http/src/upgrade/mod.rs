//! Connections that go on in another protocol than HTTP: `Upgrade` and CONNECT of HTTP/1.1, and
//! extended CONNECT of HTTP/2 (RFC 8441).
//!
//! ```
//! use axum::extract::Request;
//! use futures_lite::{AsyncReadExt, AsyncWriteExt};
//! use http::{Response, StatusCode, header};
//! use wakeful_http::upgrade;
//!
//! async fn handler(mut request: Request) -> Response<String> {
//!     let upgrading = upgrade::on(&mut request);
//!     wakeful::spawn(async move {
//!         // Ready once the response is written.
//!         let Ok(mut stream) = upgrading.await else { return };
//!         let mut buf = [0; 1024];
//!         while let Ok(read @ 1..) = stream.read(&mut buf).await {
//!             if stream.write_all(&buf[..read]).await.is_err() {
//!                 break;
//!             }
//!         }
//!     })
//!     .detach();
//!     let response = Response::builder().status(StatusCode::SWITCHING_PROTOCOLS);
//!     let response = response.header(header::CONNECTION, "upgrade");
//!     let response = response.header(header::UPGRADE, "echo");
//!     response.body(String::new()).expect("it is valid")
//! }
//! ```
//!
//! WebSockets are in `ws` (feature `ws`).
//!
//! # hyper's own upgrades
//! With Tokio as each loop's guest (`Server::tokio`), or beside the loops (`Server::tokio_handle`),
//! `hyper::upgrade::on` works too, and so does axum's `WebSocketUpgrade`, which uses it. What it
//! hands out may be used on any thread. On that of its connection's loop, where a guest's
//! `tokio::spawn` stays, it is the connection itself. On another one, where it is first read or
//! written, the loop carries its bytes from then on: each way through a buffer, and by a wake of
//! the other thread. Its user cannot know of a drain, and so does not hold one up: the server waits
//! for it as for an idle connection of HTTP/1.1 ([`DrainPlan::linger`](crate::DrainPlan::linger)),
//! and it ends with its loop. Over HTTP/2 it is a stream as others are, and is waited for until the
//! grace period is over.
//!
//! Without Tokio an HTTP/1.1 request has no extension of theirs: hyper's upgrades want connections
//! that are `Send`, which ours are not. A 101 that nobody takes up here is answered 500.
//!
//! # How it works
//! A request that asks for an upgrade, and no other, gets an `Offer` among its extensions; the
//! response decides whether it holds; and when hyper's connection ends by it, the bytes go to who
//! waits. An upgraded connection stays on its loop, counts as open until its [`Upgraded`] is
//! dropped, and is aborted when the grace period of a drain is over: what uses it should await
//! [`drain_begins`](crate::drain_begins). A server that replaces connections
//! ([`WhenFull::Replace`](wakeful::accept::WhenFull::Replace)) may close it for another one; it is
//! never taken for a silent one. `as_hyper` is for hyper's own upgrades.

#[cfg(feature = "tokio")]
mod as_hyper;
#[cfg(feature = "tokio")]
mod elsewhere;
mod error;
mod offer;
mod offered;
mod upgraded;

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::Request;

pub use self::error::UpgradeError;
use self::offer::{Asker, Offer};
#[cfg(feature = "ws")]
pub(crate) use self::offered::OwnRefusal;
pub(crate) use self::offered::{Offered, Offers, refuse_interim};
pub use self::upgraded::Upgraded;

/// The upgrade that `request` asks for, to be awaited in a task of its own: it happens once the
/// response is written. Takes it out of the request; the second time there is none.
pub fn on<B>(request: &mut Request<B>) -> OnUpgrade {
    take(request.extensions_mut())
}

pub(crate) fn take(extensions: &mut http::Extensions) -> OnUpgrade {
    let theirs = extensions.remove::<hyper::upgrade::OnUpgrade>();
    OnUpgrade(match (extensions.remove::<Offer>(), theirs) {
        (Some(offer), _) => Source::Http1(offer),
        (None, Some(theirs)) => Source::Http2(theirs),
        (None, None) => Source::None,
    })
}

/// The future of [`on`].
///
/// *Threads*: `Send`, and may be dropped anywhere. Polled on another thread than its loop's it ends
/// with [`OtherThread`](UpgradeError::OtherThread).
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct OnUpgrade(Source);

#[derive(Debug)]
enum Source {
    None,
    Http1(Offer),
    Http2(hyper::upgrade::OnUpgrade),
}

impl OnUpgrade {
    /// Is there one to wait for?
    #[must_use]
    pub fn is_asked(&self) -> bool {
        !matches!(self.0, Source::None)
    }
}

impl Future for OnUpgrade {
    type Output = Result<Upgraded, UpgradeError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            Source::None => Poll::Ready(Err(UpgradeError::NotAsked)),
            Source::Http1(offer) => offer.poll(Asker::Own, cx),
            Source::Http2(theirs) => Pin::new(theirs).poll(cx).map(|upgraded| {
                let io = upgraded.map_err(UpgradeError::Http2)?;
                Ok(Upgraded::new(io))
            }),
        }
    }
}
