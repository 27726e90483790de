//! `wakeful serve rpc`.

use clap::Args;
use wakeful_services::rpc::{self, RpcOptions};

use super::activity::ActivityArguments;
use super::admin::AdminArguments;
use super::common::CommonArguments;
use super::given::given;
use super::lifecycle::{Scheme, running, until_terminated};
use super::limits::{DrainArguments, LimitArguments};
use super::other_signals;
use super::size;
use super::start::Start;
use super::tls::TlsArguments;

#[derive(Debug, Args)]
#[command(after_help = other_signals::HELP_WITHOUT_ACCESS_LOG)]
pub(super) struct RpcArguments {
    #[command(flatten)]
    pub(super) common: CommonArguments,

    #[command(flatten)]
    activity: ActivityArguments,

    /// The longest message that is accepted, 1 byte to 4GiB [default: 4MiB]
    #[arg(long, help_heading = "Limits", value_name = "SIZE", value_parser = message_size)]
    max_message: Option<usize>,

    #[command(flatten)]
    pub(super) admin: AdminArguments,

    #[command(flatten)]
    tls: TlsArguments,

    #[command(flatten)]
    pub(super) drain: DrainArguments,

    #[command(flatten)]
    limits: LimitArguments,
}

/// Parses the size of a message. gRPC has 32 bits for it.
fn message_size(text: &str) -> Result<usize, String> {
    size::within(text, 1, 1 << 32, "from 1 to 4GiB")
}

impl RpcArguments {
    /// # Errors
    /// Options that have no meaning together.
    pub(super) fn check(&self) -> Result<(), String> {
        self.common.check_with_admin(&self.admin.admin).and_then(|()| self.tls.check())
    }

    /// # Errors
    /// A file cannot be used: a line for the user.
    pub(super) fn try_out(&self) -> Result<(), String> {
        self.tls.load(None).map(drop)
    }
}

/// # Errors
/// A line for the user.
pub(super) fn serve(arguments: &RpcArguments, mut start: Start) -> Result<(), String> {
    let tls = arguments.tls.load(start.tickets.clone())?;
    let options = arguments.common.options(&arguments.activity)?;
    let options = options.tls(tls.clone()).limits(arguments.limits.limits());
    let pre_drain = arguments.drain.pre_drain;
    let rpc_options = given(RpcOptions::new(), arguments.max_message, RpcOptions::max_message);
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
            rpc::start(&options, &rpc_options, listeners, admin)
                .map(|server| running(server, pre_drain))
        },
    )
}
