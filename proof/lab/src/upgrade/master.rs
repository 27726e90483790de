//! The master of a server as its operator knows it: a file with its process number, signals, and
//! its children.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use wakeful_load::internals::procfs::children_of;

const POLL: Duration = Duration::from_millis(2);
/// How long an act may take. After that, it has failed.
const PATIENCE: Duration = Duration::from_secs(20);

/// An act of an operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Act {
    /// The program is started again from its file, and takes over.
    Upgrade,
    /// New workers of the same program start, and read the settings again.
    Reload,
    /// There is one more worker, or one fewer.
    Scaling,
    /// A worker is killed.
    Kill,
}

impl Act {
    pub(super) const ALL: [Self; 4] = [Self::Upgrade, Self::Reload, Self::Scaling, Self::Kill];
    pub(super) const NAMES: [&'static str; 4] = ["upgrade", "reload", "scaling", "kill"];

    pub(super) fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    /// Returns the time from the beginning of one act to that of the next.
    pub(super) fn every(self) -> Duration {
        match self {
            Self::Upgrade | Self::Reload | Self::Scaling => Duration::from_millis(500),
            // Each of two workers lives longer than a second. A master takes a worker that does not
            // for one that cannot serve.
            Self::Kill => Duration::from_millis(1100),
        }
    }
}

/// The kind of server, which determines its signals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Wakeful,
    Nginx,
    Haproxy,
}

#[derive(Debug, Clone)]
pub(super) struct Master {
    pub(super) kind: Kind,
    pub(super) pid_file: PathBuf,
}

impl Master {
    /// Acts for the `number`th time, and waits until the act is done, which is when all processes
    /// that have to go are gone. Returns `false` if the measurement ends before.
    ///
    /// # Errors
    /// The act cannot be done, or not in time.
    pub(super) fn act(
        &self,
        act: Act,
        number: u32,
        is_over: impl Fn() -> bool,
    ) -> io::Result<bool> {
        let wait_until = |what: &str, is_so: &dyn Fn() -> bool| wait(what, is_so, &is_over);
        let master = self.pid()?;
        let workers = children_of(master);
        let are_gone = || workers.iter().all(|worker| !is_there(*worker));
        match (act, self.kind) {
            (Act::Upgrade, Kind::Wakeful) => {
                signal(master, Signal::USR2)?;
                wait_until("the old master has gone", &|| !is_there(master))
            }
            (Act::Upgrade, Kind::Nginx) => {
                signal(master, Signal::USR2)?;
                let new = || self.pid().ok().filter(|new| *new != master);
                wait_until("the new master has workers", &|| {
                    new().is_some_and(|new| !children_of(new).is_empty())
                })?;
                signal(master, Signal::QUIT)?;
                wait_until("the old master has gone", &|| !is_there(master))
            }
            // HAProxy starts itself again, and keeps its process number.
            (Act::Upgrade | Act::Reload, Kind::Haproxy) => {
                signal(master, Signal::USR2)?;
                wait_until("the old workers have gone", &are_gone)
            }
            (Act::Reload, Kind::Wakeful | Kind::Nginx) => {
                signal(master, Signal::HUP)?;
                wait_until("the old workers have gone", &are_gone)
            }
            (Act::Scaling, _) => {
                let more = number.is_multiple_of(2);
                signal(master, if more { Signal::TTIN } else { Signal::TTOU })?;
                let wanted = if more { workers.len() + 1 } else { workers.len() - 1 };
                wait_until("there are as many as wanted", &|| children_of(master).len() == wanted)
            }
            (Act::Kill, _) => {
                let victim = *workers.first().ok_or_else(|| io::Error::other("no worker"))?;
                signal(victim, Signal::KILL)?;
                wait_until("another one is there", &|| {
                    let now = children_of(master);
                    now.len() == workers.len() && !now.contains(&victim)
                })
            }
        }
    }

    fn pid(&self) -> io::Result<u32> {
        let text = fs::read_to_string(&self.pid_file)?;
        text.trim().parse().map_err(|_| io::Error::other(format!("no process: {text}")))
    }

    /// Whether the master has written its process number.
    pub(super) fn is_known(&self) -> bool {
        self.pid().is_ok()
    }
}

pub(super) fn signal(pid: u32, signal: Signal) -> io::Result<()> {
    let pid = Pid::from_raw(pid.cast_signed()).ok_or_else(|| io::Error::other("no process"))?;
    Ok(kill_process(pid, signal)?)
}

/// Whether a process is there, and is no zombie.
fn is_there(pid: u32) -> bool {
    Pid::from_raw(pid.cast_signed()).is_some_and(|pid| test_kill_process(pid).is_ok())
        && fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

fn wait(what: &str, is_so: &dyn Fn() -> bool, is_over: &impl Fn() -> bool) -> io::Result<bool> {
    let start = Instant::now();
    while !is_so() {
        if is_over() {
            return Ok(false);
        }
        if start.elapsed() > PATIENCE {
            return Err(io::Error::other(format!("in {PATIENCE:?} not so: {what}")));
        }
        std::thread::sleep(POLL);
    }
    Ok(true)
}
