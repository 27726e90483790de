//! `wakeful lab`.

mod arguments;
mod others;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;

use wakeful_lab::{EXPERIMENTS, Experiment, Lab, LabError, ProbeRuns, Size};
use wakeful_load::internals::bench::Bench;
use wakeful_load::internals::progress::Progress;
use wakeful_load::internals::report;
use wakeful_load::internals::results::{Results, Verdict};
use wakeful_load::internals::table::{self, Style};

pub(crate) use self::arguments::Arguments;
use self::arguments::Refusal;
use self::others::{Others, print_peers, wanted};
use crate::file_size;
use crate::load::{INTERRUPTED, Outputs, command_line, print, until_interrupted};
use crate::logging::say;
use crate::usage::wrong_usage;

/// The exit code if a claim does not hold here.
const DOES_NOT_HOLD: u8 = 3;

/// # Errors
/// A line for the user.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, String> {
    file_size::survive_limits();
    match run_experiments(arguments) {
        Ok(code) => Ok(code),
        Err(Refusal::WrongUsage(line)) => Ok(wrong_usage(line)),
        Err(Refusal::Interrupted) => {
            say("wakeful: interrupted");
            Ok(ExitCode::from(INTERRUPTED))
        }
        Err(Refusal::Error(line)) => Err(line),
    }
}

fn run_experiments(arguments: &Arguments) -> Result<ExitCode, Refusal> {
    match arguments.what.as_str() {
        "list" => {
            list()?;
            return Ok(ExitCode::SUCCESS);
        }
        "peers" => {
            print_peers(arguments)?;
            return Ok(ExitCode::SUCCESS);
        }
        _ => {}
    }
    let experiments = asked_for(arguments)?;
    let program = std::env::current_exe()
        .map_err(|error| format!("cannot find the file of this program: {error}"))?;
    let (catalog, probes) = wanted(arguments, &experiments)?;
    let outputs = open(arguments, &experiments)?;
    let interrupted = until_interrupted()?;
    let others = Others::build(catalog, probes, &experiments, &interrupted)?;
    let mut verdicts = Vec::new();
    let mut all = Vec::new();
    let mut failed = None;
    for (experiment, outputs) in experiments.iter().zip(outputs) {
        let mut bench = Bench::on_this_machine(&interrupted, Progress::to_stderr())
            .map_err(|error| format!("cannot find out which CPUs this process may use: {error}"))?;
        bench.limits.share = arguments.quiet_share;
        let mut lab = Lab {
            bench,
            size: if arguments.quick { Size::Quick } else { Size::Full },
            program: program.clone(),
            peers: others.peers(experiment.service()),
            probes: others.probes(*experiment),
            counted: ProbeRuns::default(),
            notes: others.notes.clone(),
            seed: arguments.seed,
            timer: arguments.timer,
            parts: arguments.parts.clone().unwrap_or_default(),
            rounds: arguments.rounds.map(|rounds| rounds as usize),
            block: arguments.block,
        };
        if !arguments.json {
            let (name, about, story) = (experiment.name(), experiment.about(), experiment.story());
            print(&format!("{name}: {about}\n\n{story}\n\n"))?;
        }
        let outcome = experiment.run(&mut lab);
        lab.bench.progress.clear();
        let mut results = match outcome {
            Ok(results) => results,
            Err(LabError::Nothing) if lab.bench.is_interrupted() => break,
            Err(LabError::Bench(error)) if error.is_interrupted() => break,
            // Results that were measured before the failure are not lost.
            Err(error) => {
                failed = Some(Refusal::Error(error.to_string()));
                break;
            }
        };
        results.command = command_line();
        verdicts.extend(results.claims.iter().map(|claim| claim.verdict));
        let written = write(arguments, *experiment, &results, outputs);
        all.push(results);
        if let Err(error) = written {
            failed = Some(Refusal::Error(error));
            break;
        }
        if lab.bench.is_interrupted() {
            break;
        }
    }
    if arguments.json && !all.is_empty() {
        let json = serde_json::to_string_pretty(&all).map_err(|error| error.to_string())?;
        print(&(json + "\n"))?;
    }
    if let Some(refusal) = failed {
        return Err(refusal);
    }
    if interrupted.load(Ordering::Relaxed) && all.is_empty() {
        return Err(Refusal::Interrupted);
    }
    Ok(if interrupted.load(Ordering::Relaxed) {
        ExitCode::from(INTERRUPTED)
    } else if verdicts.contains(&Verdict::DoesNotHold) {
        ExitCode::from(DOES_NOT_HOLD)
    } else {
        ExitCode::SUCCESS
    })
}

fn asked_for(arguments: &Arguments) -> Result<Vec<&'static dyn Experiment>, Refusal> {
    let experiments = match arguments.what.as_str() {
        "all" => EXPERIMENTS.to_vec(),
        name => match wakeful_lab::find(name) {
            Some(experiment) => vec![experiment],
            None => return Err(Refusal::WrongUsage(unknown(name))),
        },
    };
    if arguments.timer.is_some() && !experiments.iter().any(|experiment| experiment.has_timer()) {
        return Err(Refusal::WrongUsage(no_timer(&arguments.what)));
    }
    check_parts(arguments, &experiments)?;
    Ok(experiments)
}

/// Checks whether the experiments would run, as far as that can be known from the command line.
///
/// # Errors
/// A line for the user.
#[cfg(test)]
pub(crate) fn check(arguments: &Arguments) -> Result<(), String> {
    if matches!(arguments.what.as_str(), "list" | "peers") {
        return Ok(());
    }
    match asked_for(arguments).and_then(|experiments| Ok(wanted(arguments, &experiments)?)) {
        Ok(_) => Ok(()),
        Err(Refusal::WrongUsage(line) | Refusal::Error(line)) => Err(line),
        Err(Refusal::Interrupted) => Err("interrupted".to_owned()),
    }
}

/// Checks that `--parts`, `--rounds` and `--block` apply to one of the experiments.
fn check_parts(arguments: &Arguments, experiments: &[&dyn Experiment]) -> Result<(), Refusal> {
    let known: Vec<&str> =
        experiments.iter().flat_map(|experiment| experiment.parts()).copied().collect();
    let has_parts = |experiment: &dyn Experiment| !experiment.parts().is_empty();
    if arguments.parts.is_some() {
        check_means("--parts", arguments, experiments, has_parts)?;
    }
    if arguments.rounds.is_some() {
        check_means("--rounds", arguments, experiments, has_parts)?;
    }
    if arguments.block.is_some() {
        check_means("--block", arguments, experiments, |experiment| experiment.has_blocks())?;
    }
    let wanted = arguments.parts.iter().flatten();
    match wanted.into_iter().find(|part| !known.contains(&part.as_str())) {
        Some(part) => {
            Err(Refusal::WrongUsage(format!("there is no part `{part}`: use {}", known.join(", "))))
        }
        None => Ok(()),
    }
}

/// Checks that a flag `means` something to one of the experiments.
fn check_means(
    flag: &str,
    arguments: &Arguments,
    experiments: &[&dyn Experiment],
    means: impl Fn(&dyn Experiment) -> bool,
) -> Result<(), Refusal> {
    if experiments.iter().any(|experiment| means(*experiment)) {
        return Ok(());
    }
    let with = EXPERIMENTS.iter().filter(|experiment| means(**experiment));
    let with: Vec<_> = with.map(|experiment| experiment.name()).collect();
    let line = format!("{flag} is not for {}, but for {}", arguments.what, with.join(", "));
    Err(Refusal::WrongUsage(line))
}

fn unknown(name: &str) -> String {
    let names: Vec<_> = EXPERIMENTS.iter().map(|experiment| experiment.name()).collect();
    format!("there is no experiment `{name}`: use {}; or list, peers or all", names.join(", "))
}

fn no_timer(name: &str) -> String {
    let with = EXPERIMENTS.iter().filter(|experiment| experiment.has_timer());
    let with: Vec<_> = with.map(|experiment| experiment.name()).collect();
    format!("--timer: {name} has none; it is for {}", with.join(", "))
}

fn list() -> Result<(), String> {
    for experiment in EXPERIMENTS {
        print(&format!("{}: {}\n", experiment.name(), experiment.about()))?;
        for claim in experiment.claims() {
            print(&format!("  - {claim}\n"))?;
        }
    }
    Ok(())
}

/// Opens the files of all experiments before anything runs, so that a file that cannot be written
/// is an error at once, and not after an hour.
fn open(arguments: &Arguments, experiments: &[&dyn Experiment]) -> Result<Vec<Outputs>, String> {
    if let Some(path) = &arguments.plot {
        // An old plot stays until there is a new one.
        let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
        file.map_err(|error| format!("{}: {error}", path.display()))?;
    }
    let is_one_of_many = experiments.len() > 1;
    let of = |experiment: &&dyn Experiment| {
        let report =
            arguments.report.as_ref().map(|path| match (is_one_of_many, path.file_name()) {
                (true, Some(name)) => {
                    path.with_file_name(format!("{}-{}", experiment.name(), name.to_string_lossy()))
                }
                _ => path.clone(),
            });
        let outputs = Outputs::open_files(report.as_deref(), None)?;
        Ok(if arguments.json { outputs } else { outputs.with_text(style(arguments)) })
    };
    experiments.iter().map(of).collect()
}

fn style(arguments: &Arguments) -> Style {
    if arguments.markdown { Style::Markdown } else { Style::Terminal }
}

/// Writes the results. Standard output comes first, so that they are there even if a file cannot be
/// written.
fn write(
    arguments: &Arguments,
    experiment: &dyn Experiment,
    results: &Results,
    outputs: Outputs,
) -> Result<(), String> {
    if !arguments.json && !results.runs.is_empty() {
        print(&(table::by_rate(results, 10_000.0, style(arguments)) + "\n"))?;
    }
    outputs.write(results, Vec::new())?;
    match &arguments.plot {
        Some(path) if arguments.plot_server.is_empty() => plot(path, experiment, results),
        Some(path) => plot_some(path, &arguments.plot_server, results),
        None => Ok(()),
    }
}

/// The plot of `--plot`, and those that go beside it.
fn plot(path: &Path, experiment: &dyn Experiment, results: &Results) -> Result<(), String> {
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let mut plots = Vec::new();
    if results.runs.is_empty() && results.tradeoffs.is_empty() {
        let name = experiment.name();
        say(format_args!("{name} has no plot: nothing in it is measured against a rate"));
    }
    if !results.runs.is_empty() {
        plots.push((path.to_owned(), report::readme_plot(results).map_err(|e| failed(&e))?));
    }
    if experiment.has_frontier() {
        let frontier = report::frontier_plot(results).map_err(|e| failed(&e))?;
        plots.extend(frontier.map(|svg| (beside(path, "frontier"), svg)));
    }
    for tradeoff in &results.tradeoffs {
        let svg = report::tradeoff_plot(tradeoff).map_err(|e| failed(&e))?;
        plots.push((beside(path, &tradeoff.name), svg));
    }
    for (path, svg) in plots {
        std::fs::write(&path, svg).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(())
}

/// The plot of `--plot`, of the servers that `--plot-server` names.
fn plot_some(path: &Path, names: &[String], results: &Results) -> Result<(), String> {
    if let Some(name) =
        names.iter().find(|name| results.runs.iter().all(|run| run.server != **name))
    {
        return Err(format!("--plot-server {name}: no server of this name was measured"));
    }
    let mut results = results.clone();
    results.runs.retain(|run| names.contains(&run.server));
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let svg = report::readme_plot(&results).map_err(|error| failed(&error))?;
    std::fs::write(path, svg).map_err(|error| failed(&error))
}

/// `DIR/FILE.svg` with a name after its stem: `DIR/FILE-NAME.svg`.
fn beside(path: &Path, name: &str) -> PathBuf {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!("{stem}-{name}.svg"))
}
