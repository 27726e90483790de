//! The program's flags.

use std::num::NonZeroU16;
use std::time::Duration;

use clap::Parser;

use crate::hostile::Kind;

/// Torture wakeful's sockets and loops, and account for every byte. Exit code 1: something is
/// wrong, and each fault was reported on stderr.
///
/// A seed repeats the choices, but not the interleaving of the threads. With WAKEFUL_SHUFFLE=seed,
/// in a build with debug assertions, ready tasks run in a random order too.
#[derive(Debug, Parser)]
#[command(name = "wakeful-torture", version)]
pub(crate) struct Options {
    /// The seed of the random numbers. Default: another one in each run.
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// How long to run. A round takes about two seconds.
    #[arg(long, value_name = "TIME", default_value = "1m", value_parser = humantime::parse_duration)]
    pub(crate) duration: Duration,
    /// Loops per round.
    #[arg(long, value_name = "N", default_value = "4")]
    pub(crate) loops: NonZeroU16,
    /// Threads without a loop, which open connections, block, and carry streams.
    #[arg(long, value_name = "N", default_value = "4")]
    pub(crate) threads: NonZeroU16,
    /// About how many connections are open at a time.
    #[arg(long, value_name = "N", default_value_t = 200)]
    pub(crate) connections: usize,
    /// Inject no faults: neither below the sockets (`--features faults`) nor around them.
    #[arg(long)]
    pub(crate) without_faults: bool,
    /// Leave out these faults around the sockets. May be repeated.
    #[arg(long, value_name = "KIND", value_delimiter = ',')]
    pub(crate) without: Vec<Kind>,
    /// Print the summary as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

impl Options {
    /// Returns whether this fault is wanted.
    pub(crate) fn has(&self, kind: Kind) -> bool {
        !self.without_faults && !self.without.contains(&kind)
    }
}
