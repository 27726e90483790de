//! The program `wakeful-torture`: see `wakeful-torture --help`.
//!
//! Rounds of a few seconds. In each, a group of loops is started with random settings. Threads open
//! connections on them (TCP, Unix, pairs, and clients that block). Their ends do to their streams
//! everything that may be done: read and write in random pieces, vectored, in halves, half-close,
//! reset, shut down, go away, move to another loop or to a thread, change their priority. Tasks are
//! aborted. Below the sockets faults are injected (feature `faults`). Around them user code panics,
//! the log fails, and the process is stopped or at a limit (`hostile`).
//!
//! What must result is known. `bytes` has the bytes that must come, `ledger` the accounts of both
//! ends of each connection, `end` the life of one end, `connections` how connections are made, and
//! `world` what everybody shares. `round` has what happens around them, and what must be left when
//! it is over: nothing.

mod bytes;
mod connections;
mod end;
mod hostile;
mod ledger;
mod options;
mod report;
mod round;
mod world;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Parser;

use crate::ledger::Ledger;
use crate::options::Options;

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
