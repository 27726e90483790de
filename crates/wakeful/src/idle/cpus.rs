//! At most one spinning loop per CPU: a process with more loops than CPUs, or with a smaller
//! affinity mask than before, must not compete with itself.
//!
//! Each CPU has a place, which the loop that spins there takes. A loop that finds the place taken
//! does not wait for it; it sleeps instead.

use std::sync::atomic::{AtomicU32, Ordering};

use crossbeam_utils::CachePadded;

use crate::sys::fork_check::Process;
use crate::sys::thread;

/// Loops on CPUs with higher numbers do not spin.
const MOST: usize = 1024;

/// 0, or the stamp of the process whose loop spins on this CPU. The stamp is needed because a
/// forked child inherits the memory, but not the loops.
static PLACES: [CachePadded<AtomicU32>; MOST] =
    [const { CachePadded::new(AtomicU32::new(0)) }; MOST];

/// The place that a loop has, if it has one. Dropping it gives the place up.
#[derive(Debug)]
pub(super) struct Place {
    cpu: Option<usize>,
    stamp: u32,
}

impl Place {
    pub(super) fn new(process: Process) -> Self {
        Self { cpu: None, stamp: process.stamp() }
    }

    /// The stamp of the process to which the loop belongs.
    pub(super) fn stamp(&self) -> u32 {
        self.stamp
    }

    /// Takes the place of the CPU on which this thread runs. `false`: another loop spins there.
    #[inline]
    pub(super) fn take(&mut self) -> bool {
        let here = thread::current_cpu();
        if self.cpu.is_some() && self.cpu == here {
            return true;
        }
        self.give_up();
        let place = here.and_then(|cpu| PLACES.get(cpu));
        let taken = place.is_some_and(|place| {
            let now = place.load(Ordering::Relaxed);
            // `Relaxed` is enough: if two loops err, they spin beside each other for one window.
            now != self.stamp
                && place
                    .compare_exchange(now, self.stamp, Ordering::Relaxed, Ordering::Relaxed)
                    .is_ok()
        });
        self.cpu = here.filter(|_| taken);
        taken
    }

    #[inline]
    pub(super) fn give_up(&mut self) {
        if let Some(cpu) = self.cpu.take() {
            // In a forked child the place may belong to another loop by now.
            let (ours, free) = (self.stamp, 0);
            let _ = PLACES[cpu].compare_exchange(ours, free, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.give_up();
    }
}

#[cfg(all(test, not(wakeful_loom)))]
mod tests {
    use super::*;

    #[test]
    fn an_inherited_place_is_not_the_child_s_to_give_up() {
        let (cpu, parent, child) = (MOST - 1, 1, 2);
        let inherited = Place { cpu: Some(cpu), stamp: parent };
        PLACES[cpu].store(child, Ordering::Relaxed);
        drop(inherited);
        assert_eq!(PLACES[cpu].load(Ordering::Relaxed), child);
        drop(Place { cpu: Some(cpu), stamp: child });
        assert_eq!(PLACES[cpu].load(Ordering::Relaxed), 0);
    }
}
