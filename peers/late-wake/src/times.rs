//! Many times as the few figures that are printed.

use std::fmt::Write as _;

/// Fewer samples than this beyond a quantile, and it is not told.
const BEYOND: f64 = 100.0;

/// As JSON, in nanoseconds: quantiles by nearest rank.
pub(crate) fn json(times: &mut [u64]) -> String {
    times.sort_unstable();
    let count = times.len();
    let at = |quantile: f64| {
        let rank = (quantile * count as f64).ceil() as usize;
        times.get(rank.clamp(1, count.max(1)) - 1).copied().unwrap_or_default()
    };
    let (min, max) = (at(0.0), at(1.0));
    let mut json =
        format!("{{\"count\":{count},\"min\":{min},\"p50\":{},\"p90\":{},", at(0.5), at(0.9));
    let p99 = Some(at(0.99)).filter(|_| count as f64 * 0.01 >= BEYOND);
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
