//! Connections that switch from HTTP to another protocol: HTTP/1.1 `Upgrade` and CONNECT, and
//! HTTP/2 extended CONNECT (RFC 8441).
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
//! `hyper::upgrade::on` also works, and so does axum's `WebSocketUpgrade`, which uses it. The
//! upgraded connection may be used on any thread. On the thread of its loop (where a guest's
//! `tokio::spawn` runs tasks), reads and writes use the connection directly. If the first read or
//! write is on another thread, the loop copies the bytes from then on, through a buffer in each
//! direction, and wakes the other thread.
//!
//! Code that uses hyper's upgrade cannot learn of a drain, so such a connection does not delay a
//! drain: the server waits for it only as long as for an idle HTTP/1.1 connection
//! ([`DrainPlan::linger`](crate::DrainPlan::linger)), and the connection ends with its loop. Over
//! HTTP/2 it is a stream like any other, and the server waits for it until the grace period is
//! over. There, hyper does not tell when such code has dropped the connection, so
//! [`min_rate`](crate::Limits::min_rate) does not apply to what was not sent by then.
//!
//! Without Tokio an HTTP/1.1 request has no hyper upgrade extension: hyper's upgrades need
//! connections that are `Send`, and wakeful's are not. If a handler answers 101 and nothing uses
//! the upgrade, the client gets 500.
//!
//! # How it works
//! The response decides whether the upgrade happens. After the response, the waiting task gets the
//! connection, with the bytes that hyper has already read. An upgraded connection stays on its
//! loop, and counts as open until its [`Upgraded`] is dropped.
//!
//! When the grace period of a drain is over, the connection is aborted. So its task should also
//! await [`drain_begins`](crate::drain_begins), and then end. A server that replaces connections
//! ([`WhenFull::Replace`](wakeful::accept::WhenFull::Replace)) may close it for another one.

// Only a request that asks for an upgrade gets an `Offer` among its extensions, or with HTTP/2 a
// `StreamOffer`. `as_hyper` is for hyper's own upgrades.

#[cfg(feature = "tokio")]
mod as_hyper;
#[cfg(feature = "tokio")]
mod elsewhere;
mod error;
mod offer;
mod offered;
mod stream;
mod stream_io;
mod stream_link;
mod upgraded;

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::Request;

pub use self::error::UpgradeError;
use self::offer::{Asker, Offer};
#[doc(hidden)]
pub use self::offered::KnownRefusal;
pub(crate) use self::offered::{Offered, Offers, refuse_interim};
pub(crate) use self::stream::offer_stream;
use self::stream::{StreamOffer, StreamUpgrade};
pub(crate) use self::stream_link::StreamLink;
pub(crate) use self::upgraded::Io;
pub use self::upgraded::Upgraded;

/// Takes the upgrade out of a `request` that asks for one, and returns a future for it. Await the
/// future in a separate task, because the upgrade happens after the response is written. If the
/// request asks for no upgrade, or a previous call has taken it, the future ends with
/// [`UpgradeError::NotAsked`].
pub fn on<B>(request: &mut Request<B>) -> OnUpgrade {
    take(request.extensions_mut())
}

pub(crate) fn take(extensions: &mut http::Extensions) -> OnUpgrade {
    let theirs = extensions.remove::<hyper::upgrade::OnUpgrade>();
    // Without an offer of ours, the request is not from one of our servers.
    let of_stream = extensions.remove().or_else(|| theirs.map(StreamOffer::of_other));
    OnUpgrade(match (extensions.remove::<Offer>(), of_stream) {
        (Some(offer), _) => Source::Http1 { offer, asker: None },
        (None, Some(offer)) => Source::Http2(StreamUpgrade::new(offer)),
        (None, None) => Source::None,
    })
}

/// The future that [`on`] returns.
///
/// # Threads
/// `Send`, and may be dropped anywhere. Over HTTP/1.1, if it is polled on a thread other than its
/// loop's, it ends with [`OtherThread`](UpgradeError::OtherThread). Over HTTP/2 the [`Upgraded`]
/// belongs to the thread that polls it.
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct OnUpgrade(Source);

#[derive(Debug)]
enum Source {
    None,
    Http1 {
        offer: Offer,
        /// `None`: the future was not polled yet.
        asker: Option<Asker>,
    },
    Http2(StreamUpgrade),
}

impl OnUpgrade {
    /// Returns whether the request asked for an upgrade.
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
            Source::Http1 { offer, asker } => {
                let asker = *asker.get_or_insert_with(|| offer.asker());
                offer.poll(asker, cx)
            }
            Source::Http2(upgrade) => Pin::new(upgrade).poll(cx),
        }
    }
}
