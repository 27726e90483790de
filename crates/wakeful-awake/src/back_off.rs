//! When CPUs are not held although it would shorten wakes: on battery, and while the hypervisor
//! gives this machine's CPUs to others (steal time), which a CPU that polls makes worse.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The kernel's counts are read no more often than this.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// CPUs are not held if more than this percentage of their time was stolen since the last check.
const MOST_STOLEN: u8 = 10;
/// How long CPUs are then not held.
const PAUSE: Duration = Duration::from_secs(10);
const CPU_TIMES: &str = "/proc/stat";
const POWER_SUPPLIES: &str = "/sys/class/power_supply";

/// The reason why CPUs are not held now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reluctance {
    /// The machine runs on battery.
    OnBattery,
    /// The hypervisor took this percentage of the CPUs' time, between two checks that were at least
    /// a second apart.
    Stolen(u8),
}

impl fmt::Display for Reluctance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OnBattery => f.write_str("the machine runs on its battery"),
            Self::Stolen(percent) => {
                write!(f, "the hypervisor took {percent} % of the CPUs' time")
            }
        }
    }
}

/// Checks, at most once per second, for reasons not to hold CPUs.
#[derive(Debug)]
pub struct BackOff {
    cpu_times: PathBuf,
    power_supplies: PathBuf,
    looked: Option<Instant>,
    times: Option<CpuTimes>,
    until: Option<Instant>,
    found: Option<Reluctance>,
}

impl Default for BackOff {
    fn default() -> Self {
        Self::new()
    }
}

impl BackOff {
    /// Makes a checker that has not checked anything yet.
    #[must_use]
    pub fn new() -> Self {
        Self::of(CPU_TIMES.into(), POWER_SUPPLIES.into())
    }

    pub(crate) fn of(cpu_times: PathBuf, power_supplies: PathBuf) -> Self {
        Self { cpu_times, power_supplies, looked: None, times: None, until: None, found: None }
    }

    /// When the next check may find something new. `None` before the first check.
    #[cfg(feature = "keeper")]
    pub(crate) fn next_look(&self) -> Option<Instant> {
        self.looked.map(|looked| looked + LOOK_EVERY)
    }

    /// Returns why CPUs should not be held at `now`, or `None` if they may be held. If the last
    /// check is at least a second old, it reads the kernel's files again.
    pub fn look(&mut self, now: Instant) -> Option<Reluctance> {
        let is_due = self.looked.is_none_or(|looked| now.duration_since(looked) >= LOOK_EVERY);
        if is_due {
            self.looked = Some(now);
            let times =
                fs::read_to_string(&self.cpu_times).ok().and_then(|text| CpuTimes::read(&text));
            self.decide(now, times, is_on_battery(&self.power_supplies));
        }
        self.found
    }

    fn decide(&mut self, now: Instant, times: Option<CpuTimes>, on_battery: bool) {
        let before = std::mem::replace(&mut self.times, times);
        let stolen = before.zip(times).map_or(0, |(before, times)| times.stolen_since(before));
        if stolen > MOST_STOLEN {
            self.until = Some(now + PAUSE);
            self.found = Some(Reluctance::Stolen(stolen));
        } else if self.until.is_none_or(|until| now >= until) {
            self.until = None;
            self.found = on_battery.then_some(Reluctance::OnBattery);
        }
    }
}

/// The time of all CPUs since the machine started, in the kernel's ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CpuTimes {
    all: u64,
    stolen: u64,
}

impl CpuTimes {
    /// The first line of `/proc/stat` (proc_stat(5)): user, nice, system, idle, iowait, irq,
    /// softirq, steal. What follows is in user and nice already.
    fn read(text: &str) -> Option<Self> {
        let numbers = text.lines().next()?.strip_prefix("cpu ")?;
        let numbers: Option<Vec<u64>> =
            numbers.split_whitespace().take(8).map(|number| number.parse().ok()).collect();
        let numbers = numbers.filter(|numbers| numbers.len() == 8)?;
        Some(Self { all: numbers.iter().sum(), stolen: numbers[7] })
    }

    /// In percent.
    fn stolen_since(self, before: Self) -> u8 {
        let all = self.all.saturating_sub(before.all).max(1);
        let stolen = self.stolen.saturating_sub(before.stolen);
        u8::try_from(stolen.saturating_mul(100) / all).unwrap_or(100)
    }
}

/// Is a battery discharging, while no mains supply is online?
fn is_on_battery(supplies: &Path) -> bool {
    let Ok(entries) = fs::read_dir(supplies) else { return false };
    let mut discharges = false;
    for entry in entries.flatten() {
        let is = |file: &str, value: &str| {
            let text = fs::read_to_string(entry.path().join(file));
            text.is_ok_and(|text| text.trim() == value)
        };
        // Devices such as a mouse have batteries, too.
        if is("scope", "Device") {
            continue;
        }
        if (is("type", "Mains") || is("type", "USB")) && is("online", "1") {
            return false;
        }
        discharges |= is("type", "Battery") && is("status", "Discharging");
    }
    discharges
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "cpu  100 0 50 800 5 0 5 40 0 0\ncpu0 1 2 3\n";

    #[test]
    fn the_time_of_all_cpus_is_read() {
        assert_eq!(CpuTimes::read(STAT), Some(CpuTimes { all: 1000, stolen: 40 }));
        for text in ["", "cpu0 1 2 3 4 5 6 7 8", "cpu  1 2 3", "cpu  a 2 3 4 5 6 7 8"] {
            assert_eq!(CpuTimes::read(text), None, "{text:?}");
        }
    }

    #[test]
    fn stolen_time_ends_holds_for_a_while() {
        let (mut back_off, start) = (BackOff::new(), Instant::now());
        let mut decide = |seconds, all, stolen| {
            let times = Some(CpuTimes { all, stolen });
            back_off.decide(start + Duration::from_secs(seconds), times, false);
            back_off.found
        };
        assert_eq!(decide(0, 1_000, 900), None, "what was before is none of ours");
        assert_eq!(decide(1, 1_200, 910), None);
        assert_eq!(decide(2, 1_400, 950), Some(Reluctance::Stolen(20)));
        assert_eq!(decide(3, 1_600, 950), Some(Reluctance::Stolen(20)), "for a while");
        assert_eq!(decide(12, 3_600, 950), None);
    }

    #[test]
    fn a_battery_that_discharges_is_no_place_for_a_hold() {
        let folder = std::env::temp_dir().join(format!("wakeful-supply-{}", std::process::id()));
        let supply = |name: &str, files: &[(&str, &str)]| {
            fs::create_dir_all(folder.join(name)).unwrap();
            for (file, text) in files {
                fs::write(folder.join(name).join(file), text).unwrap();
            }
        };
        assert!(!is_on_battery(&folder));
        supply(
            "mouse",
            &[("type", "Battery\n"), ("status", "Discharging\n"), ("scope", "Device\n")],
        );
        assert!(!is_on_battery(&folder));
        supply("BAT0", &[("type", "Battery\n"), ("status", "Discharging\n")]);
        assert!(is_on_battery(&folder));
        supply("AC", &[("type", "Mains\n"), ("online", "1\n")]);
        assert!(!is_on_battery(&folder));
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn the_kernel_is_asked_once_a_second() {
        let (mut back_off, now) = (BackOff::new(), Instant::now());
        back_off.look(now);
        back_off.look(now + Duration::from_millis(999));
        assert_eq!(back_off.looked, Some(now));
        back_off.look(now + Duration::from_secs(1));
        assert_eq!(back_off.looked, Some(now + Duration::from_secs(1)));
    }
}
