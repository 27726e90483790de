//! An HTTP/2 connection: many requests at a time, as many as the server allows.
//!
//! hyper would queue further requests without a bound. So streams are counted here: from the
//! request until both bodies have ended and h2 has written the request's body
//! ([`unwritten`](super::unwritten)). Further requests wait in the pool's queue or go to another
//! connection. The server announces its limit at the beginning; until then, a new connection has
//! one stream, so that the server refuses none. After a GOAWAY hyper takes no more requests; those
//! in flight end, and the pool makes a new connection.
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

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::rc::{Rc, Weak};
use std::task::Poll;
use std::time::{Duration, Instant};

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http2};
use wakeful::io::LoopTimer;
use wakeful::time::{now, sleep_until};

use super::body::{OpenStream, Outgoing, OutgoingBody, Streams};
use super::settings::{ClientBuilder, MOST_STREAMS};
use super::tasks::{GivenUp, PanicListener, Tasks};
use super::transport::{Observed, ObservedTransport, Transport};
use super::unwritten::Unwritten;
use crate::foreign_code::{self, Contained};

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
    unwritten: Rc<Unwritten>,
    /// How many streams may be open at a time: see [`limit`].
    limit: Cell<usize>,
    /// Whether the server's settings, which set the limit, may still come: they have not come, and
    /// the connection is younger than [`SILENCE`].
    is_new: Cell<bool>,
    used: Cell<bool>,
    idle_since: Cell<Instant>,
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

/// How many streams whose responses were given up h2 remembers, for a second. What still comes on
/// them is ignored. What comes on a stream that is forgotten counts as an error of the server, and
/// h2 ends the connection after 1,024 of these.
const REMEMBERED_RESETS: usize = 4096;
/// How many bytes of a request's body h2 holds at most, besides its last piece.
const SEND_BUFFER: usize = 256 << 10;
/// The least window of a connection. h2 counts how many bytes the unread frames of all responses
/// are short of 256, and ends the connection if the sum is more than half its window. So with a
/// smaller window, a hundred responses of small frames that their clients read slowly would end all
/// requests of the connection.
const LEAST_CONNECTION_WINDOW: u32 = 512 << 20;

type Driven<B> = http2::Connection<ObservedTransport, Outgoing<B>, Tasks>;
type Sent<B> = Result<Response<Incoming>, TrySendError<Request<Outgoing<B>>>>;

impl<B: OutgoingBody> Http2<B> {
    pub(super) async fn start(
        owner: Weak<dyn Owner<B>>,
        settings: &ClientBuilder,
        transport: Transport,
    ) -> hyper::Result<Rc<Self>> {
        let (io, observed) = ObservedTransport::new(transport);
        let tasks = Tasks::default();
        let headers = u32::try_from(settings.max_header_size).unwrap_or(u32::MAX);
        let (sender, connection) = http2::Builder::new(tasks.clone())
            .timer(LoopTimer)
            .max_header_list_size(headers)
            .initial_max_send_streams(1)
            .initial_stream_window_size(settings.stream_window)
            .initial_connection_window_size(connection_window(settings.stream_window))
            .max_send_buf_size(SEND_BUFFER)
            .max_concurrent_reset_streams(REMEMBERED_RESETS)
            .handshake::<_, Outgoing<B>>(io)
            .await?;
        let this = Rc::new(Self {
            sender: RefCell::new(Some(sender)),
            owner,
            tasks,
            streams: Cell::new(0),
            unwritten: Rc::default(),
            limit: Cell::new(limit(&connection)),
            is_new: Cell::new(true),
            used: Cell::new(false),
            idle_since: Cell::new(now()),
            observed,
            is_aside: Cell::new(false),
            made_up: Cell::new(now()),
            silent_since: Cell::new(None),
        });
        wakeful::spawn(drive(connection, this.clone(), settings.idle_timeout)).detach();
        Ok(this)
    }

    pub(super) fn was_used(&self) -> bool {
        self.used.get()
    }

    /// Does the connection take no more requests?
    pub(super) fn is_closed(&self) -> bool {
        self.tasks.have_panicked()
            || self.sender.borrow().as_ref().is_none_or(http2::SendRequest::is_closed)
    }

    /// Will it perhaps soon have room for many more streams, because the server's settings have not
    /// come yet?
    pub(super) fn is_new(&self) -> bool {
        self.is_new.get()
    }

    /// Opens a stream, which counts from here on. `None`: there is no room.
    pub(super) fn open_stream(self: &Rc<Self>) -> Option<OpenStream> {
        let open = self.streams.get() + self.unwritten.streams();
        if self.is_aside.get() || self.is_closed() || open >= self.limit.get() {
            return None;
        }
        self.streams.set(self.streams.get() + 1);
        let (unwritten, listener) = (self.unwritten.clone(), PanicListener::of(&self.tasks));
        Some(OpenStream::new(self.clone(), unwritten, listener))
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
        let open = self.streams.get() + self.unwritten.streams();
        if self.is_aside.get() && open == 0 {
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

/// The window of a connection, with room for every stream's window.
fn connection_window(stream_window: u32) -> u32 {
    LEAST_CONNECTION_WINDOW.max(stream_window * u32::from(MOST_STREAMS))
}

/// How many streams the server allows, up to [`MOST_STREAMS`].
fn limit<B: OutgoingBody>(connection: &Driven<B>) -> usize {
    connection.current_max_send_streams().min(MOST_STREAMS.into())
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

    fn ended_one(&self, is_unwritten: bool) {
        self.streams.set(self.streams.get() - 1);
        self.idle_since.set(now());
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

async fn drive<B: OutgoingBody>(connection: Driven<B>, this: Rc<Http2<B>>, idle_timeout: Duration) {
    let ending = Ending(this);
    let this = &ending.0;
    let observed = &this.observed;
    let listener = PanicListener::of(&this.tasks);
    let mut connection = Contained::new(connection);
    let mut timer = pin!(sleep_until(now() + idle_timeout));
    let mut waits_for_settings = true;
    let mut settings_are_late = pin!(sleep_until(now() + SILENCE));
    poll_fn(|cx| {
        if waits_for_settings {
            // The task waits for the server's settings first, because they contain the limit of
            // streams.
            waits_for_settings = false;
            observed.wake_by_read(cx.waker().clone());
        }
        if listener.have_panicked() {
            return Poll::Ready(());
        }
        listener.wakes(cx.waker());
        // This also polls request bodies, which are user code.
        let polled = this.tasks.contain(|| {
            let ended = Pin::new(&mut *connection).poll(cx);
            (ended, limit(&connection))
        });
        let Some((ended, limit)) = polled else { return Poll::Ready(()) };
        if let Poll::Ready(Err(error)) = &ended {
            foreign_code::log!(debug, %error, "a connection of the client ended with an error");
        }
        if ended.is_ready() {
            return Poll::Ready(());
        }
        this.is_heard(observed.heard());
        let has_written_one = this.unwritten.has_written_one(cx);
        if has_written_one {
            this.close_if_over();
        }
        let gets_old = this.is_new.get()
            && (observed.reads() > 0 || settings_are_late.as_mut().poll(cx).is_ready());
        if gets_old {
            this.is_new.set(false);
        }
        if (this.limit.replace(limit) < limit || gets_old || has_written_one)
            && let Some(owner) = this.owner.upgrade()
        {
            owner.has_room();
        }
        while timer.as_mut().poll(cx).is_ready() {
            let is_idle = this.streams.get() == 0;
            let since = if is_idle { this.idle_since.get() } else { now() };
            if is_idle && since + idle_timeout <= now() {
                if this.unwritten.streams() > 0 {
                    // Otherwise h2 would keep the connection open until it has written them.
                    this.tasks.end();
                }
                return Poll::Ready(());
            }
            timer.reset(since + idle_timeout);
        }
        Poll::Pending
    })
    .await;
}

/// Gives the connection's place back to the pool, even if a request's body panics in the
/// connection's task.
struct Ending<B: OutgoingBody>(Rc<Http2<B>>);

impl<B: OutgoingBody> Drop for Ending<B> {
    fn drop(&mut self) {
        self.0.leave_pool();
        self.0.is_silent_no_more();
    }
}
