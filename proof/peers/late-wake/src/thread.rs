//! Threads: where they run, and how often they slept.

use std::fs;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::thread::{CpuSet, gettid, sched_setaffinity};

use crate::clock;

/// The loop's thread, once it has registered.
static LOOP: AtomicI32 = AtomicI32::new(0);

/// Pins the calling thread to one CPU.
pub fn pin(cpu: usize) -> Result<()> {
    ensure!(cpu < CpuSet::MAX_CPU, "there is no CPU {cpu}");
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).with_context(|| format!("cannot run on CPU {cpu}"))
}

/// Registers the calling thread as the loop's, and pins it.
pub fn is_the_loop(cpu: usize) -> Result<()> {
    pin(cpu)?;
    LOOP.store(gettid().as_raw_nonzero().get(), Ordering::Release);
    Ok(())
}

fn of_the_loop(file: &str) -> Result<String> {
    let tid = LOOP.load(Ordering::Acquire);
    ensure!(tid != 0, "the loop's thread is not known");
    fs::read_to_string(format!("/proc/self/task/{tid}/{file}")).context("the loop's thread")
}

/// Returns how often the loop's thread has slept until now. This takes about 20 µs.
pub fn sleeps_of_the_loop() -> Result<u64> {
    let status = of_the_loop("status")?;
    let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    count.and_then(|count| count.trim().parse().ok()).context("no voluntary_ctxt_switches")
}

/// Waits until the loop's thread sleeps.
pub fn wait_until_the_loop_sleeps() -> Result<()> {
    let end = clock::now() + 5_000_000_000;
    loop {
        let stat = of_the_loop("stat")?;
        if stat.rsplit_once(") ").is_some_and(|(_, fields)| fields.starts_with('S')) {
            return Ok(());
        }
        ensure!(clock::now() < end, "the loop does not go to sleep");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Returns how often the calling thread has slept until now. This takes less than 1 µs.
#[must_use]
#[allow(unsafe_code)] // rustix has no getrusage, and /proc takes too long between the marks.
pub fn own_sleeps() -> u64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the pointer refers to a whole rusage. All-zero is a valid rusage, whatever the kernel
    // writes.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
        usage.assume_init()
    };
    u64::try_from(usage.ru_nvcsw).unwrap_or_default()
}
