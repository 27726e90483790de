//! How long a peer may keep a connection waiting: options of `wakeful serve kv` and `echo`.

use std::time::Duration;

use clap::{Args, value_parser};

use super::given::unless_zero;
use super::seconds::seconds;

#[derive(Debug, Args)]
pub(super) struct StallArguments {
    /// Seconds that a connection may be open without a request; then it closes; 0 is no limit.
    /// Redis: timeout [default: 0]
    #[arg(long, alias = "timeout", value_name = "SECONDS", value_parser = seconds)]
    idle_timeout: Option<Duration>,

    /// Seconds that nothing may come of a request that has begun, or be taken of an answer; then
    /// the connection closes; 0 is no limit [default: 60]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    stall_timeout: Option<Duration>,

    /// Seconds without a word after which a peer is probed (TCP keepalive), up to 32767; one that
    /// does not answer is gone after as many again; 0 is never. Redis: tcp-keepalive [default: 300]
    #[arg(long, alias = "tcp-keepalive", value_name = "SECONDS", value_parser = value_parser!(u16).range(..=32_767))]
    keepalive: Option<u16>,
}

impl StallArguments {
    pub(super) fn are_given(&self) -> bool {
        self.idle_timeout.is_some() || self.stall_timeout.is_some()
    }

    /// `None`: it is not given.
    pub(super) fn idle_timeout(&self) -> Option<Option<Duration>> {
        self.idle_timeout.map(unless_zero)
    }

    /// As for [`idle_timeout`](Self::idle_timeout).
    pub(super) fn stall_timeout(&self) -> Option<Option<Duration>> {
        self.stall_timeout.map(unless_zero)
    }

    /// As for [`idle_timeout`](Self::idle_timeout).
    pub(super) fn keepalive(&self) -> Option<Option<Duration>> {
        self.keepalive.map(|seconds| unless_zero(Duration::from_secs(seconds.into())))
    }
}
