//! Which CPUs a thread may run on. A thread inherits the CPUs of the thread that starts it, and so
//! does a process.

use std::collections::BTreeSet;
use std::fs;
use std::io;

use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Parses a list of CPUs as the kernel writes it: `0-3,5`. The result is sorted, and no CPU is in
/// it twice.
///
/// # Errors
///
/// A sentence for the user that says which part is wrong.
pub fn parse_cpus(text: &str) -> Result<Vec<usize>, String> {
    let number = |part: &str, digits: &str| {
        let digits = digits.trim();
        let cpu = digits.parse::<usize>().ok().filter(|_| !digits.starts_with('+'));
        let cpu = cpu.ok_or_else(|| format!("{part:?} is neither a CPU nor a range like 0-3"))?;
        if cpu < CpuSet::MAX_CPU {
            Ok(cpu)
        } else {
            Err(format!("CPU {cpu} is beyond the last possible one, {}", CpuSet::MAX_CPU - 1))
        }
    };
    let mut cpus = BTreeSet::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (number(part, first)?, number(part, last)?);
        if first > last {
            return Err(format!("the range {part:?} runs backwards"));
        }
        cpus.extend(first..=last);
    }
    Ok(cpus.into_iter().collect())
}

/// Writes a list of CPUs as [`parse_cpus`] reads it: `[0, 1, 2, 5]` is `0-2,5`.
#[must_use]
pub fn format_cpus(cpus: &[usize]) -> String {
    let cpus: Vec<usize> = cpus.iter().copied().collect::<BTreeSet<_>>().into_iter().collect();
    let ranges = cpus.chunk_by(|a, b| a + 1 == *b).map(|range| match range {
        [first, .., last] => format!("{first}-{last}"),
        single => single[0].to_string(),
    });
    ranges.collect::<Vec<_>>().join(",")
}

/// Returns the CPUs that the calling thread may run on now, in ascending order. After a pin these
/// are only the CPUs of the pin.
///
/// # Errors
///
/// Kernel errors; `EINVAL` on a machine with more than 1024 CPUs.
pub fn allowed_cpus() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(None).map_err(refused("sched_getaffinity"))?;
    Ok((0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect())
}

/// Lets the calling thread run on these CPUs and on no others. Other threads stay as they are,
/// including those that it started earlier.
///
/// # Errors
///
/// If there are no CPUs in the list, or one of them does not exist, is offline, or is forbidden to
/// this process by its container or cpuset. The thread then runs where it did before.
pub fn pin_current_thread(cpus: &[usize]) -> io::Result<()> {
    check(cpus, online_cpus().as_deref())?;
    let asked = || sched_getaffinity(None).map_err(refused("sched_getaffinity"));
    let before = asked()?;
    let mut wanted = CpuSet::new();
    for cpu in cpus {
        wanted.set(*cpu);
    }
    // A cpuset silently cuts the set down, and refuses only if nothing is left of it.
    let set = sched_setaffinity(None, &wanted);
    let now = asked()?;
    if set.is_ok() && now == wanted {
        return Ok(());
    }
    if set.is_ok() {
        sched_setaffinity(None, &before).map_err(refused("sched_setaffinity"))?;
    }
    let forbidden: Vec<usize> = match set {
        Ok(()) => cpus.iter().copied().filter(|cpu| !now.is_set(*cpu)).collect(),
        Err(Errno::INVAL) => cpus.to_vec(),
        Err(error) => {
            let error = refused("sched_setaffinity")(error);
            let text = format!("cannot run on CPU {} only: {error}", format_cpus(cpus));
            return Err(io::Error::new(error.kind(), text));
        }
    };
    let message = format!(
        "this process is not allowed to use CPU {}: its container or cpuset forbids it",
        format_cpus(&forbidden)
    );
    Err(io::Error::new(io::ErrorKind::PermissionDenied, message))
}

/// The error of a system call that only a seccomp filter refuses.
fn refused(call: &'static str) -> impl Fn(Errno) -> io::Error {
    move |error| {
        let error = io::Error::from(error);
        let text = format!(
            "{call}: {error}: does a seccomp filter refuse it? Allow it. (With one CPU, as by \
             taskset --cpu-list 0, no thread needs a CPU of its own.)"
        );
        io::Error::new(error.kind(), text)
    }
}

/// The CPUs that are online; `None` if the kernel does not say.
pub(crate) fn online_cpus() -> Option<Vec<usize>> {
    parse_cpus(&fs::read_to_string("/sys/devices/system/cpu/online").ok()?).ok()
}

fn check(cpus: &[usize], online: Option<&[usize]>) -> io::Result<()> {
    let invalid = |message| Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    if cpus.is_empty() {
        return invalid("no CPUs to run on".to_owned());
    }
    let there = |cpu: usize| online.map_or(cpu < CpuSet::MAX_CPU, |online| online.contains(&cpu));
    let missing: Vec<usize> = cpus.iter().copied().filter(|cpu| !there(*cpu)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let online = online.map(|online| format!("; online are {}", format_cpus(online)));
    invalid(format!(
        "CPU {} does not exist or is offline{}",
        format_cpus(&missing),
        online.unwrap_or_default()
    ))
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn lists_are_parsed() {
        assert_eq!(parse_cpus("0"), Ok(vec![0]));
        assert_eq!(parse_cpus("0-3,5\n"), Ok(vec![0, 1, 2, 3, 5]));
        assert_eq!(parse_cpus("5, 1-2,2-3"), Ok(vec![1, 2, 3, 5]));
    }

    #[test]
    fn what_is_wrong_in_a_list_is_named() {
        for (text, part) in [
            ("", "\"\""),
            ("1,", "\"\""),
            ("0,x", "\"x\""),
            ("1-", "\"1-\""),
            ("-1", "\"-1\""),
            ("+1", "\"+1\""),
            ("1-2-3", "\"1-2-3\""),
            ("3-1", "runs backwards"),
            ("0-99999999999", "beyond the last possible one, 1023"),
        ] {
            let error = parse_cpus(text).unwrap_err();
            assert!(error.contains(part), "{text:?}: {error}");
        }
    }

    #[test]
    fn what_is_printed_can_be_parsed() {
        assert_eq!(format_cpus(&[5, 0, 1, 2, 2, 7, 8]), "0-2,5,7-8");
        assert_eq!(format_cpus(&[]), "");
        assert_eq!(parse_cpus(&format_cpus(&[1, 3, 4])), Ok(vec![1, 3, 4]));
    }

    #[test]
    fn a_thread_is_pinned_alone_and_its_children_with_it() {
        let all = allowed_cpus().unwrap();
        let last = *all.last().unwrap();
        thread::spawn(move || {
            pin_current_thread(&[last]).unwrap();
            assert_eq!(allowed_cpus().unwrap(), [last]);
            thread::spawn(move || assert_eq!(allowed_cpus().unwrap(), [last])).join().unwrap();
        })
        .join()
        .unwrap();
        assert_eq!(allowed_cpus().unwrap(), all);
    }

    #[test]
    fn a_cpu_that_does_not_exist_is_named_and_changes_nothing() {
        thread::spawn(|| {
            let before = allowed_cpus().unwrap();
            let error = pin_current_thread(&[before[0], 1022, 99_999]).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
            assert!(error.to_string().contains("CPU 1022,99999 does not exist"), "{error}");
            assert!(pin_current_thread(&[]).unwrap_err().to_string().contains("no CPUs"));
            assert_eq!(allowed_cpus().unwrap(), before);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_cpu_is_checked_against_those_online() {
        assert!(check(&[0, 2], Some(&[0, 1, 2])).is_ok());
        let error = check(&[0, 3], Some(&[0, 1, 2])).unwrap_err().to_string();
        assert_eq!(error, "CPU 3 does not exist or is offline; online are 0-2");
        assert!(check(&[3], None).is_ok(), "left to the kernel");
        assert!(check(&[2000], None).is_err());
    }
}
