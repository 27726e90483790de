//! The interleaved comparison of echo servers.
//!
//! A shared machine gets faster and slower by itself over seconds and minutes.
//! So no server is measured in one go: blocks of A and B alternate as A B B A A B
//! B A ..., each block with a fresh process, and only the ratios within a pair
//! of neighbours count. A against itself, measured the same way, shows how far a
//! ratio strays when there is no difference at all.
//!
//! Alternating does not help when another program takes one of the two CPUs for
//! part of a block. The scheduler counts how long the server and the load had to
//! wait for their CPUs; a pair in which that was too long is measured again,
//! whatever its ratio.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use clap::Parser;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use wakeful_benches::affinity::pin_this_thread;
use wakeful_benches::cli;
use wakeful_benches::load::{Check, Load, LoadOptions};
use wakeful_benches::schedule::{process_ran, process_waited, this_thread_waited};
use wakeful_benches::server::{Server, ServerCommand};
use wakeful_benches::stats::{median, median_interval, range};

/// Compares echo servers in interleaved blocks. The first server is compared
/// with itself, which shows the noise, and then with each of the others.
#[derive(Parser)]
struct Args {
    /// A server; `{addr}` in its command stands for the address to listen on.
    /// The command must become the server itself, as `taskset` and `env` do.
    #[arg(long = "server", value_name = "NAME=COMMAND", required = true)]
    servers: Vec<ServerCommand>,
    /// How many pairs of blocks for each comparison.
    #[arg(long, value_name = "N", default_value_t = 7)]
    pairs: usize,
    /// How long each block is measured.
    #[arg(long, default_value = "2", value_parser = cli::seconds)]
    seconds: Duration,
    /// How long each block is loaded before it is measured.
    #[arg(long, value_name = "SECONDS", default_value = "0.5", value_parser = cli::seconds)]
    warmup: Duration,
    /// How many connections, each with one request in flight.
    #[arg(long, value_name = "N", default_value_t = 32)]
    connections: usize,
    /// Bytes of payload in each request.
    #[arg(long, value_name = "BYTES", default_value_t = 1024)]
    size: usize,
    /// Measure a pair again if, in one of its blocks, the server or the load had
    /// to wait for its CPU for more than this share of the time.
    #[arg(long, value_name = "PERCENT", default_value_t = 5.0)]
    max_wait: f64,
    /// The CPU for the servers.
    #[arg(long, value_name = "CPU", default_value_t = 0)]
    server_cpu: usize,
    /// The CPU for the load.
    #[arg(long, value_name = "CPU", default_value_t = 1)]
    load_cpu: usize,
}

/// How often a comparison may measure a disturbed pair again, for each of its
/// pairs on average.
const REPEATS_PER_PAIR: usize = 4;

/// What one block measured.
struct Block {
    requests_per_second: f64,
    /// User and system time of the server for each request.
    cpu_us_per_request: f64,
    /// How much of the block the server was running. Well below 1, it was
    /// waiting for the load, and the throughput is the client's limit.
    busy: f64,
    /// How much of the block the server or the load, whichever was worse off,
    /// had to wait because something else was running on its CPU.
    waited: f64,
}

/// The blocks of one comparison; those with the same index are a pair.
struct Comparison {
    baseline: Vec<Block>,
    contender: Vec<Block>,
    /// How many disturbed pairs were measured again.
    repeated: usize,
}

fn main() -> ExitCode {
    cli::exit_code("compare-echo", run(&Args::parse()))
}

fn run(args: &Args) -> Result<()> {
    ensure!(args.servers.len() >= 2, "at least two servers are needed");
    ensure!(args.pairs > 0, "at least one pair is needed");
    ensure!(!args.seconds.is_zero(), "a block must last some time");

    // Signals only set a flag. The run then ends like after any other error, and
    // the server's guard kills it on the way out.
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&interrupted))?;
    }
    let outcome = compare_all(args, &interrupted);
    // The terminal's Ctrl-C also reaches the server, whose end may be noticed
    // first; the flag tells what really happened.
    outcome.map_err(|error| {
        if interrupted.load(Ordering::Relaxed) { anyhow!("interrupted") } else { error }
    })
}

fn compare_all(args: &Args, interrupted: &AtomicBool) -> Result<()> {
    let baseline = &args.servers[0];
    let mut rows = Vec::new();
    for (index, contender) in args.servers.iter().enumerate() {
        let name = if index == 0 {
            format!("{} (itself)", contender.name)
        } else {
            contender.name.clone()
        };
        eprintln!("{} against {name}", baseline.name);
        rows.push((name, compare(args, contender, interrupted)?));
    }
    print_report(args, &rows);
    Ok(())
}

/// Measures the pairs of the baseline and one contender.
fn compare(args: &Args, contender: &ServerCommand, interrupted: &AtomicBool) -> Result<Comparison> {
    let baseline = &args.servers[0];
    let mut comparison = Comparison { baseline: Vec::new(), contender: Vec::new(), repeated: 0 };
    while comparison.baseline.len() < args.pairs {
        let pair = comparison.baseline.len();
        let (a, b);
        if pair.is_multiple_of(2) {
            a = measure(args, baseline, interrupted)?;
            b = measure(args, contender, interrupted)?;
        } else {
            b = measure(args, contender, interrupted)?;
            a = measure(args, baseline, interrupted)?;
        }
        let waited = 100.0 * a.waited.max(b.waited);
        let disturbed = waited > args.max_wait;
        eprintln!(
            "  pair {} of {}: {:.0} and {:.0} requests/s, ratio {:.3}, waited {waited:.1} %{}",
            pair + 1,
            args.pairs,
            a.requests_per_second,
            b.requests_per_second,
            a.requests_per_second / b.requests_per_second,
            if disturbed { ": again" } else { "" }
        );
        if disturbed {
            comparison.repeated += 1;
            ensure!(
                comparison.repeated <= REPEATS_PER_PAIR * args.pairs,
                "too many disturbed pairs: other programs keep the CPUs busy"
            );
        } else {
            comparison.baseline.push(a);
            comparison.contender.push(b);
        }
    }
    Ok(comparison)
}

/// One block: a fresh server process, warmed up and then measured.
fn measure(args: &Args, command: &ServerCommand, interrupted: &AtomicBool) -> Result<Block> {
    let server = Server::start(command, args.server_cpu, interrupted)?;
    pin_this_thread(args.load_cpu)?;
    load(args, &server, interrupted).with_context(|| format!("while loading {}", command.name))
}

#[allow(clippy::cast_precision_loss)]
fn load(args: &Args, server: &Server, interrupted: &AtomicBool) -> Result<Block> {
    let mut load = Load::connect(&LoadOptions {
        addr: server.addr(),
        connections: args.connections,
        size: args.size,
        check: Check::Ends,
    })?;
    if !args.warmup.is_zero() {
        load.run_for(args.warmup, interrupted)?;
    }
    let (ran, server_waited, load_waited) = counters(server)?;
    let report = load.run_for(args.seconds, interrupted)?;
    let (ran_after, server_waited_after, load_waited_after) = counters(server)?;
    let seconds = report.elapsed.as_secs_f64();
    let cpu = ran_after - ran;
    let waited = (server_waited_after - server_waited).max(load_waited_after - load_waited);
    Ok(Block {
        requests_per_second: report.requests_per_second(),
        cpu_us_per_request: cpu * 1e6 / report.requests as f64,
        busy: cpu / seconds,
        waited: waited / seconds,
    })
}

/// The seconds so far that the server ran, that it waited for its CPU, and that
/// this thread, which is the load, waited for its own.
fn counters(server: &Server) -> Result<(f64, f64, f64)> {
    let pid = server.pid();
    Ok((process_ran(pid)?, process_waited(pid)?, this_thread_waited()?))
}

/// Prints the comparisons as a Markdown table.
fn print_report(args: &Args, rows: &[(String, Comparison)]) {
    println!(
        "A = {}; {} connections, {} bytes, {} pairs of {} s blocks; \
         server on CPU {}, load on CPU {}\n",
        args.servers[0].name,
        args.connections,
        args.size,
        args.pairs,
        args.seconds.as_secs_f64(),
        args.server_cpu,
        args.load_cpu,
    );
    println!(
        "| B | throughput A/B, median | min..max | bootstrap 95 % | requests/s A, B \
         | server CPU us/request A, B | server busy A, B | repeated |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    for (name, comparison) in rows {
        let Comparison { baseline, contender, repeated } = comparison;
        let ratios: Vec<f64> = baseline
            .iter()
            .zip(contender)
            .map(|(a, b)| a.requests_per_second / b.requests_per_second)
            .collect();
        let (min, max) = range(&ratios);
        let (low, high) = median_interval(&ratios);
        println!(
            "| {name} | {:.3} | {min:.3}..{max:.3} | {low:.3}..{high:.3} \
             | {:.0}, {:.0} | {:.2}, {:.2} | {:.0} %, {:.0} % | {repeated} |",
            median(&ratios),
            median_of(baseline, |block| block.requests_per_second),
            median_of(contender, |block| block.requests_per_second),
            median_of(baseline, |block| block.cpu_us_per_request),
            median_of(contender, |block| block.cpu_us_per_request),
            100.0 * median_of(baseline, |block| block.busy),
            100.0 * median_of(contender, |block| block.busy),
        );
    }
}

fn median_of(blocks: &[Block], value: impl Fn(&Block) -> f64) -> f64 {
    median(&blocks.iter().map(value).collect::<Vec<_>>())
}
