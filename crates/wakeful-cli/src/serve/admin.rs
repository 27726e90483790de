//! `--admin`: where operators look, for the services that speak HTTP.

use clap::Args;
use wakeful::accept::SharedListener;
use wakeful_services::options::bind;

use super::common::address;

#[derive(Debug, Args)]
pub(super) struct AdminArguments {
    // Not a doc comment: rustdoc takes the brackets for a link.
    #[arg(
        long,
        value_name = "ADDR",
        help_heading = "Health and metrics",
        help = "Where operators find /healthz, /readyz and /metrics: an address as for --listen, without TLS. The service's limits do not apply there, and it answers until the drain is over. At most 16 connections, each closed after 2 s of silence. May be repeated"
    )]
    pub(super) admin: Vec<String>,
}

impl AdminArguments {
    /// # Errors
    /// A line for the user: an address is none, or cannot be had.
    pub(super) fn bind(&self) -> Result<Vec<SharedListener>, String> {
        let addrs = self.admin.iter().map(|addr| address(addr)).collect::<Result<Vec<_>, _>>();
        bind(&addrs.map_err(|error| format!("--admin: {error}"))?)
    }
}
