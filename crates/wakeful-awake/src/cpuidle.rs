//! How the kernel's idle CPUs sleep: its driver, and the states of a CPU.

use std::fs;
use std::path::Path;
use std::time::Duration;

const CPU: &str = "/sys/devices/system/cpu";

/// The kernel's driver and governor for idle CPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdleDriver {
    /// `intel_idle`, `acpi_idle`, `haltpoll`, …, or `None` if there is no driver, and idle CPUs
    /// halt.
    pub driver: Option<String>,
    /// The governor that chooses the idle state: `menu`, `teo`, `haltpoll`, ….
    pub governor: Option<String>,
    /// The idle states of the first CPU that reports any, the shallowest first.
    pub states: Vec<IdleState>,
    /// With `haltpoll`: how long an idle CPU of a virtual machine polls before it halts.
    pub guest_halt_poll: Option<Duration>,
}

/// An idle state of a CPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdleState {
    /// `POLL`, `C1`, `C6`, ….
    pub name: String,
    /// How long a CPU takes to leave this state.
    pub exit_latency: Duration,
    /// Whether the machine's administrator has disabled this state.
    pub is_disabled: bool,
}

impl IdleDriver {
    /// Reads all values from sysfs. Missing values are `None` or empty.
    #[must_use]
    pub fn read() -> Self {
        Self::read_from(Path::new(CPU), Path::new("/sys/module/haltpoll/parameters"))
    }

    pub(crate) fn read_from(cpu: &Path, haltpoll: &Path) -> Self {
        let named =
            |name: &str| word(&cpu.join("cpuidle").join(name)).filter(|name| name != "none");
        let states = (0..16).map_while(|number| {
            let state = cpu.join("cpu0/cpuidle").join(format!("state{number}"));
            Some(IdleState {
                name: word(&state.join("name"))?,
                exit_latency: Duration::from_micros(number_in(&state.join("latency"))?),
                is_disabled: number_in(&state.join("disable")) != Some(0),
            })
        });
        Self {
            driver: named("current_driver"),
            governor: named("current_governor").or_else(|| named("current_governor_ro")),
            states: states.collect(),
            guest_halt_poll: number_in(&haltpoll.join("guest_halt_poll_ns"))
                .map(Duration::from_nanos),
        }
    }
}

fn word(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

fn number_in(path: &Path) -> Option<u64> {
    word(path)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_sysfs_does_not_say_is_not_there() {
        let nowhere = Path::new("/nonexistent");
        let driver = IdleDriver::read_from(nowhere, nowhere);
        let nothing =
            IdleDriver { driver: None, governor: None, states: Vec::new(), guest_halt_poll: None };
        assert_eq!(driver, nothing);
    }

    #[test]
    fn driver_and_states_are_read() {
        let root =
            std::env::temp_dir().join(format!("wakeful-awake-cpuidle-{}", std::process::id()));
        let put = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put("cpuidle/current_driver", "intel_idle\n");
        put("cpuidle/current_governor_ro", "menu\n");
        for (number, name, latency, disable) in [(0, "POLL", "0", "0"), (1, "C6", "133", "1")] {
            put(&format!("cpu0/cpuidle/state{number}/name"), &format!("{name}\n"));
            put(&format!("cpu0/cpuidle/state{number}/latency"), &format!("{latency}\n"));
            put(&format!("cpu0/cpuidle/state{number}/disable"), &format!("{disable}\n"));
        }
        put("haltpoll/guest_halt_poll_ns", "200000\n");
        let driver = IdleDriver::read_from(&root, &root.join("haltpoll"));
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(driver.driver.as_deref(), Some("intel_idle"));
        assert_eq!(driver.governor.as_deref(), Some("menu"));
        assert_eq!(driver.guest_halt_poll, Some(Duration::from_micros(200)));
        let state = |name: &str, micros, is_disabled| IdleState {
            name: name.to_owned(),
            exit_latency: Duration::from_micros(micros),
            is_disabled,
        };
        assert_eq!(driver.states, [state("POLL", 0, false), state("C6", 133, true)]);
    }
}
