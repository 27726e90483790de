//! Lists of CPUs as the kernel writes them: `0-3,8`.

/// The kernel's largest `CONFIG_NR_CPUS`. No CPU has a higher number.
const CPUS: usize = 8192;

/// Parses a list of CPUs, such as `0-3,8`. Returns `None` if the text is not such a list, if the
/// numbers do not ascend, or if a number is above 8,191, the highest that the kernel allows.
#[must_use]
pub fn parse_cpus(text: &str) -> Option<Vec<usize>> {
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (number(first)?, number(last)?);
        if first > last || last >= CPUS || cpus.last().is_some_and(|before| *before >= first) {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

/// Only digits are allowed, because `parse` accepts a sign, too.
fn number(text: &str) -> Option<usize> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

/// Writes a list of CPUs, such as `0-3,8`. The CPUs may be in any order, and may repeat.
#[must_use]
pub fn format_cpus(cpus: &[usize]) -> String {
    let mut sorted = cpus.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let ranges = sorted.chunk_by(|cpu, next| cpu + 1 == *next).map(|range| match range {
        [cpu] => cpu.to_string(),
        [first, .., last] => format!("{first}-{last}"),
        [] => String::new(),
    });
    ranges.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus_are_read() {
        assert_eq!(parse_cpus("0"), Some(vec![0]));
        assert_eq!(parse_cpus("0-2,8,10-11"), Some(vec![0, 1, 2, 8, 10, 11]));
        assert_eq!(parse_cpus("0-8191").map(|cpus| cpus.len()), Some(CPUS));
        let wrong = ["", "a", "1-", "-1", "+1", "0,", "0-8192", "0-99999999999", "0-4294967295"];
        for text in wrong.into_iter().chain(["0,0", "3-1", "1,0", "0-5,5-6", "0 ", "0-1-2"]) {
            assert_eq!(parse_cpus(text), None, "{text:?}");
        }
    }

    #[test]
    fn lists_of_cpus_are_written() {
        for text in ["0", "0-1", "0-2,8,10-11"] {
            assert_eq!(format_cpus(&parse_cpus(text).unwrap()), text);
        }
        assert_eq!(format_cpus(&[9, 1, 0, 1]), "0-1,9");
        assert_eq!(format_cpus(&[]), "");
    }
}
