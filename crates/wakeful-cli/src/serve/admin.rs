//! `--admin`: where operators look, for the services that speak HTTP.

use clap::Args;
use wakeful::accept::SharedListener;
use wakeful::net::ListenAddr;
use wakeful_services::options::bind;

use super::common::address;
use super::workers::keep;

#[derive(Debug, Args)]
pub(super) struct AdminArguments {
    // Not a doc comment: rustdoc takes the brackets for a link.
    #[arg(
        long,
        value_name = "ADDR",
        help_heading = "Health and metrics",
        help = "Where operators find /healthz, /readyz, /metrics and /workers: an address as for --listen, without TLS. The service's limits do not apply there, and it answers until the drain is over. `http` has /metrics only there then. With --workers any worker answers for all. At most 16 connections, each closed after 2 s of silence. May be repeated"
    )]
    pub(super) admin: Vec<String>,
}

impl AdminArguments {
    /// # Errors
    /// A line for the user: an address is malformed, or cannot be used.
    pub(super) fn bind(&self) -> Result<Vec<SharedListener>, String> {
        bind(&self.addresses()?)
    }

    /// # Errors
    /// A line for the user: an address is malformed.
    pub(super) fn addresses(&self) -> Result<Vec<ListenAddr>, String> {
        let addrs = self.admin.iter().map(|addr| address(addr)).collect::<Result<_, _>>();
        addrs.map_err(|error| format!("--admin: {error}"))
    }

    /// Like [`CommonArguments::keep`](super::common::CommonArguments::keep).
    pub(super) fn keep(&mut self, masters: &Self) -> Option<&'static str> {
        keep(&mut self.admin, &masters.admin, "--admin")
    }
}
