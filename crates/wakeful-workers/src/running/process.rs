//! A worker as its master sees it.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};
use wakeful::accept::Sibling;
use wakeful::heartbeat::{Heartbeats, LoopState, Watchdog};

use crate::crew::WorkerId;
use crate::reports::LoopInfo;
use crate::sys;

#[derive(Debug)]
pub(super) struct Process {
    pub(super) id: WorkerId,
    pub(super) pid: Pid,
    /// Readable when the worker is dead.
    pub(super) pidfd: OwnedFd,
    /// A byte comes when the worker accepts, and the end if it dies before. `None`: one of these
    /// has come.
    pub(super) ready: Option<OwnedFd>,
    pub(super) has_accepted: bool,
    /// When the worker will have taken too long to accept. `None`: it has accepted, or is killed.
    pub(super) start_by: Option<Instant>,
    /// When the worker will have taken too long to end. `None`: it was not told to end, or is
    /// killed, or has no limit.
    pub(super) end_by: Option<Instant>,
    /// Whether the worker must reopen its files as soon as it accepts.
    pub(super) is_to_reopen: bool,
    pub(super) heartbeats: Heartbeats,
    pub(super) sibling: Option<Sibling>,
    pub(super) is_stopped: bool,
    /// When it was forked, by [`since_boot`](crate::reports::since_boot).
    pub(super) forked: Duration,
    /// The place of its reports.
    pub(super) reports_at: usize,
}

impl Process {
    pub(super) fn loops(&self, watchdog: &Watchdog) -> Vec<LoopInfo> {
        let seen = watchdog.loops(&self.heartbeats).into_iter();
        let loops = seen.map(|seen| match seen {
            LoopState::Awake { at_least, running, work, .. } => {
                LoopInfo::awake(at_least, running, work)
            }
            _ => LoopInfo::asleep(),
        });
        loops.collect()
    }

    /// Was a task running when this process died that may have served a client? (A loop that dies
    /// cannot say that its turn is over.)
    pub(super) fn died_in_a_task(&self, watchdog: &Watchdog) -> bool {
        let mut loops = watchdog.loops(&self.heartbeats).into_iter();
        !self.heartbeats.are_in_set_up()
            && loops.any(|it| matches!(it, LoopState::Awake { running: Some(_), .. }))
    }

    pub(super) fn signal(&self, signal: Signal) {
        sys::signal_child(self.pid, Some(self.pidfd.as_fd()), signal);
    }
}
