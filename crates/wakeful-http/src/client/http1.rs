//! An HTTP/1.1 connection: one request at a time, kept between requests.
//!
//! Its task drives hyper's connection. It returns the connection to the pool when hyper would take
//! another request and the response's head was checked. hyper takes another request when it has
//! written the whole request and read the whole response, even if the caller has not yet taken the
//! response's body from its channel.
//!
//! A connection does not return to the pool if the response is HTTP/1.0, if a body is dropped
//! before its end (hyper then closes the connection), or if the response ends before the request's
//! body ([`upload`](super::upload)). The task ends the connection when it was idle for too long,
//! when hyper could not send the rest of a request within the same time after the response, and
//! when the last sender is gone. If the server resets the connection, the task still reads the
//! response that arrived before the reset.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::pin;
use std::rc::{Rc, Weak};
use std::task::Poll;
use std::time::{Duration, Instant};

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1};
use wakeful::time::now;

use super::body::{Outgoing, OutgoingBody};
use super::settings::{ClientBuilder, HYPERS_MAX_HEADERS};
use super::transport::{Observed, ObservedTransport, Transport};
use super::unused::UnusedTimer;
use super::upload::{Answering, Upload};
use crate::foreign_code;

/// The owner of HTTP/1.1 connections: a pool.
pub(super) trait Owner<B: OutgoingBody> {
    /// Called when `connection` can take its next request.
    fn is_free(self: Rc<Self>, connection: &Rc<Http1<B>>);

    /// Called when `connection` has ended.
    fn has_ended(self: Rc<Self>, connection: &Rc<Http1<B>>);
}

pub(super) struct Http1<B: OutgoingBody> {
    /// `None` when the connection should close.
    sender: RefCell<Option<http1::SendRequest<Outgoing<B>>>>,
    observed: Rc<Observed>,
    max_header_size: usize,
    upload: Rc<Upload>,
    stage: Cell<Stage>,
    used: Cell<bool>,
    idle_since: Cell<Instant>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Idle,
    /// A request has the connection, and is not sent yet.
    Leased,
    /// The request is sent. Its response has not come, or nobody has seen it.
    Sent,
    /// The request was answered. This lasts until hyper would take another one.
    Answered,
}

type Sent<B> = Result<Response<Incoming>, TrySendError<Request<Outgoing<B>>>>;

impl<B: OutgoingBody> Http1<B> {
    /// Starts a connection. It begins as leased.
    pub(super) async fn start(
        owner: Weak<dyn Owner<B>>,
        settings: &ClientBuilder,
        transport: Transport,
    ) -> hyper::Result<Rc<Self>> {
        let (io, observed) = ObservedTransport::new(transport);
        observed.hear_out();
        let (sender, connection) = builder(settings).handshake::<_, Outgoing<B>>(io).await?;
        let this = Rc::new(Self {
            sender: RefCell::new(Some(sender)),
            observed,
            max_header_size: settings.max_header_size,
            upload: Rc::default(),
            stage: Cell::new(Stage::Leased),
            used: Cell::new(false),
            idle_since: Cell::new(now()),
        });
        let ending = Ending { this: this.clone(), owner };
        wakeful::spawn(drive(connection, ending, settings.idle_timeout)).detach();
        Ok(this)
    }

    pub(super) fn observed(&self) -> &Observed {
        &self.observed
    }

    pub(super) fn was_used(&self) -> bool {
        self.used.get()
    }

    /// Would hyper take a request now? (hyper may still find out that the peer has closed.)
    pub(super) fn is_ready(&self) -> bool {
        self.sender.borrow().as_ref().is_some_and(http1::SendRequest::is_ready)
    }

    pub(super) fn lease(&self) {
        self.stage.set(Stage::Leased);
        self.observed.forget();
    }

    /// Called when the request was answered, or has failed. The connection is free when hyper would
    /// take another request. No request gets it before, so that none follows an ambiguous response.
    pub(super) fn answered(&self) {
        self.observed.head_has_come();
        self.stage.set(Stage::Answered);
    }

    /// Marks the connection as waiting for its next request.
    pub(super) fn release(&self) {
        self.stage.set(Stage::Idle);
        self.idle_since.set(now());
    }

    /// Since when the connection is unused. `None`: it is in use.
    fn unused_since(&self) -> Option<Instant> {
        match self.stage.get() {
            Stage::Idle => Some(self.idle_since.get()),
            Stage::Leased => None,
            Stage::Sent | Stage::Answered => self.upload.answered(),
        }
    }

    /// Makes hyper close the connection when it has finished what it does.
    pub(super) fn close(&self) {
        *self.sender.borrow_mut() = None;
    }

    /// # Panics
    /// If the connection is not leased.
    pub(super) fn send(
        &self,
        request: Request<Outgoing<B>>,
    ) -> (impl Future<Output = Sent<B>> + use<B>, Answering) {
        self.used.set(true);
        self.stage.set(Stage::Sent);
        self.observed.awaits_head(self.max_header_size);
        let (uploading, answering) = self.upload.begin();
        let request = request.map(|body| body.by(uploading));
        let mut sender = self.sender.borrow_mut();
        let sender = sender.as_mut().expect("a leased connection has its sender");
        (sender.try_send_request(request), answering)
    }
}

/// hyper's builder, with the limits of `settings`.
pub(super) fn builder(settings: &ClientBuilder) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder.max_buf_size(settings.max_header_size).max_header_size(settings.max_header_size);
    if settings.max_headers != HYPERS_MAX_HEADERS {
        builder.max_headers(settings.max_headers);
    }
    builder
}

async fn drive<B: OutgoingBody>(
    connection: http1::Connection<ObservedTransport, Outgoing<B>>,
    ending: Ending<B>,
    idle_timeout: Duration,
) {
    let Ending { this, owner } = &ending;
    let mut connection = pin!(connection);
    let mut timer = UnusedTimer::new(idle_timeout);
    poll_fn(|cx| {
        let ended = connection.as_mut().poll(cx);
        if let Poll::Ready(Err(error)) = &ended {
            foreign_code::log!(debug, %error, "a connection of the client ended with an error");
        }
        if ended.is_ready() || this.upload.poll_cut(cx, this.observed.is_reset()).is_ready() {
            return Poll::Ready(());
        }
        if this.stage.get() == Stage::Answered && this.is_ready() {
            match owner.upgrade() {
                Some(owner) => owner.is_free(this),
                None => this.close(),
            }
        }
        timer.poll(cx, || this.unused_since())
    })
    .await;
}

/// Gives the connection's place back to the pool, even if a request's body panics in the
/// connection's task, or if the loop ends before the first poll of the task.
struct Ending<B: OutgoingBody> {
    this: Rc<Http1<B>>,
    owner: Weak<dyn Owner<B>>,
}

impl<B: OutgoingBody> Drop for Ending<B> {
    fn drop(&mut self) {
        if let Some(owner) = self.owner.upgrade() {
            owner.has_ended(&self.this);
        }
    }
}
