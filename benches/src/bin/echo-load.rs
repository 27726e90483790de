//! A closed-loop saturation client for the echo service.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::Result;
use clap::Parser;
use wakeful_benches::affinity::pin_this_thread;
use wakeful_benches::cli;
use wakeful_benches::load::{Check, Load, LoadOptions, LoadReport};

/// Saturates an echo server from one thread that never sleeps. Each connection
/// has exactly one request in flight.
#[derive(Parser)]
struct Args {
    /// The server's address.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:7001")]
    addr: SocketAddr,
    /// How many connections to open.
    #[arg(long, value_name = "N", default_value_t = 32)]
    connections: usize,
    /// Bytes of payload in each request.
    #[arg(long, value_name = "BYTES", default_value_t = 1024)]
    size: usize,
    /// How long to measure.
    #[arg(long, default_value = "3", value_parser = cli::seconds)]
    seconds: Duration,
    /// How long to load the server before measuring.
    #[arg(long, value_name = "SECONDS", default_value = "0.5", value_parser = cli::seconds)]
    warmup: Duration,
    /// Stop after exactly this many requests, and compare every byte of the
    /// answers. There is no warm-up.
    #[arg(long, value_name = "N", conflicts_with_all = ["seconds", "warmup"])]
    requests: Option<u64>,
    /// Run on this CPU only.
    #[arg(long, value_name = "CPU")]
    pin: Option<usize>,
    /// Print the result as one JSON object.
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    cli::exit_code("echo-load", run(&Args::parse()))
}

fn run(args: &Args) -> Result<()> {
    if let Some(cpu) = args.pin {
        pin_this_thread(cpu)?;
    }
    let report = apply_load(args)?;
    if args.json {
        print_json(&report);
    } else {
        print_line(&report);
    }
    Ok(())
}

fn apply_load(args: &Args) -> Result<LoadReport> {
    let mut load = Load::connect(&LoadOptions {
        addr: args.addr,
        connections: args.connections,
        size: args.size,
        check: if args.requests.is_some() { Check::Full } else { Check::Ends },
    })?;
    if let Some(requests) = args.requests {
        return load.run_requests(requests);
    }
    // Ctrl-C simply ends this program: it has nothing to clean up.
    let never = AtomicBool::new(false);
    if !args.warmup.is_zero() {
        load.run_for(args.warmup, &never)?;
    }
    load.run_for(args.seconds, &never)
}

fn print_line(report: &LoadReport) {
    println!(
        "{} requests in {:.3} s: {:.0} requests/s, closed-loop p50 {:.1} us, p99 {:.1} us",
        report.requests,
        report.elapsed.as_secs_f64(),
        report.requests_per_second(),
        report.latency_us(0.50),
        report.latency_us(0.99),
    );
}

fn print_json(report: &LoadReport) {
    println!(
        "{{\"requests\":{},\"seconds\":{:.6},\"requests_per_second\":{:.1},\
         \"closed_loop_p50_us\":{:.3},\"closed_loop_p99_us\":{:.3}}}",
        report.requests,
        report.elapsed.as_secs_f64(),
        report.requests_per_second(),
        report.latency_us(0.50),
        report.latency_us(0.99),
    );
}
