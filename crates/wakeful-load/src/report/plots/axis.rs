//! Axes: their ranges and ticks.

use crate::format;

/// An axis. Its positions are those by which [`lines`](super::lines) draws. On a logarithmic axis,
/// they are logarithms.
#[derive(Debug, Clone)]
pub(super) struct Axis {
    pub(super) low: f64,
    pub(super) high: f64,
    pub(super) ticks: Vec<(f64, String)>,
    pub(super) title: &'static str,
}

/// Returns the position of a time on a logarithmic axis. Less than a nanosecond counts as a
/// nanosecond.
pub(super) fn log(value: f64) -> f64 {
    value.max(1.0).log10()
}

/// Returns the position of a quantile: 0.9 is at 1, 0.99 at 2, 0.999 at 3.
pub(super) fn nines(quantile: f64) -> f64 {
    -(1.0 - quantile).log10()
}

impl Axis {
    /// Makes a logarithmic axis of times around these values, in nanoseconds.
    pub(super) fn times(values: impl Iterator<Item = f64>, title: &'static str) -> Self {
        let (low, high) = span(values.filter(|value| value.is_finite()).map(log));
        let steps: &[f64] = if high - low > 2.5 { &[1.0] } else { &[1.0, 2.0, 5.0] };
        Self::logarithmic(low, high, steps, format::tick, title)
    }

    /// Makes a logarithmic axis of ratios, which always shows 1.
    pub(super) fn ratios(values: impl Iterator<Item = f64>, title: &'static str) -> Self {
        let values = values.filter(|value| *value > 0.0 && value.is_finite()).map(f64::log10);
        let (low, high) = values.fold((-0.01, 0.01), |(low, high): (f64, f64), value| {
            (low.min(value), high.max(value))
        });
        let (low, high) = (low - (high - low) * 0.08, high + (high - low) * 0.08);
        let candidates: &[f64] = if high - low > 0.8 {
            &[0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0]
        } else if high - low > 0.3 {
            &[0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.5, 1.75, 2.0, 2.5]
        } else if high - low > 0.08 {
            &[0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.4]
        } else {
            &[0.94, 0.96, 0.98, 1.0, 1.02, 1.04, 1.06]
        };
        let ticks = candidates
            .iter()
            .map(|value| (value.log10(), format!("{value}")))
            .filter(|(at, _)| (low..=high).contains(at))
            .collect();
        Self { low, high, ticks, title }
    }

    fn logarithmic(
        low: f64,
        high: f64,
        steps: &[f64],
        label: fn(f64) -> String,
        title: &'static str,
    ) -> Self {
        let mut ticks = Vec::new();
        for decade in low.floor() as i32..=high.ceil() as i32 {
            for step in steps {
                let value = step * 10f64.powi(decade);
                if (low..=high).contains(&value.log10()) {
                    ticks.push((value.log10(), label(value)));
                }
            }
        }
        if ticks.len() < 2 {
            // The span lies within one step. Ticks near its ends say more than a single tick does.
            let inset = (high - low) * 0.1;
            ticks = [low + inset, high - inset]
                .map(|at| (at, label(10f64.powf(at))))
                .into_iter()
                .collect();
        }
        Self { low, high, ticks, title }
    }

    /// Makes an axis of quantiles, from the median to the position `highest`.
    pub(super) fn quantiles(highest: f64) -> Self {
        let all = [0.5, 0.9, 0.99, 0.999, 0.9999, 0.999_99, 0.999_999];
        let names = ["50 %", "90 %", "99 %", "99.9 %", "99.99 %", "99.999 %", "99.9999 %"];
        let (low, high) = (nines(0.5), highest.max(1.0) + 1e-9);
        let ticks = all
            .iter()
            .zip(names)
            .map(|(quantile, name)| (nines(*quantile), name.to_owned()))
            .filter(|(at, _)| *at <= high + 0.01)
            .collect();
        Self { low, high: high.max(low + 0.1) + 0.02, ticks, title: "percentile" }
    }

    /// Makes a logarithmic axis of rates, with a tick at each rate.
    pub(super) fn rates(rates: &[f64]) -> Self {
        let (low, high) = span(rates.iter().map(|rate| log(*rate)));
        let ticks = rates.iter().map(|rate| (log(*rate), format::short_rate(*rate))).collect();
        Self { low, high, ticks, title: "requests a second offered (log)" }
    }

    /// Makes an axis from 0 to a largest value, in steps of 1, 2 or 5 times a power of ten.
    pub(super) fn linear(highest: f64, label: impl Fn(f64) -> String, title: &'static str) -> Self {
        let highest = if highest.is_finite() && highest > 0.0 { highest } else { 1.0 };
        let rough = highest / 4.0;
        let decade = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0]
            .iter()
            .map(|step| step * decade)
            .find(|step| *step >= rough)
            .unwrap_or(rough);
        let count = (highest / step * 1.000_001).floor() as usize;
        let ticks = (0..=count).map(|i| (i as f64 * step, label(i as f64 * step))).collect();
        Self { low: 0.0, high: highest * 1.02, ticks, title }
    }

    /// Returns the ticks without those that would be closer than `apart` pixels to the one before,
    /// on an axis of `pixels` pixels.
    pub(super) fn spaced(&self, pixels: i32, apart: i32) -> Vec<(f64, String)> {
        let least = f64::from(apart) / f64::from(pixels) * (self.high - self.low);
        let mut kept: Vec<(f64, String)> = Vec::new();
        for (at, label) in &self.ticks {
            if kept.last().is_none_or(|(last, _)| at - last >= least) {
                kept.push((*at, label.clone()));
            }
        }
        kept
    }

    /// Returns the ticks without those whose labels would touch, on an axis of `pixels` pixels with
    /// letters that are `letter` pixels wide.
    pub(super) fn thinned(&self, pixels: i32, letter: i32) -> Vec<(f64, String)> {
        let mut kept: Vec<(f64, String)> = Vec::new();
        let mut free = f64::NEG_INFINITY;
        for (at, label) in &self.ticks {
            let middle = (at - self.low) / (self.high - self.low) * f64::from(pixels);
            let half = label.chars().count() as f64 * f64::from(letter) / 2.0;
            if middle - half >= free {
                free = middle + half + 4.0;
                kept.push((*at, label.clone()));
            }
        }
        kept
    }
}

/// Returns the span of the positions, with a margin. It is never empty.
fn span(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (low, high) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
        (low.min(value), high.max(value))
    });
    if low > high {
        return (3.0, 6.0);
    }
    let margin = ((high - low) * 0.05).max(0.08);
    (low - margin, high + margin)
}
