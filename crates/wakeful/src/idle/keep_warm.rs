//! Threads of the lowest kind (SCHED_IDLE) that keep CPUs from halting: one for each CPU on which a loop with
//! [`IdlePolicy::KeepWarm`](super::IdlePolicy::KeepWarm) may run, for the whole process.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use crate::driver::home::Home;
use crate::driver::thread::{allowed_cpus, pin_to, run_only_when_idle};

/// By process (a forked child has none of its parent's threads) and CPU.
static WARM: Mutex<BTreeMap<(u32, usize), Warm>> = Mutex::new(BTreeMap::new());

struct Warm {
    users: usize,
    stop: Arc<AtomicBool>,
}

/// Keeps the CPUs warm on which this thread may run, as long as it lives.
#[derive(Debug)]
pub(crate) struct KeepWarm {
    stamp: u32,
    cpus: Vec<usize>,
}

impl KeepWarm {
    /// # Errors
    /// The affinity mask cannot be read, or no thread be started.
    pub(crate) fn begin(home: Home) -> io::Result<Self> {
        let mut kept = Self { stamp: home.stamp(), cpus: Vec::new() };
        for cpu in allowed_cpus()? {
            kept.keep(cpu)?;
        }
        Ok(kept)
    }

    fn keep(&mut self, cpu: usize) -> io::Result<()> {
        let mut warm = WARM.lock().unwrap_or_else(PoisonError::into_inner);
        match warm.get_mut(&(self.stamp, cpu)) {
            Some(kept) => kept.users += 1,
            None => {
                let stop = Arc::new(AtomicBool::new(false));
                start(cpu, stop.clone())?;
                warm.insert((self.stamp, cpu), Warm { users: 1, stop });
            }
        }
        self.cpus.push(cpu);
        Ok(())
    }
}

impl Drop for KeepWarm {
    fn drop(&mut self) {
        let mut warm = WARM.lock().unwrap_or_else(PoisonError::into_inner);
        for &cpu in &self.cpus {
            let Some(kept) = warm.get_mut(&(self.stamp, cpu)) else { continue };
            kept.users -= 1;
            if kept.users == 0 {
                // Not joined: it ends when it next gets its CPU, which somebody else may need for long.
                kept.stop.store(true, Ordering::Relaxed);
                warm.remove(&(self.stamp, cpu));
            }
        }
    }
}

fn start(cpu: usize, stop: Arc<AtomicBool>) -> io::Result<()> {
    let warm = move || {
        // Elsewhere, or as an ordinary thread, it would do harm.
        let prepared = run_only_when_idle().and_then(|()| pin_to([cpu]));
        if let Err(error) = prepared {
            tracing::warn!(%error, cpu, "cannot keep a CPU warm");
            return;
        }
        while !stop.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
    };
    thread::Builder::new().name(format!("wakeful-warm-{cpu}")).spawn(warm)?;
    Ok(())
}
