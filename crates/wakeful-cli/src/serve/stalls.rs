//! How long a peer may keep a connection waiting: options of `wakeful serve kv` and `echo`.

use std::time::Duration;

use clap::Args;

use super::given::unless_zero;
use super::seconds::seconds;
use crate::numbers::whole;

#[derive(Debug, Args)]
#[command(next_help_heading = "Limits")]
pub(super) struct StallArguments {
    /// Close a connection that has had no request for this many seconds. 0: never [default: 0]
    #[arg(long, alias = "timeout", value_name = "SECONDS", value_parser = seconds)]
    idle_timeout: Option<Duration>,

    /// Close a connection if its client sends less than 240 bytes a second of a request that it has
    /// begun, or reads that little of an answer, for this many seconds. 0: never [default: 60]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    stall_timeout: Option<Duration>,

    /// Probe a peer that has been silent for this many seconds (TCP keepalive), at most 32767;
    /// without an answer for as long again, the connection closes. 0: never [default: 300]
    #[arg(long, alias = "tcp-keepalive", value_name = "SECONDS", value_parser = whole(0..=32_767_u16))]
    keepalive: Option<u16>,
}

impl StallArguments {
    pub(super) fn are_given(&self) -> bool {
        self.idle_timeout.is_some() || self.stall_timeout.is_some()
    }

    /// `None`: the option is not given.
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
