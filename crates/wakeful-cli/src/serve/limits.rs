//! What a server of HTTP bounds, and how it ends: options of `wakeful serve http`, `rpc` and
//! `proxy`.

use std::time::Duration;

use clap::Args;
use wakeful_services::{Limits, MaxAge, PeerRate};

use super::given::{given, unless_zero};
use super::seconds::{positive_seconds, seconds};
use super::size;
use crate::numbers::{count, positive_count, whole};

#[derive(Debug, Args)]
#[command(next_help_heading = "Limits")]
pub(super) struct LimitArguments {
    /// Seconds that a client has to send a request's header; then 408, or no answer if no byte came
    /// [default: 30]
    #[arg(long, value_name = "SECONDS", value_parser = positive_seconds)]
    header_timeout: Option<Duration>,

    /// Close a connection that has had no request for this many seconds [default: 75]
    #[arg(long, value_name = "SECONDS", value_parser = positive_seconds)]
    idle_timeout: Option<Duration>,

    /// Seconds that a request's body may be silent while the service waits for it; then 408
    /// [default: 30]
    #[arg(long, value_name = "SECONDS", value_parser = positive_seconds)]
    body_timeout: Option<Duration>,

    /// Seconds that a request may take in all; then 503. It does not apply to gRPC calls to rpc, or
    /// through a proxy with --http2-upstream: they have their own deadlines [default: no limit]
    #[arg(long, value_name = "SECONDS", value_parser = positive_seconds)]
    request_timeout: Option<Duration>,

    /// Probe a peer that has been silent for this many seconds (TCP keepalive), at most 32767;
    /// without an answer for as long again, the connection closes. 0: never [default: 75]
    #[arg(long, value_name = "SECONDS", value_parser = whole(0..=32_767_u16))]
    keepalive: Option<u16>,

    /// The largest header of a request, at least 8KiB; a larger one is answered 431 [default:
    /// 64KiB]
    #[arg(long, value_name = "SIZE", value_parser = header_size)]
    max_header: Option<usize>,

    /// The largest body of a request; a larger one is answered 413. 0: no limit [default: 0]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    max_body: Option<usize>,

    /// The most open connections. Further ones wait, and idle ones close to make room. 0: as many
    /// as the limit of descriptors allows (`ulimit -Hn`) [default: 0]
    #[arg(long, value_name = "N", value_parser = count::<usize>)]
    max_connections: Option<usize>,

    /// The most connections of one address, or of one /64 network of IPv6; further ones are
    /// answered 503, or closed without an answer on a TLS port. 0: no limit [default: 0]
    #[arg(long, value_name = "N", value_parser = count::<u32>)]
    max_connections_per_peer: Option<u32>,

    /// At this age, or up to a tenth later, a connection takes no more requests: the next response
    /// says `connection: close`, and HTTP/2 gets GOAWAY. What is unfinished 10 s later is aborted.
    /// Clients that connect again are spread over the loops anew [default: no limit]
    #[arg(long, value_name = "SECONDS", value_parser = positive_seconds)]
    max_connection_age: Option<Duration>,

    /// The most requests in flight; further ones are answered 503. 0: no limit [default: 0]
    #[arg(long, value_name = "N", value_parser = count::<usize>)]
    max_requests: Option<usize>,

    /// Requests a second from one address, or from one /64 network of IPv6; further ones are
    /// answered 429. That many may also arrive at once [default: no limit]
    #[arg(long, value_name = "N", value_parser = positive_count::<u32>)]
    peer_rate: Option<u32>,
}

impl LimitArguments {
    pub(super) fn limits(&self) -> Limits {
        let limits = Limits::new();
        let limits = given(limits, self.header_timeout, Limits::header_timeout);
        let limits = given(limits, self.idle_timeout, Limits::idle_timeout);
        let limits = given(limits, self.body_timeout, Limits::body_timeout);
        let limits = given(limits, self.request_timeout, Limits::request_timeout);
        let keepalive = self.keepalive.map(|seconds| Duration::from_secs(seconds.into()));
        let limits = given(limits, keepalive.map(unless_zero), Limits::keepalive);
        let limits = given(limits, self.max_header, Limits::max_header_size);
        let max_body = self.max_body.map(|bytes| unless_zero(bytes as u64));
        let limits = given(limits, max_body, Limits::max_body);
        let limits = given(limits, self.max_connections.map(unless_zero), Limits::max_connections);
        let per_peer = self.max_connections_per_peer.map(unless_zero);
        let limits = given(limits, per_peer, Limits::max_connections_per_peer);
        let limits = given(limits, self.max_connection_age.map(MaxAge::new), Limits::max_age);
        let limits = given(limits, self.max_requests.map(unless_zero), Limits::max_requests);
        given(limits, self.peer_rate.map(PeerRate::new), Limits::peer_rate)
    }
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Ending")]
pub(super) struct DrainArguments {
    /// Seconds to keep serving after TERM or Ctrl-C, while /readyz (of rpc and proxy: at --admin)
    /// answers 503 and gRPC's health says NOT_SERVING. Then the drain begins, for up to --grace.
    #[arg(long, value_name = "SECONDS", default_value = "0", value_parser = seconds)]
    pub(super) pre_drain: Duration,
}

fn header_size(text: &str) -> Result<usize, String> {
    size::within(text, 8 * 1024, usize::MAX, "at least 8KiB")
}
