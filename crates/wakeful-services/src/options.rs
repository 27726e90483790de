//! The settings that all services have.

use std::time::Duration;

use wakeful::accept::{AcceptStrategy, ConnectionServer, Moves, SharedListener, Sibling};
use wakeful::group::Targets;
use wakeful::heartbeat::Heartbeats;
use wakeful::log::LossyWriter;
use wakeful::net::ListenAddr;
use wakeful::{EventLoop, IdlePolicy, LoopGroup, LoopGroupBuilder};
use wakeful_http::tls::ServerTls;
use wakeful_http::{DrainPlan, Limits, Server};
use wakeful_workers::Reports;

/// The settings that all services have.
///
/// | setting | default | range |
/// |---|---|---|
/// | [`listen`](Self::listen) | nowhere | |
/// | [`tls`](Self::tls) | plain HTTP | [`ServerTls`] |
/// | [`limits`](Self::limits) | [`Limits::default`] | [`Limits`] |
/// | [`loops`](Self::loops) | one for each CPU | 1 and more |
/// | [`pinning`](Self::pinning) | [`Pinning::Free`] | [`Pinning`] |
/// | [`accept`](Self::accept) | [`AcceptStrategy::Exclusive`] | [`AcceptStrategy`] |
/// | [`concentrate`](Self::concentrate) | [`Targets::default`] | [`Targets`] |
/// | [`moves`](Self::moves) | [`Moves::default`] | [`Moves`] |
/// | [`idle`](Self::idle) | [`IdlePolicy::ADAPTIVE`] | [`IdlePolicy`] |
/// | [`grace`](Self::grace) | 10 s | any |
/// | [`log`](Self::log) | none | |
/// | [`heartbeats`](Self::heartbeats) | none | |
/// | [`sibling`](Self::sibling) | none | |
/// | [`reports`](Self::reports) | none | |
#[derive(Debug, Clone)]
#[must_use = "a setter returns the changed options"]
pub struct ServeOptions {
    pub(crate) listen: Vec<ListenAddr>,
    pub(crate) tls: Option<ServerTls>,
    pub(crate) limits: Limits,
    pub(crate) loops: Option<usize>,
    pub(crate) pinning: Pinning,
    pub(crate) accept: AcceptStrategy,
    pub(crate) concentrate: Option<Targets>,
    pub(crate) moves: Option<Moves>,
    pub(crate) idle: IdlePolicy,
    pub(crate) grace: Duration,
    pub(crate) log: Option<LossyWriter>,
    pub(crate) heartbeats: Option<Heartbeats>,
    pub(crate) sibling: Option<Sibling>,
    pub(crate) reports: Option<Reports>,
}

impl ServeOptions {
    /// Returns the defaults of `wakeful serve`, without an address to listen on.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the addresses to listen on.
    pub fn listen(mut self, addrs: impl IntoIterator<Item = ListenAddr>) -> Self {
        self.listen = addrs.into_iter().collect();
        self
    }

    /// Sets TLS for all addresses of these options. With `None` they use plain HTTP. Services that
    /// do not speak HTTP ignore this setting.
    pub fn tls(mut self, tls: impl Into<Option<ServerTls>>) -> Self {
        self.tls = tls.into();
        self
    }

    /// Sets the HTTP limits. Services that do not speak HTTP ignore this setting.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets the number of loops. With `None` there is one loop for each CPU that the process may
    /// use. 0 becomes 1.
    pub fn loops(mut self, loops: impl Into<Option<usize>>) -> Self {
        self.loops = loops.into();
        self
    }

    /// Sets the CPUs on which the loops' threads run.
    pub fn pinning(mut self, pinning: Pinning) -> Self {
        self.pinning = pinning;
        self
    }

    /// Sets how connections reach the loops.
    pub fn accept(mut self, strategy: AcceptStrategy) -> Self {
        self.accept = strategy;
        self
    }

    /// Sets how busy the active loops may be before the group activates another one. With `None`,
    /// connections always go to all loops.
    pub fn concentrate(mut self, targets: impl Into<Option<Targets>>) -> Self {
        self.concentrate = targets.into();
        self
    }

    /// Sets when open connections move to other loops. With `None` they never move. Only the
    /// services http (for HTTP/1.1) and echo move connections.
    pub fn moves(mut self, moves: impl Into<Option<Moves>>) -> Self {
        self.moves = moves.into();
        self
    }

    /// Sets what a loop does when it has nothing to do.
    pub fn idle(mut self, policy: IdlePolicy) -> Self {
        self.idle = policy;
        self
    }

    /// Sets the grace period that the service expects when it drains. From it the service derives
    /// how long it keeps idle connections and gRPC streams. The drain itself gets its grace period
    /// from the call that ends the service, as [`DrainPlan::grace`] or in
    /// [`Serving::shutdown`](wakeful::accept::Serving::shutdown): pass the same time there.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Sets the writer of the process's log, so that `/metrics` shows how many of its lines were
    /// written and dropped.
    pub fn log(mut self, writer: impl Into<Option<LossyWriter>>) -> Self {
        self.log = writer.into();
        self
    }

    /// Sets the heartbeats that the loops write for a process that watches this one.
    pub fn heartbeats(mut self, heartbeats: impl Into<Option<Heartbeats>>) -> Self {
        self.heartbeats = heartbeats.into();
        self
    }

    /// Sets this process's place among the processes that accept from the same sockets: see
    /// [`Siblings`](wakeful::accept::Siblings). With `None` the process always accepts.
    pub fn sibling(mut self, sibling: impl Into<Option<Sibling>>) -> Self {
        self.sibling = sibling.into();
        self
    }

    /// Sets the reports by which this process answers operators for all workers. With `None` it
    /// answers only for itself. Services that do not speak HTTP ignore this setting.
    pub fn reports(mut self, reports: impl Into<Option<Reports>>) -> Self {
        self.reports = reports.into();
        self
    }
}

/// The CPUs on which the loops' threads run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pinning {
    /// Each thread runs on the CPUs that the kernel chooses.
    Free,
    /// Each thread is pinned to one CPU. The loops take the CPUs in turn.
    Pinned,
}

impl Default for ServeOptions {
    /// Returns the defaults of `wakeful serve`, without an address to listen on.
    fn default() -> Self {
        Self {
            listen: Vec::new(),
            loops: None,
            pinning: Pinning::Free,
            accept: AcceptStrategy::default(),
            concentrate: Some(Targets::default()),
            moves: Some(Moves::default()),
            idle: IdlePolicy::ADAPTIVE,
            grace: Duration::from_secs(10),
            tls: None,
            limits: Limits::default(),
            log: None,
            heartbeats: None,
            sibling: None,
            reports: None,
        }
    }
}

impl ServeOptions {
    /// Listens on all addresses of these options, and returns the listeners.
    ///
    /// # Errors
    /// An address cannot be used. The message names it, and says what is wrong.
    pub fn bind(&self) -> Result<Vec<SharedListener>, String> {
        bind(&self.listen)
    }

    pub(crate) fn server(&self, listeners: Vec<SharedListener>) -> ConnectionServer {
        ConnectionServer::new(listeners).group(self.group()).strategy(self.accept).moves(self.moves)
    }

    pub(crate) fn http_server(&self, listeners: Vec<SharedListener>) -> Server {
        let server = Server::from_listeners(listeners)
            .group(self.group())
            .strategy(self.accept)
            .moves(self.moves)
            .limits(self.limits.clone())
            .drain_plan(DrainPlan::new().grace(self.grace));
        match &self.tls {
            Some(tls) => server.tls(tls.clone()),
            None => server,
        }
    }

    /// Returns the group of loops on which a service with these options runs.
    pub fn group(&self) -> LoopGroupBuilder {
        let event_loop = EventLoop::builder().idle(self.idle);
        let group = LoopGroup::builder().event_loop(event_loop);
        let group = match self.loops {
            Some(loops) => group.loops(loops.max(1)),
            None => group,
        };
        let group = match self.concentrate {
            Some(targets) => group.concentrate(targets),
            None => group.spread(),
        };
        let group = match self.pinning {
            Pinning::Free => group,
            Pinning::Pinned => group.pin(),
        };
        let group = group.sibling(self.sibling.clone());
        match &self.heartbeats {
            Some(heartbeats) => group.heartbeats(heartbeats.clone()),
            None => group,
        }
    }
}

/// Listens on all addresses of `addrs`, and returns the listeners.
///
/// # Errors
/// An address cannot be used. The message names it, and says what is wrong.
pub fn bind(addrs: &[ListenAddr]) -> Result<Vec<SharedListener>, String> {
    let bind = |(place, addr)| {
        SharedListener::bind_beside(addr, &addrs[..place]).map_err(|error| error.to_string())
    };
    addrs.iter().enumerate().map(bind).collect()
}
