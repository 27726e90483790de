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

use super::processes::threads;
use crate::machine::online_cpus;

/// It wakes whoever waits once in so many switches of a thread on a CPU: not a power of two, so
/// that it does not beat with what comes in pairs.
const PERIOD: u64 = 13;
/// How often the threads are listed until no new one is found.
const LISTINGS: usize = 8;

/// One event for each thread and CPU, or for a cgroup and CPU.
pub(crate) struct Events {
    samplers: Vec<Sampler>,
    /// What those counted that are not asked any more.
    ended: u64,
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").field("samplers", &self.samplers.len()).finish_non_exhaustive()
    }
}

impl Events {
    /// Of a process and its descendants; threads and processes that they start are counted with
    /// whoever starts them.
    ///
    /// # Errors
    /// Not permitted, no descriptors left, or no such process.
    pub(super) fn of_process(pid: i32) -> io::Result<Self> {
        let cpus = online_cpus()?;
        let (mut samplers, mut seen) = (Vec::new(), BTreeSet::new());
        for _ in 0..LISTINGS {
            let all = threads(pid)?;
            let new: Vec<i32> = all.difference(&seen).copied().collect();
            if new.is_empty() {
                return Ok(Self { samplers, ended: 0 });
            }
            for tid in new {
                for &cpu in &cpus {
                    match open(|builder| builder.observe_pid(tid).inherit(true).one_cpu(cpu)) {
                        Ok(sampler) => samplers.push(sampler),
                        // The thread has ended, or the CPU.
                        Err(error) if is_gone(&error) => {}
                        Err(error) => return Err(error),
                    }
                }
                seen.insert(tid);
            }
        }
        Ok(Self { samplers, ended: 0 })
    }

    /// # Errors
    /// Not permitted, or no descriptors left.
    pub(super) fn of_cgroup(folder: &File) -> io::Result<Self> {
        let mut samplers = Vec::new();
        for cpu in online_cpus()? {
            match open(|builder| builder.observe_cgroup(folder).one_cpu(cpu)) {
                Ok(sampler) => samplers.push(sampler),
                Err(error) if is_gone(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Self { samplers, ended: 0 })
    }

    /// Since it was opened.
    ///
    /// # Errors
    /// The kernel refuses to tell.
    pub(super) fn count(&mut self) -> io::Result<u64> {
        let mut total = self.ended;
        for sampler in &mut self.samplers {
            // Into a full buffer nothing is written, and nobody is woken.
            while sampler.next_record().is_some() {}
            total += sampler.as_counter_mut().read()?;
        }
        Ok(total)
    }

    /// The threads of a descriptor, given by its number, have all ended. The last one's number is
    /// that of the removed one from then on.
    ///
    /// # Errors
    /// The kernel refuses to tell its count.
    pub(super) fn remove(&mut self, number: usize) -> io::Result<()> {
        self.ended += self.samplers.swap_remove(number).as_counter_mut().read()?;
        Ok(())
    }

    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.samplers.iter().map(|sampler| {
            // SAFETY: it is open for as long as the sampler, which is borrowed.
            unsafe { BorrowedFd::borrow_raw(sampler.as_raw_fd()) }
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
