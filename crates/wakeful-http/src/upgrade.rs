//! Connections that go on in another protocol than HTTP: `Upgrade` and CONNECT of HTTP/1.1, and extended CONNECT of HTTP/2 (RFC 8441).
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
//!     let response = response.header(header::CONNECTION, "upgrade").header(header::UPGRADE, "echo");
//!     response.body(String::new()).expect("it is valid")
//! }
//! ```
//!
//! WebSockets are in `ws` (feature `ws`).
//!
//! hyper's own `upgrade::on` wants connections that are `Send`, and does not work for HTTP/1.1 here. So a request that asks for an upgrade, and no other, gets an [`Offer`] among its extensions; the response decides
//! whether it holds; and when hyper's connection ends by it, the bytes go to who waits. An upgraded connection stays on its loop, counts as open until its [`Upgraded`] is dropped, and is aborted
//! when the grace period of a drain is over: what uses it should await [`drain_begins`](crate::drain_begins).

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::{Buf, Bytes};
use futures_io::{AsyncRead, AsyncWrite};
use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::rt::{Read, ReadBuf, ReadBufCursor, Write};
use hyper::service::Service;
use pin_project_lite::pin_project;
use send_wrapper::SendWrapper;

/// The upgrade that `request` asks for, to be awaited in a task of its own: it happens once the response is written. Takes it out of the request; the second time there is none.
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

/// Why there is no upgrade.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UpgradeError {
    /// The request asked for none.
    #[error("the request does not ask for an upgrade")]
    NotAsked,
    /// The response was not 101, nor 2xx to CONNECT; or the connection ended before.
    #[error("the response was no upgrade, or could not be sent")]
    Refused,
    /// On HTTP/2.
    #[error("the stream was not upgraded: {0}")]
    Http2(hyper::Error),
}

/// The future of [`on`].
///
/// *Threads*: `Send`, because handlers have to be; it panics when it is polled or dropped on another thread than its loop's.
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
            Source::Http1(offer) => offer.poll(cx),
            Source::Http2(theirs) => Pin::new(theirs).poll(cx).map(|upgraded| {
                let io = upgraded.map_err(UpgradeError::Http2)?;
                Ok(Upgraded { unread: Bytes::new(), io: Box::new(io), _open: None })
            }),
        }
    }
}

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

    fn poll(&self, cx: &mut Context<'_>) -> Poll<Result<Upgraded, UpgradeError>> {
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
}

impl Drop for Offers {
    fn drop(&mut self) {
        if let Some(offer) = self.accepted.take() {
            offer.becomes(State::Refused);
        }
    }
}

impl Offer {
    /// Gives the connection to who waits for it, and waits until that one has dropped it.
    pub(crate) async fn fulfil(self, io: impl Io + 'static, unread: Bytes) {
        let open = Rc::new(Open::default());
        let guard = OpenGuard(open.clone());
        self.becomes(State::Fulfilled(Upgraded { unread, io: Box::new(io), _open: Some(guard) }));
        // If nobody waits, that was the last of it.
        drop(self);
        poll_fn(|cx| {
            if open.is_closed.get() {
                return Poll::Ready(());
            }
            open.waker.set(Some(cx.waker().clone()));
            Poll::Pending
        })
        .await;
    }
}

/// Whether an upgraded connection is still in use.
#[derive(Default)]
struct Open {
    is_closed: Cell<bool>,
    waker: Cell<Option<Waker>>,
}

struct OpenGuard(Rc<Open>);

impl Drop for OpenGuard {
    fn drop(&mut self) {
        self.0.is_closed.set(true);
        if let Some(waker) = self.0.waker.take() {
            waker.wake();
        }
    }
}

/// A service whose requests can be upgraded on HTTP/1.
pub(crate) struct Offering<S> {
    pub(crate) service: S,
    pub(crate) offers: Rc<Offers>,
}

impl<S, B> Service<Request<Incoming>> for Offering<S>
where
    S: Service<Request<Incoming>, Response = Response<B>>,
{
    type Response = Response<B>;
    type Error = S::Error;
    type Future = OfferingFuture<S::Future>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        // hyper puts it into requests that ask for an upgrade, and none else; most have no extension at all.
        let asks = request.extensions().get::<hyper::upgrade::OnUpgrade>().is_some();
        let offer = asks.then(|| {
            let offer = Offer::new();
            request.extensions_mut().insert(offer.clone());
            let method = request.method().clone();
            Offered { offer: Some(offer), method, offers: self.offers.clone() }
        });
        OfferingFuture { inner: self.service.call(request), offer }
    }
}

/// A request that was offered an upgrade, until its response decides. Dropped before, it is refused.
struct Offered {
    offer: Option<Offer>,
    method: Method,
    offers: Rc<Offers>,
}

impl Offered {
    fn answered<B>(mut self, response: &Response<B>) {
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

pin_project! {
    pub(crate) struct OfferingFuture<F> {
        #[pin]
        inner: F,
        offer: Option<Offered>,
    }
}

impl<F, B, E> Future for OfferingFuture<F>
where
    F: Future<Output = Result<Response<B>, E>>,
{
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let answer = this.inner.poll(cx);
        if let Poll::Ready(Ok(response)) = &answer
            && let Some(offer) = this.offer.take()
        {
            offer.answered(response);
        }
        answer
    }
}

/// Any connection, TLS or not.
pub(crate) trait Io: Read + Write + Unpin {}

impl<T: Read + Write + Unpin> Io for T {}

/// A connection that has left HTTP. Reads and writes by the traits of futures-io and of hyper; dropped, it closes.
///
/// *Threads*: neither `Send` nor `Sync`, as the connection beneath.
pub struct Upgraded {
    /// Came behind the request, and is read first.
    unread: Bytes,
    io: Box<dyn Io>,
    _open: Option<OpenGuard>,
}

impl fmt::Debug for Upgraded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upgraded").field("unread", &self.unread.len()).finish_non_exhaustive()
    }
}

impl Read for Upgraded {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        if self.unread.is_empty() {
            return Pin::new(&mut self.io).poll_read(cx, buf);
        }
        let count = self.unread.len().min(buf.remaining());
        buf.put_slice(&self.unread[..count]);
        self.unread.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl Write for Upgraded {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

impl AsyncRead for Upgraded {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let mut buf = ReadBuf::new(buf);
        Read::poll_read(self, cx, buf.unfilled()).map_ok(|()| buf.filled().len())
    }
}

impl AsyncWrite for Upgraded {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Write::poll_write(self, cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Write::poll_write_vectored(self, cx, slices)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Write::poll_flush(self, cx)
    }

    /// Ends the writing side.
    fn poll_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Write::poll_shutdown(self, cx)
    }
}
