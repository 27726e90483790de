//! `wakeful awake`: CPUs are kept from halting while a process has traffic.

mod command;
mod cpu_time;
mod elf;
mod relay;
mod report;
mod spin;

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use rustix::process::Pid;
use signal_hook::consts::{SIGINT, SIGTERM};
use wakeful_awake::{HoldSettings, Probe, Target, WatchError, Watcher};

use crate::logging::say;
use crate::numbers::{CpuList, cpu_list, number, positive_count, time_in};
use crate::stop_signals::stop_signals;

/// How often a report is printed.
const REPORT: Duration = Duration::from_secs(60);

#[derive(Debug, clap::Args)]
#[command(
    group = clap::ArgGroup::new("what").required(true),
    override_usage = "wakeful awake [OPTIONS] -- COMMAND [ARGUMENT]...\n       \
        wakeful awake [OPTIONS] --pid PID\n       \
        wakeful awake [OPTIONS] --cgroup DIR\n       \
        wakeful awake --probe",
    after_help = "\
A CPU with nothing to do halts, and the next wake waits until it is back: tens of microseconds on a virtual \
machine. This command keeps CPUs from halting while a process has traffic: at least 50 wakes a second, above its \
own housekeeping. The hold ends at most a quarter of a second after the traffic. The process is not changed, and may be \
anything: a static binary, Go, the JVM, Node, redis, nginx.

The cost: power, the share of hyper-thread siblings, CPU credits, and a hypervisor that sees the CPUs as busy; `top` \
shows them as idle. Where the machine's keeper runs (wakeful keeper), the CPUs on which the process ran \
lately are held. Without a keeper, all CPUs of the machine are held (/dev/cpu_dma_latency); a machine with more than \
four CPUs needs --hold machine. The gain is measured first, and without a gain no CPU is held. However this program \
ends, the hold ends with it.

It reports what it did once a minute and at the end (with --spin at the end only). If CPUs may not be held, the \
COMMAND runs all the same, and a line says why. The exit code is the command's, or 128 plus the number of the signal \
that ended it. Signals are passed on to the command, except real-time ones.

  $ wakeful awake --probe                              what a wake costs here, and is it permitted?
  $ wakeful awake -- redis-server --port 7000
  $ wakeful awake --pid $(pgrep -o nginx)              its workers too
  $ wakeful awake --cgroup /sys/fs/cgroup/system.slice/postgresql.service
  $ wakeful awake --spin --max-cpu 0.5 -- redis-server  CPU time instead of a hold"
)]
pub(crate) struct Arguments {
    /// Say how idle CPUs sleep here, what a wake costs with CPUs that halt and with CPUs that are
    /// held, and whether this process may hold CPUs; if not, what would permit it. Takes some 60
    /// ms. Exits with 1 if it is not permitted, or not worth it.
    #[arg(long, group = "what")]
    probe: bool,

    /// Watch this process, its children, and what they start from now on, until the process ends.
    #[arg(
        long,
        group = "what",
        value_name = "PID",
        value_parser = positive_count::<i32>
    )]
    pid: Option<i32>,

    /// Watch all processes of this cgroup (v2), until INT or TERM. It may be removed and made
    /// again, as when a service restarts. Needs CAP_PERFMON.
    #[arg(long, group = "what", value_name = "DIR")]
    cgroup: Option<PathBuf>,

    /// Without a keeper: `small` holds CPUs only on a machine of at most four CPUs, of which this
    /// process may use at least half; `machine` holds all CPUs of any machine.
    #[arg(long, value_enum, default_value = "small", conflicts_with = "probe")]
    hold: Whose,

    /// With a keeper (wakeful keeper): hold these CPUs, for example 0-3,8, instead of those on
    /// which the process ran in the last 0.2 s. Useful for the CPUs that serve the network card's
    /// interrupts.
    #[arg(long, value_name = "LIST", value_parser = cpu_list, conflicts_with_all = ["probe", "hold"])]
    cpus: Option<CpuList>,

    /// How long a held CPU may take to wake, in whole microseconds: 2us keeps shallow idle states
    /// on bare metal.
    #[arg(
        long,
        value_name = "TIME",
        default_value = "0us",
        value_parser = latency,
        conflicts_with = "probe"
    )]
    latency: Duration,

    /// Hold no CPUs. Instead, the threads of COMMAND poll for a while before they sleep in
    /// epoll_wait or poll, as long as that pays. For machines on which CPUs may not be held, or
    /// halt all the same. The cost is CPU time while there is traffic: up to a whole CPU for each
    /// thread. A library is preloaded (LD_PRELOAD), so this works for programs that are linked
    /// dynamically with glibc; children inherit it. At the end it says how much CPU time the
    /// command used, including its spins.
    #[arg(
        long,
        requires = "command",
        conflicts_with_all = ["probe", "pid", "cgroup", "hold", "cpus", "latency"]
    )]
    spin: bool,

    /// --spin: the share of a CPU that each thread may spend on spinning, 0 to 1 [default: 1].
    #[arg(long, value_name = "SHARE", requires = "spin", value_parser = share)]
    max_cpu: Option<f64>,

    /// Print errors only, no reports.
    #[arg(long, short, conflicts_with = "probe")]
    quiet: bool,

    /// Start this, and watch it.
    #[arg(last = true, group = "what", value_name = "COMMAND")]
    command: Vec<OsString>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Whose {
    Small,
    Machine,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, String> {
    if arguments.probe {
        return probe();
    }
    if let Some((program, rest)) = arguments.command.split_first() {
        let mut command = Command::new(program);
        command.args(rest);
        if !arguments.spin {
            return command::run(command, |pid| watch(arguments, Target::Process(pid), None));
        }
        return spin(arguments, command);
    }
    let target = match (arguments.pid.and_then(Pid::from_raw), &arguments.cgroup) {
        (Some(pid), _) => Target::Process(pid),
        (None, Some(folder)) => Target::Cgroup(folder.clone()),
        (None, None) => unreachable!("one of the group is required"),
    };
    let stop = stop_signals(&[SIGINT, SIGTERM])?;
    watch(arguments, target, Some(&stop)).map_err(|error| error.to_string())?;
    Ok(ExitCode::SUCCESS)
}

/// Runs a command that spins by itself.
fn spin(arguments: &Arguments, mut command: Command) -> Result<ExitCode, String> {
    let why_not = spin::prepare(&mut command, arguments.max_cpu)?;
    if let Some(why_not) = &why_not {
        say(format_args!("wakeful awake: {why_not}"));
    }
    // `None`: the command could not be started.
    let mut began = None;
    let code = command::run(command, |_| {
        began = Some(Instant::now());
        Ok(())
    });
    let is_told = why_not.is_none() && !arguments.quiet;
    if let (Some(began), Some(used), true) = (began, cpu_time::of_children(), is_told) {
        say(report::of_spin(began.elapsed(), used));
    }
    code
}

fn share(text: &str) -> Result<f64, String> {
    number(text, 0.0, 1.0)
}

fn latency(text: &str) -> Result<Duration, String> {
    let expected = "0us to 1s in whole microseconds, as 2us";
    let latency = time_in(text, &(Duration::ZERO..=Duration::from_secs(1)), expected)?;
    if latency.subsec_nanos().is_multiple_of(1000) {
        Ok(latency)
    } else {
        Err(format!("expected {expected}"))
    }
}

fn probe() -> Result<ExitCode, String> {
    let probe = Probe::run();
    let written = write!(io::stdout(), "{probe}");
    written.map_err(|error| format!("stdout: {error}"))?;
    Ok(if probe.is_worth_it() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Watches until the target ends, or `stop` is readable.
fn watch(
    arguments: &Arguments,
    target: Target,
    stop: Option<&UnixStream>,
) -> Result<(), WatchError> {
    let settings = HoldSettings::new().tolerated(arguments.latency);
    let settings = match arguments.hold {
        Whose::Small => settings,
        Whose::Machine => settings.whole_machine(),
    };
    let settings = match &arguments.cpus {
        Some(CpuList(cpus)) => settings.cpus(cpus.iter().copied()),
        None => settings,
    };
    let mut watcher = Watcher::open(target, settings)?;
    if let (Some(error), Some(needed), false) =
        (watcher.refusal(), watcher.needed(), arguments.quiet)
    {
        say(format!(
            "wakeful awake: perf events are refused here: {error}. So /proc is read five times a second instead. Perf events need {needed}"
        ));
    }
    let report = |done: &_| {
        if !arguments.quiet {
            say(report::line(done));
        }
    };
    watcher.run(stop.map(AsFd::as_fd), Some(REPORT), report)?;
    Ok(())
}
