//! `wakeful keeper`: one process holds CPUs awake for all that ask.

mod group;

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use sd_notify::NotifyState;
use signal_hook::consts::{
    SIGALRM, SIGHUP, SIGINT, SIGIO, SIGPROF, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGVTALRM, SIGXCPU,
};
use signal_hook::flag;
use wakeful_awake::keeper_protocol::{SOCKET, format_cpus};
use wakeful_awake::{Keeper, KeeperClient, KeeperLine, KeeperSettings};

use crate::file_size;
use crate::logging::say;
use crate::numbers::{CpuList, cpu_list, positive_count, time_in};
use crate::passed_sockets::passed_sockets;
use crate::stop_signals::stop_signals;

/// How long `--status` waits for the keeper, which measures for some 60 ms at most.
const ANSWER: Duration = Duration::from_secs(5);

/// Signals that end a process that does not catch them, so that CPUs would stay held.
const ENDING: [i32; 10] = [
    SIGHUP,
    SIGINT,
    SIGQUIT,
    SIGTERM,
    Signal::POWER.as_raw(),
    SIGXCPU,
    SIGALRM,
    SIGVTALRM,
    SIGPROF,
    SIGIO,
];

#[derive(Debug, clap::Args)]
#[command(
    override_usage = "wakeful keeper [OPTIONS]\n       wakeful keeper --status [--socket PATH]",
    after_help = "\
A CPU with nothing to do halts, and the next wake waits until it is back: tens of microseconds on a virtual \
machine. The file /sys/devices/system/cpu/cpuN/power/pm_qos_resume_latency_us can keep CPU N from halting. It has \
one value for the whole machine, only root may write it, and its value stays when the writer dies. So one process \
writes these files for all programs that ask: the keeper. Unlike /dev/cpu_dma_latency, which `wakeful awake` uses \
without a keeper, it holds single CPUs: those of the loops that have traffic, also on a large machine.

The cost: power, the share of hyper-thread siblings, CPU credits, and a hypervisor that sees the CPUs as busy; `top` \
shows them as idle. --cpus, --most-cpus and --longest limit what programs may hold. The first hold measures whether a \
wake gets shorter; if it does not, programs are refused.

A hold ends with the program's connection, so also when the program dies. The keeper restores the earlier contents \
of the files after the last release, and when it ends by TERM, INT, HUP, QUIT, PWR, XCPU (the limit of CPU time), \
ALRM, VTALRM, PROF or IO. USR1 and USR2 have no effect. If it is killed, the next keeper restores them, from the \
--state file. A value that another process has written meanwhile stays.

The socket belongs to root and the group (mode 0660). systemd starts the keeper with the socket \
(wakeful-keeper.socket), and learns when it is ready. Programs use the crate wakeful-awake (KeeperClient), or send \
`hold 2-3 0`, `release` or `status` as a SOCK_SEQPACKET message.

  $ wakeful awake --probe                         what does a wake cost here?
  $ sudo wakeful keeper --group wakeful           its members may hold all CPUs
  $ sudo wakeful keeper --cpus 4-7 --most-cpus 2 --longest 10m
  $ wakeful keeper --status                       who holds what?"
)]
pub(crate) struct Arguments {
    /// Print which programs hold which CPUs, and whether that is worth it; then exit.
    #[arg(
        long,
        conflicts_with_all = [
            "state", "lock", "group", "cpus", "most_cpus", "longest", "most_clients", "unmeasured", "quiet",
        ]
    )]
    status: bool,

    /// Where programs connect. If systemd passes a socket, that one is used instead.
    #[arg(long, value_name = "PATH", default_value = SOCKET)]
    socket: PathBuf,

    /// Where the keeper notes what the next keeper has to restore if this one is killed. If it
    /// cannot be written, no CPU is held. Only root may write to its directory.
    #[arg(long, value_name = "PATH", default_value = "/run/wakeful/keeper.state")]
    state: PathBuf,

    /// The lock file: a second keeper finds it locked, and ends with an error.
    #[arg(long, value_name = "PATH", default_value = "/run/wakeful/keeper.lock")]
    lock: PathBuf,

    /// The group that may connect, by name or number [default: the group of this process].
    #[arg(long, value_name = "NAME")]
    group: Option<String>,

    /// Hold only these CPUs, for example 0-3,8. The machine must have at least one of them
    /// [default: all].
    #[arg(long, value_name = "LIST", value_parser = cpu_list)]
    cpus: Option<CpuList>,

    /// Hold at most N CPUs at once, for all programs together [default: all].
    #[arg(long, value_name = "N", value_parser = positive_count::<usize>)]
    most_cpus: Option<usize>,

    /// End a hold that lasts longer than TIME without a release, for example 10m. The program may
    /// hold again after it has released [default: no limit].
    #[arg(long, value_name = "TIME", value_parser = longest)]
    longest: Option<Duration>,

    /// Let at most N clients connect. A program is one client for each of its event loops.
    #[arg(long, value_name = "N", default_value = "1024", value_parser = positive_count::<usize>)]
    most_clients: usize,

    /// Do not measure, and hold even if that gains nothing.
    #[arg(long)]
    unmeasured: bool,

    /// Print errors only.
    #[arg(long, short)]
    quiet: bool,
}

fn longest(text: &str) -> Result<Duration, String> {
    const DAY: Duration = Duration::from_secs(24 * 3600);
    time_in(text, &(Duration::from_millis(1)..=365 * DAY), "1ms to 365d, as 30s or 10m")
}

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode, String> {
    if arguments.status {
        return status(&arguments.socket);
    }
    // The state file may reach the limit. Then a hold is refused.
    file_size::survive_limits();
    // The signals are caught before the keeper has anything to restore.
    let stop = stop_signals(&ENDING)?;
    let ignored = Arc::new(AtomicBool::new(false));
    for signal in [SIGUSR1, SIGUSR2] {
        let caught = flag::register(signal, ignored.clone());
        caught.map_err(|error| format!("signals: {error}"))?;
    }
    let is_quiet = arguments.quiet;
    let cpus = arguments.cpus.as_ref().map(|CpuList(cpus)| format_cpus(cpus));
    let (settings, place) = settings(arguments)?;
    let mut keeper = Keeper::open(settings).map_err(|error| error.to_string())?;
    if !is_quiet {
        let cpus = cpus.map_or_else(|| "all CPUs".to_owned(), |cpus| format!("CPUs {cpus}"));
        say(format_args!("wakeful keeper: clients of {place} may ask for {cpus}"));
    }
    // This runs on a separate thread, because it waits for room in systemd's socket, and the keeper
    // must not wait for systemd.
    let notify = || {
        if let Err(error) = sd_notify::notify(&[NotifyState::Ready]) {
            say(format_args!(
                "wakeful keeper: cannot tell systemd that the keeper is ready: {error}"
            ));
        }
    };
    if thread::Builder::new().name("notify".to_owned()).spawn(notify).is_err() {
        notify();
    }
    keeper.run(stop.as_fd()).map_err(|error| format!("waiting for clients: {error}"))?;
    Ok(ExitCode::SUCCESS)
}

/// The settings, and a text that says where the keeper listens.
fn settings(arguments: Arguments) -> Result<(KeeperSettings, String), String> {
    let is_quiet = arguments.quiet;
    let mut place = arguments.socket.display().to_string();
    let mut settings = KeeperSettings::new()
        .socket(arguments.socket)
        .state(arguments.state)
        .lock(arguments.lock)
        .most_clients(arguments.most_clients)
        .lines(move |line| {
            if !is_quiet || matches!(line, KeeperLine::Trouble(_)) {
                say(format_args!("wakeful keeper: {line}"));
            }
        });
    let mut passed = passed_sockets()?;
    if passed.len() > 1 {
        return Err("systemd passes several sockets (LISTEN_FDS), and the keeper takes one: keep one ListenSequentialPacket= in the .socket unit".to_owned());
    }
    if let Some(socket) = passed.pop() {
        "systemd's socket".clone_into(&mut place);
        settings = settings.listener(socket);
    }
    if let Some(name) = arguments.group {
        settings = settings.group(group::id(&name)?);
    }
    if let Some(CpuList(cpus)) = arguments.cpus {
        settings = settings.cpus(cpus);
    }
    if let Some(number) = arguments.most_cpus {
        settings = settings.most_cpus(number);
    }
    if let Some(time) = arguments.longest {
        settings = settings.longest(time);
    }
    if arguments.unmeasured {
        settings = settings.unmeasured();
    }
    Ok((settings, place))
}

fn status(socket: &Path) -> Result<ExitCode, String> {
    let client = KeeperClient::connect(socket).map_err(|error| error.to_string())?;
    let status = client.status(ANSWER);
    let status = status.map_err(|error| format!("{}: {error}", socket.display()))?;
    let written = io::stdout().write_all(status.as_bytes());
    written.map_err(|error| format!("stdout: {error}"))?;
    Ok(ExitCode::SUCCESS)
}
