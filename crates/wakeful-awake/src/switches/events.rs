//! Context switches as the kernel counts them. There are events for each CPU, because an event that
//! new threads inherit can wake a reader only if it belongs to one CPU.
#![allow(unsafe_code)]

use std::collections::BTreeSet;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::slice;
use std::sync::atomic::AtomicU64;

use perf_event::events::Software;
use perf_event::{Builder, Sampler};
use rustix::io::Errno;

use super::processes::Processes;
use crate::fork_gate::{Gated, Places};
use crate::machine::online_cpus;

/// An event wakes its reader once per this many switches of a thread on a CPU. It is not a power of
/// two, so that it does not coincide with switches that come in pairs.
const PERIOD: u64 = 13;
/// The kind of the error for more threads than there may be events. No call returns it here.
const TOO_MANY: io::ErrorKind = io::ErrorKind::QuotaExceeded;
/// How often the threads are listed, until no new one is found.
const LISTINGS: usize = 8;

/// The events: one for each thread and CPU, or for a cgroup and CPU.
pub(crate) struct Events {
    counters: Vec<Counter>,
    /// The CPUs that were online at the open. Switches on another CPU are not counted.
    cpus: Vec<usize>,
    /// The switches since the last count of events that are not read any more.
    ended: u64,
    /// The places for the numbers of the next events, which a forked child closes.
    places: slice::Iter<'static, AtomicU64>,
}

/// An event of one CPU.
struct Counter {
    cpu: usize,
    event: Gated<Event>,
    /// The last value that was read.
    seen: u64,
}

impl Counter {
    fn new(cpu: usize, event: Gated<Event>) -> Self {
        Self { cpu, event, seen: 0 }
    }
}

struct Event(Sampler);

impl Event {
    fn count(&mut self) -> io::Result<u64> {
        self.0.as_counter_mut().read()
    }
}

impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: it is open for as long as the sampler, which is borrowed.
        unsafe { BorrowedFd::borrow_raw(self.0.as_raw_fd()) }
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").field("counters", &self.counters.len()).finish_non_exhaustive()
    }
}

impl Events {
    /// Opens events for a process and its descendants, at most `most`. Threads and processes that
    /// they start are counted with the thread that starts them. The numbers of the descriptors are
    /// in `places`, as far as there is room.
    ///
    /// # Errors
    /// Not permitted, no descriptors left, no such process, or more threads than `most` suffices
    /// for.
    pub(super) fn of_processes(
        processes: &mut Processes,
        most: usize,
        places: Places,
    ) -> io::Result<Self> {
        let (mut events, mut seen) = (Self::none(online_cpus()?, places), BTreeSet::new());
        for _ in 0..LISTINGS {
            let all = processes.threads()?;
            let new: Vec<i32> = all.difference(&seen).copied().collect();
            if new.is_empty() {
                break;
            }
            if (seen.len() + new.len()).saturating_mul(events.cpus.len()) > most {
                return Err(io::Error::new(TOO_MANY, "there are too many threads"));
            }
            for tid in new {
                events.add(|builder| builder.observe_pid(tid).inherit(true))?;
                seen.insert(tid);
            }
        }
        Ok(events)
    }

    /// # Errors
    /// Not permitted, or no descriptors left.
    pub(super) fn of_cgroup(folder: &File, places: Places) -> io::Result<Self> {
        let mut events = Self::none(online_cpus()?, places);
        events.add(|builder| builder.observe_cgroup(folder))?;
        Ok(events)
    }

    fn none(cpus: Vec<usize>, places: Places) -> Self {
        Self { counters: Vec::new(), cpus, ended: 0, places: places.iter() }
    }

    /// Adds an event for each CPU. It adds none if the thread has ended, and none for a CPU that is
    /// gone.
    fn add<'a>(
        &mut self,
        of: impl for<'b> Fn(&'b mut Builder<'a>) -> &'b mut Builder<'a>,
    ) -> io::Result<()> {
        for &cpu in &self.cpus {
            let open = || open(|builder| of(builder).one_cpu(cpu));
            match Gated::open(self.places.next(), open) {
                Ok(event) => self.counters.push(Counter::new(cpu, event)),
                Err(error) if is_gone(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Are there events for these CPUs, and for no other?
    pub(super) fn are_of(&self, cpus: &[usize]) -> bool {
        self.cpus == cpus
    }

    /// Counts the switches since the last count, or since the events were opened. Adds the CPUs on
    /// which there were switches.
    ///
    /// # Errors
    /// The kernel refuses to tell the count.
    pub(super) fn count(&mut self, used: &mut BTreeSet<usize>) -> io::Result<u64> {
        let mut new = std::mem::take(&mut self.ended);
        for Counter { cpu, event, seen } in &mut self.counters {
            // If the buffer is full, the kernel writes nothing, and wakes nobody.
            while event.0.next_record().is_some() {}
            let count = event.count()?;
            let before = std::mem::replace(seen, count);
            if count != before {
                used.insert(*cpu);
            }
            new += count.saturating_sub(before);
        }
        Ok(new)
    }

    /// Called when all threads of an event have ended, which is given by its place. The last event
    /// then takes the place of the removed one.
    ///
    /// # Errors
    /// The kernel refuses to tell its count.
    pub(super) fn remove(&mut self, number: usize) -> io::Result<()> {
        let Counter { mut event, seen, .. } = self.counters.swap_remove(number);
        self.ended += event.count()?.saturating_sub(seen);
        Ok(())
    }

    pub(super) fn len(&self) -> usize {
        self.counters.len()
    }

    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.counters.iter().map(|counter| counter.event.as_fd())
    }
}

fn open<'a>(
    of: impl for<'b> FnOnce(&'b mut Builder<'a>) -> &'b mut Builder<'a>,
) -> io::Result<Event> {
    let mut builder = Builder::new(Software::CONTEXT_SWITCHES);
    // A switch happens in the kernel, so kernel events must be counted.
    of(&mut builder).include_kernel().sample_period(PERIOD).wakeup_events(1).enabled(true);
    // One page.
    Ok(Event(builder.build()?.sampled(1)?))
}

/// Is this the error of [`Events::of_processes`] for too many threads?
pub(super) fn are_too_many(error: &io::Error) -> bool {
    error.kind() == TOO_MANY
}

fn is_gone(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::SRCH | Errno::NODEV))
}
