//! Whether a process may hold all CPUs of the machine by default: it may if it can use most of the
//! machine.

use std::io;

use rustix::thread::sched_getaffinity;

use crate::cpu_list::parse_cpus;

/// A machine with more CPUs probably serves several programs.
const MOST_CPUS: usize = 4;

/// The machine has more than four CPUs, or this thread may run on fewer than half of the machine's
/// CPUs. So this process holds the CPUs only if the user asks for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "/dev/cpu_dma_latency holds {}, of which this process may use {usable}. By default the device is used only on a \
     machine of at most {MOST_CPUS} CPUs, if this process may use at least half of them",
    all(*.cpus)
)]
pub struct LargeMachine {
    /// How many CPUs the machine has; `usize::MAX` if `/sys` does not say.
    pub cpus: usize,
    /// How many of these CPUs this thread may run on.
    pub usable: usize,
}

fn all(cpus: usize) -> String {
    match cpus {
        usize::MAX => "all CPUs of the machine (how many there are, /sys does not say)".to_owned(),
        cpus => format!("all {cpus} CPUs of the machine"),
    }
}

/// Checks that the machine has at most four CPUs, and that this thread may run on at least half of
/// them. `/dev/cpu_dma_latency` holds all CPUs, so by default it is used only on such machines.
///
/// # Errors
/// The machine has more CPUs, or this thread may run on fewer.
pub fn check_share() -> Result<(), LargeMachine> {
    let (cpus, usable) = (online().unwrap_or(usize::MAX), usable().unwrap_or(0));
    share(cpus, usable)
}

fn share(cpus: usize, usable: usize) -> Result<(), LargeMachine> {
    let is_small = cpus <= MOST_CPUS && usable.saturating_mul(2) >= cpus;
    if is_small { Ok(()) } else { Err(LargeMachine { cpus, usable }) }
}

fn usable() -> io::Result<usize> {
    Ok(sched_getaffinity(None)?.count() as usize)
}

/// The numbers of the CPUs that are online.
pub(crate) fn online_cpus() -> io::Result<Vec<usize>> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/online")?;
    parse_cpus(text.trim()).ok_or_else(|| io::Error::other(format!("not a list of CPUs: {text:?}")))
}

fn online() -> io::Result<usize> {
    Ok(online_cpus()?.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_one_process_s_up_to_four_cpus_and_from_half_of_them() {
        assert_eq!(share(1, 1), Ok(()));
        assert_eq!(share(4, 2), Ok(()));
        assert_eq!(share(4, 1), Err(LargeMachine { cpus: 4, usable: 1 }));
        assert_eq!(share(5, 5), Err(LargeMachine { cpus: 5, usable: 5 }));
        assert!(share(usize::MAX, 0).is_err());
    }

    #[test]
    fn a_machine_whose_cpus_are_not_known_is_told_of_without_a_number() {
        let text = |cpus| LargeMachine { cpus, usable: 2 }.to_string();
        let known = "/dev/cpu_dma_latency holds all 8 CPUs of the machine, of which this process may use 2. ";
        assert!(text(8).starts_with(known), "{}", text(8));
        let unknown =
            "/dev/cpu_dma_latency holds all CPUs of the machine (how many there are, /sys";
        assert!(text(usize::MAX).starts_with(unknown), "{}", text(usize::MAX));
    }
}
