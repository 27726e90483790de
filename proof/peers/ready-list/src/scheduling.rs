//! Where threads run, and under which policy of the scheduler.

#![allow(unsafe_code)] // One system call that rustix does not have.

use std::io;

use anyhow::{Context, Result};
use rustix::thread::{CpuSet, Pid, gettid, sched_getaffinity, sched_setaffinity};

/// A policy of the scheduler.
#[derive(Debug, Clone, Copy)]
pub enum Policy {
    /// Real time, with a priority of 1 to 99.
    Fifo(i32),
    /// The default policy.
    Other,
    /// The thread runs only when no other thread wants the CPU.
    Idle,
}

/// Returns the CPUs that this process may use.
pub fn cpus() -> Result<Vec<usize>> {
    let set = sched_getaffinity(None).context("cannot ask for the CPUs")?;
    Ok((0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect())
}

/// Returns the id of this thread, for other threads.
pub fn this_thread() -> Pid {
    gettid()
}

/// Keeps this thread on one CPU.
pub fn pin(cpu: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).with_context(|| format!("cannot run on CPU {cpu}"))
}

/// Gives a thread of this process a policy.
pub fn set_policy(thread: Pid, policy: Policy) -> io::Result<()> {
    let (policy, priority) = match policy {
        Policy::Fifo(priority) => (libc::SCHED_FIFO, priority),
        Policy::Other => (libc::SCHED_OTHER, 0),
        Policy::Idle => (libc::SCHED_IDLE, 0),
    };
    let param = libc::sched_param { sched_priority: priority };
    // SAFETY: the parameter is read only during the call.
    match unsafe {
        libc::sched_setscheduler(thread.as_raw_nonzero().get(), policy, &raw const param)
    } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Checks that this process may use real-time priorities. The error says why not.
pub fn may_be_real_time() -> Result<(), String> {
    let before = this_thread();
    set_policy(before, Policy::Fifo(1)).map_err(|error| {
        format!("real-time priority is not allowed here ({error}): run it as root")
    })?;
    set_policy(before, Policy::Other).map_err(|error| error.to_string())
}
