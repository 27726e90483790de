//! How much A differs from itself. "Not worse" allows for that.

use wakeful_load::internals::format;
use wakeful_load::internals::results::Claim;
use wakeful_load::internals::statistics::ratio_of_pairs;

/// Returns the most by which A is above or below itself, as a factor of at least 1.
pub(super) fn noise(once: &[Option<f64>], again: &[Option<f64>], seed: u64) -> Option<f64> {
    let pairs: Vec<(f64, f64)> =
        once.iter().zip(again).filter_map(|(once, again)| once.zip(*again)).collect();
    ratio_of_pairs(&pairs, seed).map(|ratio| ratio.high.max(1.0 / ratio.low).max(1.0))
}

/// Adds to a claim the noise that was allowed for.
pub(super) fn with_noise(claim: Claim, noise: Option<f64>) -> Claim {
    let noise = noise.map_or("not known".to_owned(), format::number);
    Claim { measured: format!("{}; the noise is {noise}", claim.measured), ..claim }
}
