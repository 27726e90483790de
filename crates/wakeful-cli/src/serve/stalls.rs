//! How long a peer may keep a connection waiting: options of `wakeful serve kv` and `echo`.

use std::time::Duration;

use clap::Args;

use super::common::seconds;

#[derive(Debug, Args)]
pub(super) struct StallArguments {
    /// Seconds that a connection may be open without a request; then it closes; 0 is no limit. Redis: timeout [default: 0]
    #[arg(long, alias = "timeout", value_name = "SECONDS", value_parser = seconds)]
    idle_timeout: Option<Duration>,

    /// Seconds that nothing may come of a request that has begun, or be taken of an answer; then the connection closes; 0 is no limit [default: 60]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    stall_timeout: Option<Duration>,
}

impl StallArguments {
    pub(super) fn are_given(&self) -> bool {
        self.idle_timeout.is_some() || self.stall_timeout.is_some()
    }

    pub(super) fn idle_timeout(&self, default: Option<Duration>) -> Option<Duration> {
        limit(self.idle_timeout, default)
    }

    pub(super) fn stall_timeout(&self, default: Option<Duration>) -> Option<Duration> {
        limit(self.stall_timeout, default)
    }
}

fn limit(given: Option<Duration>, default: Option<Duration>) -> Option<Duration> {
    given.or(default).filter(|limit| !limit.is_zero())
}
