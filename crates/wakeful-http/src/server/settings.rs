//! A server's settings, and its start.

use std::io;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use http_body::Body;
use hyper_util::service::TowerToHyperService;
use wakeful::accept::{
    AcceptStrategy, Connection, ConnectionServer, Descriptors, Moves, SharedListener,
};
use wakeful::net::ListenAddr;
use wakeful::{LoopGroupBuilder, signal};

use super::caller::Caller;
use super::connection;
use super::running::Running;
use crate::drain::DrainPlan;
use crate::drain::Readiness;
use crate::error::BoxError;
use crate::limits::Limits;
use crate::limits::PROBES;
use crate::loop_state::{LoopState, ServerState};
use crate::observe::Observe;
use crate::request::RequestBody;
use crate::tls::ServerTls;
use crate::tls::security::Security;

/// An HTTP/1.1 and HTTP/2 server on a group of loops. See [the crate](crate) for an example.
///
/// | setting | default | range | what happens beyond it |
/// |---|---|---|---|
/// | [`group`](Self::group) | one loop for each CPU | | |
/// | [`tls`](Self::tls) | plain HTTP | [`ServerTls`] | |
/// | [`strategy`](Self::strategy) | [`AcceptStrategy::Exclusive`] | | |
/// | [`moves`](Self::moves) | 1.25 times the mean, after 1 s | [`Moves`], or `None` | connections of HTTP/1.1 move between requests |
/// | [`descriptors`](Self::descriptors) | a sixteenth, and at least 16, are kept back | [`Descriptors`] | further connections wait |
/// | [`limits`](Self::limits) | [`Limits::default`] | [`Limits`] | [a table of its own](Limits) |
/// | [`observe`](Self::observe) | a span at debug level | [`Observe`] | access log, request ids, traces |
/// | [`drain_plan`](Self::drain_plan) | [`DrainPlan::default`] | [`DrainPlan`] | what is left after its grace is aborted |
#[derive(Debug)]
#[must_use = "call `serve` or `start`"]
pub struct Server {
    listeners: Vec<SharedListener>,
    /// For each listener.
    tls: Vec<Option<ServerTls>>,
    group: LoopGroupBuilder,
    strategy: AcceptStrategy,
    moves: Option<Moves>,
    descriptors: Descriptors,
    limits: Limits,
    observe: Observe,
    drain_plan: DrainPlan,
    readiness: Readiness,
    /// Where it was, if that is known before [`start_per_connection`](Self::start_per_connection).
    started_at: Option<&'static Location<'static>>,
}

impl Server {
    /// Listens on `addr`: a [`SocketAddr`](std::net::SocketAddr), a [`ListenAddr`], or a text,
    /// `127.0.0.1:8080`, `[::1]:8080`, `unix:PATH`. Connections wait in the backlog until the
    /// server starts.
    ///
    /// # Errors
    /// The text is no address; the address is in use, not one of this host, or needs a privilege.
    pub fn bind<A>(addr: A) -> io::Result<Self>
    where
        A: TryInto<ListenAddr>,
        A::Error: Into<BoxError>,
    {
        Self::from_listeners(Vec::new()).also_bind(addr)
    }

    /// Listens on `addr` for connections by TLS.
    ///
    /// # Errors
    /// As for [`bind`](Self::bind).
    pub fn bind_tls<A>(addr: A, tls: ServerTls) -> io::Result<Self>
    where
        A: TryInto<ListenAddr>,
        A::Error: Into<BoxError>,
    {
        Self::from_listeners(Vec::new()).also_bind_tls(addr, tls)
    }

    /// Listens on one more address, for connections by TLS.
    ///
    /// # Errors
    /// As for [`bind`](Self::bind).
    pub fn also_bind_tls<A>(self, addr: A, tls: ServerTls) -> io::Result<Self>
    where
        A: TryInto<ListenAddr>,
        A::Error: Into<BoxError>,
    {
        let mut this = self.also_bind(addr)?;
        if let Some(last) = this.tls.last_mut() {
            *last = Some(tls);
        }
        Ok(this)
    }

    /// Listens on one more address.
    ///
    /// # Errors
    /// As for [`bind`](Self::bind).
    pub fn also_bind<A>(mut self, addr: A) -> io::Result<Self>
    where
        A: TryInto<ListenAddr>,
        A::Error: Into<BoxError>,
    {
        let addr = addr.try_into().map_err(|e| io::Error::new(io::ErrorKind::InvalidInput, e))?;
        let listener = SharedListener::bind(&addr).map_err(|error| {
            io::Error::new(error.kind(), format!("cannot listen on {addr}: {error}"))
        })?;
        self.listeners.push(listener);
        self.tls.push(None);
        Ok(self)
    }

    /// Listens on what was bound before, for example to bind all addresses first.
    pub fn from_listeners(listeners: Vec<SharedListener>) -> Self {
        let tls = listeners.iter().map(|_| None).collect();
        Self {
            listeners,
            tls,
            group: LoopGroupBuilder::default(),
            strategy: AcceptStrategy::default(),
            moves: Some(Moves::default()),
            descriptors: Descriptors::default(),
            limits: Limits::default(),
            observe: Observe::new(),
            drain_plan: DrainPlan::default(),
            readiness: Readiness::new(),
            started_at: None,
        }
    }

    /// Speaks TLS on all addresses that it listens on so far, Unix sockets included, and plain HTTP
    /// on none of them. Clients choose HTTP/2 or HTTP/1.1 in the handshake (ALPN); one that chooses
    /// nothing is told by its first bytes. Connections by TLS stay on their loops. Keep a clone of
    /// `tls` to [reload](ServerTls::reload) its certificates.
    pub fn tls(mut self, tls: ServerTls) -> Self {
        self.tls.fill(Some(tls));
        self
    }

    /// The loops that serve.
    pub fn group(mut self, group: LoopGroupBuilder) -> Self {
        self.group = group;
        self
    }

    /// How connections reach the loops.
    pub fn strategy(mut self, strategy: AcceptStrategy) -> Self {
        self.strategy = strategy;
        self
    }

    /// When connections go on to other loops. `None`: never. One of HTTP/1.1 moves between two
    /// requests, when the last response is written and the next request not complete, and with what
    /// has come of it; one of HTTP/2 never does.
    pub fn moves(mut self, moves: impl Into<Option<Moves>>) -> Self {
        self.moves = moves.into();
        self
    }

    /// How many descriptors the server keeps back from its connections, for the files and backends
    /// that they need. It matters only without [`Limits::max_connections`].
    pub fn descriptors(mut self, kept: Descriptors) -> Self {
        self.descriptors = kept;
        self
    }

    /// What is bounded: deadlines, sizes, numbers, rates.
    ///
    /// ```
    /// # fn main() -> std::io::Result<()> {
    /// use wakeful_http::{Limits, Server};
    ///
    /// let limits = Limits::new().max_connections(10_000).max_body(1 << 20);
    /// let server = Server::bind("127.0.0.1:0")?.limits(limits);
    /// # drop(server);
    /// # Ok(())
    /// # }
    /// ```
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// What the server tells about its requests.
    pub fn observe(mut self, observe: Observe) -> Self {
        self.observe = observe;
        self
    }

    /// How [`serve`](Self::serve) ends once it was told to.
    pub fn drain_plan(mut self, plan: DrainPlan) -> Self {
        self.drain_plan = plan;
        self
    }

    /// Whether it is ready, and when it drains: for the service that it will be given, and for
    /// other threads. (A handler that only has to end when the server drains needs none of it:
    /// [`drain_begins`](crate::drain_begins).)
    #[must_use]
    pub fn readiness(&self) -> Readiness {
        self.readiness.clone()
    }

    /// Where it listens, with the ports that the kernel chose where 0 was asked for.
    pub fn local_addrs(&self) -> impl Iterator<Item = &ListenAddr> {
        self.listeners.iter().map(SharedListener::local_addr)
    }

    /// Serves `service` until Ctrl-C or SIGTERM, and then drains; a second signal does not wait for
    /// that. Blocks the calling thread.
    ///
    /// # Errors
    /// As for [`start`](Self::start); a loop already runs on this thread; a loop was blocked at the
    /// end.
    #[track_caller]
    pub fn serve<S, B>(self, service: S) -> io::Result<()>
    where
        S: tower_service::Service<Request<RequestBody>, Response = Response<B>>
            + Clone
            + Send
            + Sync
            + 'static,
        S::Future: 'static,
        S::Error: Into<BoxError>,
        B: Body + 'static,
        B::Error: Into<BoxError>,
    {
        self.serve_with(move || TowerToHyperService::new(service.clone()))
    }

    /// As [`serve`](Self::serve), with a hyper service that `make` makes on each loop and that need
    /// not be `Send`: [`service_fn`](crate::service_fn) makes one of a function.
    ///
    /// ```no_run
    /// use std::cell::Cell;
    /// use std::convert::Infallible;
    /// use std::rc::Rc;
    /// use http::Response;
    ///
    /// # fn main() -> std::io::Result<()> {
    /// wakeful_http::Server::bind("127.0.0.1:8080")?.serve_with(|| {
    ///     let requests_of_this_loop = Rc::new(Cell::new(0_u64));
    ///     wakeful_http::service_fn(move |_request| {
    ///         let requests = requests_of_this_loop.clone();
    ///         async move {
    ///             requests.set(requests.get() + 1);
    ///             Ok::<_, Infallible>(Response::new(format!("request {}", requests.get())))
    ///         }
    ///     })
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`serve`](Self::serve).
    #[track_caller]
    pub fn serve_with<M, S, B>(mut self, make: M) -> io::Result<()>
    where
        M: Fn() -> S + Send + Sync + 'static,
        S: hyper::service::Service<Request<RequestBody>, Response = Response<B>> + Clone + 'static,
        S::Future: 'static,
        S::Error: Into<BoxError>,
        B: Body + 'static,
        B::Error: Into<BoxError>,
    {
        // The closure below is a caller of its own.
        self.started_at = Some(Location::caller());
        let plan = self.drain_plan;
        let drained = signal::run_until_terminated_or_failed(
            || self.start_with(make),
            Running::failure,
            move |running: Running| running.drain(plan),
        )?;
        drained.unwrap_or(Ok(0)).map(|_| ())
    }

    /// Starts to serve and returns. For programs that have their own idea of when to end.
    ///
    /// # Errors
    /// The loops cannot be started; [`Limits::max_connections`] is 0.
    #[track_caller]
    pub fn start<S, B>(self, service: S) -> io::Result<Running>
    where
        S: tower_service::Service<Request<RequestBody>, Response = Response<B>>
            + Clone
            + Send
            + Sync
            + 'static,
        S::Future: 'static,
        S::Error: Into<BoxError>,
        B: Body + 'static,
        B::Error: Into<BoxError>,
    {
        self.start_with(move || TowerToHyperService::new(service.clone()))
    }

    /// As [`start`](Self::start), with a service that `make` makes on each loop.
    ///
    /// # Errors
    /// As for [`start`](Self::start).
    #[track_caller]
    pub fn start_with<M, S, B>(self, make: M) -> io::Result<Running>
    where
        M: Fn() -> S + Send + Sync + 'static,
        S: hyper::service::Service<Request<RequestBody>, Response = Response<B>> + Clone + 'static,
        S::Future: 'static,
        S::Error: Into<BoxError>,
        B: Body + 'static,
        B::Error: Into<BoxError>,
    {
        self.start_per_connection(move || {
            let service = make();
            move |_| service.clone()
        })
    }

    /// As [`start_with`](Self::start_with), with a service for each connection: `make` is called on
    /// each loop, and what it returns with the caller of each connection on that loop. A connection
    /// that moves to another loop gets another service.
    ///
    /// # Errors
    /// As for [`start`](Self::start).
    #[track_caller]
    pub fn start_per_connection<M, C, S, B>(self, make: M) -> io::Result<Running>
    where
        M: Fn() -> C + Send + Sync + 'static,
        C: Fn(Caller) -> S + 'static,
        S: hyper::service::Service<Request<RequestBody>, Response = Response<B>> + 'static,
        S::Future: 'static,
        S::Error: Into<BoxError>,
        B: Body + 'static,
        B::Error: Into<BoxError>,
    {
        let started_at = self.started_at.unwrap_or(Location::caller());
        let tls: Arc<[_]> = self.tls.into();
        let loops = self.group.loop_count()?;
        let max_connections = self.limits.max_connections;
        let limits = self.limits.clamped();
        if let Some(idle) = limits.keepalive {
            let every = (idle / PROBES).max(Duration::from_secs(1));
            self.listeners
                .iter()
                .try_for_each(|listener| listener.set_keepalive(idle, every, PROBES))?;
        }
        let observe = self.observe;
        let server = ServerState::new(limits, loops, self.readiness);
        let of_loops = server.clone();
        let serving = ConnectionServer::new(self.listeners)
            .group(self.group.loops(loops))
            .strategy(self.strategy)
            .moves(self.moves)
            .max_connections(max_connections)
            .descriptors(self.descriptors)
            .started_at(started_at)
            .start(move || {
                let (service, tls) = (make(), tls.clone());
                let loop_state = LoopState::of_next_loop(&of_loops, &observe);
                move |connection: Connection| {
                    let tls = tls[connection.listener].clone();
                    let security = if tls.is_some() { Security::Tls } else { Security::Plain };
                    let service = service(Caller { peer: connection.peer, security });
                    connection::serve(connection, service, loop_state.clone(), tls)
                }
            })?;
        Ok(Running::new(serving, server))
    }
}
