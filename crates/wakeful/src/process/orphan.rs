//! Children whose [`Child`](super::Child) was dropped. They still must be reaped.
//!
//! Each orphan has a thread of its own, which sleeps until the child has ended. The loop does not
//! wait, because it may end first, and its shutdown would wait for such a task. Nor does the
//! blocking pool, because a few hundred orphans would take all its threads, and a clock that a test
//! has paused would stand still. At the limit of threads, an idle thread of the pool looks at them
//! each second, or a loop if there is none. Zombies count in that limit, so they must not need a
//! thread to go away.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::io::retry_on_intr;
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

use crate::sys::once_per_second::OncePerSecond;
use crate::sys::panics;
use crate::sys::thread::{start_thread, without_signals};
use crate::task::{on_errand, run_errands};

#[derive(Debug)]
pub(super) enum Orphan {
    Pidfd(OwnedFd),
    Pid(Pid),
}

impl Orphan {
    /// Reaps the child when it has ended. Returns `false` if it has not: only with `NOHANG`.
    fn reap(&self, how: WaitIdOptions) -> bool {
        let id = match self {
            Self::Pidfd(pidfd) => WaitId::PidFd(pidfd.as_fd()),
            Self::Pid(pid) => WaitId::Pid(*pid),
        };
        // An error means that other code has reaped the child.
        !matches!(retry_on_intr(|| waitid(id.clone(), WaitIdOptions::EXITED | how)), Ok(None))
    }
}

/// Reaps the child as soon as it has ended.
pub(super) fn adopt(orphan: Orphan) {
    let orphan = Arc::new(orphan);
    let here = orphan.clone();
    let reap = move || here.reap(WaitIdOptions::empty());
    let Err(error) = without_signals(|| start_thread("wakeful-reaper", reap)) else { return };
    static LIMIT: OncePerSecond = OncePerSecond::new();
    if let Some(count) = LIMIT.pass() {
        panics::log!(warn, %error, count, "no thread to wait for a dropped child: it is looked at each second");
    }
    // An error means that no memory is left.
    let _ = on_errand(move || orphan.reap(WaitIdOptions::NOHANG));
}

/// Reaps those children that have ended and for which there is no thread. Returns whether there
/// were any.
pub(super) fn reap_ended() -> bool {
    // There are no other errands.
    run_errands()
}
