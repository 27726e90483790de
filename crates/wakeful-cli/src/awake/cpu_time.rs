//! How much CPU time children have used.

use std::fs;
use std::time::Duration;

/// That of the children that have ended and been waited for, with theirs. `None`: `/proc` does not
/// tell (proc(5)). It counts in hundredths of a second.
pub(super) fn of_children() -> Option<Duration> {
    ticks(&fs::read_to_string("/proc/self/stat").ok()?).map(|ticks| {
        let millis = ticks.saturating_mul(1000) / rustix::param::clock_ticks_per_second().max(1);
        Duration::from_millis(millis)
    })
}

/// `cutime` and `cstime`. The name, in parentheses, may have anything in it.
fn ticks(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace().skip(13);
    let (user, system) = (fields.next()?.parse::<u64>().ok()?, fields.next()?.parse::<u64>().ok()?);
    Some(user.saturating_add(system))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_counted_behind_the_name() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 100 200 0 0 11 12 130 14 20 0 1 0 55 1 2\n";
        assert_eq!(ticks(stat), Some(144));
        assert_eq!(ticks("7 (a) S 1"), None);
        assert_eq!(ticks(""), None);
        assert!(of_children().is_some());
    }
}
