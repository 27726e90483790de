//! Timer interrupts, from `/proc/interrupts`. Architectures other than x86 have no line for these
//! interrupts alone.

use std::fs;

/// Returns the timer interrupts of these CPUs together, since boot.
pub(super) fn timer(cpus: &[usize]) -> Option<u64> {
    parse(&fs::read_to_string("/proc/interrupts").ok()?, cpus)
}

/// The first line names the CPUs of the columns.
fn parse(text: &str, cpus: &[usize]) -> Option<u64> {
    let columns: Vec<usize> = text
        .lines()
        .next()?
        .split_whitespace()
        .filter_map(|head| head.strip_prefix("CPU")?.parse().ok())
        .collect();
    let counts = text.lines().find_map(|line| line.trim_start().strip_prefix("LOC:"))?;
    let counts = counts.split_whitespace().zip(columns);
    let wanted = counts.filter(|(_, cpu)| cpus.contains(cpu));
    wanted.map(|(count, _)| count.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_of_the_cpus_that_are_online() {
        let text = "           CPU0       CPU2\n  0:  5  0  IO-APIC  2-edge  timer\n\
                    LOC:    7088180    7287033   Local timer interrupts\n";
        assert_eq!(parse(text, &[0]), Some(7_088_180));
        assert_eq!(parse(text, &[2]), Some(7_287_033));
        assert_eq!(parse(text, &[0, 2]), Some(14_375_213));
        assert_eq!(parse("           CPU0\n 10:  5  GICv3  arch_timer\n", &[0]), None);
    }
}
