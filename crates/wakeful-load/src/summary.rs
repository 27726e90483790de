//! Turns the recording of a run into its results.

use std::time::Duration;

use hdrhistogram::Histogram;

use crate::generator::Measurement;
use crate::protocol::Kind;
use crate::results::{Cpu, Interval, KindOfRequest, Percentiles, Run, Validity};
use crate::validity::{SAMPLES_BEYOND, has_enough_beyond, judge};

/// Returns the figures of a distribution.
#[must_use]
pub fn percentiles(histogram: &Histogram<u64>) -> Percentiles {
    let count = histogram.len();
    if count == 0 {
        return Percentiles::default();
    }
    let at = |quantile: f64| {
        has_enough_beyond(histogram, quantile).then(|| histogram.value_at_quantile(quantile))
    };
    // The curve has eight points for each halving of the share beyond.
    let mut curve = vec![(0.0, histogram.min())];
    let mut beyond = 0.5_f64.powf(0.125);
    while beyond * count as f64 >= SAMPLES_BEYOND {
        curve.push((1.0 - beyond, histogram.value_at_quantile(1.0 - beyond)));
        beyond *= 0.5_f64.powf(0.125);
    }
    Percentiles {
        count,
        mean: histogram.mean(),
        min: histogram.min(),
        max: histogram.max(),
        p50: at(0.5),
        p90: at(0.9),
        p99: at(0.99),
        p999: at(0.999),
        p9999: at(0.9999),
        curve,
    }
}

impl Measurement {
    /// Returns the distribution of response times (answered minus due). A quantile with fewer than
    /// 100 requests beyond it is absent.
    #[must_use]
    pub fn percentiles(&self) -> Percentiles {
        percentiles(&self.recording.response)
    }

    /// Returns whether the measurement is valid, and if not, why. A measurement in which no request
    /// succeeded is invalid. It is also invalid in these cases:
    /// * The server broke the protocol.
    /// * With a schedule: fewer than 99.5 % of the requests were answered in time, or the generator
    ///   sent requests late.
    /// * In a closed loop: more than 0.5 % of the requests failed, or the generator had no CPU for
    ///   more than 2 % of the time.
    #[must_use]
    pub fn validity(&self) -> Validity {
        judge(self)
    }

    /// Returns all results, in the form that `wakeful load --json` prints as an entry of `runs`.
    /// `server` is the name that the entry has for the server.
    #[must_use]
    pub fn to_run(&self, server: &str) -> Run {
        let around = Surroundings { blocks: 1, ..Surroundings::default() };
        let recording = &self.recording;
        run(server, self, timeline(&recording.intervals, recording.interval, 0), around)
    }
}

/// The circumstances of a measurement that a report mentions.
#[derive(Debug, Clone, Copy, Default)]
pub struct Surroundings {
    /// What the server's process used in the measured time, if it is known.
    pub cpu: Option<Cpu>,
    /// How many CPUs' worth of time the hypervisor took.
    pub steal: f64,
    /// How many blocks were merged.
    pub blocks: usize,
    /// How many blocks were measured again because other programs spoilt them.
    pub repeated: usize,
}

/// Makes the results of a measurement.
#[must_use]
pub(crate) fn run(
    server: &str,
    measurement: &Measurement,
    timeline: Vec<Interval>,
    around: Surroundings,
) -> Run {
    let plan = &measurement.plan;
    let recording = &measurement.recording;
    Run {
        server: server.to_owned(),
        rate: plan.schedule.rate(),
        schedule: plan.schedule.name().to_owned(),
        seed: plan.seed,
        connections: plan.connections,
        seconds: measurement.seconds,
        offered: recording.offered,
        answered: recording.answered,
        failed: recording.failed,
        waited_for_connection: recording.waited_for_connection,
        throughput: recording.answers as f64 / measurement.seconds.max(1e-9),
        response: percentiles(&recording.response),
        service: percentiles(&recording.service),
        send_lag: percentiles(&recording.send_lag),
        kinds: kinds(measurement),
        cpu: around.cpu,
        steal: around.steal,
        timeline,
        validity: judge(measurement),
        blocks: around.blocks,
        repeated: around.repeated,
        spoilt: 0,
        saturated: false,
    }
}

/// Returns what each of several kinds of requests took.
#[must_use]
pub fn kinds(measurement: &Measurement) -> Vec<KindOfRequest> {
    let of_kinds = measurement.plan.requests.kinds().iter().zip(&measurement.recording.by_kind);
    let kind = |(kind, histogram): (&Kind, &Histogram<u64>)| KindOfRequest {
        name: kind.name.clone(),
        throughput: histogram.len() as f64 / measurement.seconds.max(1e-9),
        response: percentiles(histogram),
    };
    of_kinds.map(kind).collect()
}

/// Returns the figures of slices of this length, without those that are empty. `before` is how many
/// slices there were before these.
pub(crate) fn timeline(
    slices: &[Histogram<u64>],
    length: Duration,
    before: usize,
) -> Vec<Interval> {
    let slices = slices.iter().enumerate();
    slices
        .filter(|(_, histogram)| !histogram.is_empty())
        .map(|(index, histogram)| Interval {
            start: (before + index) as f64 * length.as_secs_f64(),
            count: histogram.len(),
            p50: histogram.value_at_quantile(0.5),
            p99: histogram.value_at_quantile(0.99),
            max: histogram.max(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_with_few_samples_beyond_it_is_absent() {
        let mut histogram = Histogram::new(3).unwrap();
        (1..=20_000).for_each(|value| histogram.record(value).unwrap());
        let figures = percentiles(&histogram);
        assert!(figures.p50.is_some_and(|p50| p50.abs_diff(10_000) <= 10), "{figures:?}");
        assert!(figures.p99.is_some_and(|p99| p99.abs_diff(19_800) <= 20), "{figures:?}");
        assert_eq!(figures.p999, None);
        assert!(
            figures.curve.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1)
        );
        assert!(figures.curve.last().unwrap().0 <= 0.995);
    }

    #[test]
    fn nothing_recorded_has_no_percentiles() {
        let figures = percentiles(&Histogram::new(3).unwrap());
        assert_eq!((figures.count, figures.p50, figures.curve.len()), (0, None, 0));
    }
}
