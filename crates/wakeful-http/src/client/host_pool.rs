//! The pool of one host on one loop: which connection a request gets, and in which order requests
//! wait for one.
//!
//! A request takes an idle connection (the one that was used last), or makes a new one while there
//! are fewer than allowed, or waits, first come, first served. A free connection, a free stream, or
//! the right to make a connection is handed to the first waiting request. If that request does not
//! wait any more, it drops what it gets, and the drop hands it on. So a cancelled request loses
//! nothing.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::marker::PhantomData;
use std::mem;
use std::panic::resume_unwind;
use std::pin::pin;
use std::ptr;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use async_channel::{Sender, bounded};
use http::uri::Authority;
use http::{HeaderValue, Response, Version};
use hyper::body::Incoming;

use wakeful::{BelongsToOneLoop_UseOnThisLoop, JoinHandle, LoopHandle};

use super::ambiguity::is_ambiguous;
use super::body::{OpenStream, OutgoingBody};
use super::connect::connect;
use super::error::ClientError;
use super::http1::{self, Http1};
use super::http2::{self, Http2};
use super::look_up::LookUp;
use super::settings::{ClientBuilder, ClientCounts};
use super::target::{HttpVersion, Target};
use super::transport::Transport;
use crate::foreign_code::{hold_back_wakers, shielded};
use crate::in_time::in_time;

/// At least this many silent HTTP/2 connections may be set aside.
const LEAST_SILENT: usize = 16;

/// A server that a [`Client`](super::Client) talks to, with its pool of connections. Clones share
/// the pool.
pub struct Host<B: OutgoingBody> {
    _of_one_loop: PhantomData<*const BelongsToOneLoop_UseOnThisLoop>,
    pub(super) pool: Rc<Pool<B>>,
}

impl<B: OutgoingBody> Clone for Host<B> {
    fn clone(&self) -> Self {
        Self { _of_one_loop: PhantomData, pool: self.pool.clone() }
    }
}

impl<B: OutgoingBody> fmt::Debug for Host<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.pool.state.borrow();
        f.debug_struct("Host")
            .field("target", &self.pool.label)
            .field("connections", &state.open)
            .field("idle", &state.idle.len())
            .field("waiting", &state.waiting.len())
            .finish()
    }
}

impl<B: OutgoingBody> Host<B> {
    pub(super) fn new(
        target: Target,
        settings: Rc<ClientBuilder>,
        counts: Arc<ClientCounts>,
    ) -> Self {
        let authority = target.authority();
        let host = HeaderValue::from_str(authority.as_str())
            .unwrap_or_else(|_| HeaderValue::from_static("localhost"));
        let label = target.to_string().into();
        let state = RefCell::default();
        let look_up = LookUp::default();
        let max_idle = Cell::new(settings.max_idle);
        let pool =
            Pool { target, label, authority, host, settings, counts, look_up, max_idle, state };
        Self { _of_one_loop: PhantomData, pool: Rc::new(pool) }
    }

    /// Returns the server.
    #[must_use]
    pub fn target(&self) -> &Target {
        &self.pool.target
    }

    /// Returns how many connections are open or are being made.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.pool.state.borrow().open
    }

    /// Sets how many idle HTTP/1.1 connections this host keeps from now on, instead of
    /// [`ClientBuilder::max_idle`]. Idle connections beyond that number close at once.
    pub fn set_max_idle(&self, connections: usize) {
        self.pool.max_idle.set(connections);
        let mut state = self.pool.state.borrow_mut();
        // The connections at the end were used last.
        let surplus = state.idle.len().saturating_sub(connections);
        let surplus: Vec<_> = state.idle.drain(..surplus).collect();
        drop(state);
        surplus.iter().for_each(|connection| connection.close());
    }

    pub(super) fn is_in_use(&self) -> bool {
        Rc::strong_count(&self.pool) > 1 || self.connections() > 0
    }
}

pub(super) struct Pool<B: OutgoingBody> {
    pub(super) target: Target,
    /// The name of the target, for errors.
    pub(super) label: Arc<str>,
    pub(super) authority: Authority,
    pub(super) host: HeaderValue,
    pub(super) settings: Rc<ClientBuilder>,
    pub(super) counts: Arc<ClientCounts>,
    look_up: LookUp,
    max_idle: Cell<usize>,
    state: RefCell<State<B>>,
}

struct State<B: OutgoingBody> {
    idle: Vec<Rc<Http1<B>>>,
    shared: Vec<Rc<Http2<B>>>,
    /// The number of connections, including those that are being made.
    open: usize,
    connecting: usize,
    /// The number of HTTP/2 connections that were set aside because they were silent.
    silent: usize,
    waiting: VecDeque<Sender<Grant<B>>>,
    /// The pool gets no more requests.
    is_retired: bool,
}

/// Connections in use end with their requests. Their tasks own them, but nothing takes them from
/// the pool any more.
impl<B: OutgoingBody> Drop for State<B> {
    fn drop(&mut self) {
        self.idle.iter().for_each(|connection| connection.close());
        self.shared.iter().for_each(|connection| connection.set_aside());
    }
}

impl<B: OutgoingBody> Default for State<B> {
    fn default() -> Self {
        let (idle, shared, waiting) = (Vec::new(), Vec::new(), VecDeque::new());
        Self { idle, shared, open: 0, connecting: 0, silent: 0, waiting, is_retired: false }
    }
}

/// What a request has got.
enum Grant<B: OutgoingBody> {
    Use(Lease<B>),
    Connect(Slot<B>),
    Connecting(Connecting<B>),
}

impl<B: OutgoingBody> Grant<B> {
    /// Begins to make an HTTP/2 connection, in a task of its own: all other requests wait for the
    /// connection, and its own request may not be polled meanwhile. Where no loop runs (a drop
    /// after the loop's end), there can be no task. Nothing of the pool may be borrowed.
    fn begun(self) -> Self {
        match self {
            Self::Connect(slot)
                if slot.pool.target.version == HttpVersion::Http2
                    && LoopHandle::try_current().is_ok() =>
            {
                let pool = slot.pool.clone();
                Self::Connecting(Connecting { pool, task: Some(wakeful::spawn(slot.connect())) })
            }
            grant => grant,
        }
    }
}

/// The task that makes an HTTP/2 connection. If its request is cancelled, it ends, unless other
/// requests wait: they wait for this connection.
struct Connecting<B: OutgoingBody> {
    pool: Rc<Pool<B>>,
    /// `None` only during the drop.
    task: Option<JoinHandle<Result<Lease<B>, ClientError>>>,
}

impl<B: OutgoingBody> Connecting<B> {
    async fn lease(mut self) -> Result<Lease<B>, ClientError> {
        let task = self.task.as_mut().expect("it is there until it is dropped");
        match task.await {
            Ok(connected) => connected,
            Err(error) => match error.try_into_panic() {
                Ok(payload) => resume_unwind(payload),
                // The loop ends.
                Err(_) => Err(ClientError::Ended { target: self.pool.label.clone() }),
            },
        }
    }
}

impl<B: OutgoingBody> Drop for Connecting<B> {
    fn drop(&mut self) {
        let Some(task) = self.task.take() else { return };
        if self.pool.is_waited_for() {
            task.detach();
        } else {
            task.abort();
        }
    }
}

/// What a request prefers, if both are possible.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Prefer {
    /// A connection that waits for a request.
    Idle,
    /// A new HTTP/1.1 connection, if another one is allowed.
    New,
}

/// How a request waits if there is no connection for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Queue {
    /// If fewer than [`ClientBuilder::max_waiting`] wait.
    IfItHasRoom,
    /// In any case, because the request had a connection before, and lost it.
    EvenIfFull,
}

/// A connection for one request.
pub(super) enum Lease<B: OutgoingBody> {
    Http1(Http1Lease<B>),
    Http2(Rc<Http2<B>>, OpenStream),
}

pub(super) struct Http1Lease<B: OutgoingBody> {
    pool: Rc<Pool<B>>,
    pub(super) connection: Rc<Http1<B>>,
    pub(super) is_sent: bool,
    is_answered: bool,
}

impl<B: OutgoingBody> Http1Lease<B> {
    fn new(pool: Rc<Pool<B>>, connection: Rc<Http1<B>>) -> Self {
        Self { pool, connection, is_sent: false, is_answered: false }
    }

    /// Called when the head of the response has come, or the request has failed. From then on the
    /// connection's task decides when the connection is free again.
    pub(super) fn answered(&mut self, response: Option<&Response<Incoming>>) {
        self.is_answered = true;
        self.connection.answered();
        // After a response of HTTP/1.0, hyper would send the next requests as HTTP/1.0, and without
        // their bodies if it does not know the bodies' lengths.
        let is_last = |response: &Response<Incoming>| {
            response.version() == Version::HTTP_10 || is_ambiguous(response.headers())
        };
        if response.is_some_and(is_last) {
            self.connection.close();
        } else if self.connection.is_ready() {
            self.pool.give_back(&self.connection);
        }
    }
}

impl<B: OutgoingBody> Drop for Http1Lease<B> {
    fn drop(&mut self) {
        if !self.is_sent {
            self.pool.give_back(&self.connection);
        } else if !self.is_answered {
            // The request was cancelled. If its response has come, nobody has read it.
            self.connection.close();
        }
    }
}

/// The right to make a connection.
struct Slot<B: OutgoingBody> {
    pool: Rc<Pool<B>>,
    is_filled: bool,
}

impl<B: OutgoingBody> Drop for Slot<B> {
    fn drop(&mut self) {
        let mut state = self.pool.state.borrow_mut();
        state.connecting -= 1;
        if !self.is_filled {
            state.open -= 1;
        }
        drop(state);
        self.pool.serve_waiting();
    }
}

impl<B: OutgoingBody> Slot<B> {
    async fn connect(mut self) -> Result<Lease<B>, ClientError> {
        let pool = self.pool.clone();
        let transport = pool.connect().await?;
        let broken = |source| pool.broken(source);
        let lease = match pool.target.version {
            HttpVersion::Http1 => {
                let owner: Weak<Pool<B>> = Rc::downgrade(&pool);
                let started = Http1::start(owner, &pool.settings, transport).await;
                let connection = started.map_err(broken)?;
                self.is_filled = true;
                Lease::Http1(Http1Lease::new(pool.clone(), connection))
            }
            HttpVersion::Http2 => {
                let owner: Weak<Pool<B>> = Rc::downgrade(&pool);
                let started = http2::start(owner, &pool.settings, transport).await;
                let connection = started.map_err(broken)?;
                self.is_filled = true;
                // A new connection always has room.
                let stream = connection.open_stream();
                pool.state.borrow_mut().shared.push(connection.clone());
                if pool.is_retired() {
                    connection.set_aside();
                }
                let Some(stream) = stream else {
                    let (target, reason) = (pool.label.clone(), "the server allows no streams");
                    return Err(ClientError::Unsupported { target, reason });
                };
                Lease::Http2(connection, stream)
            }
        };
        pool.counts.add_opened();
        Ok(lease)
    }
}

impl<B: OutgoingBody> Pool<B> {
    /// The error of an exchange that broke off.
    pub(super) fn broken(&self, source: hyper::Error) -> ClientError {
        let target = self.label.clone();
        if !source.is_parse_too_large() {
            return ClientError::Exchange { target, source };
        }
        let (max_headers, max_header_size) =
            (self.settings.max_headers, self.settings.max_header_size);
        ClientError::HeaderTooLarge { target, max_headers, max_header_size }
    }

    /// Makes a new connection, which no request owns yet.
    pub(super) async fn connect(&self) -> Result<Transport, ClientError> {
        let after = self.settings.connect_timeout;
        let target = || self.label.clone();
        let tls = self.settings.tls.as_ref();
        let connected = pin!(connect(&self.target, tls, &self.look_up, after));
        let connected = match in_time(after, connected).await {
            Ok(connected) => {
                connected.map_err(|source| ClientError::Connect { target: target(), source })
            }
            Err(_) => Err(ClientError::ConnectTimeout { target: target(), after }),
        };
        connected.inspect_err(|_| self.counts.add_failed())
    }

    /// Gets a connection for one request.
    pub(super) async fn lease(
        self: &Rc<Self>,
        prefer: Prefer,
        queue: Queue,
    ) -> Result<Lease<B>, ClientError> {
        if self.is_retired() {
            return Err(self.retired());
        }
        let is_first = self.state.borrow().waiting.is_empty();
        let grant = match is_first.then(|| self.take(prefer)).flatten() {
            Some(grant) => grant.begun(),
            None => self.wait(queue).await?,
        };
        match grant {
            Grant::Use(lease) => {
                self.counts.add_reused();
                Ok(lease)
            }
            Grant::Connect(slot) => slot.connect().await,
            Grant::Connecting(connecting) => connecting.lease().await,
        }
    }

    async fn wait(self: &Rc<Self>, queue: Queue) -> Result<Grant<B>, ClientError> {
        let (hand, handed) = bounded(1);
        let waiting = {
            let waiting = &mut self.state.borrow_mut().waiting;
            if waiting.len() >= self.settings.max_waiting {
                // Cancelled requests are removed here at the latest.
                waiting.retain(|one| !one.is_closed());
            }
            if waiting.len() < self.settings.max_waiting || queue == Queue::EvenIfFull {
                waiting.push_back(hand);
                None
            } else {
                Some(waiting.len())
            }
        };
        if let Some(waiting) = waiting {
            self.counts.add_refused();
            return Err(ClientError::QueueFull { target: self.label.clone(), waiting });
        }
        self.counts.add_waited();
        let after = self.settings.queue_timeout;
        // The code that hands a connection over belongs to another request or a connection.
        match in_time(after, pin!(shielded(handed.recv()))).await {
            Ok(Ok(grant)) => Ok(grant),
            // The pool closes a channel only when the host is retired.
            Ok(Err(_)) => Err(self.retired()),
            Err(_) => Err(ClientError::QueueTimeout { target: self.label.clone(), after }),
        }
    }

    /// Does a request wait for a connection?
    fn is_waited_for(&self) -> bool {
        self.state.borrow().waiting.iter().any(|waiting| !waiting.is_closed())
    }

    fn is_retired(&self) -> bool {
        self.state.borrow().is_retired
    }

    fn retired(&self) -> ClientError {
        ClientError::Retired { target: self.label.clone() }
    }

    /// Stops taking requests. Requests that have a connection keep it to their end.
    pub(super) fn retire(&self) {
        let mut state = self.state.borrow_mut();
        state.is_retired = true;
        let (idle, shared) = (mem::take(&mut state.idle), state.shared.clone());
        let waiting = mem::take(&mut state.waiting);
        drop(state);
        idle.iter().for_each(|connection| connection.close());
        shared.iter().for_each(|connection| connection.set_aside());
        hold_back_wakers(|| drop(waiting));
    }

    /// Returns what a request can get now. `None`: it must wait.
    fn take(self: &Rc<Self>, prefer: Prefer) -> Option<Grant<B>> {
        let state = &mut *self.state.borrow_mut();
        let may_connect = state.open < self.settings.max_connections;
        match self.target.version {
            HttpVersion::Http1 if prefer == Prefer::New && may_connect => Some(self.slot(state)),
            HttpVersion::Http1 => {
                while let Some(connection) = state.idle.pop() {
                    if connection.is_ready() {
                        connection.lease();
                        let lease = Http1Lease::new(self.clone(), connection);
                        return Some(Grant::Use(Lease::Http1(lease)));
                    }
                    // The connection's task ends, and then reduces the count.
                    connection.close();
                }
                may_connect.then(|| self.slot(state))
            }
            HttpVersion::Http2 => {
                for connection in &state.shared {
                    if let Some(stream) = connection.open_stream() {
                        return Some(Grant::Use(Lease::Http2(connection.clone(), stream)));
                    }
                }
                // Only one HTTP/2 connection is made at a time, because it will have room for many
                // requests.
                let is_one_new = state.shared.iter().any(|connection| connection.is_new());
                let may_connect = may_connect && state.connecting == 0 && !is_one_new;
                may_connect.then(|| self.slot(state))
            }
        }
    }

    fn slot(self: &Rc<Self>, state: &mut State<B>) -> Grant<B> {
        state.open += 1;
        state.connecting += 1;
        Grant::Connect(Slot { pool: self.clone(), is_filled: false })
    }

    /// Hands out what is free to the requests that wait.
    fn serve_waiting(self: &Rc<Self>) {
        loop {
            {
                let waiting = &mut self.state.borrow_mut().waiting;
                while waiting.front().is_some_and(Sender::is_closed) {
                    waiting.pop_front();
                }
                if waiting.is_empty() {
                    return;
                }
            }
            let Some(grant) = self.take(Prefer::Idle) else { return };
            let first = self.state.borrow_mut().waiting.pop_front();
            let grant = grant.begun();
            // The request still waits, because nothing else on this thread could have cancelled it
            // meanwhile. If it was cancelled, the drop of the grant serves the next one.
            hold_back_wakers(|| drop(first.map(|first| first.try_send(grant))));
        }
    }

    /// Called when `connection` can take its next request: gives it to the first waiting request,
    /// or keeps it.
    fn give_back(self: &Rc<Self>, connection: &Rc<Http1<B>>) {
        connection.release();
        let mut state = self.state.borrow_mut();
        let has_room = state.idle.len() < self.max_idle.get().max(state.waiting.len());
        if has_room && !state.is_retired && connection.is_ready() {
            state.idle.push(connection.clone());
        } else {
            connection.close();
        }
        drop(state);
        self.serve_waiting();
    }
}

impl<B: OutgoingBody> http1::Owner<B> for Pool<B> {
    fn is_free(self: Rc<Self>, connection: &Rc<Http1<B>>) {
        self.give_back(connection);
    }

    fn has_ended(self: Rc<Self>, connection: &Rc<Http1<B>>) {
        let mut state = self.state.borrow_mut();
        state.idle.retain(|idle| !Rc::ptr_eq(idle, connection));
        state.open -= 1;
        drop(state);
        self.serve_waiting();
    }
}

impl<B: OutgoingBody> http2::Owner<B> for Pool<B> {
    fn has_room(self: Rc<Self>) {
        self.serve_waiting();
    }

    fn is_over(self: Rc<Self>, connection: &Http2<B>) {
        let mut state = self.state.borrow_mut();
        state.shared.retain(|shared| !ptr::eq(&**shared, connection));
        state.open -= 1;
        drop(state);
        self.serve_waiting();
    }

    fn counts_silent_one(&self) -> bool {
        let state = &mut *self.state.borrow_mut();
        let has_room = state.silent < self.settings.max_connections.max(LEAST_SILENT);
        state.silent += usize::from(has_room);
        has_room
    }

    fn comes_last(&self, connection: &Http2<B>) {
        let shared = &mut self.state.borrow_mut().shared;
        if let Some(place) = shared.iter().position(|shared| ptr::eq(&**shared, connection)) {
            let connection = shared.remove(place);
            shared.push(connection);
        }
    }

    fn silent_one_ended(&self) {
        self.state.borrow_mut().silent -= 1;
    }
}
