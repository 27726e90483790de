//! `wakeful serve echo`.

use clap::Args;
use wakeful::net::ListenAddr;
use wakeful_services::echo::{self, EchoOptions};

use super::activity::{ActivityArguments, MoveArguments};
use super::common::{CommonArguments, address};
use super::given::{given, unless_zero};
use super::lifecycle::{Scheme, serving, until_terminated};
use super::other_signals;
use super::size;
use super::stalls::StallArguments;
use super::start::Start;
use crate::numbers::count;

#[derive(Debug, Args)]
#[command(after_help = other_signals::HELP_WITHOUT_RELOAD)]
pub(super) struct EchoArguments {
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
        help_heading = "Forwarding",
        help = "Forward each frame to the echo service that listens there, and its answer back: 127.0.0.1:8081, [::1]:8081, unix:PATH, unix:@NAME. Each connection has its \
                own connection to that service, and never moves"
    )]
    backend: Option<String>,

    /// Memory for the frames of all connections together; a connection that needs more is closed.
    /// 0: no limit [default: 1GiB]
    #[arg(long, help_heading = "Limits", value_name = "SIZE", value_parser = size::parse)]
    max_memory: Option<usize>,

    /// The most open connections; further ones wait until one closes. 0: as many as the limit of
    /// descriptors allows (`ulimit -Hn`) [default: 0]
    #[arg(long, help_heading = "Limits", value_name = "N", value_parser = count::<usize>)]
    max_connections: Option<usize>,

    #[command(flatten)]
    stalls: StallArguments,
}

impl EchoArguments {
    /// # Errors
    /// Options that have no meaning together.
    pub(super) fn check(&self) -> Result<(), String> {
        self.backend()?;
        match &self.backend {
            Some(_) if self.stalls.are_given() => {
                Err("--idle-timeout and --stall-timeout cannot be used with --backend".to_owned())
            }
            Some(_) if self.moves.is_given() => {
                Err("--moves cannot be used with --backend: such connections never move".to_owned())
            }
            _ => Ok(()),
        }
    }

    /// # Errors
    /// The backend's address is not valid: a line for the user.
    fn backend(&self) -> Result<Option<ListenAddr>, String> {
        let backend = self.backend.as_deref().map(address).transpose();
        backend.map_err(|error| format!("--backend: {error}"))
    }
}

/// # Errors
/// A line for the user.
pub(super) fn serve(arguments: &EchoArguments, mut start: Start) -> Result<(), String> {
    let options = arguments.common.options(&arguments.activity)?.moves(arguments.moves.moves());
    let backend = arguments.backend()?;
    let echo = EchoOptions::new();
    let echo = given(echo, arguments.max_memory.map(unless_zero), EchoOptions::max_memory);
    let echo =
        given(echo, arguments.max_connections.map(unless_zero), EchoOptions::max_connections);
    let echo = given(echo, arguments.stalls.idle_timeout(), EchoOptions::idle_timeout);
    let echo = given(echo, arguments.stalls.stall_timeout(), EchoOptions::stall_timeout);
    let echo = given(echo, arguments.stalls.keepalive(), EchoOptions::keepalive);
    let options = start.watched(options);
    let listeners = start.listeners(&options)?;
    until_terminated(&arguments.common, Scheme::Plain, start, Vec::new(), || {
        match &backend {
            Some(backend) => echo::start_frontend(&options, echo, listeners, backend),
            None => echo::start(&options, echo, listeners),
        }
        .map(serving)
    })
}
