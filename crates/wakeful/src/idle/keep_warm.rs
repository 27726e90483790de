//! Threads of the lowest kind (SCHED_IDLE) that keep CPUs from halting: one for each CPU on which a
//! loop with [`IdlePolicy::KeepWarm`](super::IdlePolicy::KeepWarm) may run, for the whole process.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::thread::CpuSet;

use crate::sys::fork_check::Process;
use crate::sys::panics;
use crate::sys::thread::{allowed_cpus, pin_to, run_only_when_idle, start_thread, without_signals};

/// A [`Warm`] for each CPU. There is no lock, because a forked child would inherit it locked,
/// without the thread that unlocks it.
static WARM: [AtomicU64; CpuSet::MAX_CPU] = [const { AtomicU64::new(0) }; CpuSet::MAX_CPU];

/// The number of bits that count the loops that use a CPU's thread.
const USERS: u32 = 20;
/// The number of bits for the thread's number. The number distinguishes a thread that has not yet
/// noticed its end from the next one.
const NUMBER: u32 = 12;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Warm {
    /// The stamp of the process. A forked child has none of its parent's threads.
    stamp: u32,
    number: u32,
    users: u32,
}

impl Warm {
    fn unpack(word: u64) -> Self {
        let low = word as u32;
        Self { stamp: (word >> 32) as u32, number: low >> USERS, users: low & ((1 << USERS) - 1) }
    }

    fn pack(self) -> u64 {
        (u64::from(self.stamp) << 32) | u64::from((self.number << USERS) | self.users)
    }

    /// Adds a user. The caller starts a thread if it is the first user.
    fn join(self, stamp: u32) -> Option<Self> {
        if self.stamp == stamp && self.users > 0 {
            let users = self.users + 1;
            return (users < 1 << USERS).then_some(Self { users, ..self });
        }
        Some(Self { stamp, number: (self.number + 1) % (1 << NUMBER), users: 1 })
    }

    fn leave(self, stamp: u32) -> Option<Self> {
        let users = self.users.checked_sub(1)?;
        (self.stamp == stamp).then_some(Self { users, ..self })
    }
}

/// Keeps the CPUs warm on which this thread may run, until it is dropped.
#[derive(Debug)]
pub(crate) struct KeepWarm {
    stamp: u32,
    cpus: Vec<usize>,
}

impl KeepWarm {
    /// # Errors
    /// The affinity mask cannot be read, or no thread be started.
    pub(crate) fn begin(process: Process) -> io::Result<Self> {
        let mut kept = Self { stamp: process.stamp(), cpus: Vec::new() };
        for cpu in allowed_cpus()? {
            kept.keep(cpu)?;
        }
        Ok(kept)
    }

    fn keep(&mut self, cpu: usize) -> io::Result<()> {
        let before = update(cpu, |warm| warm.join(self.stamp))
            .ok_or_else(|| io::Error::other("too many loops keep a CPU warm"))?;
        self.cpus.push(cpu);
        match before.join(self.stamp) {
            Some(warm) if warm.users == 1 => start(cpu, warm),
            _ => Ok(()),
        }
    }
}

impl Drop for KeepWarm {
    fn drop(&mut self) {
        // The threads are not joined. A thread ends only when it next gets its CPU, which other
        // threads may need for long.
        for &cpu in &self.cpus {
            update(cpu, |warm| warm.leave(self.stamp));
        }
    }
}

/// Returns the previous value. `Relaxed` is enough, because a thread that ends late only spins a
/// little longer.
fn update(cpu: usize, with: impl Fn(Warm) -> Option<Warm>) -> Option<Warm> {
    let with = |word| with(Warm::unpack(word)).map(Warm::pack);
    WARM[cpu].fetch_update(Ordering::Relaxed, Ordering::Relaxed, with).ok().map(Warm::unpack)
}

fn start(cpu: usize, own: Warm) -> io::Result<()> {
    let is_used = move || {
        let now = Warm::unpack(WARM[cpu].load(Ordering::Relaxed));
        now.users > 0 && Warm { users: own.users, ..now } == own
    };
    let warm = move || {
        // On another CPU, or with ordinary priority, the thread would do harm.
        let prepared = run_only_when_idle().and_then(|()| pin_to([cpu]));
        if let Err(error) = prepared {
            panics::log!(warn, %error, cpu, "cannot keep a CPU warm");
            return;
        }
        while is_used() {
            std::hint::spin_loop();
        }
    };
    without_signals(|| start_thread(&format!("wakeful-warm-{cpu}"), warm)).map(|_| ())
}

#[cfg(all(test, not(wakeful_loom)))]
mod tests {
    use super::*;

    #[test]
    fn users_come_and_go_and_a_fork_begins_anew() {
        let (parent, child) = (1, 2);
        let first = Warm::unpack(0).join(parent).unwrap();
        let second = first.join(parent).unwrap();
        assert_eq!((first.users, second.users, second.number), (1, 2, first.number));
        assert_eq!(Warm::unpack(second.pack()), second);
        let forked = second.join(child).unwrap();
        assert_eq!((forked.users, forked.stamp), (1, child));
        assert_eq!(forked.leave(parent), None, "what was inherited is not the child's");
        let none = second.leave(parent).and_then(|warm| warm.leave(parent)).unwrap();
        assert_eq!(none.leave(parent), None);
        assert_ne!(none.join(parent).unwrap().number, first.number);
        let last = Warm { stamp: parent, number: (1 << NUMBER) - 1, users: (1 << USERS) - 1 };
        assert_eq!((last.join(parent), last.join(child).unwrap().number), (None, 0));
    }
}
