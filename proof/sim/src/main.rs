//! The program `wakeful-sim`: see `wakeful-sim --help`.

use std::io::{IsTerminal, Write, stderr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use clap::{Args, Parser, Subcommand, ValueEnum};
use signal_hook::consts::{SIGINT, SIGTERM};
use wakeful::group::Targets;
use wakeful::internals::GovernorLimits;
use wakeful_load::Rate;
use wakeful_load::internals::machine;
use wakeful_load::internals::results::Machine;
use wakeful_load::internals::results::{Results, Verdict};
use wakeful_sim::calibrate::Effort;
use wakeful_sim::costs::{Calibration, Costs};
use wakeful_sim::group::{self, Moving, Placing, Setting};
use wakeful_sim::holds::{self, Held, HoldSettings};
use wakeful_sim::measure::Laboratory;
use wakeful_sim::report::{self, Style};
use wakeful_sim::trace::{self, Length, Trace};
use wakeful_sim::verdict::Compared;

/// Compare the idle governor with fixed windows, and simulate groups of loops, on a model of one
/// machine.
#[derive(Debug, Parser)]
#[command(name = "wakeful-sim", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
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
struct Server {
    /// The program `wakeful`. Default: the one in the directory of this program.
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// How many blocks of each kind are measured. Their median counts.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=99))]
    rounds: u16,
}

#[derive(Debug, Args)]
struct Calibrate {
    #[command(flatten)]
    server: Server,
    /// How long a block is at least.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = humantime::parse_duration)]
    block: Duration,
    /// Write to this file instead of stdout.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// What a reader of this calibration has to know.
    #[arg(long, default_value = "")]
    note: String,
}

#[derive(Debug, Args)]
struct Check {
    #[command(flatten)]
    server: Server,
    /// The costs, as `calibrate` prints them. Default: the built-in ones.
    #[arg(long, value_name = "FILE")]
    costs: Option<PathBuf>,
    /// How long each load lasts, in seconds.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=60))]
    seconds: u64,
    /// The seed that makes the loads repeatable.
    #[arg(long, default_value_t = 7)]
    seed: u64,
    #[command(flatten)]
    governor: GovernorArguments,
    #[command(flatten)]
    output: Output,
}

#[derive(Debug, Args)]
struct Record {
    /// The address that clients connect to: HOST:PORT.
    #[arg(long, value_name = "ADDR")]
    listen: String,
    /// The address of the server: HOST:PORT.
    #[arg(long, value_name = "ADDR")]
    to: String,
    /// How long to record. Ctrl-C ends it earlier.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = humantime::parse_duration)]
    duration: Duration,
    /// What a reader of this trace has to know.
    #[arg(long, default_value = "")]
    note: String,
}

#[derive(Debug, Args)]
struct Replay {
    /// A recorded trace: arrival times in nanoseconds, one per line, # for comments. May be
    /// repeated. Default: the built-in traces.
    #[arg(long, value_name = "FILE")]
    trace: Vec<PathBuf>,
    /// Only the built-in trace of this name, such as "poisson 1k". May be repeated.
    #[arg(long, value_name = "NAME", conflicts_with = "trace")]
    named: Vec<String>,
    /// Stretch or shrink each trace to this many requests per second on average: 250, 10k or 1M.
    /// Several values are separated by commas.
    #[arg(long, value_delimiter = ',')]
    rate: Vec<Rate>,
    /// Which governor is replayed: that of loops that spin, or that of loops that hold.
    #[arg(long, default_value = "adaptive")]
    policy: Governed,
    /// The costs, as `calibrate` writes them. Default: the built-in ones.
    #[arg(long, value_name = "FILE")]
    costs: Option<PathBuf>,
    /// The seed that makes the random traces repeatable.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How long a trace may last at most, in seconds on its own clock.
    #[arg(long, default_value_t = Length::FULL.seconds, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// How many requests a trace may have at most.
    #[arg(long, default_value_t = Length::FULL.requests, value_parser = |text: &str| whole(text, 100, 100_000_000))]
    requests: usize,
    #[command(flatten)]
    hold: HoldArguments,
    /// hold: the prices of held time, as shares of what a spin costs, 0 to 1. Several values are
    /// separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "0,0.01,0.1,1", value_parser = |text: &str| number(text, 0.0, 1.0))]
    hold_cost: Vec<f64>,
    #[command(flatten)]
    governor: GovernorArguments,
    #[command(flatten)]
    output: Output,
}

/// Which governor is replayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Governed {
    /// The governor of `IdlePolicy::Adaptive`.
    Adaptive,
    /// The governor of `IdlePolicy::Hold`.
    Hold,
}

#[derive(Debug, Args)]
struct HoldArguments {
    /// hold: how long a CPU is held after an event at most, 1ms to 1s.
    #[arg(long, value_name = "TIME", default_value = "50ms", value_parser = silence)]
    silence: Duration,
    /// hold: how long a wake takes if the CPU was held.
    #[arg(long, value_name = "TIME", default_value = "3us", value_parser = humantime::parse_duration)]
    held_wake: Duration,
    /// How long a wake takes if the CPU has halted. Default: what the costs say for each sleep.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    halted_wake: Option<Duration>,
}

#[derive(Debug, Args)]
struct Group {
    /// How many loops. Each has its own CPU. Several values are separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "1,2,8,16,64,128", value_parser = |text: &str| whole(text, 1, 1_024))]
    loops: Vec<usize>,
    /// Requests per second, of all connections together: 250, 10k or 1M. Several values are
    /// separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "1k,10k,100k,1M")]
    rate: Vec<Rate>,
    /// How many connections. All have the same rate.
    #[arg(long, default_value = "1024", value_parser = |text: &str| whole(text, 1, 1_000_000))]
    connections: usize,
    /// How long a connection lasts on average, such as 2s, until another one takes its place.
    /// Default: for ever.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    life: Option<Duration>,
    /// Where connections are. Several values are separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "concentrate,spread,burn,park")]
    policy: Vec<Placing>,
    /// The share of its time that an active loop may work before another one becomes active, 0.05
    /// to 0.95.
    #[arg(long, default_value_t = 0.6, value_parser = |text: &str| number(text, 0.05, 0.95))]
    target: f64,
    /// A connection is moved when an active loop has this many times as many as the active loops
    /// have on average, or this many times fewer, 1 to 100.
    #[arg(long, default_value_t = Moving::default().ratio, value_parser = |text: &str| number(text, 1.0, 100.0))]
    ratio: f64,
    /// The most moves per second, of all loops together.
    #[arg(long, default_value_t = Moving::default().most, value_parser = |text: &str| number(text, 0.0, 1e6))]
    moves: f64,
    /// The time between two moves of the same connection.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = humantime::parse_duration)]
    rest: Duration,
    /// How long a request keeps its loop busy in addition to the costs, such as 100us.
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = humantime::parse_duration)]
    work: Duration,
    /// How long the group is simulated, in seconds on its own clock. Moves are counted from the
    /// start, everything else after five seconds.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(6..=3600))]
    seconds: u64,
    /// The seed that makes the load repeatable.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The costs, as `calibrate` writes them. Default: the built-in ones.
    #[arg(long, value_name = "FILE")]
    costs: Option<PathBuf>,
    #[command(flatten)]
    hold: HoldArguments,
    /// hold: the price of held time, as a share of what a spin costs, 0 to 1.
    #[arg(long, default_value_t = 0.0, value_parser = |text: &str| number(text, 0.0, 1.0))]
    hold_cost: f64,
    #[command(flatten)]
    governor: GovernorArguments,
    #[command(flatten)]
    output: Output,
}

#[derive(Debug, Args)]
struct GovernorArguments {
    /// The share of the events that a spin should meet, 0.05 to 0.9999.
    #[arg(long, default_value_t = 0.999, value_parser = |text: &str| number(text, 0.05, 0.9999))]
    hit_rate: f64,
    /// The longest spin, such as 500us. Default: 25 times what a wake takes by the costs, 0.2 to 2
    /// ms.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    max_window: Option<Duration>,
    /// The share of a CPU that spinning may use, 0 to 1.
    #[arg(long, default_value_t = 1.0, value_parser = |text: &str| number(text, 0.0, 1.0))]
    max_cpu: f64,
}

#[derive(Debug, Args)]
struct Output {
    /// Print tables for a document.
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
    /// Print everything for programs, in the schema of `wakeful load --json`.
    #[arg(long)]
    json: bool,
}

/// This machine, without the command line of its kernel, which does not matter to a reader of a
/// calibration.
fn machine() -> Machine {
    Machine { kernel_command_line: String::new(), ..machine::describe() }
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

fn nanoseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e9
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Replay(arguments) => replay(&arguments),
        Command::Group(arguments) => group(&arguments),
        Command::Calibrate(arguments) => calibrate(&arguments),
        Command::Check(arguments) => check(&arguments),
        Command::Record(arguments) => record(&arguments),
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
    fn limits(&self, calibration: &Calibration) -> GovernorLimits {
        let max_window = match self.max_window {
            Some(window) => u64::try_from(window.as_nanos()).unwrap_or(u64::MAX),
            None => calibration.costs.max_window(),
        };
        GovernorLimits { hit_rate: self.hit_rate, max_window, max_cpu: self.max_cpu }
    }
}

impl HoldArguments {
    /// The costs, with the user's value for a wake from a halt.
    fn costs(&self, costs: Costs) -> Costs {
        match self.halted_wake {
            Some(wake) => costs.with_wake(nanoseconds(wake)),
            None => costs,
        }
    }

    fn settings(&self, prices: &[f64]) -> HoldSettings {
        HoldSettings {
            prices: prices.to_vec(),
            silence: nanoseconds(self.silence) as u64,
            wake: nanoseconds(self.held_wake),
        }
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
        print(&text)
    }
}

fn print(text: &str) -> Result<(), String> {
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        // It is no error if a reader such as `head` has seen enough.
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(format!("cannot write to stdout: {error}"))
        }
        _ => Ok(()),
    }
}

/// Returns a flag that the first Ctrl-C sets. The second one ends the process.
fn until_interrupted() -> Result<Arc<AtomicBool>, String> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // In this order. Otherwise the first signal would do both.
        signal_hook::flag::register_conditional_shutdown(signal, 130, flag.clone())
            .and_then(|_| signal_hook::flag::register(signal, flag.clone()))
            .map_err(|error| format!("cannot handle signals: {error}"))?;
    }
    Ok(flag)
}

impl Server {
    fn program(&self) -> Result<PathBuf, String> {
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

/// What a reader of figures that were measured here has to know.
fn disturbed(laboratory: &Laboratory<'_>) -> String {
    match laboratory.spoilt() {
        0 => String::new(),
        blocks => format!("Other programs disturbed {blocks} blocks."),
    }
}

fn calibrate(arguments: &Calibrate) -> Result<ExitCode, String> {
    let (program, interrupted) = (arguments.server.program()?, until_interrupted()?);
    let mut laboratory =
        Laboratory::new(&program, &interrupted).map_err(|error| error.to_string())?;
    let effort = Effort { rounds: arguments.server.rounds.into(), block: arguments.block };
    let costs = wakeful_sim::calibrate::calibrate(&mut laboratory, effort)
        .map_err(|error| error.to_string())?;
    let note = [disturbed(&laboratory), arguments.note.clone()].join(" ").trim().to_owned();
    let calibration =
        Calibration { command: report::command_line(), machine: machine(), note, costs };
    let text = serde_json::to_string_pretty(&calibration).map_err(|error| error.to_string())?;
    let text = text + "\n";
    match &arguments.out {
        Some(path) => {
            std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
        }
        None => print(&text),
    }
    .map(|()| ExitCode::SUCCESS)
}

fn check(arguments: &Check) -> Result<ExitCode, String> {
    let (program, interrupted) = (arguments.server.program()?, until_interrupted()?);
    let calibration = calibration(arguments.costs.as_deref())?;
    let mut laboratory =
        Laboratory::new(&program, &interrupted).map_err(|error| error.to_string())?;
    let size = (arguments.server.rounds.into(), arguments.seconds, arguments.seed);
    let limits = arguments.governor.limits(&calibration);
    let checked = wakeful_sim::check::check(&mut laboratory, &calibration.costs, limits, size)
        .map_err(|error| error.to_string())?;
    let notes = [disturbed(&laboratory), format!("Costs: {}", calibration.describe())];
    let notes = notes.into_iter().filter(|note| !note.is_empty()).collect();
    let holds = checked.claims.iter().all(|claim| claim.verdict == Verdict::Holds);
    let title = "wakeful-sim: the model against the server";
    let tables = vec![checked.table];
    let results = report::results(title, machine(), tables, checked.claims, notes);
    arguments.output.print(&results)?;
    Ok(if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn record(arguments: &Record) -> Result<ExitCode, String> {
    let Record { listen, to, duration, note } = arguments;
    let trace = wakeful_sim::record::record(listen, to, *duration)
        .map_err(|error| format!("cannot record from {listen} to {to}: {error}"))?;
    let comment = format!("When something came, in nanoseconds: `wakeful-sim record`.\n{note}");
    let mut text = Vec::new();
    trace.write(comment.trim(), &mut text).map_err(|error| error.to_string())?;
    print(&String::from_utf8_lossy(&text))?;
    Ok(ExitCode::SUCCESS)
}

/// What holds for every figure that the model gives.
fn about(limits: GovernorLimits, calibration: &Calibration) -> String {
    format!(
        "The governor may spin for {} at most, for {} of the events and {} of a CPU. Costs: {}",
        wakeful_load::internals::format::time(limits.max_window as f64),
        wakeful_load::internals::format::percent(limits.hit_rate),
        wakeful_load::internals::format::percent(limits.max_cpu),
        calibration.describe(),
    )
}

/// The same for loops that hold.
fn about_holds(hold: &HoldArguments) -> String {
    let time = |time: Duration| wakeful_load::internals::format::time(nanoseconds(time));
    let halted = hold
        .halted_wake
        .map_or(String::new(), |wake| format!(", of one that has halted {}", time(wake)));
    format!(
        "A CPU is held for {} at most. A wake of one that was held takes {}, and as much CPU{halted}.",
        time(hold.silence),
        time(hold.held_wake),
    )
}

/// A line on a terminal that says what is being done, if it takes long.
struct Progress {
    began: Instant,
    count: usize,
    done: usize,
}

impl Progress {
    fn of(count: usize) -> Self {
        Self { began: Instant::now(), count, done: 0 }
    }

    fn next(&mut self, name: &str) {
        self.done += 1;
        if self.began.elapsed() > Duration::from_secs(2) && stderr().is_terminal() {
            eprint!("\r\x1b[2K[{}/{}] {name}", self.done, self.count);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if stderr().is_terminal() {
            eprint!("\r\x1b[2K");
        }
    }
}

fn replay(arguments: &Replay) -> Result<ExitCode, String> {
    let mut calibration = calibration(arguments.costs.as_deref())?;
    calibration.costs = arguments.hold.costs(calibration.costs);
    let limits = arguments.governor.limits(&calibration);
    let traces = if arguments.trace.is_empty() {
        let length = Length { seconds: arguments.seconds, requests: arguments.requests };
        named(trace::all(length, arguments.seed), &arguments.named)?
    } else {
        let read = |path: &PathBuf| {
            let name = path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy();
            Trace::read(&name, &read(path)?).map_err(|error| format!("{}: {error}", path.display()))
        };
        arguments.trace.iter().map(read).collect::<Result<_, _>>()?
    };
    let traces = if arguments.rate.is_empty() {
        traces
    } else {
        let at_each = |trace: Trace| arguments.rate.iter().map(move |rate| trace.at_rate(*rate));
        traces.into_iter().flat_map(at_each).collect()
    };
    match arguments.policy {
        Governed::Adaptive => replay_spins(arguments, calibration, limits, &traces),
        Governed::Hold => replay_holds(arguments, calibration, limits, &traces),
    }
}

/// The traces with these names, or all of them.
fn named(traces: Vec<Trace>, names: &[String]) -> Result<Vec<Trace>, String> {
    let all: Vec<String> = traces.iter().map(|trace| trace.name.clone()).collect();
    if let Some(unknown) = names.iter().find(|name| !all.contains(name)) {
        return Err(format!("there is no trace {unknown:?}: --named takes {}", all.join(", ")));
    }
    let is_named = |trace: &Trace| names.is_empty() || names.contains(&trace.name);
    Ok(traces.into_iter().filter(is_named).collect())
}

fn replay_holds(
    arguments: &Replay,
    calibration: Calibration,
    limits: GovernorLimits,
    traces: &[Trace],
) -> Result<ExitCode, String> {
    let prices = &arguments.hold_cost;
    let settings = arguments.hold.settings(prices);
    let mut progress = Progress::of(traces.len());
    let mut held = Vec::new();
    for trace in traces {
        progress.next(&trace.name);
        held.push(Held::new(trace, &settings, limits, &calibration.costs));
    }
    drop(progress);
    let notes = vec![about_holds(&arguments.hold), about(limits, &calibration)];
    let (tables, claims) = (vec![holds::table(&held, prices)], holds::claims(&held, prices));
    let holds = claims.iter().all(|claim| claim.verdict == Verdict::Holds);
    let title = "wakeful-sim: the governor of holds against fixed silences";
    arguments.output.print(&report::results(title, calibration.machine, tables, claims, notes))?;
    Ok(if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn replay_spins(
    arguments: &Replay,
    calibration: Calibration,
    limits: GovernorLimits,
    traces: &[Trace],
) -> Result<ExitCode, String> {
    let mut progress = Progress::of(traces.len());
    let mut compared = Vec::new();
    for trace in traces {
        progress.next(&trace.name);
        compared.push(Compared::new(trace, limits, &calibration.costs));
    }
    drop(progress);
    let notes = vec![about(limits, &calibration)];
    let is_beaten = compared.iter().any(Compared::is_beaten);
    arguments.output.print(&report::of_comparisons(&compared, calibration.machine, notes))?;
    Ok(if is_beaten { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

impl Group {
    /// All groups. Those with the same load are next to each other.
    fn settings(&self, costs: &Costs) -> Vec<Setting> {
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

fn group(arguments: &Group) -> Result<ExitCode, String> {
    let mut calibration = calibration(arguments.costs.as_deref())?;
    calibration.costs = arguments.hold.costs(calibration.costs);
    let limits = arguments.governor.limits(&calibration);
    let costs = &calibration.costs;
    let settings = arguments.settings(costs);
    let mut progress = Progress::of(settings.len());
    let mut seen = Vec::new();
    for setting in settings {
        let Setting { placing, loops, rate, .. } = setting;
        progress.next(&format!("{}, {loops} loops, {}", placing.name(), Rate(rate)));
        seen.push(group::simulate(setting, limits, costs));
    }
    let claims = group::verdict::claims(&seen, limits, costs);
    drop(progress);
    let holds = claims.iter().all(|claim| claim.verdict == Verdict::Holds);
    let mut notes = vec![group::report::note(arguments.connections), about(limits, &calibration)];
    if arguments.policy.iter().any(|placing| placing.holds()) {
        notes.insert(1, about_holds(&arguments.hold));
    }
    let tables = vec![group::report::table(&seen, arguments.hold_cost)];
    let title = "wakeful-sim: groups of loops";
    arguments.output.print(&report::results(title, calibration.machine, tables, claims, notes))?;
    Ok(if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE })
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
