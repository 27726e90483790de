//! hyper's own `OnUpgrade`, for handlers that use it, such as axum's `WebSocketUpgrade`. It is
//! provided only with Tokio, for which such handlers were written.
//!
//! Only a hyper connection can fulfil an `OnUpgrade`, and only if its io is `Send`, which ours is
//! not. So a request that asks for an upgrade gets the `OnUpgrade` of a separate, virtual
//! connection, which is not on any wire. This virtual connection has read [`REQUEST`], and answers
//! when the response to the real request is an upgrade. It gives its io, [`Passed`], to the
//! handler. From then on `Passed` reads and writes the real connection: directly on the loop of
//! that connection, and by a task of that loop after its first use on another thread (`elsewhere`),
//! for example if the Tokio runtime is beside the loops. Requests that ask for no upgrade get none
//! of this.

use std::cell::Cell;
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io;
use std::mem;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use tokio::runtime::Handle;
use wakeful::LoopBound;

use super::elsewhere::{self, Elsewhere};
use super::error::UpgradeError;
use super::offer::{Asker, Offer};
use super::upgraded::{Io, Upgraded};
use crate::foreign_code::{Contained, contain};

/// Any request that hyper lets upgrade.
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n";

/// The virtual connection. If it is dropped, its `OnUpgrade` ends with an error.
pub(super) struct HyperUpgrade {
    /// The end and the drop of the connection wake the task that awaits the upgrade.
    connection: Contained<Pin<Box<dyn Future<Output = hyper::Result<()>>>>>,
    service: Rc<ServiceState>,
}

#[derive(Default)]
struct ServiceState {
    asked: Cell<Option<OnUpgrade>>,
    answers: Cell<bool>,
}

impl HyperUpgrade {
    /// Prepares a virtual connection for `offer`, if this loop has Tokio. Without Tokio, handlers
    /// could not use it.
    pub(super) fn prepare(offer: &Offer) -> Option<(Self, OnUpgrade)> {
        Handle::try_current().ok()?;
        let service = Rc::new(ServiceState::default());
        let asked = service.clone();
        let answer = service_fn(move |mut request: Request<Incoming>| {
            asked.asked.set(request.extensions_mut().remove::<OnUpgrade>());
            let state = asked.clone();
            poll_fn(move |_| match state.answers.get() {
                true => Poll::Ready(Ok::<_, Infallible>(switching())),
                false => Poll::Pending,
            })
        });
        let io = Passed { request: REQUEST, offer: offer.clone(), connection: Connection::None };
        let mut builder = http1::Builder::new();
        builder.header_read_timeout(None);
        let connection = Box::pin(builder.serve_connection(io, answer).with_upgrades());
        let mut this = Self { connection: Contained::new(connection), service };
        this.poll();
        let on_upgrade = this.service.asked.take()?;
        Some((this, on_upgrade))
    }

    /// Fulfils the `OnUpgrade`. Returns whether somebody still had it. (On another thread, its user
    /// may have dropped the connection by now.)
    pub(super) fn hand_over(mut self, offer: &Offer) -> bool {
        self.service.answers.set(true);
        self.poll();
        offer.is_handed_over();
        drop(self);
        let is_kept = !offer.is_dropped_here();
        if is_kept {
            offer.is_left_to_hyper();
        }
        is_kept
    }

    fn poll(&mut self) {
        let mut context = Context::from_waker(Waker::noop());
        // The connection waits only for this. If it fails, its `OnUpgrade` fails when the
        // connection is dropped.
        contain(|| drop(self.connection.as_mut().poll(&mut context)));
    }
}

fn switching() -> Response<Empty<Bytes>> {
    let mut response = Response::new(Empty::new());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    response
}

/// First the io of the virtual connection, and then that of the real one, when its response is
/// written.
struct Passed {
    request: &'static [u8],
    offer: Offer,
    connection: Connection,
}

enum Connection {
    /// The io was not used since the response.
    None,
    Here(LoopBound<Upgraded>),
    Elsewhere(Elsewhere),
}

impl Drop for Passed {
    fn drop(&mut self) {
        self.offer.drops_io();
    }
}

impl Passed {
    /// `None`: there is no real connection yet.
    fn stream(
        &mut self,
        asker: Asker,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<Option<Pin<&mut dyn Io>>>> {
        if let Connection::None = self.connection {
            if self.offer.is_on_no_wire() {
                return Poll::Ready(Ok(None));
            }
            self.connection = match self.offer.is_here() {
                true => {
                    let stream = ready!(self.offer.poll(asker, cx)).map_err(error)?;
                    Connection::Here(self.offer.bind(stream))
                }
                false => Connection::Elsewhere(elsewhere::open(&self.offer).map_err(error)?),
            };
        }
        // It may have been used on its loop before.
        if let Connection::Here(stream) = &self.connection
            && stream.get().is_none()
            && let Connection::Here(stream) = mem::replace(&mut self.connection, Connection::None)
        {
            self.connection = Connection::Elsewhere(elsewhere::goes_on(stream).map_err(error)?);
        }
        let stream: Option<Pin<&mut dyn Io>> = match &mut self.connection {
            Connection::None => None,
            Connection::Here(stream) => stream.get_mut().map(|stream| Pin::new(stream) as _),
            Connection::Elsewhere(stream) => Some(Pin::new(stream)),
        };
        Poll::Ready(stream.map(Some).ok_or_else(|| error(UpgradeError::Refused)))
    }
}

fn error(error: UpgradeError) -> io::Error {
    match error {
        UpgradeError::Refused => io::Error::new(io::ErrorKind::ConnectionReset, error),
        error => io::Error::other(error),
    }
}

impl Read for Passed {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some(stream) = ready!(self.stream(Asker::HyperReads, cx))? {
            return stream.poll_read(cx, buf);
        }
        let (now, later) = self.request.split_at(self.request.len().min(buf.remaining()));
        if now.is_empty() {
            return Poll::Pending;
        }
        buf.put_slice(now);
        self.request = later;
        Poll::Ready(Ok(()))
    }
}

impl Write for Passed {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        match ready!(self.stream(Asker::HyperWrites, cx))? {
            Some(stream) => stream.poll_write(cx, buf),
            None => Poll::Ready(Ok(buf.len())),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match ready!(self.stream(Asker::HyperWrites, cx))? {
            Some(stream) => stream.poll_write_vectored(cx, slices),
            None => Poll::Ready(Ok(slices.iter().map(|slice| slice.len()).sum())),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match &self.connection {
            Connection::Here(stream) => stream.get().is_some_and(Write::is_write_vectored),
            Connection::None | Connection::Elsewhere(_) => false,
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match ready!(self.stream(Asker::HyperWrites, cx))? {
            Some(stream) => stream.poll_flush(cx),
            None => Poll::Ready(Ok(())),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match ready!(self.stream(Asker::HyperWrites, cx))? {
            Some(stream) => stream.poll_shutdown(cx),
            None => Poll::Ready(Ok(())),
        }
    }
}
