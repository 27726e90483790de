//! How much CPU time children have used.

use std::time::Duration;

use procfs::process::Process;

/// The CPU time of the children that have ended and been waited for, including their own children.
/// `None`: `/proc` does not tell (proc(5)). The unit is a hundredth of a second.
pub(super) fn of_children() -> Option<Duration> {
    let stat = Process::myself().and_then(|process| process.stat()).ok()?;
    let ticks = u64::try_from(stat.cutime.saturating_add(stat.cstime)).ok()?;
    let millis = ticks.saturating_mul(1000) / rustix::param::clock_ticks_per_second().max(1);
    Some(Duration::from_millis(millis))
}
