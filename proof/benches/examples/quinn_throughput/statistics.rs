//! Medians and spreads of a few figures.

use std::fmt;

pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { values[middle - 1].midpoint(values[middle]) }
}

/// The median of ratios, the lowest and the highest.
pub(crate) struct Spread {
    median: f64,
    lowest: f64,
    highest: f64,
}

impl Spread {
    pub(crate) fn of(values: Vec<f64>) -> Self {
        let lowest = values.iter().copied().fold(f64::INFINITY, f64::min);
        let highest = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        Self { median: median(values), lowest, highest }
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3} ({:.3} to {:.3})", self.median, self.lowest, self.highest)
    }
}
