//! A server's settings.

use std::fmt;
use std::io;
use std::panic::Location;
use std::pin::Pin;

use wakeful::LoopGroupBuilder;
use wakeful::accept::{AcceptStrategy, Descriptors, Moves, SharedListener};
use wakeful::net::{ListenAddr, ToListenAddrs};

use crate::drain::{DrainPlan, Ending, Readiness};
use crate::limits::Limits;
use crate::observe::Observe;
use crate::tls::ServerTls;

/// An HTTP/1.1 and HTTP/2 server on a group of loops. [The crate's documentation](crate) has an
/// example.
///
/// | setting | default | range | what it does |
/// |---|---|---|---|
/// | [`group`](Self::group) | one loop for each CPU | [`LoopGroupBuilder`] | the loops that serve the connections |
/// | [`tls`](Self::tls) | plain HTTP | [`ServerTls`] | TLS for the listeners that were added before |
/// | `tokio`, `tokio_handle` (feature `tokio`) | no Tokio | | a Tokio runtime for handlers that need one; without it they panic |
/// | [`strategy`](Self::strategy) | [`AcceptStrategy::Exclusive`]; with Tokio on each loop, [`AcceptStrategy::Dispatch`] | [`AcceptStrategy`] | how connections reach the loops |
/// | [`moves`](Self::moves) | 1.25 times the mean, after 1 s | [`Moves`], or `None` | when HTTP/1.1 connections move to another loop, between two requests |
/// | [`descriptors`](Self::descriptors) | a sixteenth of the free descriptors, from 16 to 64, is kept back | [`Descriptors`] | limits the connections, so that descriptors are left; further connections wait |
/// | [`limits`](Self::limits) | [`Limits::default`] | [`Limits`] | deadlines, sizes, numbers and rates: see [their own table](Limits) |
/// | [`observe`](Self::observe) | a span at debug level | [`Observe`] | access log, request ids, traces |
/// | [`on_each_loop`](Self::on_each_loop) | nothing | | what each loop does before any loop accepts |
/// | [`drain_plan`](Self::drain_plan) | [`DrainPlan::default`] | [`DrainPlan`] | how the server ends; connections that remain after its grace period are aborted |
#[must_use = "call `serve` or `start`"]
pub struct Server {
    pub(super) listeners: Vec<SharedListener>,
    /// The TLS settings of each listener.
    pub(super) tls: Vec<Option<ServerTls>>,
    pub(super) group: LoopGroupBuilder,
    #[cfg(feature = "tokio")]
    pub(super) tokio: Option<WithTokio>,
    /// `None`: the strategy that suits the group.
    pub(super) strategy: Option<AcceptStrategy>,
    pub(super) moves: Option<Moves>,
    pub(super) descriptors: Descriptors,
    pub(super) limits: Limits,
    pub(super) observe: Observe,
    pub(super) drain_plan: DrainPlan,
    pub(super) ending: Ending,
    /// The place of the start, if it is known before
    /// [`start_per_connection`](Self::start_per_connection).
    pub(super) started_at: Option<&'static Location<'static>>,
    pub(super) set_ups: Vec<SetUp>,
}

/// Which Tokio runtime handlers find.
#[cfg(feature = "tokio")]
pub(super) enum WithTokio {
    /// One of the loop's own.
    Guest,
    /// The program's.
    Beside(tokio::runtime::Handle),
}

pub(super) type SetUp =
    Box<dyn Fn() -> Pin<Box<dyn Future<Output = io::Result<()>>>> + Send + Sync>;

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("listeners", &self.listeners)
            .field("tls", &self.tls)
            .field("group", &self.group)
            .field("strategy", &self.strategy)
            .field("moves", &self.moves)
            .field("descriptors", &self.descriptors)
            .field("limits", &self.limits)
            .field("observe", &self.observe)
            .field("drain_plan", &self.drain_plan)
            .field("set_ups", &self.set_ups.len())
            .finish_non_exhaustive()
    }
}

impl Server {
    /// Makes a server that listens on `addr`: an address as for [`std::net::TcpListener::bind`],
    /// such as `127.0.0.1:8080`, `[::1]:8080` or `localhost:8080`, or `unix:PATH`, or a
    /// [`ListenAddr`]. Connections wait in the backlog until the server starts.
    ///
    /// A host name is looked up, which may block this thread for seconds. If there are several
    /// addresses, the server listens only on the first one that works, like
    /// [`std::net::TcpListener::bind`]. `localhost` may be `127.0.0.1`, `[::1]` or both: add the
    /// second one with [`also_bind`](Self::also_bind).
    ///
    /// # Errors
    /// The string is not an address; the lookup failed; the address is in use, is not one of this
    /// host, or needs a privilege (if there are several addresses, this is the error of the last
    /// one).
    pub fn bind(addr: impl ToListenAddrs) -> io::Result<Self> {
        Self::from_listeners(Vec::new()).also_bind(addr)
    }

    /// Makes a server that listens on `addr` for TLS connections.
    ///
    /// # Errors
    /// The same as for [`bind`](Self::bind).
    pub fn bind_tls(addr: impl ToListenAddrs, tls: ServerTls) -> io::Result<Self> {
        Self::from_listeners(Vec::new()).also_bind_tls(addr, tls)
    }

    /// Listens on one more address, for TLS connections.
    ///
    /// # Errors
    /// The same as for [`bind`](Self::bind).
    pub fn also_bind_tls(self, addr: impl ToListenAddrs, tls: ServerTls) -> io::Result<Self> {
        let mut this = self.also_bind(addr)?;
        if let Some(last) = this.tls.last_mut() {
            *last = Some(tls);
        }
        Ok(this)
    }

    /// Listens on one more address.
    ///
    /// # Errors
    /// The same as for [`bind`](Self::bind).
    pub fn also_bind(mut self, addr: impl ToListenAddrs) -> io::Result<Self> {
        let mut refused = io::Error::new(io::ErrorKind::InvalidInput, "there is no address");
        for addr in addr.to_listen_addrs()? {
            let ours = self.listeners.iter().map(SharedListener::local_addr);
            match SharedListener::bind_beside(&addr, ours) {
                Ok(listener) => {
                    self.listeners.push(listener);
                    self.tls.push(None);
                    return Ok(self);
                }
                Err(error) => refused = error,
            }
        }
        Err(refused)
    }

    /// Makes a server that accepts from existing listeners, without TLS.
    pub fn from_listeners(listeners: Vec<SharedListener>) -> Self {
        let tls = listeners.iter().map(|_| None).collect();
        Self {
            listeners,
            tls,
            group: LoopGroupBuilder::default(),
            #[cfg(feature = "tokio")]
            tokio: None,
            strategy: None,
            moves: Some(Moves::default()),
            descriptors: Descriptors::default(),
            limits: Limits::default(),
            observe: Observe::new(),
            drain_plan: DrainPlan::default(),
            ending: Ending::new(),
            started_at: None,
            set_ups: Vec::new(),
        }
    }

    /// Uses TLS instead of plain HTTP on all addresses that were added so far, including Unix
    /// sockets. The handshake negotiates HTTP/2 or HTTP/1.1 (ALPN). If a client does not use ALPN,
    /// its first bytes decide. TLS connections never move to other loops. Keep a clone of `tls` to
    /// [reload](ServerTls::reload) its certificates.
    pub fn tls(mut self, tls: ServerTls) -> Self {
        self.tls.fill(Some(tls));
        self
    }

    /// Sets the group of loops that serve the connections.
    pub fn group(mut self, group: LoopGroupBuilder) -> Self {
        self.group = group;
        self
    }

    /// Runs Tokio as a guest on each loop, so that handlers may use `tokio::spawn`, `tokio::time`,
    /// `tokio::net` and all crates that need them, on the loop's own thread: see
    /// [`wakeful::tokio`].
    ///
    /// ```no_run
    /// use std::time::Duration;
    /// use axum::{Router, routing::get};
    ///
    /// fn main() -> std::io::Result<()> {
    ///     let app = Router::new().route("/", get(|| async {
    ///         tokio::time::sleep(Duration::from_millis(1)).await;
    ///         "hello"
    ///     }));
    ///     wakeful_http::Server::bind("127.0.0.1:8080")?.tokio().serve(app)
    /// }
    /// ```
    #[cfg(feature = "tokio")]
    #[cfg_attr(docsrs, doc(cfg(feature = "tokio")))]
    pub fn tokio(mut self) -> Self {
        self.tokio = Some(WithTokio::Guest);
        self
    }

    /// Uses an existing Tokio runtime, with its own threads, beside the loops: see
    /// [`LoopGroupBuilder::tokio_handle`]. If the runtime has no threads of its own, the server
    /// does not start.
    #[cfg(feature = "tokio")]
    #[cfg_attr(docsrs, doc(cfg(feature = "tokio")))]
    pub fn tokio_handle(mut self, handle: tokio::runtime::Handle) -> Self {
        self.tokio = Some(WithTokio::Beside(handle));
        self
    }

    /// The group's settings, with the server's own Tokio setting applied.
    pub(super) fn take_group(&mut self) -> LoopGroupBuilder {
        let group = std::mem::take(&mut self.group);
        #[cfg(feature = "tokio")]
        let group = match self.tokio.take() {
            Some(WithTokio::Guest) => group.tokio(),
            Some(WithTokio::Beside(handle)) => group.tokio_handle(handle),
            None => group,
        };
        group
    }

    /// Sets how connections reach the loops.
    pub fn strategy(mut self, strategy: AcceptStrategy) -> Self {
        self.strategy = Some(strategy);
        self
    }

    /// Sets when connections move to other loops. With `None` they never move. An HTTP/1.1
    /// connection moves between two requests: after the last response is written, and before the
    /// next request is complete. Bytes of that request that have already arrived move with it. An
    /// HTTP/2 connection never moves.
    pub fn moves(mut self, moves: impl Into<Option<Moves>>) -> Self {
        self.moves = moves.into();
        self
    }

    /// Sets how many descriptors the server keeps free for the files and backends of its
    /// connections. If [`Limits::max_connections`] is set, this has no effect.
    pub fn descriptors(mut self, kept: Descriptors) -> Self {
        self.descriptors = kept;
        self
    }

    /// Sets the limits: deadlines, sizes, numbers, rates.
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

    /// Sets what the server records about its requests.
    pub fn observe(mut self, observe: Observe) -> Self {
        self.observe = observe;
        self
    }

    /// Calls `set_up` on each loop when the server starts, and awaits its future there, before any
    /// loop accepts. Connections wait in the backlog meanwhile.
    ///
    /// You may call this several times: each loop then runs its set-ups one after the other, in the
    /// order of the calls. [`serve`](Self::serve) and [`start`](Self::start) block their thread
    /// until all set-ups are done. If a set-up fails or panics, they return that as their error. A
    /// signal that would end `serve` or [`run`](Self::run) also ends the wait. Then nothing is
    /// served, and the result is `Ok`.
    ///
    /// `run` blocks the loop of `main` until all set-ups are done. A set-up must not wait for a
    /// task or a connection that lives there.
    ///
    /// ```no_run
    /// use axum::{Router, body::Body, extract::State, routing::get};
    /// use wakeful::PerLoop;
    /// use wakeful_http::Server;
    /// use wakeful_http::client::Client;
    ///
    /// fn main() -> std::io::Result<()> {
    ///     let client: PerLoop<Client<Body>> = PerLoop::new(Client::new);
    ///     let app = Router::new()
    ///         .route("/", get(|State(_): State<PerLoop<Client<Body>>>| async { "hello" }))
    ///         .with_state(client.clone());
    ///     Server::bind("127.0.0.1:8080")?
    ///         .on_each_loop(move || {
    ///             let client = client.get();
    ///             async move {
    ///                 // The first request of each loop finds a connection.
    ///                 let hello = http::Request::get("http://127.0.0.1:8081/")
    ///                     .body(Body::empty())
    ///                     .map_err(std::io::Error::other)?;
    ///                 client.send(hello).await.map(drop).map_err(std::io::Error::other)
    ///             }
    ///         })
    ///         .serve(app)
    /// }
    /// ```
    pub fn on_each_loop<S, F>(mut self, set_up: S) -> Self
    where
        S: Fn() -> F + Send + Sync + 'static,
        F: Future<Output = io::Result<()>> + 'static,
    {
        self.set_ups.push(Box::new(move || Box::pin(set_up())));
        self
    }

    /// Sets how the server ends in [`serve`](Self::serve), [`run`](Self::run) and their variants.
    /// [`Running::drain`](crate::Running::drain) takes its own plan.
    pub fn drain_plan(mut self, plan: DrainPlan) -> Self {
        self.drain_plan = plan;
        self
    }

    /// Returns a value that shows whether the server is ready, and when it drains. Use it in the
    /// service and on other threads. (A handler that must only end when the server drains can await
    /// [`drain_begins`](crate::drain_begins) instead.)
    #[must_use]
    pub fn readiness(&self) -> Readiness {
        self.ending.readiness().clone()
    }

    /// Returns the addresses on which the server listens. If a port was 0, the address has the port
    /// that the kernel chose.
    pub fn local_addrs(&self) -> impl Iterator<Item = &ListenAddr> {
        self.listeners.iter().map(SharedListener::local_addr)
    }
}
