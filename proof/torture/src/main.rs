//! The program `wakeful-torture`: see `wakeful-torture --help`.
//!
//! Rounds of a few seconds. In each, a group of loops is started with random settings, and threads
//! open connections on them (TCP, Unix, pairs, and clients that block) whose ends do to their
//! streams all that may be done: read and write in random pieces, vectored, in halves, half-close,
//! reset, shut down, go away, move to another loop or to a thread, change their priority; tasks are
//! aborted; below the sockets faults are injected (feature `faults`). Around them user code panics,
//! the log fails, and the process is stopped or at a limit (`hostile`). What must come of it is
//! known: `bytes` has what must come, `ledger` the accounts of both ends of each connection, `end`
//! the life of one end, `world` how connections are made, `round` what happens around them and what
//! must be left when it is over: nothing.

mod bytes;
mod end;
mod hostile;
mod ledger;
mod report;
mod round;
mod world;

use std::num::NonZeroU16;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Parser;

use crate::ledger::Ledger;

/// Tortures wakeful's sockets and loops, and accounts for every byte. Exit code 1: something is
/// wrong, and each fault was reported on stderr.
///
/// A seed repeats the choices, not the interleaving of the threads. With WAKEFUL_SHUFFLE=seed, in a
/// build with debug assertions, ready tasks run in a random order, too.
#[derive(Debug, Parser)]
#[command(name = "wakeful-torture", version)]
struct Options {
    /// What the random numbers begin with. Unless given: another one each time.
    #[arg(long)]
    seed: Option<u64>,
    /// How long, in rounds of about two seconds.
    #[arg(long, value_name = "TIME", default_value = "1m", value_parser = humantime::parse_duration)]
    duration: Duration,
    /// Loops of a round.
    #[arg(long, value_name = "N", default_value = "4")]
    loops: NonZeroU16,
    /// Threads without a loop, which open connections, block, and carry streams.
    #[arg(long, value_name = "N", default_value = "4")]
    threads: NonZeroU16,
    /// Connections at a time, about.
    #[arg(long, value_name = "N", default_value_t = 200)]
    connections: usize,
    /// Inject no faults: neither below the sockets (`--features faults`) nor around them.
    #[arg(long)]
    without_faults: bool,
    /// Leave out these faults around the sockets. May be repeated.
    #[arg(long, value_name = "KIND", value_delimiter = ',')]
    without: Vec<hostile::Kind>,
    /// Print the summary as JSON.
    #[arg(long)]
    json: bool,
}

impl Options {
    fn has(&self, kind: hostile::Kind) -> bool {
        !self.without_faults && !self.without.contains(&kind)
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    let seed = options.seed.unwrap_or_else(|| fastrand::u64(..1 << 48));
    eprintln!("seed {seed}");
    let ledger = Arc::new(Ledger::default());
    let before = match round::descriptors() {
        Ok(before) => before,
        Err(error) => {
            eprintln!("error: cannot list the open descriptors: {error}");
            return ExitCode::from(2);
        }
    };
    let pids =
        if options.has(hostile::Kind::Threads) { hostile::limits::Pids::new() } else { None };
    if pids.is_none() && options.has(hostile::Kind::Threads) {
        eprintln!("without threads: there is no pids.max that this process may write");
    }
    if options.has(hostile::Kind::Log) {
        hostile::log::install(seed);
    }
    let begun = Instant::now();
    let mut rounds = 0;
    loop {
        let left = options.duration.saturating_sub(begun.elapsed());
        if left.is_zero() && rounds > 0 {
            break;
        }
        rounds += 1;
        let length = left.min(Duration::from_secs(2));
        let of_this_round = seed.wrapping_add(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(rounds));
        if let Err(error) =
            round::run(&ledger, &options, pids.as_ref(), &before, of_this_round, length)
        {
            eprintln!("error: cannot begin a round: {error}");
            return ExitCode::from(2);
        }
        eprintln!("{}", report::progress(&ledger, begun.elapsed(), rounds));
        if ledger.faults().len() > 20 {
            eprintln!("too many faults: this is the end");
            break;
        }
    }
    let summary = report::Summary::new(seed, begun.elapsed(), rounds, &ledger);
    if options.json {
        println!("{}", summary.json());
    } else {
        print!("{summary}");
    }
    if ledger.faults().is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
