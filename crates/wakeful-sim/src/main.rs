//! The program `wakeful-sim`: see `wakeful-sim --help`.

use std::io::{IsTerminal, Write, stderr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Args, Parser, Subcommand};
use wakeful::idle::Limits;
use wakeful_load::results::Results;
use wakeful_sim::costs::Calibration;
use wakeful_sim::report::{self, Style};
use wakeful_sim::trace::{self, Length, Trace};
use wakeful_sim::verdict::Compared;

/// The idle governor against fixed windows, on arrival traces and a model of one loop.
#[derive(Debug, Parser)]
#[command(name = "wakeful-sim", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Replay traces through the governor, through fixed windows of 0, 50, 200 and 1000 µs, and through a spin for ever. Exit code 1: a fixed
    /// window beats the governor in both p50 (by over 1 %) and CPU (by over 1 % of a CPU) on a trace.
    Replay(Replay),
}

#[derive(Debug, Args)]
struct Replay {
    /// A recorded trace: arrival times in nanoseconds, one a line, # for comments. May be given again. Unless given: the traces that are
    /// built in.
    #[arg(long, value_name = "FILE")]
    trace: Vec<PathBuf>,
    /// The costs, as `calibrate` writes them. Unless given: those that are built in.
    #[arg(long, value_name = "FILE")]
    costs: Option<PathBuf>,
    /// What makes the random traces repeatable.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The longest that a trace may last, on its own clock.
    #[arg(long, default_value_t = Length::FULL.seconds, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// The most requests that a trace may have.
    #[arg(long, default_value_t = Length::FULL.requests, value_parser = requests)]
    requests: usize,
    #[command(flatten)]
    governor: GovernorArguments,
    #[command(flatten)]
    output: Output,
}

#[derive(Debug, Args)]
struct GovernorArguments {
    /// Which share of the events a spin should meet.
    #[arg(long, default_value_t = 0.99)]
    hit_rate: f64,
    /// The longest spin, as 500us. Unless given: 25 times what a wake takes by the costs, 0.2 to 2 ms.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    max_window: Option<Duration>,
    /// The share of a CPU that spinning may use.
    #[arg(long, default_value_t = 1.0)]
    max_cpu: f64,
}

#[derive(Debug, Args)]
struct Output {
    /// Tables for a document.
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
    /// Everything, for programs; in the schema of `wakeful load --json`.
    #[arg(long)]
    json: bool,
}

fn requests(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(requests @ 100..=100_000_000) => Ok(requests),
        _ => Err("expected a number from 100 to 100000000".to_owned()),
    }
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Replay(arguments) => replay(&arguments),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("wakeful-sim: {error}");
        ExitCode::FAILURE
    })
}

fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn calibration(path: Option<&Path>) -> Result<Calibration, String> {
    let Some(path) = path else { return Ok(Calibration::committed()) };
    Calibration::read(&read(path)?).map_err(|error| format!("{}: {error}", path.display()))
}

impl GovernorArguments {
    fn limits(&self, calibration: &Calibration) -> Limits {
        let max_window = match self.max_window {
            Some(window) => u64::try_from(window.as_nanos()).unwrap_or(u64::MAX),
            None => calibration.costs.max_window(),
        };
        Limits { hit_rate: self.hit_rate, max_window, max_cpu: self.max_cpu }
    }
}

impl Output {
    fn print(&self, results: &Results) -> Result<(), String> {
        let text = if self.json {
            serde_json::to_string_pretty(results).map_err(|error| error.to_string())? + "\n"
        } else {
            let style = if self.markdown { Style::Markdown } else { Style::Terminal };
            report::text(results, style)
        };
        match std::io::stdout().lock().write_all(text.as_bytes()) {
            // A reader such as `head` that has seen enough is no error.
            Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
                Err(format!("cannot write to stdout: {error}"))
            }
            _ => Ok(()),
        }
    }
}

fn replay(arguments: &Replay) -> Result<ExitCode, String> {
    let calibration = calibration(arguments.costs.as_deref())?;
    let limits = arguments.governor.limits(&calibration);
    let traces = if arguments.trace.is_empty() {
        let length = Length { seconds: arguments.seconds, requests: arguments.requests };
        trace::all(length, arguments.seed)
    } else {
        let read = |path: &PathBuf| {
            let name = path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy();
            Trace::read(&name, &read(path)?).map_err(|error| format!("{}: {error}", path.display()))
        };
        arguments.trace.iter().map(read).collect::<Result<_, _>>()?
    };
    let (began, count) = (Instant::now(), traces.len());
    let mut compared = Vec::new();
    for (index, trace) in traces.iter().enumerate() {
        if began.elapsed() > Duration::from_secs(2) && stderr().is_terminal() {
            eprint!("\r\x1b[2K[{}/{count}] {}", index + 1, trace.name);
        }
        compared.push(Compared::new(trace, limits, &calibration.costs));
    }
    if stderr().is_terminal() {
        eprint!("\r\x1b[2K");
    }
    let notes = vec![format!(
        "The governor may spin for {} at most, for {} of the events and {} of a CPU. Costs: {}",
        wakeful_load::format::time(limits.max_window as f64),
        wakeful_load::format::percent(limits.hit_rate),
        wakeful_load::format::percent(limits.max_cpu),
        calibration.describe(),
    )];
    let is_beaten = compared.iter().any(Compared::is_beaten);
    arguments.output.print(&report::of_comparisons(&compared, calibration.machine, notes))?;
    Ok(if is_beaten { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
