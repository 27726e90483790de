//! Pinning to one CPU, so that the server and the load never share one.

use anyhow::{Context, Result, ensure};
use rustix::thread::{CpuSet, sched_setaffinity};

/// Pins the calling thread, and every thread or process it starts from now on,
/// to one CPU.
pub fn pin_this_thread(cpu: usize) -> Result<()> {
    ensure!(
        cpu < CpuSet::MAX_CPU,
        "CPU {cpu} is out of range: the highest number is {}",
        CpuSet::MAX_CPU - 1
    );
    let mut cpus = CpuSet::new();
    cpus.set(cpu);
    sched_setaffinity(None, &cpus).with_context(|| format!("cannot pin to CPU {cpu}"))
}
