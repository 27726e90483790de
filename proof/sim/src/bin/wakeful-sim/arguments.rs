//! The command line.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use wakeful::group::Targets;
use wakeful::internals::GovernorLimits;
use wakeful_load::Rate;
use wakeful_sim::costs::{Calibration, Costs};
use wakeful_sim::group::{Moving, Placing, Setting};
use wakeful_sim::holds::HoldSettings;
use wakeful_sim::trace::Length;

use crate::output::Output;

/// Compare the idle governor with fixed windows, and simulate groups of loops, on a model of one
/// machine.
#[derive(Debug, Parser)]
#[command(name = "wakeful-sim", version)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Replay traces through the governor, through fixed windows of 0, 50, 200 and 1000 µs, and
    /// through a spin for ever; or, with `--policy hold`, through loops that sleep with their CPU
    /// held. Exit code 1: on a trace, a fixed window (or a fixed silence) beats the governor in
    /// both p50 (by more than 1 %) and CPU (by more than 1 % of a CPU).
    Replay(Replay),
    /// Simulate groups of loops. A policy places and moves their connections. Exit code 1: a
    /// verdict on `concentrate` does not hold.
    Group(Group),
    /// Measure the costs of the model on this machine, and print them as JSON. Needs two CPUs, the
    /// program `wakeful`, and a quiet machine for one or two minutes.
    Calibrate(Calibrate),
    /// Compare the model with the real server under three loads that it was not calibrated with.
    /// Exit code 1: a predicted p50 or CPU share is more than 15 % wrong.
    Check(Check),
    /// Record when the requests to a TCP server arrive, for `replay --trace`. The recorder is a
    /// proxy in front of the server. It spins while it records.
    Record(Record),
}

#[derive(Debug, Args)]
pub(crate) struct Server {
    /// The program `wakeful`. Default: the one in the directory of this program.
    #[arg(long, value_name = "FILE")]
    pub(crate) program: Option<PathBuf>,
    /// How many blocks of each kind are measured. Their median counts.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=99))]
    pub(crate) rounds: u16,
}

#[derive(Debug, Args)]
pub(crate) struct Calibrate {
    #[command(flatten)]
    pub(crate) server: Server,
    /// How long a block is at least.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = humantime::parse_duration)]
    pub(crate) block: Duration,
    /// Write to this file instead of stdout.
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// What a reader of this calibration has to know.
    #[arg(long, default_value = "")]
    pub(crate) note: String,
}

#[derive(Debug, Args)]
pub(crate) struct Check {
    #[command(flatten)]
    pub(crate) server: Server,
    /// The costs, as `calibrate` prints them. Default: the built-in ones.
    #[arg(long, value_name = "FILE")]
    pub(crate) costs: Option<PathBuf>,
    /// How long each load lasts, in seconds.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=60))]
    pub(crate) seconds: u64,
    /// The seed that makes the loads repeatable.
    #[arg(long, default_value_t = 7)]
    pub(crate) seed: u64,
    #[command(flatten)]
    pub(crate) governor: GovernorArguments,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
pub(crate) struct Record {
    /// The address that clients connect to: HOST:PORT.
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: String,
    /// The address of the server: HOST:PORT.
    #[arg(long, value_name = "ADDR")]
    pub(crate) to: String,
    /// How long to record. Ctrl-C ends it earlier.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = humantime::parse_duration)]
    pub(crate) duration: Duration,
    /// What a reader of this trace has to know.
    #[arg(long, default_value = "")]
    pub(crate) note: String,
}

#[derive(Debug, Args)]
pub(crate) struct Replay {
    /// A recorded trace: arrival times in nanoseconds, one per line, # for comments. May be
    /// repeated. Default: the built-in traces.
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Vec<PathBuf>,
    /// Only the built-in trace of this name, such as "poisson 1k". May be repeated.
    #[arg(long, value_name = "NAME", conflicts_with = "trace")]
    pub(crate) named: Vec<String>,
    /// Stretch or shrink each trace to this many requests per second on average: 250, 10k or 1M.
    /// Several values are separated by commas.
    #[arg(long, value_delimiter = ',')]
    pub(crate) rate: Vec<Rate>,
    /// Which governor is replayed: that of loops that spin, or that of loops that hold.
    #[arg(long, default_value = "adaptive")]
    pub(crate) policy: Governed,
    /// The costs, as `calibrate` writes them. Default: the built-in ones.
    #[arg(long, value_name = "FILE")]
    pub(crate) costs: Option<PathBuf>,
    /// The seed that makes the random traces repeatable.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// How long a trace may last at most, in seconds on its own clock.
    #[arg(long, default_value_t = Length::FULL.seconds, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) seconds: u64,
    /// How many requests a trace may have at most.
    #[arg(long, default_value_t = Length::FULL.requests, value_parser = |text: &str| whole(text, 100, 100_000_000))]
    pub(crate) requests: usize,
    #[command(flatten)]
    pub(crate) hold: HoldArguments,
    /// hold: the prices of held time, as shares of what a spin costs, 0 to 1. Several values are
    /// separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "0,0.01,0.1,1", value_parser = |text: &str| number(text, 0.0, 1.0))]
    pub(crate) hold_cost: Vec<f64>,
    #[command(flatten)]
    pub(crate) governor: GovernorArguments,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// Which governor is replayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Governed {
    /// The governor of `IdlePolicy::Adaptive`.
    Adaptive,
    /// The governor of `IdlePolicy::Hold`.
    Hold,
}

#[derive(Debug, Args)]
pub(crate) struct HoldArguments {
    /// hold: how long a CPU is held after an event at most, 1ms to 1s.
    #[arg(long, value_name = "TIME", default_value = "50ms", value_parser = silence)]
    pub(crate) silence: Duration,
    /// hold: how long a wake takes if the CPU was held.
    #[arg(long, value_name = "TIME", default_value = "3us", value_parser = humantime::parse_duration)]
    pub(crate) held_wake: Duration,
    /// How long a wake takes if the CPU has halted. Default: what the costs say for each sleep.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    pub(crate) halted_wake: Option<Duration>,
}

#[derive(Debug, Args)]
pub(crate) struct Group {
    /// How many loops. Each has its own CPU. Several values are separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "1,2,8,16,64,128", value_parser = |text: &str| whole(text, 1, 1_024))]
    pub(crate) loops: Vec<usize>,
    /// Requests per second, of all connections together: 250, 10k or 1M. Several values are
    /// separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "1k,10k,100k,1M")]
    pub(crate) rate: Vec<Rate>,
    /// How many connections. All have the same rate.
    #[arg(long, default_value = "1024", value_parser = |text: &str| whole(text, 1, 1_000_000))]
    pub(crate) connections: usize,
    /// How long a connection lasts on average, such as 2s, until another one takes its place.
    /// Default: for ever.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    pub(crate) life: Option<Duration>,
    /// Where connections are. Several values are separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "concentrate,spread,burn,park")]
    pub(crate) policy: Vec<Placing>,
    /// The share of its time that an active loop may work before another one becomes active, 0.05
    /// to 0.95.
    #[arg(long, default_value_t = 0.6, value_parser = |text: &str| number(text, 0.05, 0.95))]
    pub(crate) target: f64,
    /// A connection is moved when an active loop has this many times as many as the active loops
    /// have on average, or this many times fewer, 1 to 100.
    #[arg(long, default_value_t = Moving::default().ratio, value_parser = |text: &str| number(text, 1.0, 100.0))]
    pub(crate) ratio: f64,
    /// The most moves per second, of all loops together.
    #[arg(long, default_value_t = Moving::default().most, value_parser = |text: &str| number(text, 0.0, 1e6))]
    pub(crate) moves: f64,
    /// The time between two moves of the same connection.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = humantime::parse_duration)]
    pub(crate) rest: Duration,
    /// How long a request keeps its loop busy in addition to the costs, such as 100us.
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = humantime::parse_duration)]
    pub(crate) work: Duration,
    /// How long the group is simulated, in seconds on its own clock. Moves are counted from the
    /// start, everything else after five seconds.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(6..=3600))]
    pub(crate) seconds: u64,
    /// The seed that makes the load repeatable.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// The costs, as `calibrate` writes them. Default: the built-in ones.
    #[arg(long, value_name = "FILE")]
    pub(crate) costs: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) hold: HoldArguments,
    /// hold: the price of held time, as a share of what a spin costs, 0 to 1.
    #[arg(long, default_value_t = 0.0, value_parser = |text: &str| number(text, 0.0, 1.0))]
    pub(crate) hold_cost: f64,
    #[command(flatten)]
    pub(crate) governor: GovernorArguments,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
pub(crate) struct GovernorArguments {
    /// The share of the events that a spin should meet, 0.05 to 0.9999.
    #[arg(long, default_value_t = 0.999, value_parser = |text: &str| number(text, 0.05, 0.9999))]
    pub(crate) hit_rate: f64,
    /// The longest spin, such as 500us. Default: 25 times what a wake takes by the costs, 0.2 to 2
    /// ms.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    pub(crate) max_window: Option<Duration>,
    /// The share of a CPU that spinning may use, 0 to 1.
    #[arg(long, default_value_t = 1.0, value_parser = |text: &str| number(text, 0.0, 1.0))]
    pub(crate) max_cpu: f64,
}

fn number(text: &str, least: f64, most: f64) -> Result<f64, String> {
    match text.parse() {
        Ok(number) if (least..=most).contains(&number) => Ok(number),
        _ => Err(format!("expected a number from {least} to {most}")),
    }
}

fn whole(text: &str, least: usize, most: usize) -> Result<usize, String> {
    match text.parse() {
        Ok(number) if (least..=most).contains(&number) => Ok(number),
        _ => Err(format!("expected a number from {least} to {most}")),
    }
}

fn silence(text: &str) -> Result<Duration, String> {
    let range = Duration::from_millis(1)..=Duration::from_secs(1);
    let silence = humantime::parse_duration(text).ok().filter(|silence| range.contains(silence));
    silence.ok_or_else(|| "expected a time from 1ms to 1s".to_owned())
}

pub(crate) fn nanoseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e9
}

pub(crate) fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

pub(crate) fn calibration(path: Option<&Path>) -> Result<Calibration, String> {
    let Some(path) = path else { return Ok(Calibration::committed()) };
    Calibration::read(&read(path)?).map_err(|error| format!("{}: {error}", path.display()))
}

impl GovernorArguments {
    pub(crate) fn limits(&self, calibration: &Calibration) -> GovernorLimits {
        let max_window = match self.max_window {
            Some(window) => u64::try_from(window.as_nanos()).unwrap_or(u64::MAX),
            None => calibration.costs.max_window(),
        };
        GovernorLimits { hit_rate: self.hit_rate, max_window, max_cpu: self.max_cpu }
    }
}

impl HoldArguments {
    /// The costs, with the user's value for a wake from a halt.
    pub(crate) fn costs(&self, costs: Costs) -> Costs {
        match self.halted_wake {
            Some(wake) => costs.with_wake(nanoseconds(wake)),
            None => costs,
        }
    }

    pub(crate) fn settings(&self, prices: &[f64]) -> HoldSettings {
        HoldSettings {
            prices: prices.to_vec(),
            silence: nanoseconds(self.silence) as u64,
            wake: nanoseconds(self.held_wake),
        }
    }
}

impl Server {
    pub(crate) fn program(&self) -> Result<PathBuf, String> {
        if let Some(program) = &self.program {
            return Ok(program.clone());
        }
        let own = std::env::current_exe().map_err(|error| error.to_string())?;
        let program = own.with_file_name("wakeful");
        if program.is_file() {
            Ok(program)
        } else {
            Err(format!("there is no {}: build it, or name it with --program", program.display()))
        }
    }
}

impl Group {
    /// All groups. Those with the same load are next to each other.
    pub(crate) fn settings(&self, costs: &Costs) -> Vec<Setting> {
        let hold = self.hold.settings(&[self.hold_cost]).governed(self.hold_cost, costs);
        let mut settings = Vec::new();
        for Rate(rate) in &self.rate {
            for loops in &self.loops {
                settings.extend(self.policy.iter().map(|placing| Setting {
                    placing: *placing,
                    loops: *loops,
                    rate: *rate,
                    work: nanoseconds(self.work),
                    connections: self.connections,
                    life: self.life.map(nanoseconds),
                    seconds: self.seconds,
                    seed: self.seed,
                    targets: Targets::new().utilisation(self.target),
                    moving: Moving {
                        ratio: self.ratio,
                        most: self.moves,
                        rest: nanoseconds(self.rest) as u64,
                    },
                    hold,
                }));
            }
        }
        settings
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use clap::error::ErrorKind;

    use super::*;

    #[test]
    fn every_command_line_of_the_docs_is_one() {
        let lines = doc_pages::command_lines("wakeful-sim");
        let mut whole = 0;
        for line in &lines {
            let outcome = Cli::try_parse_from(&line.words).map_err(|error| error.kind());
            let is_incomplete = matches!(outcome, Err(ErrorKind::MissingRequiredArgument));
            let is_one = outcome.is_ok() || (!line.is_whole && is_incomplete);
            assert!(is_one, "{}: {}: {:?}", line.place, line.words.join(" "), outcome.err());
            whole += usize::from(line.is_whole);
        }
        assert!(whole >= 5, "only {whole} found");
    }

    #[test]
    fn every_option_of_the_docs_is_one() {
        let program = Cli::command();
        let mut options = doc_pages::options(&["docs/simulator.md"]);
        // An option of `wakeful serve`.
        options.retain(|(_, name)| name != "target-utilisation");
        assert!(options.len() >= 10, "only {} found", options.len());
        for (place, name) in options {
            let mut arguments = program.get_subcommands().flat_map(clap::Command::get_arguments);
            assert!(arguments.any(|one| one.get_long() == Some(&name)), "{place}: --{name}");
        }
    }
}
