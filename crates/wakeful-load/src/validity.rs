//! Decides whether a measurement is valid.

use hdrhistogram::Histogram;

use crate::generator::Measurement;
use crate::results::Validity;
use crate::schedule::Schedule;

/// A quantile with fewer samples beyond it is not reported, because it would depend on chance.
pub(crate) const SAMPLES_BEYOND: f64 = 100.0;

/// At least this share of the offered requests has to be answered, after the piled-up ones are
/// taken off.
const LEAST_ACHIEVED: f64 = 0.995;

/// The send lag may be this share of the response time, at the highest percentile that is reported
/// (p99 at most). [`LAG_ALLOWED`] is allowed in any case.
const LAG_SHARE: f64 = 0.1;

/// A send lag of 10 µs, in nanoseconds, is allowed in any case.
const LAG_ALLOWED: u64 = 10_000;

/// The beginning of the reason that leaves the lower percentiles valid.
const LATE: &str = "the generator was late";

/// The share of the time for which the generator may be kept from its CPU in a closed loop.
const ROBBED_ALLOWED: f64 = 0.02;

/// Returns whether a quantile has the 100 samples beyond it that it needs.
#[must_use]
pub fn has_enough_beyond(histogram: &Histogram<u64>, quantile: f64) -> bool {
    // The difference from 1 is not exact.
    histogram.len() as f64 * (1.0 - quantile) >= SAMPLES_BEYOND - 1e-6
}

/// Decides as [`Measurement::validity`] says.
pub(crate) fn judge(measurement: &Measurement) -> Validity {
    let plan = &measurement.plan;
    let recording = &measurement.recording;
    let mut reasons = Vec::new();
    let mut up_to = None;
    if recording.answered == 0 {
        reasons.push("no request succeeded".to_owned());
    } else if plan.schedule != Schedule::Closed {
        let offered = recording.offered as f64;
        let achieved = recording.answered.saturating_sub(measurement.piled_up) as f64 / offered;
        if achieved < LEAST_ACHIEVED {
            let percent = achieved * 100.0;
            reasons.push(format!(
                "only {percent:.2} % of the offered requests were answered in time (at least 99.5 % are needed): {} piled \
                 up, {} failed",
                measurement.piled_up, recording.failed
            ));
        }
        // From the highest quantile that is reported, p99 at most. Beyond p99, the send lag depends
        // on chance, too.
        let quantiles = [(0.99, "p99"), (0.9, "p90"), (0.5, "p50")];
        let enough = |(at, _): &&(f64, _)| has_enough_beyond(&recording.response, *at);
        let first = quantiles.iter().position(|it| enough(&it)).unwrap_or(2);
        for (at, name) in &quantiles[first..] {
            let lag = recording.send_lag.value_at_quantile(*at);
            let response = recording.response.value_at_quantile(*at);
            let is_late = reasons.iter().any(|reason: &String| reason.starts_with(LATE));
            // Those that waited for a connection may have waited behind late ones.
            let waited_late = if is_late { recording.waited_for_connection } else { 0 };
            if (lag <= LAG_ALLOWED || lag as f64 <= LAG_SHARE * response as f64)
                && waited_late as f64 <= offered * (1.0 - at)
            {
                up_to = Some((*name).to_owned());
                break;
            }
            if !is_late {
                reasons.push(format!(
                    "{LATE}: its send lag has a {name} of {:.1} µs, against a response time of {:.1} µs (other threads had \
                     its CPU for {:.1} ms); give it a CPU of its own, or a lower rate",
                    lag as f64 / 1e3,
                    response as f64 / 1e3,
                    measurement.robbed * 1e3
                ));
            }
        }
    } else {
        if recording.failed as f64 > recording.offered as f64 * (1.0 - LEAST_ACHIEVED) {
            reasons.push(format!("{} of {} requests failed", recording.failed, recording.offered));
        }
        if measurement.robbed > ROBBED_ALLOWED * measurement.seconds {
            let percent = measurement.robbed / measurement.seconds * 100.0;
            reasons.push(format!(
                "the generator was kept from its CPU for {percent:.1} % of the time"
            ));
        }
    }
    if let Some((what, _)) = measurement.protocol_errors.first_key_value() {
        let times: u64 = measurement.protocol_errors.values().sum();
        reasons.push(format!("the server broke the protocol ({times} counted): {what}"));
    }
    if reasons.iter().any(|reason| !reason.starts_with(LATE)) {
        up_to = None;
    }
    if let (Some(cause), false) = (&measurement.first_failure, reasons.is_empty()) {
        reasons.push(format!("the first failure: {cause}"));
    }
    if reasons.is_empty() { Validity::Valid } else { Validity::Invalid { reasons, up_to } }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recorder::{Recording, Request};

    const MS: u64 = 1_000_000;

    /// A second of 10,000 requests. Of each hundred, `late` find the generator late, and `waited`
    /// wait for a connection. Those that wait take 30 ms each, and the others `response`.
    fn measured(late: u64, lag: u64, waited: u64, response: u64) -> Validity {
        let mut recording = Recording::new(0..1000 * MS, 0);
        for index in 0..10_000 {
            let (intended, number) = (index * MS / 10, index % 100);
            let lag = if number < late { lag } else { 0 };
            recording.offered += 1;
            if number < waited {
                recording.waits(intended, intended + lag);
            } else {
                recording.sent_at_once(intended, intended + lag);
            }
            let took = if number < late.max(waited) { 30 * MS } else { response };
            let request = Request { intended, sent: intended + lag, kind: 0 };
            recording.answered(request, intended + took);
        }
        Measurement::of(recording).validity()
    }

    fn usable(validity: Validity) -> Option<String> {
        let Validity::Invalid { reasons, up_to } = validity else { panic!("it is called valid") };
        assert!(reasons[0].starts_with(LATE), "{reasons:?}");
        up_to
    }

    #[test]
    fn what_waited_behind_late_requests_is_not_usable() {
        assert_eq!(usable(measured(5, 20 * MS, 0, MS)).as_deref(), Some("p90"));
        assert_eq!(usable(measured(5, 20 * MS, 5, MS)).as_deref(), Some("p90"));
        assert_eq!(usable(measured(5, 20 * MS, 20, MS)).as_deref(), Some("p50"));
        assert_eq!(usable(measured(5, 20 * MS, 60, MS)), None);
    }

    /// As on a machine with a little noise: the server makes the requests wait, however often the
    /// generator is kept from its CPU for a short time.
    #[test]
    fn who_waits_far_longer_than_the_generator_was_late_is_judged_valid() {
        assert_eq!(measured(5, MS, 60, MS), Validity::Valid);
    }
}
