//! Whether a hold by these files shortens a wake on this machine: measured at the first hold.
//!
//! If a hold gains nothing, the measurement is repeated later, because an idle driver may be loaded
//! by then, or because a busy machine may have caused the result.

use std::io;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::sched_getaffinity;

use super::held_cpus::HeldCpus;
use super::lines::Lines;
use crate::cpuidle::IdleDriver;
use crate::wake_cost::{Gain, Holding, start_thread};

/// After a no, the measurement is repeated after the first time, and then after twice as long, up
/// to the second.
const AGAIN: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(3600));

/// See the [module](self).
#[derive(Debug)]
pub(super) enum Worth {
    /// The administrator does not want a measurement.
    Unmeasured,
    NotYet,
    Gains(Gain),
    Useless {
        reason: String,
        again: Instant,
        pause: Duration,
    },
}

impl Worth {
    /// Nothing needs to be measured any more.
    pub(super) fn is_known(&self) -> bool {
        matches!(self, Self::Unmeasured | Self::Gains(_))
    }

    /// Checks whether a hold of these CPUs is worth its cost. The first call measures for some 60
    /// ms, in which two of the CPUs are held in turns. No other hold may exist meanwhile.
    ///
    /// # Errors
    /// Why not.
    pub(super) fn check(
        &mut self,
        cpus: &[usize],
        held: &mut HeldCpus,
        root: &Path,
        lines: &mut Lines,
    ) -> Result<(), String> {
        let pause = match self {
            Self::Unmeasured | Self::Gains(_) => return Ok(()),
            Self::Useless { again, reason, .. } if Instant::now() < *again => {
                return Err(reason.clone());
            }
            Self::Useless { pause, .. } => (*pause * 2).min(AGAIN.1),
            Self::NotYet => AGAIN.0,
        };
        // Joining another program's hold costs nothing, and shows nothing about the gain.
        if cpus.iter().any(|cpu| held.is_held_by_others(*cpu)) {
            return Ok(());
        }
        *self = match gain(cpus, held, root, lines) {
            Ok(gain) => {
                lines.note(format_args!(
                    "a wake takes {:.1?} here, with its CPU held {:.1?}",
                    gain.unheld, gain.held
                ));
                Self::Gains(gain)
            }
            Err(reason) => {
                lines.trouble(format_args!("no CPU is held: {reason}"));
                Self::Useless { reason, again: Instant::now() + pause, pause }
            }
        };
        match self {
            Self::Useless { reason, .. } => Err(reason.clone()),
            _ => Ok(()),
        }
    }
}

/// # Errors
/// There is no gain, or it cannot be measured.
fn gain(
    cpus: &[usize],
    held: &mut HeldCpus,
    root: &Path,
    lines: &mut Lines,
) -> Result<Gain, String> {
    let driver = IdleDriver::read_from(root, Path::new("/sys/module/haltpoll/parameters"));
    if driver.driver.is_none() || driver.states.is_empty() {
        return Err(
            "nothing is gained: without an idle driver, a hold does not keep CPUs from halting \
            (a KVM guest may get one: modprobe cpuidle-haltpoll force=1)"
                .to_owned(),
        );
    }
    let gain = measure(cpus, held, lines)
        .map_err(|error| format!("what is gained cannot be measured: {error}"))?;
    if gain.is_worth_it() {
        Ok(gain)
    } else {
        let Gain { unheld, held, .. } = gain;
        Err(format!("nothing is gained: a wake takes {unheld:.1?}, with its CPU held {held:.1?}"))
    }
}

fn measure(cpus: &[usize], held: &mut HeldCpus, lines: &mut Lines) -> io::Result<Gain> {
    let allowed = sched_getaffinity(None)?;
    let usable = cpus.iter().copied().filter(|cpu| allowed.is_set(*cpu));
    let two: Vec<usize> = usable.take(2).collect();
    if two.is_empty() {
        return Err(io::Error::other("the keeper may run on none of the CPUs that it may hold"));
    }
    let mut both = Both { cpus: &two, held, lines };
    // This runs on a separate thread, because the measurement leaves it pinned.
    let gain = thread::scope(|scope| {
        let measuring = thread::Builder::new()
            .spawn_scoped(scope, || Gain::measure_by(&mut both, Some(&two), start_thread))?;
        measuring
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("the thread that measures has panicked")))
    });
    // This also runs after an error between a hold and its release.
    both.release()?;
    gain
}

/// The CPUs of the measurement.
struct Both<'a> {
    cpus: &'a [usize],
    held: &'a mut HeldCpus,
    lines: &'a mut Lines,
}

impl Holding for Both<'_> {
    fn hold(&mut self) -> io::Result<()> {
        self.held.bring(self.cpus, self.cpus, |_| Some(0), self.lines).map_err(io::Error::other)
    }

    fn release(&mut self) -> io::Result<()> {
        self.held.bring(self.cpus, &[], |_| None, self.lines).map_err(io::Error::other)
    }
}
