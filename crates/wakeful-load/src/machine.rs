//! Describes the machine and its settings, so that readers can judge the figures.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::affinity::online_cpus;
use crate::results::Machine;

const UNKNOWN: &str = "unknown";

/// Describes this machine as it is now. A value that cannot be found out is `unknown`, or 0 if it
/// is a number. Takes a few milliseconds, mostly to read `/proc` and `/sys`.
#[must_use]
pub fn describe() -> Machine {
    let cpuinfo = read("/proc/cpuinfo").unwrap_or_default();
    let online = online_cpus().map(|cpus| cpus.len());
    let meminfo = read("/proc/meminfo").unwrap_or_default();
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    Machine {
        kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
        cpu: cpu_model(&cpuinfo).unwrap_or_else(|| UNKNOWN.to_owned()),
        cpus: online.unwrap_or_else(|| count_cpus(&cpuinfo)),
        hypervisor: hypervisor(&cpuinfo, &HypervisorHints::read()),
        memory_mib: memory_mib(&meminfo).unwrap_or(0),
        governor: governor(&read_governors()),
        mitigations: mitigations("/sys/devices/system/cpu/vulnerabilities".as_ref()),
        kernel_command_line: read("/proc/cmdline").unwrap_or_else(|| UNKNOWN.to_owned()),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        started_unix: now.map_or(0, |now| now.as_secs()),
    }
}

/// Returns the text of a file without the spaces around it, or `None` if there is no text.
fn read(path: impl AsRef<Path>) -> Option<String> {
    let bytes = fs::read(path).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    // Files of the device tree end in NUL.
    let text = text.trim_matches(|c: char| c.is_whitespace() || c == '\0');
    (!text.is_empty()).then(|| text.to_owned())
}

/// Returns the value of the first line `name : value` of `/proc/cpuinfo` or `/proc/meminfo`.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let mut fields = text.lines().filter_map(|line| line.split_once(':'));
    let (_, value) = fields.find(|(key, _)| key.trim() == name)?;
    Some(value.trim()).filter(|value| !value.is_empty())
}

fn cpu_model(cpuinfo: &str) -> Option<String> {
    // The names that x86, POWER, MIPS and RISC-V use.
    let names = ["model name", "cpu", "cpu model", "uarch"];
    let by_name = names.into_iter().find_map(|name| field(cpuinfo, name));
    by_name.map(str::to_owned).or_else(|| {
        let (implementer, part) = (field(cpuinfo, "CPU implementer")?, field(cpuinfo, "CPU part")?);
        Some(format!("ARM implementer {implementer}, part {part}"))
    })
}

fn count_cpus(cpuinfo: &str) -> usize {
    cpuinfo.lines().filter(|line| line.starts_with("processor")).count()
}

fn memory_mib(meminfo: &str) -> Option<u64> {
    let kib: u64 = field(meminfo, "MemTotal")?.strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib / 1024)
}

/// The places where a hypervisor may have left its name.
#[derive(Debug, Default)]
struct HypervisorHints {
    /// `/sys/hypervisor/type`.
    sys: Option<String>,
    /// `hypervisor/compatible` in the device tree.
    device_tree: Option<String>,
    /// The vendor and the product in the firmware's tables.
    firmware: Option<String>,
    clocks: Option<String>,
}

impl HypervisorHints {
    fn read() -> Self {
        let vendor = read("/sys/class/dmi/id/sys_vendor");
        let product = read("/sys/class/dmi/id/product_name");
        let firmware: Vec<String> = [vendor, product].into_iter().flatten().collect();
        Self {
            sys: read("/sys/hypervisor/type"),
            device_tree: read("/proc/device-tree/hypervisor/compatible"),
            firmware: Some(firmware.join(" ")).filter(|names| !names.is_empty()),
            clocks: read("/sys/devices/system/clocksource/clocksource0/available_clocksource"),
        }
    }
}

/// Returns the hypervisor, or `None` on bare metal, as far as that can be told.
fn hypervisor(cpuinfo: &str, hints: &HypervisorHints) -> Option<String> {
    let clocks = hints.clocks.as_deref().unwrap_or_default();
    let by_clock = [("kvm-clock", "KVM"), ("hyperv", "Hyper-V"), ("xen", "Xen")];
    let by_clock = by_clock.iter().find(|(clock, _)| clocks.contains(clock));
    let names =
        [hints.sys.as_deref(), hints.device_tree.as_deref(), by_clock.map(|(_, name)| *name)];
    let name = names.into_iter().flatten().next();

    let firmware = hints.firmware.as_deref().unwrap_or_default();
    let virtual_firmware =
        ["QEMU", "KVM", "VMware", "VirtualBox", "Virtual Machine", "Google Compute Engine", "Xen"];
    // Only x86 has this flag.
    let flag = field(cpuinfo, "flags")
        .is_some_and(|flags| flags.split_whitespace().any(|flag| flag == "hypervisor"));
    let is_virtual = flag || virtual_firmware.iter().any(|product| firmware.contains(product));

    match (name, firmware) {
        (Some(name), "") => Some(name.to_owned()),
        (Some(name), firmware) => Some(format!("{name} ({firmware})")),
        (None, _) if !is_virtual => None,
        (None, "") => Some(UNKNOWN.to_owned()),
        (None, firmware) => Some(firmware.to_owned()),
    }
}

fn read_governors() -> Vec<String> {
    let cpus = fs::read_dir("/sys/devices/system/cpu").into_iter().flatten().flatten();
    cpus.filter_map(|cpu| read(cpu.path().join("cpufreq/scaling_governor"))).collect()
}

/// Returns the governors of all CPUs. Usually there is only one.
fn governor(governors: &[String]) -> String {
    let different: BTreeSet<&str> = governors.iter().map(String::as_str).collect();
    if different.is_empty() {
        return "none".to_owned();
    }
    different.into_iter().collect::<Vec<_>>().join(", ")
}

/// Returns the states of the vulnerabilities as `name: state`, sorted by name.
fn mitigations(directory: &Path) -> Vec<String> {
    let files = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut states: Vec<String> = files
        .map(|file| {
            let state = read(file.path()).unwrap_or_else(|| UNKNOWN.to_owned());
            format!("{}: {state}", file.file_name().to_string_lossy())
        })
        .collect();
    states.sort();
    states
}

#[cfg(test)]
mod tests {
    use super::*;

    const X86: &str = "processor\t: 0\nmodel name\t: AMD EPYC\nflags\t\t: fpu hypervisor\n\n\
                       processor\t: 1\nmodel name\t: AMD EPYC\nflags\t\t: fpu hypervisor\n";
    const ARM: &str = "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n";

    fn some(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    #[test]
    fn models_of_several_architectures() {
        assert_eq!(cpu_model(X86), some("AMD EPYC"));
        assert_eq!(cpu_model(ARM), some("ARM implementer 0x41, part 0xd0c"));
        assert_eq!(cpu_model("cpu\t\t: POWER9\n"), some("POWER9"));
        assert_eq!(cpu_model("model name\t:\n"), None);
        assert_eq!(cpu_model(""), None);
        assert_eq!((count_cpus(X86), count_cpus(ARM), count_cpus("")), (2, 1, 0));
    }

    #[test]
    fn memory_is_in_mib() {
        assert_eq!(memory_mib("MemTotal:       24684092 kB\nMemFree: 1 kB\n"), Some(24105));
        assert_eq!(memory_mib("MemFree: 1 kB\n"), None);
    }

    #[test]
    fn a_hypervisor_is_named_as_well_as_it_can_be() {
        let none = HypervisorHints::default();
        assert_eq!(hypervisor(X86, &none), some("unknown"));
        assert_eq!(hypervisor(ARM, &none), None);
        let hints = HypervisorHints { clocks: some("kvm-clock tsc"), ..Default::default() };
        assert_eq!(hypervisor(X86, &hints), some("KVM"));
        let hints = HypervisorHints { firmware: some("Amazon EC2 m7i"), ..hints };
        assert_eq!(hypervisor(X86, &hints), some("KVM (Amazon EC2 m7i)"));
        let hints = HypervisorHints { sys: some("xen"), ..Default::default() };
        assert_eq!(hypervisor("", &hints), some("xen"));
        let hints = HypervisorHints { firmware: some("QEMU virt"), ..Default::default() };
        assert_eq!(hypervisor(ARM, &hints), some("QEMU virt"));
        let hints = HypervisorHints { firmware: some("LENOVO 20XW"), ..Default::default() };
        assert_eq!(hypervisor("flags : fpu\n", &hints), None);
    }

    #[test]
    fn governors_are_said_once() {
        let governors = |names: &[&str]| {
            governor(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(governors(&[]), "none");
        assert_eq!(governors(&["powersave", "powersave"]), "powersave");
        assert_eq!(governors(&["powersave", "performance"]), "performance, powersave");
    }

    #[test]
    fn without_the_directory_there_are_no_mitigations() {
        assert!(mitigations("/nowhere".as_ref()).is_empty());
    }

    #[test]
    fn this_machine_is_described() {
        let machine = describe();
        assert!(machine.cpus > 0 && machine.memory_mib > 0, "{machine:?}");
        assert!(machine.started_unix > 1_700_000_000, "{machine:?}");
        let texts =
            [&machine.kernel, &machine.cpu, &machine.governor, &machine.kernel_command_line];
        assert!(texts.iter().all(|text| !text.is_empty()), "{machine:?}");
        assert!(machine.mitigations.is_sorted());
    }
}
