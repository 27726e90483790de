//! `wakeful load`.

mod arguments;
mod input_files;
mod output;
mod request;

use std::io;
use std::net::TcpListener;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use wakeful_load::internals::bench::{Bench, BenchError, Load};
use wakeful_load::internals::find_max::Promise;
use wakeful_load::internals::null_server::{self, Slowness, Spread};
use wakeful_load::internals::progress::Progress;
use wakeful_load::internals::results::{Comparison, Floor, Results, SCHEMA};
use wakeful_load::internals::series::{Series, Slices};
use wakeful_load::internals::servers::ServerSpec;
use wakeful_load::internals::statistics::MIN_PAIRS;
use wakeful_load::internals::{compare, find_max, floor, format, machine, quiet};
use wakeful_load::{Rate, Recording, Run, Validity};

use crate::file_size;
use crate::ignored_signals::IgnoredSignals;
use crate::logging::say;
use crate::registration::without_signals;
use crate::usage::{Refusal, wrong_usage};

pub(crate) use arguments::Arguments;
use arguments::{Command, Machine, Task};
pub(crate) use output::{Outputs, print};

/// The exit code of results that are not to be trusted.
const INVALID: u8 = 4;

/// The exit code that a shell reports for a program that Ctrl-C has ended. It is used for TERM and
/// HUP, too.
pub(crate) const INTERRUPTED: u8 = 130;

/// # Errors
/// A line for the user.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, String> {
    // Without this, a report or a log beyond the limit would end the process before the results are
    // printed.
    file_size::survive_limits();
    match &arguments.command {
        None => match measure(arguments) {
            Ok(code) => Ok(code),
            Err(Refusal::WrongUsage(line)) => Ok(wrong_usage(line)),
            Err(Refusal::Error(line)) => Err(line),
        },
        Some(Command::Merge { logs, out }) => {
            output::merge_logs(logs, out.as_deref()).map(|()| ExitCode::SUCCESS)
        }
        Some(Command::NullServer { listen, delay, exponential, stall, stall_every }) => {
            if stall >= stall_every {
                return Ok(wrong_usage("--stall must be shorter than --stall-every"));
            }
            let spread = if *exponential { Spread::Exponential } else { Spread::Constant };
            let stall_every = if stall.is_zero() { Duration::ZERO } else { *stall_every };
            let slow = Slowness { delay: *delay, spread, seed: 1, stall: *stall, stall_every };
            serve_nothing(listen, slow).map(|()| ExitCode::SUCCESS)
        }
    }
}

fn serve_nothing(addr: &str, slow: Slowness) -> Result<(), String> {
    let listener =
        TcpListener::bind(addr).map_err(|error| format!("cannot listen on {addr}: {error}"))?;
    let interrupted = until_interrupted()?;
    say(format_args!("listening on {addr}"));
    null_server::serve(&listener, slow, &|| interrupted.load(Ordering::Relaxed))
        .map_err(|error| error.to_string())
}

fn measure(arguments: &Arguments) -> Result<ExitCode, Refusal> {
    let task = arguments.task()?;
    let interrupted = until_interrupted()?;
    let mut bench = bench(&arguments.machine, &interrupted)?;
    let outputs = Outputs::open(&arguments.output)?;
    let mut measured = Measured { slices: slices(arguments), ..Measured::default() };
    let outcome = measured.measure(&mut bench, arguments, &task);
    bench.progress.clear();
    let has_failed = outcome.is_err();
    if let Err(error) = outcome {
        // Results that were measured before the failure are not lost.
        if measured.runs.is_empty() {
            if error.is_interrupted() {
                say(format_args!("wakeful: {error}"));
                return Ok(ExitCode::from(INTERRUPTED));
            }
            return Err(Refusal::Error(error.to_string()));
        }
        say(format_args!("wakeful: {error}"));
    }
    if bench.is_interrupted() {
        measured.notes.push("It was ended early: these are the results until then.".to_owned());
    }
    let (results, recordings) = measured.results(&bench.limits);
    outputs.write(&results, recordings)?;
    Ok(if bench.is_interrupted() {
        ExitCode::from(INTERRUPTED)
    } else if has_failed {
        ExitCode::FAILURE
    } else if results.runs.iter().all(|run| run.validity == Validity::Valid)
        || arguments.find_max.is_some()
    {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(INVALID)
    })
}

/// A flag that the first Ctrl-C sets; the second one ends the process.
pub(crate) fn until_interrupted() -> Result<Arc<AtomicBool>, String> {
    catch_interrupts().map_err(|error| format!("cannot handle signals: {error}"))
}

fn catch_interrupts() -> io::Result<Arc<AtomicBool>> {
    const SIGNALS: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];
    let flag = Arc::new(AtomicBool::new(false));
    without_signals(&SIGNALS, || set_by_interrupts(&flag))?;
    // The parent process may have blocked the signals.
    wakeful::signal::unblock(&SIGNALS)?;
    Ok(flag)
}

fn set_by_interrupts(flag: &Arc<AtomicBool>) -> io::Result<()> {
    for signal in [SIGINT, SIGTERM] {
        // The handlers must be registered in this order. Otherwise the first signal would set the
        // flag and end the process.
        signal_hook::flag::register_conditional_shutdown(signal, INTERRUPTED.into(), flag.clone())
            .and_then(|_| signal_hook::flag::register(signal, flag.clone()))?;
    }
    // When a terminal closes, the shell and the kernel may each send a SIGHUP, so a second one does
    // not end the process.
    if !IgnoredSignals::read().has(SIGHUP) {
        signal_hook::flag::register(SIGHUP, flag.clone())?;
    }
    Ok(())
}

fn bench<'a>(machine: &Machine, interrupted: &'a AtomicBool) -> Result<Bench<'a>, Refusal> {
    let mut bench =
        Bench::on_this_machine(interrupted, Progress::to_stderr()).map_err(|error| {
            Refusal::Error(format!("cannot find out which CPUs this process may use: {error}"))
        })?;
    if let Some(cpu) = machine.cpu {
        let given = bench.give_generator(cpu);
        given.map_err(|error| Refusal::WrongUsage(format!("--cpu {cpu}: {error}")))?;
    }
    if let Some(cpus) = &machine.server_cpus {
        let given = bench.give_servers(cpus);
        given.map_err(|error| Refusal::WrongUsage(format!("--server-cpus: {error}")))?;
    }
    bench.limits = quiet::Limits {
        share: machine.quiet_share,
        patience: machine.quiet_patience,
        ..quiet::Limits::default()
    };
    bench.most_repeats = machine.repeats.into();
    bench.pid = machine.pid;
    Ok(bench)
}

fn size_of_comparison(arguments: &Arguments) -> compare::Size {
    compare::Size {
        pairs: arguments.pairs.into(),
        slices: slices(arguments),
        ..compare::Size::default()
    }
}

/// Only --log needs the histograms of slices, which take most of the memory.
fn slices(arguments: &Arguments) -> Slices {
    if arguments.output.log.is_some() { Slices::Histograms } else { Slices::Figures }
}

/// Tells the user how long all of it will take.
fn expect(bench: &mut Bench<'_>, arguments: &Arguments, task: &Task) {
    if !arguments.machine.no_floor {
        floor::expect(bench, &task.loads[0]);
    }
    if arguments.compare.is_some() {
        let size = size_of_comparison(arguments);
        task.loads.iter().for_each(|load| compare::expect(bench, load, size));
    } else if let Some(promise) = arguments.find_max {
        task.servers.iter().for_each(|_| find_max::expect(bench, &task.loads[0], promise));
    } else {
        for load in &task.loads {
            bench.progress.expect(task.servers.len(), bench.expected_time(load));
        }
    }
}

/// What was measured, even if the run ended early.
#[derive(Default)]
struct Measured {
    floor: Option<Floor>,
    runs: Vec<Run>,
    slices: Slices,
    /// The data for --log: a tag and the times, for each run that has them.
    recordings: Vec<(String, Recording)>,
    comparisons: Vec<Comparison>,
    notes: Vec<String>,
}

impl Measured {
    fn measure(
        &mut self,
        bench: &mut Bench<'_>,
        arguments: &Arguments,
        task: &Task,
    ) -> Result<(), BenchError> {
        if bench.cpu.is_none() {
            self.notes
                .push("There is only one CPU: the generator shares it with the server.".to_owned());
        }
        if bench.cpu.zip(bench.server_cpus.as_ref()).is_some_and(|(cpu, cpus)| cpus.contains(&cpu))
        {
            self.notes.push(
                "The servers may use the generator's CPU, so the generator may be late.".to_owned(),
            );
        }
        task.servers.iter().try_for_each(|server| bench.try_out(server))?;
        expect(bench, arguments, task);
        if !arguments.machine.no_floor {
            self.floor = Some(floor::measure(bench, &task.loads[0], task.bytes)?);
            self.note_once(floor::note(task.bytes));
        }
        if let [a, b] = arguments.compare.as_deref().unwrap_or_default() {
            task.loads.iter().try_for_each(|load| self.compare(bench, arguments, a, b, load))
        } else if let Some(promise) = arguments.find_max {
            task.servers
                .iter()
                .try_for_each(|server| self.find_max(bench, server, &task.loads[0], promise))
        } else {
            self.sweep(bench, task)
        }
    }

    fn sweep(&mut self, bench: &mut Bench<'_>, task: &Task) -> Result<(), BenchError> {
        for load in &task.loads {
            for server in &task.servers {
                if bench.is_interrupted() {
                    return Ok(());
                }
                let label = format!("{} {}", server.name(), load.plan.get_schedule());
                let block = bench.block(server, load, &label)?;
                self.keep(Series::new(server.name(), block, self.slices));
            }
        }
        Ok(())
    }

    fn compare(
        &mut self,
        bench: &mut Bench<'_>,
        arguments: &Arguments,
        a: &ServerSpec,
        b: &ServerSpec,
        load: &Load,
    ) -> Result<(), BenchError> {
        let mut pairs = compare::measure(bench, a, b, load, size_of_comparison(arguments))?;
        let both = [pairs.a.take(), pairs.b.take()];
        both.into_iter().flatten().for_each(|series| self.keep(series));
        if pairs.pairs.len() < MIN_PAIRS {
            let text = format!(
                "{} pairs were measured: {MIN_PAIRS} are the least that can show a difference.",
                pairs.pairs.len()
            );
            self.notes.push(text);
        }
        let rate = load.plan.get_schedule().rate();
        let (names, seed) = ((a.name(), b.name()), load.plan.get_seed());
        self.comparisons.push(compare::decide(names, rate, &pairs, self.floor.as_ref(), seed));
        Ok(())
    }

    fn find_max(
        &mut self,
        bench: &mut Bench<'_>,
        server: &ServerSpec,
        load: &Load,
        promise: Promise,
    ) -> Result<(), BenchError> {
        let found = find_max::search(bench, server, load, promise)?;
        self.notes.push(format!("{}: {found}", server.name()));
        self.note_once(found.note);
        self.runs.extend(found.runs);
        if let Some(best) = found.best {
            self.record(best.blocks, Some(best.rate));
        }
        Ok(())
    }

    fn keep(&mut self, series: Series) {
        let run = series.run();
        self.note_once(series.note());
        self.record(series, run.rate);
        self.runs.push(run);
    }

    fn note_once(&mut self, note: Option<String>) {
        self.notes.extend(note.filter(|note| !self.notes.contains(note)));
    }

    /// Keeps the times if they are for a log.
    fn record(&mut self, series: Series, rate: Option<f64>) {
        if self.slices == Slices::Figures {
            return;
        }
        let rate = rate.map_or_else(|| "closed".to_owned(), |rate| Rate(rate.round()).to_string());
        self.recordings.push((format!("{}@{rate}", series.server()), series.into_recording()));
    }

    fn results(mut self, limits: &quiet::Limits) -> (Results, Vec<(String, Recording)>) {
        let repeated: usize = self.runs.iter().map(|run| run.repeated).sum();
        let blocks: usize = self.runs.iter().map(|run| run.blocks).sum();
        self.notes.push(format!(
            "{blocks} blocks count. {repeated} more were thrown away and measured again, because other programs used more than {} of a CPU meanwhile.",
            format::percent(limits.share)
        ));
        let results = Results {
            schema: SCHEMA,
            title: title(&self.runs),
            command: command_line(),
            machine: machine::describe(),
            floor: self.floor,
            runs: self.runs,
            comparisons: self.comparisons,
            tables: Vec::new(),
            tradeoffs: Vec::new(),
            claims: Vec::new(),
            notes: self.notes,
        };
        (results, self.recordings)
    }
}

fn title(runs: &[Run]) -> String {
    let mut servers: Vec<&str> = runs.iter().map(|run| run.server.as_str()).collect();
    servers.dedup();
    servers.truncate(3);
    format!("wakeful load: {}", servers.join(", "))
}

/// The command line in a form that a shell accepts.
pub(crate) fn command_line() -> String {
    let words: Vec<String> = std::env::args().collect();
    let words = words.iter().map(String::as_str);
    let line =
        shlex::try_join(words.clone()).unwrap_or_else(|_| words.collect::<Vec<_>>().join(" "));
    let program = line.split(' ').next().unwrap_or_default().to_owned();
    line.replacen(&program, "wakeful", 1)
}
