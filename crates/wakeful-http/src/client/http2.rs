//! An HTTP/2 connection: many requests at a time, as many as the server allows.
//!
//! hyper would queue further requests without a bound. So streams are counted here: from the
//! request until both bodies have ended and h2 has written the request's body
//! ([`unwritten`](super::unwritten)). Further requests wait in the pool's queue or go to another
//! connection. The server announces its limit at the beginning; until then, a new connection has
//! one stream, so that the server refuses none. The server may change its limit later
//! ([`limit_watch`](super::limit_watch)). After a GOAWAY hyper takes no more requests; those
//! in flight end, and the pool makes a new connection. [`drive`] makes connections, and ends them
//! in time.
//!
//! A response that nobody reads fills its stream's window. The connection's window has room for
//! every stream's window, so unread responses do not delay others.
//!
//! A connection may die silently: the backend's host is gone, or a device on the way has dropped
//! the flow. The kernel takes a quarter of an hour to report this. So if a request was cancelled
//! while nothing came on its connection, that connection is set aside: it gets no more requests,
//! and those in flight continue. A server that is only slow to answer would collect such
//! connections, so their number is bounded. A connection is also set aside after many cancelled
//! requests in a short time, because its server may end it after more of them.
//!
//! If the server resets the connection, the responses that arrived before the reset are still read.
//! The connection gets no more requests, because what h2 writes is discarded from then on
//! ([`transport`](super::transport)).

mod drive;

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::time::{Duration, Instant};

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http2};
use wakeful::time::{now, turn_time};

pub(super) use self::drive::start;
use super::body::{OpenStream, Outgoing, OutgoingBody, Streams};
use super::tasks::{GivenUp, PanicListener, Tasks};
use super::transport::Observed;
use super::unwritten::Unwritten;
use crate::foreign_code;

/// The owner of HTTP/2 connections: a pool.
pub(super) trait Owner<B: OutgoingBody> {
    /// Called when a connection has room for more streams than before.
    fn has_room(self: Rc<Self>);

    /// Called when `connection` takes no more requests.
    fn is_over(self: Rc<Self>, connection: &Http2<B>);

    /// May a silent connection be set aside, and count as silent until it ends or is heard again?
    fn counts_silent_one(&self) -> bool;

    /// Called when a connection has ended, or was heard, that counted as silent.
    fn silent_one_ended(&self);

    /// Gives requests to `connection` only if no other one has room.
    fn comes_last(&self, connection: &Http2<B>);
}

pub(super) struct Http2<B: OutgoingBody> {
    sender: RefCell<Option<http2::SendRequest<Outgoing<B>>>>,
    owner: Weak<dyn Owner<B>>,
    tasks: Tasks,
    /// The number of open streams, without those of which only h2 still holds a part.
    streams: Cell<usize>,
    /// The number of open streams whose responses have not ended.
    responses: Cell<usize>,
    unwritten: Rc<Unwritten>,
    /// How many streams may be open at a time: what the server allows, within bounds.
    limit: Cell<usize>,
    /// Whether the server's settings, which set the limit, may still come: h2 has applied none, and
    /// the connection is younger than [`SILENCE`].
    is_new: Cell<bool>,
    used: Cell<bool>,
    /// When the last response or stream ended.
    last_end: Cell<Instant>,
    observed: Rc<Observed>,
    /// Whether the pool has forgotten the connection.
    is_aside: Cell<bool>,
    /// When the resets so far are made up for: see [`RESET_INTERVAL`].
    made_up: Cell<Instant>,
    /// Since when the pool counts the connection as silent.
    silent_since: Cell<Option<Instant>>,
}

/// A connection is silent when nothing was received for this long while a request waited for it.
/// The server's settings are waited for as long.
const SILENCE: Duration = Duration::from_secs(1);
/// Servers end a connection whose client resets very many streams. So each reset takes this long to
/// be made up for, and a connection that is behind by [`MOST_BEHIND`] gets no more requests.
const RESET_INTERVAL: Duration = Duration::from_millis(10);
const MOST_BEHIND: Duration = Duration::from_secs(5);

type Sent<B> = Result<Response<Incoming>, TrySendError<Request<Outgoing<B>>>>;

impl<B: OutgoingBody> Http2<B> {
    fn new(
        owner: Weak<dyn Owner<B>>,
        sender: http2::SendRequest<Outgoing<B>>,
        tasks: Tasks,
        limit: usize,
        observed: Rc<Observed>,
    ) -> Self {
        Self {
            sender: RefCell::new(Some(sender)),
            owner,
            tasks,
            streams: Cell::new(0),
            responses: Cell::new(0),
            unwritten: Rc::default(),
            limit: Cell::new(limit),
            is_new: Cell::new(true),
            used: Cell::new(false),
            last_end: Cell::new(now()),
            observed,
            is_aside: Cell::new(false),
            made_up: Cell::new(now()),
            silent_since: Cell::new(None),
        }
    }

    pub(super) fn was_used(&self) -> bool {
        self.used.get()
    }

    /// Does the connection take no more requests?
    pub(super) fn is_closed(&self) -> bool {
        self.tasks.have_panicked()
            || self.observed.is_reset()
            || self.sender.borrow().as_ref().is_none_or(http2::SendRequest::is_closed)
    }

    /// Will it perhaps soon have room for many more streams, because the server's settings have not
    /// come yet?
    pub(super) fn is_new(&self) -> bool {
        self.is_new.get()
    }

    /// Opens a stream, which counts from here on. `None`: there is no room.
    pub(super) fn open_stream(self: &Rc<Self>) -> Option<OpenStream> {
        if self.is_aside.get() || self.is_closed() {
            return None;
        }
        if self.open_streams() >= self.limit.get() {
            self.tasks.limit_watch().begin();
            return None;
        }
        self.streams.set(self.streams.get() + 1);
        self.responses.set(self.responses.get() + 1);
        let (unwritten, listener) = (self.unwritten.clone(), PanicListener::of(&self.tasks));
        Some(OpenStream::new(self.clone(), unwritten, listener))
    }

    /// The number of open streams.
    fn open_streams(&self) -> usize {
        self.streams.get() + self.unwritten.streams()
    }

    /// Since when no response was under way, and h2 has got no piece of a request's body. `None`: a
    /// response is under way.
    fn idle_since(&self) -> Option<Instant> {
        let last = Some(self.last_end.get()).max(self.unwritten.took_one());
        last.filter(|_| self.responses.get() == 0)
    }

    /// Takes the connection out of the pool. It gets no more requests, and closes when those in
    /// flight have ended.
    pub(super) fn set_aside(&self) {
        self.leave_pool();
        self.close_if_over();
    }

    fn leave_pool(&self) {
        if !self.is_aside.replace(true)
            && let Some(owner) = self.owner.upgrade()
        {
            owner.is_over(self);
        }
    }

    fn close_if_over(&self) {
        // As long as h2 holds a piece, the connection's task must stay, to end that.
        if self.is_aside.get() && self.open_streams() == 0 {
            self.close();
        }
    }

    /// Notes that a stream is reset. After too many resets, another connection is better.
    fn resets_one(&self) {
        let made_up = self.made_up.get().max(now()) + RESET_INTERVAL;
        self.made_up.set(made_up);
        if made_up > now() + MOST_BEHIND {
            self.leave_pool();
        }
    }

    /// Gives its place among the silent connections back, if it was `heard` since.
    fn is_heard(&self, heard: Option<Instant>) {
        if self.silent_since.get().is_some_and(|since| heard.is_some_and(|heard| heard > since)) {
            self.is_silent_no_more();
        }
    }

    fn is_silent_no_more(&self) {
        if self.silent_since.take().is_some()
            && let Some(owner) = self.owner.upgrade()
        {
            owner.silent_one_ended();
        }
    }

    fn close(&self) {
        *self.sender.borrow_mut() = None;
    }

    /// # Panics
    /// If no stream was opened for the request.
    pub(super) fn send(
        &self,
        request: Request<Outgoing<B>>,
    ) -> impl Future<Output = Sent<B>> + use<B> {
        self.used.set(true);
        // hyper's `send_request` takes `&mut self`, although it would not have to.
        let mut sender = self.sender.borrow_mut();
        sender
            .as_mut()
            .expect("a connection has its sender while its pool is")
            .try_send_request(request)
    }
}

impl<B: OutgoingBody> Streams for Http2<B> {
    fn gave_up(&self, sent_at: Instant) {
        self.resets_one();
        let heard = self.observed.heard().map_or(sent_at, |heard| sent_at.max(heard));
        let silence = now().saturating_duration_since(heard);
        if silence < SILENCE || self.is_aside.get() {
            return;
        }
        let Some(owner) = self.owner.upgrade() else { return self.leave_pool() };
        if !owner.counts_silent_one() {
            owner.comes_last(self);
        } else {
            self.silent_since.set(Some(now()));
            self.leave_pool();
            foreign_code::log!(debug, "a connection of the client is silent, and is set aside");
        }
    }

    fn response_ended(&self) {
        self.responses.set(self.responses.get() - 1);
        self.last_end.set(turn_time());
    }

    fn ended_one(&self, is_unwritten: bool) {
        self.streams.set(self.streams.get() - 1);
        self.last_end.set(now());
        if !is_unwritten
            && !self.is_aside.get()
            && let Some(owner) = self.owner.upgrade()
        {
            owner.has_room();
        }
        self.close_if_over();
    }

    fn sends_next(&self, given_up: Rc<GivenUp>) {
        self.tasks.sends_next(given_up);
    }
}
