//! When requests arrive: generated, or recorded.

use std::io::{self, Write};

use fastrand::Rng;

const SECOND: u64 = 1_000_000_000;
const MS: u64 = 1_000_000;

/// The recorded trace that belongs to this crate.
const RECORDED: &str = include_str!("../traces/recorded.txt");

/// When requests arrive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    /// Its name in tables.
    pub name: String,
    /// Nanoseconds since the start, rising.
    pub arrivals: Vec<u64>,
}

/// How long a trace may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Length {
    /// In seconds.
    pub seconds: u64,
    /// In requests.
    pub requests: usize,
}

impl Length {
    /// The length with which the table of the documentation was made.
    pub const FULL: Self = Self { seconds: 30, requests: 200_000 };
    /// A third of the time and a tenth of the requests, for tests.
    pub const SHORT: Self = Self { seconds: 10, requests: 20_000 };
}

impl Trace {
    /// Random gaps at `rate` requests per second.
    #[must_use]
    pub fn poisson(rate: f64, length: Length, seed: u64) -> Self {
        let mut arrivals = Arrivals::new(length, seed);
        arrivals.poisson(rate, length.seconds * SECOND);
        arrivals.named(format!("poisson {}", wakeful_load::Rate(rate)))
    }

    /// Equal gaps at `rate` requests per second.
    #[must_use]
    pub fn periodic(rate: f64, length: Length) -> Self {
        let mut arrivals = Arrivals::new(length, 0);
        arrivals.periodic((SECOND as f64 / rate) as u64);
        arrivals.named(format!("periodic {}", wakeful_load::Rate(rate)))
    }

    /// Groups of nine requests, with one gap within and another one between groups, in nanoseconds.
    #[must_use]
    pub fn groups(within: u64, between: u64, length: Length) -> Self {
        let mut arrivals = Arrivals::new(length, 0);
        while arrivals.has_room() {
            arrivals.at(arrivals.now + between);
            for _ in 1..9 {
                arrivals.at(arrivals.now + within);
            }
        }
        arrivals.named("groups".to_owned())
    }

    /// Groups of ten requests on average, 20 µs apart. The groups come at random times, 5 ms apart
    /// on average.
    #[must_use]
    pub fn bursts(length: Length, seed: u64) -> Self {
        let mut arrivals = Arrivals::new(length, seed);
        while arrivals.has_room() {
            arrivals.after(5e6);
            let size = 1 + (arrivals.exponential(9.0) as usize);
            for _ in 1..size {
                arrivals.after(20e3);
            }
        }
        arrivals.named("bursts".to_owned())
    }

    /// A request, and one or two that follow from its answer, 100 µs apart. Then nothing for 5 ms
    /// on average. A short window meets three of five arrivals, and a long one hardly more.
    #[must_use]
    pub fn follow_ups(length: Length, seed: u64) -> Self {
        let mut arrivals = Arrivals::new(length, seed);
        while arrivals.has_room() {
            arrivals.after(5e6);
            for _ in 0..arrivals.random.u64(1..=2) {
                arrivals.at(arrivals.now + 100_000);
            }
        }
        arrivals.named("follow-ups".to_owned())
    }

    /// `rate` requests per second during `on`, then nothing during `off`. Both are random with
    /// these means, in nanoseconds.
    #[must_use]
    pub fn on_off(name: &str, rate: f64, on: f64, off: f64, length: Length, seed: u64) -> Self {
        let mut arrivals = Arrivals::new(length, seed);
        while arrivals.has_room() {
            let until = arrivals.now + arrivals.exponential(on);
            arrivals.poisson(rate, until);
            arrivals.now += arrivals.exponential(off);
        }
        arrivals.named(name.to_owned())
    }

    /// Two days of five seconds: from 100 requests per second to 50,000, and back.
    #[must_use]
    pub fn diurnal(length: Length, seed: u64) -> Self {
        let mut arrivals = Arrivals::new(length, seed);
        // The length with which both days fit.
        let day = (5 * SECOND).min(length.requests as u64 * SECOND / 2 / 8_000);
        for step in 0..200_u64 {
            let noon = 0.5 - 0.5 * (step as f64 / 100.0 * std::f64::consts::TAU).cos();
            let rate = 100.0 * 500_f64.powf(noon);
            arrivals.poisson(rate, (step + 1) * day / 100);
        }
        arrivals.named("diurnal".to_owned())
    }

    /// 10,000 and 500 requests per second in turn, 100 ms each, plus 1,000 per second at equal
    /// gaps.
    #[must_use]
    pub fn mixed(length: Length, seed: u64) -> Self {
        let mut arrivals = Arrivals::new(length, seed);
        for turn in 1.. {
            if !arrivals.has_room() {
                break;
            }
            arrivals.poisson(if turn % 2 == 0 { 500.0 } else { 10_000.0 }, turn * 100 * MS);
        }
        let end = arrivals.now;
        arrivals.times.extend((0..end / MS).map(|tick| tick * MS));
        arrivals.times.sort_unstable();
        arrivals.named("mixed".to_owned())
    }

    /// Returns the same trace, slower or faster, with this many requests per second on average.
    #[must_use]
    pub fn at_rate(&self, rate: wakeful_load::Rate) -> Self {
        let last = self.arrivals.last().copied().unwrap_or(0).max(1) as f64;
        let factor = self.arrivals.len() as f64 * SECOND as f64 / rate.0 / last;
        let arrivals = self.arrivals.iter().map(|at| (*at as f64 * factor) as u64).collect();
        Self { name: format!("{} at {rate}", self.name), arrivals }
    }

    /// Reads a text of times in nanoseconds, one per line, in any order. Empty lines and lines that
    /// begin with `#` are skipped. The trace begins with its first request.
    ///
    /// # Errors
    ///
    /// When a line is not such a number, or there is no time at all.
    pub fn read(name: &str, text: &str) -> Result<Self, String> {
        let lines = text.lines().map(str::trim).enumerate();
        let times = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        let mut arrivals: Vec<u64> = times
            .map(|(index, line)| {
                line.parse()
                    .map_err(|_| format!("line {}: `{line}` is no time in nanoseconds", index + 1))
            })
            .collect::<Result<_, _>>()?;
        arrivals.sort_unstable();
        let Some(&first) = arrivals.first() else { return Err("it has no times".to_owned()) };
        arrivals.iter_mut().for_each(|at| *at -= first);
        Ok(Self { name: name.to_owned(), arrivals })
    }

    /// Writes the trace after a comment, as [`read`](Self::read) takes it.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn write(&self, comment: &str, out: &mut impl Write) -> io::Result<()> {
        for line in comment.lines() {
            writeln!(out, "# {line}")?;
        }
        self.arrivals.iter().try_for_each(|at| writeln!(out, "{at}"))
    }
}

/// Returns the traces of the table.
#[must_use]
pub fn all(length: Length, seed: u64) -> Vec<Trace> {
    let rates = [1e2, 3e2, 5e2, 1e3, 2e3, 5e3, 1e4, 3e4, 1e5, 3e5, 1e6];
    let mut traces: Vec<Trace> =
        rates.iter().map(|rate| Trace::poisson(*rate, length, seed)).collect();
    let recorded = Trace::read("recorded", RECORDED);
    traces.extend([
        Trace::periodic(900.0, length),
        Trace::periodic(1e4, length),
        Trace::bursts(length, seed),
        Trace::follow_ups(length, seed),
        Trace::on_off("on/off 20 ms", 2e4, 2e7, 8e7, length, seed),
        Trace::on_off("on/off 1 s", 5e3, 1e9, 1e9, length, seed),
        Trace::diurnal(length, seed),
        Trace::mixed(length, seed),
    ]);
    traces.extend(recorded);
    traces
}

/// A trace that is being made.
struct Arrivals {
    length: Length,
    random: Rng,
    now: u64,
    times: Vec<u64>,
}

impl Arrivals {
    fn new(length: Length, seed: u64) -> Self {
        Self { length, random: Rng::with_seed(seed), now: 0, times: Vec::new() }
    }

    fn has_room(&self) -> bool {
        self.now < self.length.seconds * SECOND && self.times.len() < self.length.requests
    }

    fn exponential(&mut self, mean: f64) -> u64 {
        // 1 - u is never 0, for which there is no logarithm.
        (-(1.0 - self.random.f64()).ln() * mean) as u64
    }

    fn at(&mut self, time: u64) {
        self.now = time;
        self.times.push(time);
    }

    fn after(&mut self, mean: f64) {
        let gap = self.exponential(mean);
        self.at(self.now + gap);
    }

    fn poisson(&mut self, rate: f64, until: u64) {
        while self.has_room() {
            let next = self.now + self.exponential(SECOND as f64 / rate);
            if next > until {
                self.now = until;
                return;
            }
            self.at(next);
        }
    }

    fn periodic(&mut self, gap: u64) {
        while self.has_room() {
            self.at(self.now + gap);
        }
    }

    fn named(mut self, name: String) -> Trace {
        self.times.truncate(self.length.requests);
        Trace { name, arrivals: self.times }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_read_as_it_was_written() {
        let trace = Trace { name: "x".to_owned(), arrivals: vec![0, 5, 5, 70] };
        let mut text = Vec::new();
        trace.write("recorded\nby hand", &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(text.starts_with("# recorded\n# by hand\n0\n"), "{text}");
        assert_eq!(Trace::read("x", &text).unwrap(), trace);
        assert_eq!(Trace::read("x", "30\n10\n").unwrap().arrivals, [0, 20]);
    }

    #[test]
    fn a_trace_at_another_rate_is_the_same_but_for_that() {
        let trace = Trace { name: "x".to_owned(), arrivals: vec![0, 10, 30, 40] };
        let slow = trace.at_rate(wakeful_load::Rate(1e3));
        assert_eq!(slow.arrivals, [0, MS, 3 * MS, 4 * MS]);
        assert_eq!(slow.name, "x at 1k");
    }

    #[test]
    fn lines_that_are_no_times_are_named() {
        assert!(Trace::read("x", "1\n\n2.5\n").unwrap_err().starts_with("line 3"));
        assert!(Trace::read("x", "# nothing\n").is_err());
    }

    #[test]
    fn every_trace_rises_and_the_seed_fixes_it() {
        let (one, same) = (all(Length::SHORT, 1), all(Length::SHORT, 1));
        for (one, same) in one.iter().zip(&same) {
            assert_eq!(one, same);
            assert!(one.arrivals.is_sorted(), "{}", one.name);
            assert!(one.arrivals.len() >= 500, "{}: {}", one.name, one.arrivals.len());
        }
        assert_ne!(one[0], all(Length::SHORT, 2)[0]);
        assert!(one.iter().any(|trace| trace.name == "recorded"));
    }

    #[test]
    fn rates_are_what_was_asked_for() {
        let rate = |trace: &Trace| {
            trace.arrivals.len() as f64 * 1e9 / *trace.arrivals.last().unwrap() as f64
        };
        for asked in [1e3, 1e5] {
            let got = rate(&Trace::poisson(asked, Length::FULL, 3));
            assert!((got / asked - 1.0).abs() < 0.03, "{got} for {asked}");
        }
        // 20,000 per second for a fifth of the time.
        let got = rate(&Trace::on_off("", 2e4, 2e7, 8e7, Length::FULL, 3));
        assert!((3e3..5e3).contains(&got), "{got}");
    }
}
