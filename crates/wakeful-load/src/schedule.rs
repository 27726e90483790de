//! When requests are due. The schedule is fixed before the first request is sent, and the server
//! cannot move it.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// When requests are due.
#[derive(Debug, Clone, PartialEq)]
pub enum Schedule {
    /// Requests are due as if independent clients sent them: with random gaps (exponentially
    /// distributed), at this mean rate per second.
    Poisson(f64),
    /// Requests are due at equal gaps, at this rate per second.
    Constant(f64),
    /// Requests are due at these times, in nanoseconds since the start of the measured time. The
    /// times must ascend. [`read_trace`] reads them from a text.
    Trace(Arc<[u64]>),
    /// There is no schedule: a connection sends its next request when an answer has arrived. Use
    /// this to measure saturation. It hides stalls.
    Closed,
}

impl Schedule {
    /// Returns the mean rate per second, if there is one.
    #[must_use]
    pub fn rate(&self) -> Option<f64> {
        match self {
            Self::Poisson(rate) | Self::Constant(rate) => Some(*rate),
            Self::Trace(times) => {
                // A trace with only one moment counts as long as the shortest measured time.
                let last = (*times.last()?).max(1_000_000);
                Some(times.len() as f64 * 1e9 / last as f64)
            }
            Self::Closed => None,
        }
    }

    /// Returns the name of the schedule: `poisson`, `constant`, `trace` or `closed`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Poisson(_) => "poisson",
            Self::Constant(_) => "constant",
            Self::Trace(_) => "trace",
            Self::Closed => "closed",
        }
    }

    /// Returns an iterator over the times at which requests are due, in nanoseconds since the
    /// start. The same seed gives the same times.
    #[must_use]
    pub fn arrivals(&self, seed: u64) -> Arrivals {
        Arrivals {
            schedule: self.clone(),
            random: fastrand::Rng::with_seed(seed),
            begin: 0,
            at: 0.0,
            sent: 0,
        }
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self, self.rate()) {
            (Self::Closed, _) => f.write_str("in a closed loop"),
            (Self::Trace(_), _) => f.write_str("by a trace"),
            (_, rate) => write!(f, "at {}/s", Rate(rate.unwrap_or(0.0))),
        }
    }
}

/// An iterator over the times at which requests are due. For a trace it ends after the last time,
/// and for a closed loop at once. Otherwise it never ends.
#[derive(Debug, Clone)]
pub struct Arrivals {
    schedule: Schedule,
    random: fastrand::Rng,
    begin: u64,
    at: f64,
    sent: usize,
}

impl Arrivals {
    /// Sets when a trace begins, in nanoseconds since the start. It has no effect on other
    /// schedules.
    #[must_use]
    pub fn trace_begins_at(self, begin: u64) -> Self {
        Self { begin, ..self }
    }
}

impl Iterator for Arrivals {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        self.sent += 1;
        match &self.schedule {
            Schedule::Poisson(rate) => {
                // 1 - u is never 0, which would have no logarithm.
                self.at -= (1.0 - self.random.f64()).ln() * 1e9 / rate;
                Some(self.at as u64)
            }
            // The time is multiplied and not added up, so that rounding errors do not accumulate.
            Schedule::Constant(rate) => Some((self.sent as f64 * 1e9 / rate) as u64),
            Schedule::Trace(times) => {
                times.get(self.sent - 1).map(|at| self.begin.saturating_add(*at))
            }
            Schedule::Closed => None,
        }
    }
}

/// A number of requests per second, which is parsed from text such as `250`, `10k` or `1.5M`.
/// Parsing accepts 0.001 to 10M.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate(pub f64);

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (digits, factor) = match text.as_bytes().last() {
            Some(b'k' | b'K') => (&text[..text.len() - 1], 1e3),
            Some(b'M' | b'm') => (&text[..text.len() - 1], 1e6),
            _ => (text, 1.0),
        };
        match digits.parse::<f64>().map(|rate| rate * factor) {
            Ok(rate) if (0.001..=1e7).contains(&rate) => Ok(Self(rate)),
            _ => Err(format!(
                "`{text}` is not a rate: expected requests a second, as 250, 10k or 1.5M, at most \
                 10M"
            )),
        }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            rate if rate >= 1e6 => write!(f, "{}M", rate / 1e6),
            rate if rate >= 1e3 => write!(f, "{}k", rate / 1e3),
            rate => write!(f, "{rate}"),
        }
    }
}

/// Reads a trace for [`Schedule::Trace`] from `text`. Each line has one time, in seconds since the
/// start. Empty lines, and lines that begin with `#`, are skipped.
///
/// # Errors
/// A line is not a number from 0 to below 1,000,000, or is earlier than the line before; or there
/// are no lines.
pub fn read_trace(text: &str) -> Result<Arc<[u64]>, String> {
    let mut times: Vec<u64> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let seconds =
            line.parse::<f64>().ok().filter(|seconds| (0.0..1e6).contains(seconds)).ok_or_else(
                || format!("line {}: `{}` is not a time in seconds", index + 1, shown(line)),
            )?;
        let at = (seconds * 1e9) as u64;
        if times.last().is_some_and(|last| at < *last) {
            return Err(format!("line {}: {line} is earlier than the line before", index + 1));
        }
        times.push(at);
    }
    if times.is_empty() { Err("it has no times".to_owned()) } else { Ok(times.into()) }
}

/// Cuts a line for an error message, because a file that is no trace may have lines of any length.
fn shown(line: &str) -> String {
    line.chars().take(40).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_fixes_the_schedule() {
        let times = |seed| Schedule::Poisson(1e4).arrivals(seed).take(1000).collect::<Vec<_>>();
        assert_eq!(times(1), times(1));
        assert_ne!(times(1), times(2));
    }

    #[test]
    fn poisson_gaps_have_the_mean_and_the_spread_of_an_exponential() {
        let times: Vec<_> = Schedule::Poisson(1e6).arrivals(7).take(200_000).collect();
        let gaps: Vec<f64> = times.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        assert!((mean - 1000.0).abs() < 15.0, "{mean}");
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((variance.sqrt() / mean - 1.0).abs() < 0.02, "{variance}");
        let beyond_mean = gaps.iter().filter(|gap| **gap > mean).count() as f64 / gaps.len() as f64;
        assert!((beyond_mean - (-1.0_f64).exp()).abs() < 0.01, "{beyond_mean}");
    }

    #[test]
    fn constant_does_not_drift() {
        let last = Schedule::Constant(30_000.0).arrivals(0).nth(30_000 * 60 - 1).unwrap();
        assert_eq!(last, 60_000_000_000);
    }

    #[test]
    fn traces_are_read_and_bad_lines_named() {
        let times = read_trace("# from production\n0\n0.5\n\n1.25\n").unwrap();
        assert_eq!(&*times, &[0, 500_000_000, 1_250_000_000]);
        for (text, line) in
            [("0\nx\n", "line 2"), ("1\n0\n", "line 2"), ("-1\n", "line 1"), ("nan", "line 1")]
        {
            assert!(read_trace(text).unwrap_err().contains(line));
        }
        assert!(read_trace("").is_err());
        assert!(read_trace(&"x".repeat(1000)).unwrap_err().len() < 100);
    }

    #[test]
    fn rates_are_read_and_printed() {
        for (text, rate) in [("10k", 1e4), ("1.5M", 1.5e6), ("250", 250.0)] {
            let read: Rate = text.parse().unwrap();
            assert!((read.0 - rate).abs() < 1e-9);
            assert_eq!(read.to_string(), text);
        }
        for text in ["", "k", "-1", "0", "inf", "nan", "1e99", "10 k"] {
            assert!(text.parse::<Rate>().is_err(), "{text}");
        }
    }
}
