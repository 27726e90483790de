//! `wakeful serve echo`.

use clap::Args;
use wakeful_services::echo;

use super::activity::{ActivityArguments, MoveArguments};
use super::common::{CommonArguments, address};
use super::lifecycle::{serving, until_terminated};

#[derive(Debug, Args)]
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
        help = "Pass each frame on to the echo service that listens there, and its answer back: 127.0.0.1:8081, [::1]:8081, unix:PATH. Each connection has one of \
                its own to it, and never moves"
    )]
    backend: Option<String>,
}

impl EchoArguments {
    /// # Errors
    /// Options that have no meaning together.
    pub(super) fn check(&self) -> Result<(), String> {
        match &self.backend {
            Some(_) if self.moves.is_given() => {
                Err("--moves: connections that pass frames on to a backend never move".to_owned())
            }
            _ => Ok(()),
        }
    }
}

/// # Errors
/// A line for the user.
pub(super) fn serve(arguments: &EchoArguments) -> Result<(), String> {
    let mut options = arguments.common.options(&arguments.activity)?;
    options.moves = arguments.moves.moves();
    let backend = arguments.backend.as_deref().map(address).transpose();
    let backend = backend.map_err(|error| format!("--backend: {error}"))?;
    let listeners = options.bind()?;
    until_terminated(&options, || {
        match &backend {
            Some(backend) => echo::start_frontend(&options, listeners, backend),
            None => echo::start(&options, listeners),
        }
        .map(serving)
    })
}
