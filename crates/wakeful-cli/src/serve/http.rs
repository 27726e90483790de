//! `wakeful serve http`.

use clap::Args;
use wakeful_services::http;

use super::activity::{ActivityArguments, MoveArguments};
use super::admin::AdminArguments;
use super::common::CommonArguments;
use super::lifecycle::{Scheme, running, until_terminated};
use super::limits::{DrainArguments, LimitArguments};
use super::other_signals;
use super::site::SiteArguments;
use super::start::Start;
use super::tls::TlsArguments;

#[derive(Debug, Args)]
#[command(after_help = other_signals::HELP)]
pub(super) struct HttpArguments {
    #[command(flatten)]
    pub(super) common: CommonArguments,

    #[command(flatten)]
    activity: ActivityArguments,

    #[command(flatten)]
    moves: MoveArguments,

    #[command(flatten)]
    pub(super) admin: AdminArguments,

    #[command(flatten)]
    tls: TlsArguments,

    #[command(flatten)]
    site: SiteArguments,

    #[command(flatten)]
    pub(super) drain: DrainArguments,

    #[command(flatten)]
    limits: LimitArguments,
}

impl HttpArguments {
    /// # Errors
    /// Options that have no meaning together.
    pub(super) fn check(&self) -> Result<(), String> {
        self.common.check_with_admin(&self.admin.admin).and_then(|()| self.tls.check())
    }

    /// # Errors
    /// A file cannot be used: a line for the user.
    pub(super) fn try_out(&self) -> Result<(), String> {
        self.tls.load(None)?;
        self.site.try_out()
    }

    /// What HUP reloads.
    fn reloaded(&self) -> Vec<&'static str> {
        self.tls.reloaded().into_iter().chain(self.site.reloaded()).collect()
    }
}

/// # Errors
/// A line for the user.
pub(super) fn serve(arguments: &HttpArguments, mut start: Start) -> Result<(), String> {
    let tls = arguments.tls.load(start.tickets.clone())?;
    let options = arguments.common.options(&arguments.activity)?;
    let options = options.tls(tls.clone()).limits(arguments.limits.limits());
    let options = options.moves(arguments.moves.moves());
    let http_options = arguments.site.options()?;
    let pre_drain = arguments.drain.pre_drain;
    let admin = start.admin(&arguments.admin)?;
    let options = start.watched(options);
    let listeners = start.listeners(&options)?;
    until_terminated(
        &arguments.common,
        Scheme::of(tls.as_ref()),
        start,
        arguments.reloaded(),
        || {
            arguments.tls.watch(tls.as_ref())?;
            http::start(&options, http_options, listeners, admin)
                .map(|server| running(server, pre_drain))
        },
    )
}
