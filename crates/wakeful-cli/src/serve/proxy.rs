//! `wakeful serve proxy`.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use wakeful_services::proxy::headers::{ForwardedHeaders, Upgrades};
use wakeful_services::proxy::{self, ProxyOptions};
use wakeful_services::tls::ClientTls;
use wakeful_services::{HttpVersion, InvalidTarget, Target};

use super::activity::{ActivityArguments, MoveArguments};
use super::admin::AdminArguments;
use super::common::CommonArguments;
use super::given::given;
use super::lifecycle::{Scheme, running, until_terminated};
use super::limits::{DrainArguments, LimitArguments};
use super::other_signals;
use super::seconds::positive_seconds;
use super::size;
use super::start::Start;
use super::tls::TlsArguments;
use crate::numbers::{positive_count, whole};

/// The prefix of a name whose addresses are backends.
const DNS: &str = "dns:";
const INTERVALS: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(3600);

#[derive(Debug, Args)]
#[command(after_help = other_signals::HELP_WITHOUT_ACCESS_LOG)]
pub(super) struct ProxyArguments {
    #[command(flatten)]
    pub(super) common: CommonArguments,

    #[command(flatten)]
    activity: ActivityArguments,

    #[command(flatten)]
    moves: MoveArguments,

    // Not a doc comment: rustdoc takes the brackets for a link.
    #[arg(
        long,
        help_heading = "Backends",
        value_name = "ADDR",
        required = true,
        help = "A backend: 127.0.0.1:8081, [::1]:8081, HOST:PORT, http://HOST[:PORT], https://HOST[:PORT], unix:PATH, unix:@NAME. dns:HOST:PORT, dns:http://HOST[:PORT], dns:https://HOST[:PORT]: each address of the host is a backend, and the name is looked up again and again. May be repeated: of two backends taken at random, the less busy one gets the request"
    )]
    to: Vec<String>,

    /// Look each name of --to dns:… up again after this many seconds, 1 to 3600, a fifth more or
    /// less. New addresses join; those that are gone get no more requests [default: 5]
    #[arg(long, help_heading = "Backends", value_name = "SECONDS", value_parser = interval)]
    dns_interval: Option<Duration>,

    /// Speak HTTP/2 to the backends, which gRPC needs; without TLS, with prior knowledge.
    #[arg(long, help_heading = "Backends")]
    http2_upstream: bool,

    /// A PEM file with the authorities that must have issued the certificates of https:// backends,
    /// instead of Mozilla's.
    #[arg(long, help_heading = "Backends", value_name = "FILE")]
    upstream_ca: Option<PathBuf>,

    /// Seconds to connect to a backend [default: 2]
    #[arg(long, help_heading = "Backends", value_name = "SECONDS", value_parser = positive_seconds)]
    connect_timeout: Option<Duration>,

    /// Seconds that a backend may be silent: from the connection until its response begins, and
    /// between two parts of it [default: 60]
    #[arg(long, help_heading = "Backends", value_name = "SECONDS", value_parser = positive_seconds)]
    upstream_timeout: Option<Duration>,

    /// The most connections to each backend on each loop. Beyond them 1,024 requests may wait, for
    /// up to 2 s; then the answer is 503 [default: 256]
    #[arg(long, help_heading = "Backends", value_name = "N", value_parser = positive_count::<usize>)]
    upstream_connections: Option<usize>,

    /// The most header fields of a backend's HTTP/1.1 response; one with more is answered 502
    /// [default: 1000]
    #[arg(long, help_heading = "Backends", value_name = "N", value_parser = whole(1..=24_576_u32))]
    max_response_headers: Option<u32>,

    /// How much of a request's body is read before a backend is asked; the rest is streamed. gRPC
    /// is streamed from the start. A service that answers in the middle of a request needs 0
    /// [default: 64KiB]
    #[arg(long, help_heading = "Backends", value_name = "SIZE", value_parser = size::parse)]
    request_buffer: Option<usize>,

    /// How much of a response's body is read ahead of its client [default: 256KiB]
    #[arg(long, help_heading = "Backends", value_name = "SIZE", value_parser = size::parse)]
    response_buffer: Option<usize>,

    /// How much of all bodies together is buffered on each loop [default: 64MiB]
    #[arg(long, help_heading = "Backends", value_name = "SIZE", value_parser = size::parse)]
    loop_buffer: Option<usize>,

    /// Which protocols clients may change to, if a backend agrees. With --http2-upstream no backend
    /// is asked.
    #[arg(long, help_heading = "Backends", value_name = "WHAT", value_enum, default_value_t = Upgrade::Websocket)]
    upgrades: Upgrade,

    /// The most upgraded connections on each loop, including those that a backend has not answered
    /// yet; further ones are answered 503 [default: 4096]
    #[arg(long, help_heading = "Backends", value_name = "N", value_parser = positive_count::<u32>)]
    max_tunnels: Option<u32>,

    /// Close an upgraded connection if nothing moves on it for this many seconds, in either
    /// direction [default: 3600]
    #[arg(long, help_heading = "Backends", value_name = "SECONDS", value_parser = positive_seconds)]
    tunnel_timeout: Option<Duration>,

    /// What becomes of X-Forwarded-*, Forwarded and X-Real-IP headers that clients send.
    #[arg(long, help_heading = "Backends", value_name = "WHAT", value_enum, default_value_t = Forwarded::Replace)]
    forwarded: Forwarded,

    // Without it there are none: every path is the backends'.
    #[command(flatten)]
    pub(super) admin: AdminArguments,

    #[command(flatten)]
    tls: TlsArguments,

    #[command(flatten)]
    pub(super) drain: DrainArguments,

    #[command(flatten)]
    limits: LimitArguments,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Forwarded {
    /// The proxy's own replace them: right if clients are not trusted.
    Replace,
    /// The client is added to them: right behind another proxy that is trusted.
    Append,
    /// They are forwarded unchanged.
    Keep,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Upgrade {
    /// None: such a request is forwarded like any other.
    Off,
    /// WebSockets, over HTTP/1.1 and HTTP/2.
    Websocket,
    /// Whatever HTTP/1.1 clients ask for, except versions of HTTP and TLS.
    Any,
}

impl ProxyArguments {
    /// # Errors
    /// Options that have no meaning together.
    pub(super) fn check(&self) -> Result<(), String> {
        let (_, names) = self.backends()?;
        if self.upstream_ca.is_some() && !self.has_tls_backends() {
            return Err("--upstream-ca needs a backend with https://".to_owned());
        }
        if self.dns_interval.is_some() && names.is_empty() {
            return Err("--dns-interval needs a backend with dns:".to_owned());
        }
        self.common.check_with_admin(&self.admin.admin).and_then(|()| self.tls.check())
    }

    /// # Errors
    /// A file cannot be used: a line for the user.
    pub(super) fn try_out(&self) -> Result<(), String> {
        self.tls.load(None)?;
        self.proxy_options().map(drop)
    }

    fn has_tls_backends(&self) -> bool {
        let is_tls = |to: &String| to.strip_prefix(DNS).unwrap_or(to).starts_with("https://");
        self.to.iter().any(is_tls)
    }

    /// The backends with an address, and the names whose addresses are backends.
    ///
    /// # Errors
    /// A line for the user.
    fn backends(&self) -> Result<(Vec<Target>, Vec<Target>), String> {
        let (mut backends, mut names) = (Vec::new(), Vec::new());
        for to in &self.to {
            match to.strip_prefix(DNS) {
                None => backends.push(target(to).map_err(|error| format!("--to: {error}"))?),
                Some(name) => {
                    let name = name_of(name).map_err(|why| format!("--to: {to:?} {why}"))?;
                    // A name that is given twice is looked up only once.
                    if !names.contains(&name) {
                        names.push(name);
                    }
                }
            }
        }
        Ok((backends, names))
    }

    /// # Errors
    /// A line for the user.
    fn proxy_options(&self) -> Result<ProxyOptions, String> {
        let (backends, names) = self.backends()?;
        let proxy = ProxyOptions::new(backends)
            .names(names)
            .version(if self.http2_upstream { HttpVersion::Http2 } else { HttpVersion::Http1 })
            .upstream_tls(self.upstream_tls()?)
            .upgrades(match self.upgrades {
                Upgrade::Off => Upgrades::Off,
                Upgrade::Websocket => Upgrades::WebSocket,
                Upgrade::Any => Upgrades::Any,
            })
            .forwarded(match self.forwarded {
                Forwarded::Replace => ForwardedHeaders::Replace,
                Forwarded::Append => ForwardedHeaders::Append,
                Forwarded::Keep => ForwardedHeaders::Keep,
            });
        let proxy = given(proxy, self.dns_interval, ProxyOptions::name_interval);
        // A worker whose names have no address starts all the same, and is not killed for it.
        let patience = self.common.workers().start_timeout().map(|limit| limit / 2);
        let proxy = given(proxy, patience, ProxyOptions::name_start_timeout);
        let proxy = given(proxy, self.connect_timeout, ProxyOptions::connect_timeout);
        let proxy = given(proxy, self.upstream_timeout, ProxyOptions::upstream_timeout);
        let proxy = given(proxy, self.upstream_connections, ProxyOptions::connections);
        let most = self.max_response_headers.map(|most| most as usize);
        let proxy = given(proxy, most, ProxyOptions::max_response_headers);
        let proxy = given(proxy, self.request_buffer, ProxyOptions::request_buffer);
        let proxy = given(proxy, self.response_buffer, ProxyOptions::response_buffer);
        let proxy = given(proxy, self.loop_buffer, ProxyOptions::loop_buffer);
        let max_tunnels = self.max_tunnels.map(|most| most as usize);
        let proxy = given(proxy, max_tunnels, ProxyOptions::max_tunnels);
        Ok(given(proxy, self.tunnel_timeout, ProxyOptions::tunnel_timeout))
    }

    fn upstream_tls(&self) -> Result<Option<ClientTls>, String> {
        if !self.has_tls_backends() {
            return Ok(None);
        }
        let builder = match &self.upstream_ca {
            Some(ca) => ClientTls::builder().ca(ca),
            None => ClientTls::builder(),
        };
        builder.build().map(Some).map_err(|error| format!("--upstream-ca: {error}"))
    }
}

fn target(text: &str) -> Result<Target, InvalidTarget> {
    text.parse()
}

/// # Errors
/// What is wrong with `text`, which was given after `dns:`.
fn name_of(text: &str) -> Result<Target, &'static str> {
    match target(text) {
        // A Unix socket has no name to look up.
        Ok(target) if !text.starts_with("unix:") => Ok(target),
        _ if text.parse::<u16>().is_ok() => Err(
            "has a port and no host: expected dns:HOST:PORT; http://dns:PORT is a host called dns",
        ),
        _ => Err(
            "names no host and port: expected dns:HOST:PORT, dns:http://HOST[:PORT] or dns:https://HOST[:PORT]",
        ),
    }
}

/// # Errors
/// A text that says what is expected.
fn interval(text: &str) -> Result<Duration, String> {
    positive_seconds(text)
        .ok()
        .filter(|interval| INTERVALS.contains(interval))
        .ok_or_else(|| "expected a number of seconds, 1 to 3600, as 10 or 1.5".to_owned())
}

/// # Errors
/// A line for the user.
pub(super) fn serve(arguments: &ProxyArguments, mut start: Start) -> Result<(), String> {
    let tls = arguments.tls.load(start.tickets.clone())?;
    let options = arguments.common.options(&arguments.activity)?;
    let options = options.tls(tls.clone()).limits(arguments.limits.limits());
    let options = options.moves(arguments.moves.moves());
    let pre_drain = arguments.drain.pre_drain;
    let proxy_options = arguments.proxy_options()?.pseudonym(start.pseudonym);
    let admin = start.admin(&arguments.admin)?;
    let options = start.watched(options);
    let listeners = start.listeners(&options)?;
    until_terminated(
        &arguments.common,
        Scheme::of(tls.as_ref()),
        start,
        arguments.tls.reloaded(),
        || {
            arguments.tls.watch(tls.as_ref())?;
            let proxy = proxy::start(&options, proxy_options, listeners, admin)?;
            Ok(running(proxy.into_service(), pre_drain))
        },
    )
}
