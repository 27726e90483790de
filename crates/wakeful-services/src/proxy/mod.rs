//! A reverse proxy for HTTP: it forwards HTTP/1.1 and HTTP/2 requests to backends.
//!
//! Each loop has its own connections to each backend. For each request the proxy picks two random
//! backends, and uses the one with fewer requests in flight. A backend that fails repeatedly is
//! excluded for a while ([`Ejection`]). A slow client occupies no connection to a backend: the
//! proxy reads the request's body before it takes a connection, and reads the response's body
//! ahead, both within limits. Ambiguous messages are refused, and all forwarded messages get new
//! framing ([`headers`]).
//!
//! # Bodies that pause
//! The proxy forwards each piece of a response as soon as it has received it. So server-sent
//! events, long polls and progress reports work. But it first buffers a request, up to
//! `request_buffer`. If a client waits for an answer in the middle of its request's body, set
//! `request_buffer` to 0, which streams every request from its start. gRPC calls are always
//! streamed.
//!
//! # Upgrades
//! A request that asks for a protocol of [`Upgrades`] and has no body is sent on a separate
//! connection. If the backend answers 101 with the same protocol, so does the proxy, and both
//! connections become a tunnel. The tunnel buffers up to 16 KiB in each direction, and forwards the
//! end of either side's stream. `tunnel_timeout` limits how long it may be silent. Any other answer
//! is an ordinary response. The client's connection closes after it, so bytes that the client sent
//! early are never read as a request. An HTTP/2 WebSocket (extended CONNECT) becomes an HTTP/1.1
//! upgrade.
//!
//! When the server drains, it ends WebSockets with Close 1001 between two frames. WebSockets and
//! other tunnels that remain after the grace period are aborted and counted, like any connection.
//! Each tunnel uses a connection to a backend in addition to those of `connections`. `max_tunnels`
//! limits them.
//!
//! # Names
//! A backend that is given by name to [`ProxyOptions::new`] is one backend, however many addresses
//! it has. Its name is looked up for each connection.
//!
//! A name of [`ProxyOptions::names`] is looked up at an interval, and each of its addresses is a
//! backend, with its own connections, failures and counts. If the name loses an address, that
//! backend gets no more requests. Its requests and tunnels finish, and its idle connections close.
//! If a look-up fails, the known addresses stay. If three look-ups in a row say that the name does
//! not exist or has no address, the name has no backends until a look-up finds an address. A name
//! without known addresses is looked up sooner: after 50 ms, and then after half of the time that
//! it has been without one. [`start`] waits for the first addresses, within
//! [`name_start_timeout`](ProxyOptions::name_start_timeout).
//!
//! # Descriptors
//! If the process has a limit of descriptors, it also limits the connections to HTTP/1.1 backends
//! that are in use, tunnels included, on all loops together: to one for each client's connection,
//! and some more. (With `max_connections` set, to what so many connections leave.) HTTP/2 clients
//! may have more requests in flight than that. Such requests wait, in the order of their arrival,
//! until another response or tunnel has ended, for `upstream_timeout` at most. Then they get 503.
//!
//! # Interim responses
//! The proxy answers `Expect: 100-continue` itself. It sends 100 when it begins to read the body:
//! at once, or, if bodies are not buffered, when it has a connection to a backend. If it refuses
//! the request before that, it sends no 100. (HTTP/2 clients get none, and continue without it.)
//! The proxy does not forward the header to backends, and drops their interim responses (100, 102,
//! 103).
//!
//! It does not support other tunnels (CONNECT), upgrades of requests with a body, upgrades to
//! HTTP/2 backends, or caching.

// `service` handles one request, `request_body` and `response_body` buffer the bodies, `pieces`
// joins small pieces, `budget` limits all buffers of a loop. `upgrade` handles a request for
// another protocol, `tunnel` is the resulting tunnel, and `websocket` ends it in a drain.
// `backends` and `health` choose the backend, `members` has the list of them, and `names` looks
// names up for it. `counts` and `metrics` show what the proxy does.

mod attempts;
mod backends;
mod budget;
mod counts;
mod descriptors;
pub mod headers;
mod health;
mod members;
mod metrics;
mod names;
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
use wakeful_http::layers::bound::Bound;
use wakeful_http::tls::ClientTls;
use wakeful_http::{AmbiguousLength, Caller, DrainPlan, GrpcCalls, Running, service_fn};

pub use self::counts::{BackendCounts, Counts, NameCounts};
use self::headers::{ForwardedHeaders, Pseudonym, Upgrades};
pub use self::health::Ejection;
use crate::ServeOptions;
use crate::admin::{self, RunningService};
use crate::for_requests::{self, Others};
use crate::scrape::Scrape;

/// The settings of a proxy.
///
/// | setting | default | range | what happens beyond it |
/// |---|---|---|---|
/// | [`version`](Self::version) | HTTP/1.1 | | |
/// | [`upstream_tls`](Self::upstream_tls) | none | | `https` backends cannot be reached |
/// | [`connect_timeout`](Self::connect_timeout) | 2 s | any | another backend, then 504 |
/// | [`upstream_timeout`](Self::upstream_timeout) | 60 s | any | 504; a response that has begun is cut off |
/// | [`connections`](Self::connections) | 256, for each backend on each loop | 1 and more | requests wait |
/// | [`max_waiting`](Self::max_waiting) | 1,024, for each backend on each loop | any | another backend, then 503 |
/// | [`queue_timeout`](Self::queue_timeout) | 2 s | any | another backend, then 503 |
/// | [`idle_timeout`](Self::idle_timeout) | 20 s | any | the connection to the backend is closed. If the server has no `max_connections`, idle connections beyond an eighth of `RLIMIT_NOFILE` are closed at once |
/// | [`max_response_headers`](Self::max_response_headers) | 1,000 | 1 to 24,576 | 502; this does not count as a failure of the backend |
/// | [`attempts`](Self::attempts) | 3, and up to 32 refused connections | 1 and more | the last failure is the answer |
/// | [`request_buffer`](Self::request_buffer) | 64 KiB | any | the rest is streamed |
/// | [`response_buffer`](Self::response_buffer) | 256 KiB | any | the proxy reads the backend only as fast as the client reads |
/// | [`loop_buffer`](Self::loop_buffer) | 64 MiB on each loop | any | as for `request_buffer` and `response_buffer` |
/// | [`upgrades`](Self::upgrades) | [`Upgrades::WebSocket`] | | the request is forwarded like any other |
/// | [`max_tunnels`](Self::max_tunnels) | 4,096 on each loop | 1 and more | 503 |
/// | [`tunnel_timeout`](Self::tunnel_timeout) | 1 h | over 0 | the upgraded connection is closed |
/// | [`forwarded`](Self::forwarded) | [`ForwardedHeaders::Replace`] | | |
/// | [`ejection`](Self::ejection) | [`Ejection`] | | |
/// | [`names`](Self::names) | none | | |
/// | [`name_interval`](Self::name_interval) | 5 s | 1 ms to 1 h | |
/// | [`name_start_timeout`](Self::name_start_timeout) | as `connect_timeout` | up to `connect_timeout` | the proxy starts, and a name without an address has no backends |
/// | [`pseudonym`](Self::pseudonym) | a new one at each start | | |
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
    names: Vec<Target>,
    name_interval: Duration,
    name_start_timeout: Duration,
    pseudonym: Option<Pseudonym>,
}

impl ProxyOptions {
    /// Returns the default settings with these backends. A proxy needs at least one backend or one
    /// of the [`names`](Self::names).
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
            names: Vec::new(),
            name_interval: Duration::from_secs(5),
            name_start_timeout: Duration::MAX,
            pseudonym: None,
        }
    }

    /// Sets the HTTP version for all backends. With HTTP/2, gRPC calls have only their own time
    /// limits ([`GrpcCalls::Unlimited`], which overrides the server's limits).
    pub fn version(mut self, version: HttpVersion) -> Self {
        self.version = version;
        self
    }

    /// Sets how to connect to `https` backends, including which certificates to trust. With `None`
    /// the proxy cannot connect to them.
    pub fn upstream_tls(mut self, tls: impl Into<Option<ClientTls>>) -> Self {
        self.upstream_tls = tls.into();
        self
    }

    /// Sets how long a connection attempt to a backend may take.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Sets how long a backend may be silent. The time counts until the head of the response, and
    /// then until each further piece of it. It begins when the request has its connection, and
    /// again with each piece of the request or of the response. A request may wait as long for a
    /// [descriptor](self#descriptors).
    ///
    /// A response without a length, such as a stream of events, may just have nothing to say: its
    /// silence does not count as a failure of the backend.
    pub fn upstream_timeout(mut self, timeout: Duration) -> Self {
        self.upstream_timeout = timeout;
        self
    }

    /// Sets how many connections to a backend each loop may have.
    pub fn connections(mut self, connections: usize) -> Self {
        self.connections = connections;
        self
    }

    /// Sets how many requests may wait for a connection to a backend whose connections are all in
    /// use.
    pub fn max_waiting(mut self, requests: usize) -> Self {
        self.max_waiting = requests;
        self
    }

    /// Sets how long a request may wait for a connection to a backend whose connections are all in
    /// use.
    pub fn queue_timeout(mut self, timeout: Duration) -> Self {
        self.queue_timeout = timeout;
        self
    }

    /// Sets how long an idle connection to a backend is kept, at least 1 ms. Choose a shorter time
    /// than the backend's own limit, so that requests seldom use a connection that the backend is
    /// closing.
    pub fn idle_timeout(mut self, timeout: Duration) -> Self {
        self.idle_timeout = timeout;
        self
    }

    /// Sets how many fields the header of an HTTP/1.1 response may have. The whole header may also
    /// have no more than 64 KiB. With HTTP/2 only the limit of 64 KiB applies, and each field
    /// counts 32 bytes more than its length.
    pub fn max_response_headers(mut self, fields: usize) -> Self {
        self.max_response_headers = fields;
        self
    }

    /// Sets how many backends the proxy may try for one request, as long as no backend has acted on
    /// it. Backends that refuse the connection do not count, but after 32 of these the proxy gives
    /// up. If none is left, a backend that has closed the connection, in its TLS handshake for
    /// example, is tried once more, within this number.
    ///
    /// An idempotent request whose new connection closed before any response byte is sent to one
    /// other backend at most, because the request itself may be the cause.
    pub fn attempts(mut self, backends: usize) -> Self {
        self.attempts = backends;
        self
    }

    /// Sets how many bytes of a request's body the proxy reads before it contacts a backend. With
    /// 0, it streams every request from its start.
    pub fn request_buffer(mut self, bytes: usize) -> Self {
        self.request_buffer = bytes;
        self
    }

    /// Sets how many bytes of a response's body may wait in the proxy for the client. From an
    /// HTTP/2 backend, the same number again (but at least 64 KiB, and at most 4 MiB) may wait in
    /// the connection.
    pub fn response_buffer(mut self, bytes: usize) -> Self {
        self.response_buffer = bytes;
        self
    }

    /// Sets how many bytes of all bodies together may wait on each loop.
    pub fn loop_buffer(mut self, bytes: usize) -> Self {
        self.loop_buffer = bytes;
        self
    }

    /// Sets to which protocols clients may upgrade. HTTP/2 backends never get such requests.
    pub fn upgrades(mut self, upgrades: Upgrades) -> Self {
        self.upgrades = upgrades;
        self
    }

    /// Sets how many upgraded connections each loop may have, including those for which a backend
    /// has not answered yet. Each of them uses a connection or a stream of the client, and a
    /// connection to a backend.
    pub fn max_tunnels(mut self, tunnels: usize) -> Self {
        self.max_tunnels = tunnels;
        self
    }

    /// Sets how long an upgraded connection may be silent in both directions. After one side has
    /// ended its stream, and while one side does not accept the other side's bytes,
    /// `upstream_timeout` applies instead if it is shorter.
    pub fn tunnel_timeout(mut self, timeout: Duration) -> Self {
        self.tunnel_timeout = timeout;
        self
    }

    /// Sets which headers backends get about the client.
    pub fn forwarded(mut self, headers: ForwardedHeaders) -> Self {
        self.forwarded = headers;
        self
    }

    /// Sets when a backend is excluded.
    pub fn ejection(mut self, ejection: Ejection) -> Self {
        self.ejection = ejection;
        self
    }

    /// Sets the [names](self#names) whose addresses are backends, in addition to those of
    /// [`new`](Self::new). A target without a [name](Target::name), for example an address, is
    /// itself a backend.
    pub fn names(mut self, names: impl IntoIterator<Item = Target>) -> Self {
        self.names = names.into_iter().collect();
        self
    }

    /// Sets the time between two look-ups of one of the [`names`](Self::names). The proxy varies it
    /// at random by up to a fifth.
    pub fn name_interval(mut self, interval: Duration) -> Self {
        self.name_interval = interval.clamp(SHORTEST_INTERVAL, LONGEST_INTERVAL);
        self
    }

    /// Sets how long [`start`] waits until each of the [`names`](Self::names) has an address. It
    /// never waits longer than [`connect_timeout`](Self::connect_timeout), which is the default.
    /// Then the proxy starts without the addresses that are missing.
    pub fn name_start_timeout(mut self, timeout: Duration) -> Self {
        self.name_start_timeout = timeout;
        self
    }

    /// Sets the name by which the proxy recognises a request that it has already forwarded. Several
    /// processes that are one proxy need the same one, or a request may pass each of them before it
    /// is refused.
    pub fn pseudonym(mut self, pseudonym: impl Into<Option<Pseudonym>>) -> Self {
        self.pseudonym = pseudonym.into();
        self
    }
}

/// How many descriptors the rest of the process opens now and then, such as look-ups of names.
const FOR_OTHERS: usize = 8;

/// The smallest window of a response from an HTTP/2 backend, however small the buffer is.
const LEAST_WINDOW: u32 = 64 * 1024;
const SHORTEST_INTERVAL: Duration = Duration::from_millis(1);
const LONGEST_INTERVAL: Duration = Duration::from_secs(60 * 60);

/// A running proxy. Dropping it aborts all connections.
#[derive(Debug)]
pub struct RunningProxy {
    service: RunningService,
    counts: Arc<Counts>,
}

/// Starts a proxy on `listeners`. All paths of these belong to the backends. The listeners of
/// `admin` answer `/healthz`, `/readyz`, `/metrics` and `/workers`, on a separate loop. The proxy
/// always refuses requests with an [ambiguous length](AmbiguousLength::Refuse), whatever `options`
/// say.
///
/// The call waits for the first address of each of [`ProxyOptions::names`], for at most
/// [`ProxyOptions::connect_timeout`] and [`ProxyOptions::name_start_timeout`]. If no look-up has
/// found an address by then, the proxy starts nevertheless, and answers 503 until there is an
/// address.
///
/// # Errors
/// There are neither backends nor names; the loops cannot be started; or the threads that look
/// names up cannot be started.
pub fn start(
    options: &ServeOptions,
    proxy: ProxyOptions,
    listeners: Vec<SharedListener>,
    admin: Vec<SharedListener>,
) -> io::Result<RunningProxy> {
    if proxy.to.is_empty() && proxy.names.is_empty() {
        let none = "a proxy needs at least one backend";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, none));
    }
    let loops = options.group().loop_count()?;
    let counts = Arc::<Counts>::default();
    let members = members(&proxy, &counts)?;
    let of_loops = counts.clone();
    // The backend may interpret a request's length differently, so an ambiguous one is never
    // resolved here.
    let ambiguous_length = AmbiguousLength::Refuse;
    // gRPC needs HTTP/2 backends. With others, no request counts as a call.
    let grpc_calls = match proxy.version {
        HttpVersion::Http1 => GrpcCalls::Limited,
        HttpVersion::Http2 => GrpcCalls::Unlimited,
    };
    let limits = options.limits.clone().ambiguous_length(ambiguous_length).grpc_calls(grpc_calls);
    // A user who limits the connections has considered the descriptors.
    let limit = if limits.given_max_connections().is_some() { None } else { Descriptors::limit() };
    let idle = descriptors::Idle { limit, loops, wanted: proxy.connections };
    let kept = if proxy.names.is_empty() {
        idle.kept(members.count())
    } else {
        idle.kept_for_more(members.count())
    };
    let kept = admin::descriptors(kept, &admin);
    let in_use = match proxy.version {
        HttpVersion::Http1 => {
            let idle = idle.most(members.count(), !proxy.names.is_empty());
            let others = Others { idle, rest: admin::kept_for(&admin) + FOR_OTHERS };
            for_requests::most(options, kept, others)?.map(|most| Bound::new(1, most))
        }
        // Many requests share a connection.
        HttpVersion::Http2 => None,
    };
    let server = options.http_server(listeners).limits(limits).descriptors(kept);
    let pseudonym = proxy.pseudonym.unwrap_or_else(Pseudonym::unique);
    let running = server.start_per_connection(move || {
        let proxy = of_a_loop(&proxy, members.clone(), idle, &of_loops, pseudonym);
        let proxy = Rc::new(service::Proxy { in_use: in_use.clone(), ..proxy });
        move |caller: Caller| {
            let (proxy, client) = (proxy.clone(), Rc::new(headers::Client::new(caller)));
            service_fn(move |request: Request<RequestBody>| {
                proxy.clone().serve(client.clone(), request)
            })
        }
    })?;
    let mut registry = admin::registry(&running, options);
    registry.register_collector(Box::new(metrics::OfBackends(counts.clone())));
    let scrape = Scrape::new(registry, options.reports.clone())?;
    let service = RunningService::new(running, admin, scrape)?;
    Ok(RunningProxy { service, counts })
}

/// The backends with fixed addresses, and those of names. The look-ups of the names begin here.
fn members(proxy: &ProxyOptions, counts: &Arc<Counts>) -> io::Result<Arc<members::Members>> {
    let of_version = |target: &Target| target.clone().version(proxy.version);
    let (names, known): (Vec<_>, Vec<_>) =
        proxy.names.iter().map(of_version).partition(|target| target.name().is_some());
    let given = proxy.to.iter().map(of_version).chain(known).collect();
    let members = members::Members::new(given, names.len(), proxy.ejection, counts.clone());
    let names = names.into_iter().map(|name| {
        let counts = counts.of_name(name.to_string());
        (name, counts)
    });
    let patience = proxy.name_start_timeout.min(proxy.connect_timeout);
    names::follow(&members, names.collect(), proxy.name_interval, patience)?;
    Ok(members)
}

fn of_a_loop(
    options: &ProxyOptions,
    members: Arc<members::Members>,
    idle: descriptors::Idle,
    counts: &Counts,
    pseudonym: Pseudonym,
) -> service::Proxy {
    let client = ClientBuilder::default()
        .tls(options.upstream_tls.clone())
        .connect_timeout(options.connect_timeout)
        // The proxy has its own time limit, which begins after the request was read.
        .head_timeout(None)
        .max_connections(options.connections)
        .max_waiting(options.max_waiting)
        .queue_timeout(options.queue_timeout)
        .idle_timeout(options.idle_timeout)
        .max_headers(options.max_response_headers)
        // What is read ahead for slow clients comes on top of this.
        .stream_window(u32::try_from(options.response_buffer).unwrap_or(u32::MAX).max(LEAST_WINDOW))
        .retries(1)
        .build();
    let counts = counts.of_a_loop(client.counts());
    let budget = budget::Budget::new(options.loop_buffer, counts.clone());
    let silence = options.upstream_timeout;
    let (limit, version, upgrades) = (options.response_buffer, options.version, options.upgrades);
    service::Proxy {
        backends: backends::Backends::new(members, client, idle, counts.clone()),
        headers: headers::Settings { forwarded: options.forwarded, version, upgrades, pseudonym },
        request_buffer: options.request_buffer,
        attempts: options.attempts.max(1),
        silence,
        ahead: response_body::ReadAhead { limit, silence, budget },
        tunnels: tunnel::Tunnels::new(options.tunnel_timeout, silence, options.max_tunnels),
        in_use: None,
        counts,
    }
}

impl RunningProxy {
    /// Returns the addresses for clients.
    #[must_use]
    pub fn local_addrs(&self) -> &[ListenAddr] {
        self.service.local_addrs()
    }

    /// Returns the addresses for operators. There are none if the proxy was started without
    /// listeners for operators.
    #[must_use]
    pub fn admin_addrs(&self) -> &[ListenAddr] {
        self.service.admin_addrs()
    }

    /// Returns the server for clients.
    #[must_use]
    pub fn server(&self) -> &Running {
        self.service.server()
    }

    /// Returns the counters of the proxy and its backends.
    #[must_use]
    pub fn counts(&self) -> Arc<Counts> {
        self.counts.clone()
    }

    /// Returns the proxy as a service like the others, without its counters.
    #[must_use]
    pub fn into_service(self) -> RunningService {
        self.service
    }

    /// Ends the proxy as `plan` says: see [`RunningService::drain`]. Returns how many connections
    /// were aborted. Blocks the calling thread.
    ///
    /// # Errors
    /// The same as for [`Running::drain`].
    pub fn drain(self, plan: DrainPlan) -> io::Result<usize> {
        self.service.drain(plan)
    }
}
