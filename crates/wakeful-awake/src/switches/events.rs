//! Context switches as the kernel counts them, for each CPU: what is inherited by new threads can
//! wake somebody only if it is of one CPU.
#![allow(unsafe_code)]

use std::collections::BTreeSet;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use perf_event::events::Software;
use perf_event::{Builder, Sampler};
use rustix::io::Errno;

use super::processes::Processes;
use crate::machine::online_cpus;

/// It wakes whoever waits once in so many switches of a thread on a CPU: not a power of two, so
/// that it does not beat with what comes in pairs.
const PERIOD: u64 = 13;
/// How often the threads are listed until no new one is found.
const LISTINGS: usize = 8;

/// One event for each thread and CPU, or for a cgroup and CPU.
pub(crate) struct Events {
    counters: Vec<Counter>,
    /// What those counted since the last count that are not asked any more.
    ended: u64,
}

/// An event of one CPU.
struct Counter {
    cpu: usize,
    sampler: Sampler,
    /// What it said last.
    seen: u64,
}

impl Counter {
    fn new(cpu: usize, sampler: Sampler) -> Self {
        Self { cpu, sampler, seen: 0 }
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").field("counters", &self.counters.len()).finish_non_exhaustive()
    }
}

impl Events {
    /// Of a process and its descendants; threads and processes that they start are counted with
    /// whoever starts them.
    ///
    /// # Errors
    /// Not permitted, no descriptors left, or no such process.
    pub(super) fn of_processes(processes: &mut Processes) -> io::Result<Self> {
        let cpus = online_cpus()?;
        let (mut counters, mut seen) = (Vec::new(), BTreeSet::new());
        for _ in 0..LISTINGS {
            let all = processes.threads()?;
            let new: Vec<i32> = all.difference(&seen).copied().collect();
            if new.is_empty() {
                return Ok(Self { counters, ended: 0 });
            }
            for tid in new {
                for &cpu in &cpus {
                    match open(|builder| builder.observe_pid(tid).inherit(true).one_cpu(cpu)) {
                        Ok(sampler) => counters.push(Counter::new(cpu, sampler)),
                        // The thread has ended, or the CPU.
                        Err(error) if is_gone(&error) => {}
                        Err(error) => return Err(error),
                    }
                }
                seen.insert(tid);
            }
        }
        Ok(Self { counters, ended: 0 })
    }

    /// # Errors
    /// Not permitted, or no descriptors left.
    pub(super) fn of_cgroup(folder: &File) -> io::Result<Self> {
        let mut counters = Vec::new();
        for cpu in online_cpus()? {
            match open(|builder| builder.observe_cgroup(folder).one_cpu(cpu)) {
                Ok(sampler) => counters.push(Counter::new(cpu, sampler)),
                Err(error) if is_gone(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Self { counters, ended: 0 })
    }

    /// Since the last count, at first since it was opened. Adds the CPUs on which something was
    /// switched.
    ///
    /// # Errors
    /// The kernel refuses to tell.
    pub(super) fn count(&mut self, used: &mut BTreeSet<usize>) -> io::Result<u64> {
        let mut new = std::mem::take(&mut self.ended);
        for Counter { cpu, sampler, seen } in &mut self.counters {
            // Into a full buffer nothing is written, and nobody is woken.
            while sampler.next_record().is_some() {}
            let count = sampler.as_counter_mut().read()?;
            let before = std::mem::replace(seen, count);
            if count != before {
                used.insert(*cpu);
            }
            new += count.saturating_sub(before);
        }
        Ok(new)
    }

    /// The threads of a descriptor, given by its number, have all ended. The last one's number is
    /// that of the removed one from then on.
    ///
    /// # Errors
    /// The kernel refuses to tell its count.
    pub(super) fn remove(&mut self, number: usize) -> io::Result<()> {
        let Counter { mut sampler, seen, .. } = self.counters.swap_remove(number);
        self.ended += sampler.as_counter_mut().read()?.saturating_sub(seen);
        Ok(())
    }

    pub(super) fn len(&self) -> usize {
        self.counters.len()
    }

    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.counters.iter().map(|counter| {
            // SAFETY: it is open for as long as the sampler, which is borrowed.
            unsafe { BorrowedFd::borrow_raw(counter.sampler.as_raw_fd()) }
        })
    }
}

fn open<'a>(
    of: impl for<'b> FnOnce(&'b mut Builder<'a>) -> &'b mut Builder<'a>,
) -> io::Result<Sampler> {
    let mut builder = Builder::new(Software::CONTEXT_SWITCHES);
    // A switch happens in the kernel.
    of(&mut builder).include_kernel().sample_period(PERIOD).wakeup_events(1).enabled(true);
    // One page.
    builder.build()?.sampled(1)
}

fn is_gone(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::SRCH | Errno::NODEV))
}
