//! The arguments of `wakeful lab`, and why they are refused.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use wakeful_lab::peers::PeersError;

use crate::numbers::{count, share_of_cpu, time_in, whole};

#[derive(Debug, Args)]
#[command(after_long_help = EXIT_CODES)]
pub(crate) struct Arguments {
    /// The name of an experiment; or `all`; or `list`, which lists them, or `peers`, which builds
    /// the peers.
    #[arg(value_name = "NAME", default_value = "list")]
    pub(super) what: String,

    /// Take minutes instead of an hour: fewer rounds and parts, and fewer peers unless --peers
    /// names them.
    #[arg(long)]
    pub(super) quick: bool,

    /// Measure only these peers, by name or program; `none` for wakeful alone.
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    pub(super) peers: Option<Vec<String>>,

    /// The directory with the sources of the peers [default: proof/peers above the current
    /// directory or above this program].
    #[arg(long, value_name = "DIR")]
    pub(super) peers_dir: Option<PathBuf>,

    /// The same seed makes the same schedules.
    #[arg(long, default_value_t = 1, value_parser = count::<u64>)]
    pub(super) seed: u64,

    /// late-wake: how long until the timer of the loop fires, 200ms to 10m [default: 5s; with
    /// --quick 2s].
    #[arg(long, value_name = "TIME", value_parser = timer)]
    pub(super) timer: Option<Duration>,

    /// sleepy-median, shared-socket, herd, upgrade: measure only these parts.
    #[arg(long, value_name = "PART,…", value_delimiter = ',')]
    pub(super) parts: Option<Vec<String>>,

    /// sleepy-median, shared-socket, herd, upgrade: the number of rounds. In sleepy-median the
    /// parts quota, silence, chain and proxy, and peers that no claim names, have half as many. In
    /// upgrade it is also the number of starts [default: sleepy-median and shared-socket 5, herd 3,
    /// upgrade 1 and 20 starts; with --quick 2, upgrade 1 and 3 starts].
    #[arg(long, value_name = "N", value_parser = whole(1..=1000_u32))]
    pub(super) rounds: Option<u32>,

    /// sleepy-median, shared-socket: the measured time of a block, 100ms to 1m [default:
    /// 1.2s or 1s; with --quick 500ms or 400ms].
    #[arg(long, value_name = "TIME", value_parser = block)]
    pub(super) block: Option<Duration>,

    /// Measure a block again if other programs used more than this share of a CPU during it.
    #[arg(long, value_name = "SHARE", default_value = "0.05", value_parser = share_of_cpu)]
    pub(super) quiet_share: f64,

    /// Print JSON instead of tables: an array with an entry for each experiment.
    #[arg(long)]
    pub(super) json: bool,

    /// Print the tables as Markdown.
    #[arg(long, conflicts_with = "json")]
    pub(super) markdown: bool,

    /// Write a report: one HTML file with plots. With `all`, the name of each experiment precedes
    /// the file's name.
    #[arg(long, value_name = "FILE")]
    pub(super) report: Option<PathBuf>,

    /// Write the plot of p50 against the rate as SVG. sleepy-median also writes FILE-frontier.svg
    /// (p50 against CPU at each rate) and FILE-max-cpu.svg.
    #[arg(long, value_name = "FILE")]
    pub(super) plot: Option<PathBuf>,

    /// Draw only this server, by its name in the table, and write no other plot; may be repeated.
    #[arg(long, value_name = "NAME", requires = "plot")]
    pub(super) plot_server: Vec<String>,
}

const EXIT_CODES: &str = "\
Exit codes: 0 every claim holds, or this machine cannot tell; 1 an error; 2 wrong usage;
3 a claim does not hold; 130 ended by Ctrl-C, TERM or HUP.";

/// Why there are no results.
pub(super) enum Refusal {
    /// There is no experiment, or no part of it, with that name.
    WrongUsage(String),
    Interrupted,
    Error(String),
}

impl From<String> for Refusal {
    fn from(line: String) -> Self {
        Self::Error(line)
    }
}

impl From<PeersError> for Refusal {
    fn from(error: PeersError) -> Self {
        match error {
            PeersError::Unknown { .. } => Self::WrongUsage(error.to_string()),
            PeersError::Interrupted => Self::Interrupted,
            error => Self::Error(error.to_string()),
        }
    }
}

fn timer(text: &str) -> Result<Duration, String> {
    time_in(
        text,
        &(Duration::from_millis(200)..=Duration::from_secs(600)),
        "200ms to 10m, as 500ms or 2s",
    )
}

fn block(text: &str) -> Result<Duration, String> {
    time_in(
        text,
        &(Duration::from_millis(100)..=Duration::from_secs(60)),
        "100ms to 1m, as 500ms or 2s",
    )
}
