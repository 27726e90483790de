//! `wakeful serve proxy`.

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
use crate::numbers::positive_count;

#[derive(Debug, Args)]
#[command(after_help = other_signals::HELP)]
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
        value_name = "ADDR",
        required = true,
        help = "A backend: 127.0.0.1:8081, [::1]:8081, HOST:PORT, http://HOST[:PORT], https://HOST[:PORT], unix:PATH. May be repeated"
    )]
    to: Vec<String>,

    /// Speak HTTP/2 to the backends (without TLS by prior knowledge), as gRPC needs it.
    #[arg(long)]
    http2_upstream: bool,

    /// A PEM file with the authorities that backends of https:// must be of, instead of Mozilla's.
    #[arg(long, value_name = "FILE")]
    upstream_ca: Option<PathBuf>,

    /// Seconds that a connection to a backend may take to be made [default: 2]
    #[arg(long, value_name = "SECONDS", value_parser = positive_seconds)]
    connect_timeout: Option<Duration>,

    /// Seconds that a backend may be silent: until its response begins, and between two pieces of
    /// it [default: 60]
    #[arg(long, value_name = "SECONDS", value_parser = positive_seconds)]
    upstream_timeout: Option<Duration>,

    /// Connections to each backend on each loop; 1,024 requests beyond them wait, for 2 s, then
    /// they are answered 503 [default: 256]
    #[arg(long, value_name = "N", value_parser = positive_count)]
    upstream_connections: Option<usize>,

    /// How many fields the header of a backend's response may have by HTTP/1.1; one with more is
    /// answered 502 [default: 1000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=24_576))]
    max_response_headers: Option<u32>,

    /// How much of a request's body is read before a backend is asked; the rest is streamed. gRPC
    /// is streamed from the start; what else waits for an answer in the middle of its body needs 0
    /// [default: 64KiB]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    request_buffer: Option<usize>,

    /// How much of a response's body is read ahead of its client [default: 256KiB]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    response_buffer: Option<usize>,

    /// How much of all bodies together waits on each loop [default: 64MiB]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    loop_buffer: Option<usize>,

    /// Which protocols clients may change to, if a backend agrees. Backends of --http2-upstream are
    /// never asked.
    #[arg(long, value_enum, default_value_t = Upgrade::Websocket)]
    upgrades: Upgrade,

    /// Upgraded connections on each loop, with those that a backend is asked for; further ones are
    /// answered 503 [default: 4096]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_tunnels: Option<u32>,

    /// Seconds that nothing may move on an upgraded connection, in either direction [default: 3600]
    #[arg(long, value_name = "SECONDS", value_parser = positive_seconds)]
    tunnel_timeout: Option<Duration>,

    /// What becomes of X-Forwarded-*, Forwarded and X-Real-IP of clients.
    #[arg(long, value_enum, default_value_t = Forwarded::Replace)]
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
    /// They go, and backends are told about the client: right where clients are strangers.
    Replace,
    /// The client is added to them: right behind another proxy that is trusted.
    Append,
    /// They go on as they came.
    Keep,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Upgrade {
    /// None: such a request goes on as any other.
    Off,
    /// WebSockets, of HTTP/1.1 and of HTTP/2.
    Websocket,
    /// Whatever HTTP/1.1 clients ask for, but versions of HTTP and TLS.
    Any,
}

impl ProxyArguments {
    /// # Errors
    /// Options that have no meaning together.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.upstream_ca.is_some() && !self.has_tls_backends() {
            return Err("--upstream-ca is for backends of https://".to_owned());
        }
        self.common.check_with_admin(&self.admin.admin).and_then(|()| self.tls.check())
    }

    /// # Errors
    /// A file cannot be used, or a backend is none: a line for the user.
    pub(super) fn try_out(&self) -> Result<(), String> {
        self.tls.load(None)?;
        self.proxy_options().map(drop)
    }

    fn has_tls_backends(&self) -> bool {
        self.to.iter().any(|to| to.starts_with("https://"))
    }

    /// # Errors
    /// A line for the user.
    fn proxy_options(&self) -> Result<ProxyOptions, String> {
        let target = |text: &String| -> Result<Target, String> {
            text.parse().map_err(|error: InvalidTarget| format!("--to: {error}"))
        };
        let backends = self.to.iter().map(target).collect::<Result<Vec<_>, _>>()?;
        let proxy = ProxyOptions::new(backends)
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

/// # Errors
/// A line for the user.
pub(super) fn serve(arguments: &ProxyArguments, mut start: Start) -> Result<(), String> {
    let tls = arguments.tls.load(start.tickets.clone())?;
    let options = arguments.common.options(&arguments.activity)?;
    let options = options.tls(tls.clone()).limits(arguments.limits.limits());
    let options = options.moves(arguments.moves.moves());
    let pre_drain = arguments.drain.pre_drain;
    let proxy_options = arguments.proxy_options()?;
    let admin = start.admin(&arguments.admin)?;
    let options = start.watched(options);
    let listeners = start.listeners(&arguments.common, &options)?;
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
