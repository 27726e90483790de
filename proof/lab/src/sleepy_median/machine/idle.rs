//! How long CPUs were idle in which way, from cpuidle. The kernel counts a stay once it is over, so
//! the last stay of a CPU that sleeps long is missing.

use std::fs;
use std::path::Path;
use std::time::Duration;

pub(super) const CPUS: &str = "/sys/devices/system/cpu";

/// The idle time of several CPUs together, since boot or between two readings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct IdleTime {
    pub(super) polling: Duration,
    pub(super) halted: Duration,
}

impl IdleTime {
    pub(super) fn since(self, earlier: Self) -> Self {
        Self {
            polling: self.polling.saturating_sub(earlier.polling),
            halted: self.halted.saturating_sub(earlier.halted),
        }
    }
}

/// Returns `None` if a CPU has no idle driver, or if sysfs does not report it.
pub(super) fn read(root: &Path, cpus: &[usize]) -> Option<IdleTime> {
    let mut all = IdleTime::default();
    for cpu in cpus {
        let states = root.join(format!("cpu{cpu}/cpuidle"));
        let states = (0..).map(|number| states.join(format!("state{number}")));
        let mut states = states.take_while(|state| state.is_dir()).peekable();
        states.peek()?;
        for state in states {
            let time = Duration::from_micros(word(&state.join("time"))?.parse().ok()?);
            // `POLL` is the one state in which a CPU does not stop, whatever the driver.
            match word(&state.join("name"))?.as_str() {
                "POLL" => all.polling += time,
                _ => all.halted += time,
            }
        }
    }
    Some(all)
}

/// Describes for the reader what decides how CPUs idle on this machine.
pub(in super::super) fn how_cpus_idle() -> String {
    let asked = |path: &str| word(Path::new(path)).unwrap_or_else(|| "none".to_owned());
    let (driver, governor) = (
        asked("/sys/devices/system/cpu/cpuidle/current_driver"),
        asked("/sys/devices/system/cpu/cpuidle/current_governor_ro"),
    );
    let polls = word(Path::new("/sys/module/haltpoll/parameters/guest_halt_poll_ns"));
    let polls = polls.map(|limit| format!(", guest_halt_poll_ns {limit}")).unwrap_or_default();
    format!("How CPUs idle here: driver {driver}, governor {governor}{polls}.")
}

fn word(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn polling_is_told_from_all_that_halts() {
        let scratch = Scratch::new().unwrap();
        let root = scratch.path();
        let put = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let states = [("cpu0", 0, "POLL", 7), ("cpu0", 1, "C1", 20), ("cpu0", 2, "C6", 300)];
        for (cpu, number, name, time) in states.into_iter().chain([("cpu3", 0, "POLL", 5)]) {
            put(&format!("{cpu}/cpuidle/state{number}/name"), &format!("{name}\n"));
            put(&format!("{cpu}/cpuidle/state{number}/time"), &format!("{time}\n"));
        }
        let time = |polling, halted| IdleTime {
            polling: Duration::from_micros(polling),
            halted: Duration::from_micros(halted),
        };
        assert_eq!(read(root, &[0]), Some(time(7, 320)));
        assert_eq!(read(root, &[0, 3]), Some(time(12, 320)));
        assert_eq!(read(root, &[0, 1]), None, "a CPU without states");
        assert_eq!(time(12, 320).since(time(7, 330)), time(5, 0));
    }
}
