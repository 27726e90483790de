//! The program `wakeful-sim`: see `wakeful-sim --help`.

mod arguments;
mod output;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use clap::Parser;
use signal_hook::consts::{SIGINT, SIGTERM};
use wakeful::internals::GovernorLimits;
use wakeful_load::Rate;
use wakeful_load::internals::format::{percent, time};
use wakeful_load::internals::machine;
use wakeful_load::internals::results::{Machine, Verdict};
use wakeful_sim::calibrate::Effort;
use wakeful_sim::costs::Calibration;
use wakeful_sim::group::{self, Setting};
use wakeful_sim::holds::{self, Held};
use wakeful_sim::measure::Laboratory;
use wakeful_sim::report;
use wakeful_sim::trace::{self, Length, Trace};
use wakeful_sim::verdict::Compared;

use self::arguments::{
    Calibrate, Check, Cli, Command, Governed, Group, HoldArguments, Record, Replay, calibration,
    nanoseconds, read,
};
use self::output::{Progress, print};

/// This machine, without the command line of its kernel, which does not matter to a reader of a
/// calibration.
fn machine() -> Machine {
    Machine { kernel_command_line: String::new(), ..machine::describe() }
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
        time(limits.max_window as f64),
        percent(limits.hit_rate),
        percent(limits.max_cpu),
        calibration.describe(),
    )
}

/// The same for loops that hold.
fn about_holds(hold: &HoldArguments) -> String {
    let span = |length: Duration| time(nanoseconds(length));
    let halted = hold
        .halted_wake
        .map_or(String::new(), |wake| format!(", of one that has halted {}", span(wake)));
    format!(
        "A CPU is held for {} at most. A wake of one that was held takes {}, and as much CPU{halted}.",
        span(hold.silence),
        span(hold.held_wake),
    )
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
