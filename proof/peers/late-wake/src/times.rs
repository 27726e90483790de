//! Reduces many times to the few figures that are printed.

use std::fmt::Write as _;

/// With fewer samples than this, fewer than 100 are beyond the 99th percentile, and it is not
/// printed.
const FEWEST_FOR_P99: usize = 10_000;

/// Returns the times as JSON, in nanoseconds. Quantiles are by nearest rank.
pub(crate) fn json(times: &mut [u64]) -> String {
    times.sort_unstable();
    let count = times.len();
    let at = |percent: usize| {
        let rank = (count * percent).div_ceil(100).max(1);
        times.get(rank - 1).copied().unwrap_or_default()
    };
    let (min, max) = (at(0), at(100));
    let mut json =
        format!("{{\"count\":{count},\"min\":{min},\"p50\":{},\"p90\":{},", at(50), at(90));
    let p99 = Some(at(99)).filter(|_| count >= FEWEST_FOR_P99);
    let p99 = p99.map_or_else(|| "null".to_owned(), |p99| p99.to_string());
    write!(json, "\"p99\":{p99},\"max\":{max}}}").expect("a string takes everything");
    json
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_by_nearest_rank_and_p99_needs_samples() {
        let mut times: Vec<u64> = (1..=10).rev().collect();
        assert_eq!(json(&mut times), r#"{"count":10,"min":1,"p50":5,"p90":9,"p99":null,"max":10}"#);
        let mut times: Vec<u64> = (1..=10_000).collect();
        assert!(json(&mut times).contains(r#""p99":9900,"#));
        assert_eq!(json(&mut [7]), r#"{"count":1,"min":7,"p50":7,"p90":7,"p99":null,"max":7}"#);
    }
}
