//! Compares A with B in interleaved blocks (A B B A), each with a fresh server, so that slow drifts
//! cancel out. Before that, A is compared with itself, which shows how large a difference is noise.
//!
//! Both blocks of a pair have the same seed, so the same requests are due at the same times. Each
//! pair has a seed of its own.

use crate::bench::{Bench, BenchError, Block, Load};
use crate::results::{Comparison, Floor, Metric};
use crate::series::{Figures, Series, Slices};
use crate::servers::ServerSpec;
use crate::statistics::{self, MIN_PAIRS};

/// How much is measured, and what is kept of it.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    /// Pairs of A and B; at least [`MIN_PAIRS`], or nothing can be claimed.
    pub pairs: usize,
    /// Pairs of A against A.
    pub noise_pairs: usize,
    /// What is kept of the slices of each block.
    pub slices: Slices,
}

impl Default for Size {
    fn default() -> Self {
        Self { pairs: 10, noise_pairs: MIN_PAIRS, slices: Slices::default() }
    }
}

/// The blocks of a comparison, before the decision.
#[derive(Debug, Clone, Default)]
pub struct Pairs {
    /// A and B, in whichever order they were run.
    pub pairs: Vec<(Figures, Figures)>,
    /// A and A.
    pub noise: Vec<(Figures, Figures)>,
    /// All blocks of A, those against itself included.
    pub a: Option<Series>,
    /// All blocks of B.
    pub b: Option<Series>,
}

fn keep(series: &mut Option<Series>, server: &ServerSpec, block: Block, slices: Slices) {
    match series {
        Some(series) => series.add(block),
        None => *series = Some(Series::new(server.name(), block, slices)),
    }
}

/// Tells the user how long [`measure`] will take.
pub fn expect(bench: &mut Bench<'_>, load: &Load, size: Size) {
    bench.progress.expect(2 * (size.pairs + size.noise_pairs), bench.expected_time(load));
}

/// Measures the pairs. If the user ends it, it returns what is complete.
///
/// # Errors
/// The errors of a block.
pub fn measure(
    bench: &mut Bench<'_>,
    a: &ServerSpec,
    b: &ServerSpec,
    load: &Load,
    size: Size,
) -> Result<Pairs, BenchError> {
    let mut measured = Pairs::default();
    for pair in 0..size.noise_pairs + size.pairs {
        let is_noise = pair < size.noise_pairs;
        let (first, second) = match (is_noise, pair % 2) {
            (true, _) => (a, a),
            (false, 0) => (a, b),
            (false, _) => (b, a),
        };
        let mut load = load.clone();
        load.plan.seed = load.plan.seed.wrapping_add(pair as u64);
        let label = if is_noise { "A against A" } else { "A against B" };
        let mut block =
            |spec: &ServerSpec| bench.block(spec, &load, &format!("{label}: {}", spec.name()));
        let both = block(first).and_then(|one| Ok((one, block(second)?)));
        let (one, other) = match both {
            Ok(both) => both,
            Err(error) if error.is_interrupted() => break,
            Err(error) => return Err(error),
        };
        if one.measurement.interrupted || other.measurement.interrupted {
            break;
        }
        if is_noise {
            measured.noise.push((Figures::of(&one), Figures::of(&other)));
            keep(&mut measured.a, a, one, size.slices);
            keep(&mut measured.a, a, other, size.slices);
        } else {
            let (of_a, of_b) = if pair % 2 == 0 { (one, other) } else { (other, one) };
            measured.pairs.push((Figures::of(&of_a), Figures::of(&of_b)));
            keep(&mut measured.a, a, of_a, size.slices);
            keep(&mut measured.b, b, of_b, size.slices);
        }
        if bench.is_interrupted() {
            break;
        }
    }
    Ok(measured)
}

/// A figure of a block, if the block has it.
type Figure = fn(&Figures) -> Option<f64>;

const COMPARED: [(&str, Figure); 6] = [
    ("p50", |figures| figures.p50),
    ("p90", |figures| figures.p90),
    ("p99", |figures| figures.p99),
    ("p99.9", |figures| figures.p999),
    ("cpu", |figures| figures.cpu_per_request),
    ("throughput", |figures| Some(figures.throughput)),
];

/// Decides what the pairs show. A latency that is less than twice the floor's is marked, because
/// more than half of it is not due to the server.
#[must_use]
pub fn decide(
    (a, b): (&str, &str),
    rate: Option<f64>,
    pairs: &Pairs,
    floor: Option<&Floor>,
    seed: u64,
) -> Comparison {
    let floor = floor.map(|floor| &floor.response);
    let mut metrics = Vec::new();
    for (name, figure) in COMPARED {
        let of = |pairs: &[(Figures, Figures)]| {
            pairs.iter().filter_map(|(a, b)| figure(a).zip(figure(b))).collect::<Vec<_>>()
        };
        let (figures, noise) = (of(&pairs.pairs), of(&pairs.noise));
        // A figure that is missing in some blocks is left out of the comparison.
        if figures.len() < pairs.pairs.len() || figures.is_empty() {
            continue;
        }
        let noise = (!noise.is_empty()).then_some(noise);
        let Some(compared) = statistics::compare(&figures, noise.as_deref(), seed) else {
            continue;
        };
        let (of_a, of_b): (Vec<f64>, Vec<f64>) = figures.into_iter().unzip();
        let (of_a, of_b) = (statistics::median(&of_a), statistics::median(&of_b));
        let least = floor.and_then(|floor| match name {
            "p50" => floor.p50,
            "p90" => floor.p90,
            "p99" => floor.p99,
            "p99.9" => floor.p999,
            _ => None,
        });
        let near_floor = least.is_some_and(|least| of_a.min(of_b) < 2.0 * least as f64);
        metrics.push(Metric {
            name: name.to_owned(),
            a: of_a,
            b: of_b,
            ratio: compared.ratio.median,
            low: compared.ratio.low,
            high: compared.ratio.high,
            noise: compared.noise.map(|noise| (noise.median, noise.low, noise.high)),
            verdict: match pairs.pairs.len() {
                ..MIN_PAIRS => "cannot tell".to_owned(),
                _ => compared.difference.as_str().to_owned(),
            },
            near_floor,
        });
    }
    Comparison { a: a.to_owned(), b: b.to_owned(), rate, pairs: pairs.pairs.len(), metrics }
}
