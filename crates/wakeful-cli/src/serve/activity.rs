//! `serve`: over how many loops connections are spread, and when open ones move.

use clap::Args;
use wakeful::accept::Moves;
use wakeful::group::Targets;

use super::given::given;
use crate::numbers::number;

#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Balance")]
pub(super) struct ActivityArguments {
    /// Activate another loop when the active ones work for more than this share of their time, 0.05
    /// to 0.95: light load stays on few loops [default: 0.6]
    #[arg(long, value_name = "SHARE", value_parser = utilisation, conflicts_with = "spread")]
    target_utilisation: Option<f64>,

    /// Use all loops, however light the load is
    #[arg(long)]
    spread: bool,
}

/// The options of services whose connections move.
#[derive(Debug, Args)]
#[command(next_help_heading = "Balance")]
pub(super) struct MoveArguments {
    /// Move open connections to other loops, between two requests, if their loop is above
    /// --target-utilisation and has this many times the mean load; 1.05 to 1000. A loop that is no
    /// longer active gives all its connections away. off: no connection moves [default: 1.25]
    #[arg(long, value_name = "RATIO|off", value_parser = when)]
    moves: Option<When>,
}

#[derive(Debug, Clone, Copy)]
enum When {
    Never,
    Above(f64),
}

impl ActivityArguments {
    pub(super) fn targets(&self) -> Option<Targets> {
        let targets = given(Targets::new(), self.target_utilisation, Targets::utilisation);
        (!self.spread).then_some(targets)
    }
}

impl MoveArguments {
    pub(super) fn is_given(&self) -> bool {
        self.moves.is_some()
    }

    pub(super) fn moves(&self) -> Option<Moves> {
        match self.moves {
            None => Some(Moves::default()),
            Some(When::Never) => None,
            Some(When::Above(ratio)) => Some(Moves::new().ratio(ratio)),
        }
    }
}

fn utilisation(text: &str) -> Result<f64, String> {
    number(text, 0.05, 0.95)
}

fn when(text: &str) -> Result<When, String> {
    if text == "off" {
        return Ok(When::Never);
    }
    let expected = |_| "expected a number from 1.05 to 1000, as 1.5, or off".to_owned();
    number(text, 1.05, 1000.0).map(When::Above).map_err(expected)
}
