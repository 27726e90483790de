//! What all benches share.

use std::time::Duration;

use criterion::Criterion;

/// Short measurements: all the benches together take about a minute.
pub fn settings() -> Criterion {
    Criterion::default()
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(600))
        .sample_size(20)
}
