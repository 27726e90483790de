//! Finds the highest rate at which a server keeps a promise such as `p99<1ms`: it doubles the rate,
//! bisects, and confirms the result.
//!
//! The answer is an interval. At its lower end, three blocks out of three kept the promise; at its
//! upper end, a block broke it. An INVALID run counts as a broken promise, because requests that
//! the generator could not send were not answered.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::bench::{Bench, BenchError, Load};
use crate::results::{Percentiles, Run, Validity};
use crate::schedule::{Rate, Schedule};
use crate::series::{Series, Slices};
use crate::servers::ServerSpec;

/// Where the search begins, in requests per second, unless a block would take too long there.
const BEGIN: f64 = 1000.0;

/// The search does not go below this rate, in requests per second. For a slower server, something
/// else should be measured.
const LEAST: f64 = 1.0;

/// The search does not go above this rate, which no generator on one CPU can offer.
const MOST: f64 = 16e6;

/// No block is made longer than this many seconds, unless the user asked for it.
const LONGEST: f64 = 60.0;

/// The bisection ends when the upper end is at most this many times the lower end.
const CLOSE_ENOUGH: f64 = 1.05;

/// How many blocks have to keep the promise at the lower end.
const CONFIRMATIONS: usize = 3;

/// The bounds of a promise. Nothing is answered faster, and no block takes longer.
const SHORTEST: Duration = Duration::from_micros(1);
const LONGEST_TIME: Duration = Duration::from_secs(3600);

/// A bound on one percentile of the response time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Promise {
    quantile: Quantile,
    below: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Quantile {
    P50,
    P90,
    P99,
    P999,
    P9999,
}

impl Quantile {
    const ALL: [(&'static str, Self); 5] = [
        ("p50", Self::P50),
        ("p90", Self::P90),
        ("p99", Self::P99),
        ("p99.9", Self::P999),
        ("p99.99", Self::P9999),
    ];

    fn of(self, percentiles: &Percentiles) -> Option<u64> {
        match self {
            Self::P50 => percentiles.p50,
            Self::P90 => percentiles.p90,
            Self::P99 => percentiles.p99,
            Self::P999 => percentiles.p999,
            Self::P9999 => percentiles.p9999,
        }
    }

    fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, quantile)| *quantile == self).map_or("", |(name, _)| name)
    }
}

impl FromStr for Promise {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "`{text}` is not a promise: expected one like p99<1ms, of p50, p90, p99, p99.9 or \
                 p99.99"
            )
        };
        let (name, time) = text.split_once('<').ok_or_else(wrong)?;
        let named = Quantile::ALL.iter().find(|(known, _)| *known == name.trim());
        let (_, quantile) = named.ok_or_else(wrong)?;
        let below = humantime::parse_duration(time.trim()).map_err(|error| {
            let time = time.trim();
            format!(
                "`{time}` in `{text}` is not a time: expected 1us to 1h, as 1ms or 500us: {error}"
            )
        })?;
        if !(SHORTEST..=LONGEST_TIME).contains(&below) {
            return Err(format!(
                "`{}` in `{text}` is out of range: expected 1us to 1h",
                time.trim()
            ));
        }
        Ok(Self { quantile: *quantile, below })
    }
}

impl fmt::Display for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}<{:?}", self.quantile.name(), self.below)
    }
}

impl Promise {
    /// Returns whether a run kept the promise. `own` is the validity by the run's own figures,
    /// because a disturbance by other programs is not the server's fault.
    #[must_use]
    pub fn is_kept_by(&self, run: &Run, own: &Validity) -> bool {
        *own == Validity::Valid
            && self
                .quantile
                .of(&run.response)
                .is_some_and(|value| u128::from(value) < self.below.as_nanos())
    }

    /// Seconds that a block needs at this rate, so that the percentile has the samples it needs.
    fn seconds_needed(&self, rate: f64) -> f64 {
        let beyond = match self.quantile {
            Quantile::P50 => 0.5,
            Quantile::P90 => 0.1,
            Quantile::P99 => 0.01,
            Quantile::P999 => 0.001,
            Quantile::P9999 => 0.0001,
        };
        // Half as many seconds again, because the arrivals are random.
        150.0 / beyond / rate
    }

    /// The lowest rate at which a block is no longer than [`LONGEST`], or than the user's
    /// `duration`. At lower rates, a block with enough samples would take too long.
    fn least_rate(&self, duration: Duration) -> f64 {
        self.seconds_needed(1.0) / LONGEST.max(duration.as_secs_f64())
    }

    /// The rate at which a search begins.
    fn begins_at(&self, duration: Duration) -> f64 {
        BEGIN.max(self.least_rate(duration).ceil())
    }

    /// The load at a rate. Its duration suffices for the percentile.
    fn load_at(&self, rate: f64, load: &Load) -> Load {
        let mut load = load.clone();
        load.plan.schedule = match load.plan.schedule {
            Schedule::Constant(_) => Schedule::Constant(rate),
            _ => Schedule::Poisson(rate),
        };
        let needed = Duration::from_secs_f64(self.seconds_needed(rate));
        load.plan.duration = load.plan.duration.max(needed);
        load
    }
}

/// What the search found.
#[derive(Debug, Clone)]
pub struct Found {
    /// What was asked.
    pub promise: Promise,
    /// The highest rate at which the promise was kept three times. `None` if there was no such
    /// rate.
    pub kept: Option<f64>,
    /// The lowest rate above `kept` at which the promise was broken. `None` if the search ended
    /// before one was found.
    pub broken: Option<f64>,
    /// Every rate that was tried, in order.
    pub runs: Vec<Run>,
    /// The blocks at the highest rate at which the promise was kept so far: at `kept`, unless the
    /// user ended the search.
    pub best: Option<Best>,
    /// What the reader has to know about the CPU time.
    pub note: Option<String>,
    /// Whether the user ended the search.
    pub interrupted: bool,
}

/// The blocks of one rate that kept the promise.
#[derive(Debug, Clone)]
pub struct Best {
    /// The rate, in requests per second.
    pub rate: f64,
    /// The blocks.
    pub blocks: Series,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let promise = self.promise;
        match (self.kept, self.broken) {
            (Some(kept), Some(broken)) => write!(
                f,
                "{promise} is kept at {}/s ({CONFIRMATIONS} of {CONFIRMATIONS} blocks), and broken at {}/s",
                Rate(kept),
                Rate(broken)
            ),
            (Some(kept), None) => {
                write!(f, "{promise} is kept at {}/s, the highest rate that was tried", Rate(kept))
            }
            (None, Some(broken)) => write!(f, "{promise} is broken even at {}/s", Rate(broken)),
            (None, None) => write!(f, "the search for {promise} was ended before it had an answer"),
        }
    }
}

/// How often a search doubles the rate, about.
const DOUBLINGS: i32 = 6;

/// Tells the user how long [`search`] will take: about six doublings, five halvings and two
/// confirmations.
pub fn expect(bench: &mut Bench<'_>, load: &Load, promise: Promise) {
    let begin = promise.begins_at(load.plan.duration);
    let mut rate = begin;
    for doubling in 0..DOUBLINGS {
        rate = begin * 2_f64.powi(doubling);
        bench.progress.expect(1, bench.expected_time(&promise.load_at(rate, load)));
    }
    bench.progress.expect(7, bench.expected_time(&promise.load_at(rate, load)));
}

/// Searches for the highest rate. Blocks are as long as the plan says, or longer where the
/// percentile needs more samples.
///
/// # Errors
/// The errors of a block.
pub fn search(
    bench: &mut Bench<'_>,
    server: &ServerSpec,
    load: &Load,
    promise: Promise,
) -> Result<Found, BenchError> {
    let (runs, best, note) = (Vec::new(), None, None);
    let mut search = Search { bench, server, load, promise, runs, best, note };
    let (kept, broken, interrupted) = match search.bracket() {
        Ok((kept, broken)) => (kept, broken, search.bench.is_interrupted()),
        Err(Stopped::Interrupted) => (None, None, true),
        Err(Stopped::Failed(error)) => return Err(error),
    };
    // A rate that was kept once, and not again when it was to be confirmed, is no result.
    let best = search.best.filter(|best| interrupted || Some(best.rate) == kept);
    Ok(Found { promise, kept, broken, runs: search.runs, best, note: search.note, interrupted })
}

struct Search<'s, 'b> {
    bench: &'s mut Bench<'b>,
    server: &'s ServerSpec,
    load: &'s Load,
    promise: Promise,
    runs: Vec<Run>,
    /// The blocks at the last rate that kept the promise. A later one is always the better one, or
    /// the earlier one was not confirmed.
    best: Option<Best>,
    note: Option<String>,
}

enum Stopped {
    Interrupted,
    Failed(BenchError),
}

type Bracket = (Option<f64>, Option<f64>);

impl Search<'_, '_> {
    fn bracket(&mut self) -> Result<Bracket, Stopped> {
        let (mut kept, mut broken) = self.double()?;
        loop {
            // The lower end has to be confirmed. If it is not, it becomes the upper end.
            (kept, broken) = self.bisect(kept, broken)?;
            let Some(rate) = kept else { return Ok((None, broken)) };
            let mut is_kept = true;
            for _ in 1..CONFIRMATIONS {
                is_kept = is_kept && self.keeps(rate)?;
            }
            if is_kept {
                return Ok((Some(rate), broken));
            }
            (kept, broken) = self.halve(rate)?;
        }
    }

    /// Doubles the rate until the promise is broken, or halves it until the promise is kept.
    fn double(&mut self) -> Result<Bracket, Stopped> {
        let mut rate = self.promise.begins_at(self.load.plan.duration);
        if !self.keeps(rate)? {
            return self.halve(rate);
        }
        while rate * 2.0 <= MOST {
            if !self.keeps(rate * 2.0)? {
                return Ok((Some(rate), Some(rate * 2.0)));
            }
            rate *= 2.0;
        }
        Ok((Some(rate), None))
    }

    fn halve(&mut self, broken: f64) -> Result<Bracket, Stopped> {
        let mut broken = broken;
        // First goes down by a tenth: if a rate was kept once and not again, the limit is near.
        let mut step = 0.9;
        let least = LEAST.max(self.promise.least_rate(self.load.plan.duration));
        while broken * step >= least {
            if self.keeps(broken * step)? {
                return Ok((Some(broken * step), Some(broken)));
            }
            broken *= step;
            step = 0.5;
        }
        Ok((None, Some(broken)))
    }

    fn bisect(&mut self, kept: Option<f64>, broken: Option<f64>) -> Result<Bracket, Stopped> {
        let (Some(mut low), Some(mut high)) = (kept, broken) else { return Ok((kept, broken)) };
        while high / low > CLOSE_ENOUGH {
            // The geometric mean, in round figures.
            let middle = round(f64::sqrt(low * high));
            if middle <= low || middle >= high {
                break;
            }
            if self.keeps(middle)? { low = middle } else { high = middle }
        }
        Ok((Some(low), Some(high)))
    }

    fn keeps(&mut self, rate: f64) -> Result<bool, Stopped> {
        if self.bench.is_interrupted() {
            return Err(Stopped::Interrupted);
        }
        let mut load = self.promise.load_at(rate, self.load);
        load.plan.seed = load.plan.seed.wrapping_add(self.runs.len() as u64);
        let label = format!("{} at {}/s", self.server.name(), Rate(rate));
        let block = self.bench.block(self.server, &load, &label).map_err(|error| {
            if error.is_interrupted() { Stopped::Interrupted } else { Stopped::Failed(error) }
        })?;
        let is_partial = block.measurement.interrupted;
        // No more than the best blocks are kept, which are few.
        let series = Series::new(self.server.name(), block.clone(), Slices::Histograms);
        let run = series.run();
        self.note = self.note.take().or_else(|| series.note());
        let own = block.measurement.validity();
        let is_kept = self.promise.is_kept_by(&run, &own);
        self.runs.push(run);
        if is_kept && !is_partial {
            match &mut self.best {
                Some(best) if best.rate == rate => best.blocks.add(block),
                best => *best = Some(Best { rate, blocks: series }),
            }
        }
        if is_partial { Err(Stopped::Interrupted) } else { Ok(is_kept) }
    }
}

/// Rounds to two and a half digits.
fn round(rate: f64) -> f64 {
    let unit = 10_f64.powf(rate.log10().floor() - 1.0) / 2.0;
    (rate / unit).round() * unit
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::generator::Plan;
    use crate::progress::Progress;

    #[test]
    fn promises_are_read_and_printed() {
        let promise: Promise = "p99<1ms".parse().unwrap();
        assert_eq!(promise.to_string(), "p99<1ms");
        assert_eq!("p99.9 < 500us".parse::<Promise>().unwrap().to_string(), "p99.9<500µs");
        for text in ["", "p99", "p98<1ms", "p99<", "p99<x", "p99>1ms", "p99<-1ms", "p99<5"] {
            assert!(text.parse::<Promise>().is_err(), "{text}");
        }
        for text in ["p99<0", "p99<0ms", "p99<999ns", "p99<61m", "p99<-1ms", "p99<5"] {
            let error = text.parse::<Promise>().unwrap_err();
            assert!(error.contains(text) && error.contains("1us to 1h"), "{error}");
        }
    }

    #[test]
    fn rates_are_rounded_to_what_one_would_say() {
        for (rate, rounded) in
            [(1414.2, 1400.0), (11_313.7, 11_500.0), (90_509.0, 90_500.0), (1.4, 1.4)]
        {
            assert!((round(rate) - rounded).abs() < 1e-6 * rounded, "{rate}: {}", round(rate));
        }
    }

    #[test]
    fn a_search_begins_where_no_block_is_longer_than_a_minute() {
        let begin = |text: &str, duration| {
            let promise: Promise = text.parse().unwrap();
            let duration = Duration::from_secs(duration);
            (promise.begins_at(duration), promise.seconds_needed(promise.begins_at(duration)))
        };
        for (name, _) in Quantile::ALL {
            let (rate, seconds) = begin(&format!("{name}<1ms"), 10);
            assert!(rate >= BEGIN && seconds <= LONGEST, "{name}: {seconds} s at {rate}/s");
        }
        let (rate, _) = begin("p99.99<1ms", 1500);
        assert!((rate - BEGIN).abs() < 1.0, "the user asked for longer ones: {rate}");
    }

    #[test]
    fn the_time_that_is_told_is_that_of_the_blocks() {
        let interrupted = AtomicBool::new(false);
        let mut bench = Bench::on_this_machine(&interrupted, Progress::silent()).unwrap();
        let plan = Plan::new("127.0.0.1:1".parse().unwrap()).duration(Duration::from_secs(1));
        expect(&mut bench, &Load { plan, slow_clients: 0 }, "p99.9<1ms".parse().unwrap());
        bench.progress.begin("a");
        // A minute, then half of it and so on, then seven times a thirty-second of it.
        let line = bench.progress.line();
        assert!(line.starts_with("[1/13] a · about 2 min "), "{line}");
    }
}
