//! A reverse proxy for HTTP: requests of HTTP/1.1 and HTTP/2 go on to backends.
//!
//! Each loop has connections of its own to each backend. A request goes to the one of two with less
//! in flight; one that fails again and again is left out for a while ([`Ejection`]). A slow client
//! holds no connection to a backend: its request's body is read before one is taken, and the
//! response's is read ahead, both within limits. What can be understood in two ways is refused, and
//! everything that goes on is framed anew ([`headers`]).
//!
//! `service` is one request's way, `request_body` and `response_body` what is buffered, `pieces` in
//! which pieces, `budget` how much of it in all, `upgrade` is the way of a request for another
//! protocol, `tunnel` what becomes of it, `websocket` how that is told to end; `backends` and
//! `health` are which backend is asked, `counts` and `metrics` what can be seen of it.
//!
//! # Bodies that pause
//! Reading ahead lets a backend be faster than its client, and keeps nothing from that one: what
//! has come of a response goes on at once, whatever it is (server-sent events, long polls,
//! progress). A request is gathered first, up to `request_buffer`, and so is one whose client waits
//! for an answer in the middle of its body: such services need a `request_buffer` of 0, which
//! streams every request from its start. gRPC always is.
//!
//! # Upgrades
//! A request that asks for a protocol of [`Upgrades`] and has no body is sent on a connection of
//! its own. If the backend answers 101 with that very protocol, so does the proxy, and both
//! connections become a tunnel: up to 16 KiB wait in each direction, the end of either side's
//! stream is passed on, and `tunnel_timeout` bounds its silence. Any other answer is an ordinary
//! response, behind which the client's connection closes: what it sent early is never read as a
//! request. A WebSocket of HTTP/2 (extended CONNECT) becomes an upgrade of HTTP/1.1. When the
//! server drains, WebSockets are ended by Close 1001 between two frames; what is left of them and
//! of other tunnels after the grace period is aborted and counted, as any connection. Each tunnel
//! takes a connection to a backend beside those of `connections`; `max_tunnels` bounds them.
//!
//! # Interim responses
//! `Expect: 100-continue` is the proxy's to answer: 100 when it begins to read the body, which is
//! at once, or, where bodies are not gathered, when a backend takes it; none if the request is
//! refused before. (HTTP/2 clients get none, and go on by themselves.) Backends are told nothing of
//! it, and their own interim responses (100, 102, 103) go no further.
//!
//! What it does not do: other tunnels (CONNECT), upgrades of requests with a body, or to backends
//! of HTTP/2, caching.

mod attempts;
mod backends;
mod budget;
mod counts;
mod descriptors;
pub mod headers;
mod health;
mod metrics;
mod pieces;
mod request_body;
mod response_body;
mod service;
mod silence;
mod tunnel;
mod upgrade;
mod websocket;

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use hyper::Request;
use wakeful::accept::{Descriptors, SharedListener};
use wakeful::net::ListenAddr;
use wakeful_http::RequestBody;
use wakeful_http::client::{ClientBuilder, HttpVersion, Target};
use wakeful_http::tls::ClientTls;
use wakeful_http::{AmbiguousLength, Caller, DrainPlan, GrpcCalls, Running, service_fn};

pub use self::counts::Counts;
use self::headers::{ForwardedHeaders, Upgrades};
pub use self::health::Ejection;
use crate::ServeOptions;
use crate::admin::{self, RunningService};

/// What a proxy is started with.
///
/// | setting | default | range | what happens beyond it |
/// |---|---|---|---|
/// | [`version`](Self::version) | HTTP/1.1 | | |
/// | [`upstream_tls`](Self::upstream_tls) | none | | backends of `https` cannot be connected to |
/// | [`connect_timeout`](Self::connect_timeout) | 2 s | any | another backend, then 504 |
/// | [`upstream_timeout`](Self::upstream_timeout) | 60 s | any | 504; a response that has begun is cut off |
/// | [`connections`](Self::connections) | 256, for each backend on each loop | 1 and more | requests wait |
/// | [`max_waiting`](Self::max_waiting) | 1,024, for each backend on each loop | any | another backend, then 503 |
/// | [`queue_timeout`](Self::queue_timeout) | 2 s | any | another backend, then 503 |
/// | [`idle_timeout`](Self::idle_timeout) | 20 s | any | the connection to the backend is closed. So it is at once where idle ones exceed an eighth of `RLIMIT_NOFILE` and the server has no `max_connections` |
/// | [`max_response_headers`](Self::max_response_headers) | 1,000 | 1 to 24,576 | 502; the backend is not taken for broken |
/// | [`attempts`](Self::attempts) | 3, beside up to 32 refusals | 1 and more | the last failure is the answer |
/// | [`request_buffer`](Self::request_buffer) | 64 KiB | any | the rest is streamed |
/// | [`response_buffer`](Self::response_buffer) | 256 KiB | any | the backend is read as the client reads |
/// | [`loop_buffer`](Self::loop_buffer) | 64 MiB on each loop | any | as for the two above |
/// | [`upgrades`](Self::upgrades) | [`Upgrades::WebSocket`] | | the request goes on as any other |
/// | [`max_tunnels`](Self::max_tunnels) | 4,096 on each loop | 1 and more | 503 |
/// | [`tunnel_timeout`](Self::tunnel_timeout) | 1 h | over 0 | the upgraded connection is closed |
/// | [`forwarded`](Self::forwarded) | [`ForwardedHeaders::Replace`] | | |
/// | [`ejection`](Self::ejection) | [`Ejection`] | | |
#[derive(Debug, Clone)]
#[must_use = "a setter returns the changed options"]
pub struct ProxyOptions {
    to: Vec<Target>,
    version: HttpVersion,
    upstream_tls: Option<ClientTls>,
    connect_timeout: Duration,
    upstream_timeout: Duration,
    connections: usize,
    max_waiting: usize,
    queue_timeout: Duration,
    idle_timeout: Duration,
    max_response_headers: usize,
    attempts: usize,
    request_buffer: usize,
    response_buffer: usize,
    loop_buffer: usize,
    upgrades: Upgrades,
    max_tunnels: usize,
    tunnel_timeout: Duration,
    forwarded: ForwardedHeaders,
    ejection: Ejection,
}

impl ProxyOptions {
    /// The defaults, with these backends: 1 and more.
    pub fn new(backends: impl IntoIterator<Item = Target>) -> Self {
        Self {
            to: backends.into_iter().collect(),
            version: HttpVersion::Http1,
            upstream_tls: None,
            connect_timeout: Duration::from_secs(2),
            upstream_timeout: Duration::from_secs(60),
            connections: 256,
            max_waiting: 1024,
            queue_timeout: Duration::from_secs(2),
            idle_timeout: Duration::from_secs(20),
            max_response_headers: 1000,
            attempts: 3,
            request_buffer: 64 * 1024,
            response_buffer: 256 * 1024,
            loop_buffer: 64 * 1024 * 1024,
            upgrades: Upgrades::default(),
            max_tunnels: 4096,
            tunnel_timeout: Duration::from_secs(60 * 60),
            forwarded: ForwardedHeaders::default(),
            ejection: Ejection::default(),
        }
    }

    /// Sets how all backends are spoken to. By HTTP/2, calls of gRPC have no time limits but their
    /// own ([`GrpcCalls::Unlimited`], whatever the server's limits say).
    pub fn version(mut self, version: HttpVersion) -> Self {
        self.version = version;
        self
    }

    /// Sets whom to trust, for backends of `https`. `None`: they cannot be connected to.
    pub fn upstream_tls(mut self, tls: impl Into<Option<ClientTls>>) -> Self {
        self.upstream_tls = tls.into();
        self
    }

    /// Sets how long a connection to a backend may take to be made.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Sets how long a backend may be silent: until the head of its response, and between two
    /// pieces of the response, both counted from the last piece of the request, if that is later.
    pub fn upstream_timeout(mut self, timeout: Duration) -> Self {
        self.upstream_timeout = timeout;
        self
    }

    /// Sets how many connections to a backend each loop may have.
    pub fn connections(mut self, connections: usize) -> Self {
        self.connections = connections;
        self
    }

    /// Sets how many requests may wait for a connection to a backend that has all in use.
    pub fn max_waiting(mut self, requests: usize) -> Self {
        self.max_waiting = requests;
        self
    }

    /// Sets how long a request may wait for a connection to a backend that has all in use.
    pub fn queue_timeout(mut self, timeout: Duration) -> Self {
        self.queue_timeout = timeout;
        self
    }

    /// Sets how long a connection to a backend is kept that no request uses. Let it be shorter than
    /// the backend's own limit.
    pub fn idle_timeout(mut self, timeout: Duration) -> Self {
        self.idle_timeout = timeout;
        self
    }

    /// Sets how many fields the header of a response may have by HTTP/1.1; all of it may have 64
    /// KiB. By HTTP/2 there is no limit but these 64 KiB, where each field counts 32 bytes more
    /// than it has.
    pub fn max_response_headers(mut self, fields: usize) -> Self {
        self.max_response_headers = fields;
        self
    }

    /// Sets how many backends one request may try, if none acted on it. Those that refuse the
    /// connection do not count, up to 32.
    pub fn attempts(mut self, backends: usize) -> Self {
        self.attempts = backends;
        self
    }

    /// Sets how many bytes of a request's body are read before a backend is asked. 0 streams every
    /// request from its start.
    pub fn request_buffer(mut self, bytes: usize) -> Self {
        self.request_buffer = bytes;
        self
    }

    /// Sets how many bytes of a response's body wait for its client.
    pub fn response_buffer(mut self, bytes: usize) -> Self {
        self.response_buffer = bytes;
        self
    }

    /// Sets how many bytes of bodies wait on a loop.
    pub fn loop_buffer(mut self, bytes: usize) -> Self {
        self.loop_buffer = bytes;
        self
    }

    /// Sets which protocols clients may change to. Backends of HTTP/2 are never asked.
    pub fn upgrades(mut self, upgrades: Upgrades) -> Self {
        self.upgrades = upgrades;
        self
    }

    /// Sets how many upgraded connections each loop may have, with those that a backend is asked
    /// for. Each takes a connection of the client's, or a stream, and one to a backend.
    pub fn max_tunnels(mut self, tunnels: usize) -> Self {
        self.max_tunnels = tunnels;
        self
    }

    /// Sets how long nothing may move on an upgraded connection, in either direction;
    /// `upstream_timeout`, if that is shorter, once one side has ended its stream, and while one
    /// does not take what the other has sent.
    pub fn tunnel_timeout(mut self, timeout: Duration) -> Self {
        self.tunnel_timeout = timeout;
        self
    }

    /// Sets what backends are told about the client.
    pub fn forwarded(mut self, headers: ForwardedHeaders) -> Self {
        self.forwarded = headers;
        self
    }

    /// Sets when a backend is left out.
    pub fn ejection(mut self, ejection: Ejection) -> Self {
        self.ejection = ejection;
        self
    }
}

/// A proxy that runs. Dropping it aborts what it serves.
#[derive(Debug)]
pub struct RunningProxy {
    service: RunningService,
    counts: Arc<Counts>,
}

/// Starts a proxy on `listeners`. Whatever `options` say, it refuses requests with an [ambiguous
/// length](AmbiguousLength::Refuse). Those of `admin` answer `/healthz`, `/readyz` and `/metrics`,
/// on a loop of their own; every path of the others is the backends'.
///
/// # Errors
/// There are no backends; the loops cannot be started.
pub fn start(
    options: &ServeOptions,
    proxy: ProxyOptions,
    listeners: Vec<SharedListener>,
    admin: Vec<SharedListener>,
) -> io::Result<RunningProxy> {
    if proxy.to.is_empty() {
        let none = "a proxy needs at least one backend";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, none));
    }
    let to: Vec<_> = proxy.to.iter().map(|target| target.clone().version(proxy.version)).collect();
    let counts = Arc::new(Counts::new(to.iter().map(Target::to_string).collect()));
    let shared = backends::Shared::new(to.len(), proxy.ejection);
    let of_loops = counts.clone();
    // The backend may read a request's length otherwise, so nothing is resolved here.
    let ambiguous_length = AmbiguousLength::Refuse;
    // gRPC needs backends of HTTP/2; to others nothing is a call.
    let grpc_calls = match proxy.version {
        HttpVersion::Http1 => GrpcCalls::Limited,
        HttpVersion::Http2 => GrpcCalls::Unlimited,
    };
    let limits = options.limits.clone().ambiguous_length(ambiguous_length).grpc_calls(grpc_calls);
    let pools = options.group().loop_count()?.saturating_mul(to.len());
    // A user who limits the connections has thought of the descriptors.
    let limit = if limits.has_max_connections() { None } else { Descriptors::limit() };
    let (max_idle, kept) = descriptors::divide(limit, pools, proxy.connections);
    let server = options.http_server(listeners).limits(limits);
    let server = server.descriptors(admin::descriptors(kept, &admin));
    let pseudonym = headers::Pseudonym::unique();
    let running = server.start_per_connection(move || {
        let proxy = of_a_loop(&proxy, &to, shared.clone(), &of_loops, max_idle, pseudonym);
        move |caller: Caller| {
            let (proxy, client) = (proxy.clone(), Rc::new(headers::Client::new(caller)));
            service_fn(move |request: Request<RequestBody>| {
                proxy.clone().serve(client.clone(), request)
            })
        }
    })?;
    let mut registry = admin::registry(&running, options);
    registry.register_collector(Box::new(metrics::OfBackends(counts.clone())));
    let service = RunningService::new(running, admin, Arc::new(registry))?;
    Ok(RunningProxy { service, counts })
}

fn of_a_loop(
    options: &ProxyOptions,
    to: &[Target],
    shared: Arc<backends::Shared>,
    counts: &Counts,
    max_idle: usize,
    pseudonym: headers::Pseudonym,
) -> Rc<service::Proxy> {
    let client = ClientBuilder::default()
        .tls(options.upstream_tls.clone())
        .connect_timeout(options.connect_timeout)
        // The proxy has its own, which begins behind the request.
        .head_timeout(None)
        .max_connections(options.connections)
        .max_idle(max_idle)
        .max_waiting(options.max_waiting)
        .queue_timeout(options.queue_timeout)
        .idle_timeout(options.idle_timeout)
        .max_headers(options.max_response_headers)
        .retries(1)
        .build();
    let counts = counts.of_a_loop(client.counts());
    let budget = budget::Budget::new(options.loop_buffer, counts.clone());
    let silence = options.upstream_timeout;
    let (limit, version, upgrades) = (options.response_buffer, options.version, options.upgrades);
    Rc::new(service::Proxy {
        backends: backends::Backends::new(shared, &client, to, counts.clone()),
        headers: headers::Settings { forwarded: options.forwarded, version, upgrades, pseudonym },
        request_buffer: options.request_buffer,
        attempts: options.attempts.max(1),
        silence,
        ahead: response_body::ReadAhead { limit, silence, budget },
        tunnels: tunnel::Tunnels::new(options.tunnel_timeout, silence, options.max_tunnels),
        counts,
    })
}

impl RunningProxy {
    /// Where it listens.
    #[must_use]
    pub fn local_addrs(&self) -> &[ListenAddr] {
        self.service.local_addrs()
    }

    /// Where its metrics are.
    #[must_use]
    pub fn admin_addrs(&self) -> &[ListenAddr] {
        self.service.admin_addrs()
    }

    /// The server of the clients' side.
    #[must_use]
    pub fn server(&self) -> &Running {
        self.service.server()
    }

    /// What it counts about its backends.
    #[must_use]
    pub fn counts(&self) -> Arc<Counts> {
        self.counts.clone()
    }

    /// Without what it counts about its backends.
    #[must_use]
    pub fn into_service(self) -> RunningService {
        self.service
    }

    /// Ends as planned; see [`RunningService::drain`]. Blocks the calling thread.
    ///
    /// # Errors
    /// A loop was blocked, and was left behind.
    pub fn drain(self, plan: DrainPlan) -> io::Result<usize> {
        self.service.drain(plan)
    }
}
