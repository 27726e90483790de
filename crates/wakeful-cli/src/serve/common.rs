//! The options of every service.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use wakeful::IdlePolicy;
use wakeful::accept::{AcceptStrategy, Placement, SharedListener};
use wakeful::net::{InvalidListenAddr, ListenAddr};
use wakeful_services::ServeOptions;
use wakeful_services::options::Pinning;

use super::activity::ActivityArguments;
use super::idle::IdleArguments;
use super::seconds::seconds;
use super::workers::{WorkerArguments, keep};
use crate::numbers::whole;
use crate::passed_sockets::passed_sockets;

/// The word, instead of an address, for the sockets that systemd passes.
const SYSTEMD: &str = "systemd";

#[derive(Debug, Args)]
pub(super) struct CommonArguments {
    // Not a doc comment: rustdoc takes the brackets for a link.
    #[arg(
        long,
        value_name = "ADDR",
        default_value = "127.0.0.1:8080",
        help = "Where to listen: 127.0.0.1:8080, [::1]:8080, unix:PATH, unix:@NAME (an abstract name), or systemd for the sockets that systemd passes (LISTEN_FDS). Port 0: a free one. May be repeated"
    )]
    listen: Vec<String>,

    /// Read options from a TOML file, for example `grace = 20`. Options on the command line win.
    /// With --workers, new workers read the file again after a HUP
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// The number of loops, each on a thread of its own. 0: one for each CPU that this process may
    /// use, or fewer under a CPU quota of its cgroup; with --workers, the workers divide the CPUs
    /// between them.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = whole(0..=u16::MAX))]
    loops: u16,

    /// Pin each loop's thread to a CPU. If there are more loops than CPUs, some share one.
    #[arg(long)]
    pin: bool,

    /// How connections reach the loops.
    #[arg(long, value_enum, default_value_t = Accept::Exclusive)]
    accept: Accept,

    /// With --accept dispatch: which of the active loops (with --spread: of all loops) gets the
    /// next connection: round-robin, random, least-loaded or power-of-two [default: power-of-two]
    #[arg(long, value_name = "PLACEMENT")]
    placement: Option<Placement>,

    #[command(flatten)]
    idle: IdleArguments,

    #[command(flatten)]
    workers: WorkerArguments,

    /// Seconds that open connections have to finish after TERM or Ctrl-C. A second signal stops the
    /// server at once.
    #[arg(long, help_heading = "Ending", value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    grace: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Accept {
    /// All loops share one socket, and a connection wakes one of them.
    Exclusive,
    /// Each loop (of each worker) has a socket of its own on the same port, and the kernel chooses
    /// by a hash. TCP only.
    ReusePort,
    /// The first loop (of each worker) accepts all connections and distributes them by
    /// --placement.
    Dispatch,
}

impl CommonArguments {
    /// # Errors
    /// Options that have no meaning together.
    pub(super) fn check(&self) -> Result<(), String> {
        self.check_with_admin(&[])
    }

    /// Like [`check`](Self::check), with the addresses of `--admin`.
    pub(super) fn check_with_admin(&self, admin: &[String]) -> Result<(), String> {
        self.strategy()?;
        self.idle_policy()?;
        self.addresses()?;
        if self.is_passed_sockets() && self.accept == Accept::ReusePort {
            let reason = "--accept reuse-port cannot be used with --listen systemd, since each loop needs a socket of its own: use exclusive or dispatch";
            return Err(reason.to_owned());
        }
        let is_unix = |addr: &&String| addr.starts_with("unix:");
        if let (Accept::ReusePort, Some(addr)) = (self.accept, self.listen.iter().find(is_unix)) {
            return Err(format!(
                "--accept reuse-port cannot be used with --listen {addr}: a Unix socket has no SO_REUSEPORT. Use exclusive or dispatch"
            ));
        }
        let listen = self.listen.iter().map(|addr| ("--listen", addr));
        let admin = admin.iter().map(|addr| ("--admin", addr));
        for (option, addr) in admin.clone() {
            address(addr).map_err(|error| format!("{option}: {error}"))?;
        }
        each_once(listen.chain(admin))
    }

    pub(super) fn has_file(&self) -> bool {
        self.config.is_some()
    }

    /// Keeps what a master has made already and a new worker cannot change. Returns the options
    /// that are different here.
    pub(super) fn keep(&mut self, masters: &Self) -> Vec<&'static str> {
        let mut kept = self.workers.keep(&masters.workers);
        kept.extend(keep(&mut self.listen, &masters.listen, "--listen"));
        kept.extend(keep(&mut self.loops, &masters.loops, "--loops"));
        kept.extend(keep(&mut self.pin, &masters.pin, "--pin"));
        if [self.accept, masters.accept].contains(&Accept::ReusePort) {
            kept.extend(keep(&mut self.accept, &masters.accept, "--accept (by a restart)"));
            self.placement = masters.placement;
        }
        // The master uses its own grace period to decide when to kill a worker.
        kept.extend(keep(&mut self.grace, &masters.grace, "--grace"));
        kept
    }

    /// `activity` is for services that may use only some of their loops.
    ///
    /// # Errors
    /// A line for the user.
    pub(super) fn options(&self, activity: &ActivityArguments) -> Result<ServeOptions, String> {
        let options = ServeOptions::new()
            .listen(self.addresses()?)
            .pinning(if self.pin { Pinning::Pinned } else { Pinning::Free })
            .accept(self.strategy()?)
            .concentrate(activity.targets())
            .idle(self.idle_policy()?)
            .grace(self.grace)
            .log(crate::logging::writer());
        let loops = (self.loops > 0).then_some(self.loops.into());
        Ok(options.loops(loops.or_else(|| self.workers.loops())))
    }

    /// Should each loop's thread be pinned to a CPU?
    pub(super) fn is_pinned(&self) -> bool {
        self.pin
    }

    pub(super) fn workers(&self) -> &WorkerArguments {
        &self.workers
    }

    /// How long connections may finish after a signal.
    pub(super) fn grace(&self) -> Duration {
        self.grace
    }

    /// # Errors
    /// Options that have no meaning together.
    pub(super) fn idle_policy(&self) -> Result<IdlePolicy, String> {
        self.idle.policy()
    }

    /// The sockets that systemd passes, if they were asked for.
    ///
    /// # Errors
    /// There is none, or it cannot be listened on: a line for the user.
    pub(super) fn passed(&self) -> Result<Vec<SharedListener>, String> {
        if self.is_passed_sockets() { passed() } else { Ok(Vec::new()) }
    }

    fn is_passed_sockets(&self) -> bool {
        self.listen.iter().any(|addr| addr == SYSTEMD)
    }

    /// # Errors
    /// A line for the user.
    pub(super) fn addresses(&self) -> Result<Vec<ListenAddr>, String> {
        let addrs = self.listen.iter().filter(|addr| *addr != SYSTEMD);
        let addrs = addrs.map(|addr| address(addr)).collect::<Result<_, _>>();
        addrs.map_err(|error: String| match error.ends_with("unix:@NAME") {
            true => format!("--listen: {error}, or systemd"),
            false => format!("--listen: {error}"),
        })
    }

    pub(super) fn strategy(&self) -> Result<AcceptStrategy, String> {
        match (self.accept, self.placement) {
            (Accept::Dispatch, placement) => {
                Ok(AcceptStrategy::Dispatch(placement.unwrap_or_default()))
            }
            (_, Some(_)) => Err("--placement needs --accept dispatch".to_owned()),
            (Accept::Exclusive, None) => Ok(AcceptStrategy::Exclusive),
            (Accept::ReusePort, None) => Ok(AcceptStrategy::ReusePort),
        }
    }
}

/// # Errors
/// There is none, or it cannot be listened on: a line for the user.
fn passed() -> Result<Vec<SharedListener>, String> {
    let sockets = passed_sockets().map_err(|error| format!("--listen systemd: {error}"))?;
    if sockets.is_empty() {
        let reason = "--listen systemd: systemd has passed no socket (LISTEN_FDS): the service needs a .socket unit";
        return Err(reason.to_owned());
    }
    let listeners = sockets.into_iter().map(SharedListener::from_socket).collect::<Result<_, _>>();
    listeners.map_err(|error| format!("--listen systemd: {error}"))
}

/// # Errors
/// An address occurs twice. (Port 0 may, because it is another port each time.)
fn each_once<'a>(given: impl Iterator<Item = (&'static str, &'a String)>) -> Result<(), String> {
    let mut seen: Vec<(&str, ListenAddr)> = Vec::new();
    for (option, text) in given {
        // Only `systemd` is not an address: the others have been checked.
        let Ok(addr) = text.parse::<ListenAddr>() else { continue };
        if matches!(addr, ListenAddr::Tcp(addr) if addr.port() == 0) {
            continue;
        }
        match seen.iter().find(|(_, before)| *before == addr) {
            Some((before, _)) if *before == option => {
                return Err(format!("{option} {addr} is given twice"));
            }
            Some((before, _)) => return Err(format!("{before} and {option} are both {addr}")),
            None => seen.push((option, addr)),
        }
    }
    Ok(())
}

/// Parses an address. clap does not parse addresses, so that a malformed address gets a one-line
/// error, also if it is in the settings file.
///
/// # Errors
/// A line for the user.
pub(super) fn address(text: &str) -> Result<ListenAddr, String> {
    text.parse().map_err(|error: InvalidListenAddr| error.to_string())
}
