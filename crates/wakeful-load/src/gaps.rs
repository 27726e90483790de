//! Measures how long the machine interrupts a thread that only reads the clock. No generator can be
//! more punctual than that.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use crate::affinity;
use crate::recorder::nanoseconds;
use crate::results::Gaps;

/// Long enough for a hundred ticks of the slowest kernels.
const DURATION: Duration = Duration::from_secs(1);

/// Longer times between two readings of the clock were not due to the reading itself.
const LEAST: u64 = 10_000;

/// Spins for a second on `cpu`. `None`: on any CPU.
///
/// # Errors
/// The CPU may not be used, or no thread can be started.
pub fn on_cpu(cpu: Option<usize>) -> io::Result<Gaps> {
    let spin = move || {
        cpu.map_or(Ok(()), |cpu| affinity::pin_current_thread(&[cpu]))?;
        Ok(spin())
    };
    let spinner = thread::Builder::new().name("gaps".to_owned()).spawn(spin)?;
    spinner.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn spin() -> Gaps {
    let mut gaps = Vec::with_capacity(1 << 16);
    let begin = Instant::now();
    let mut last = 0;
    while last < nanoseconds(DURATION) {
        let now = nanoseconds(begin.elapsed());
        if now - last > LEAST && gaps.len() < gaps.capacity() {
            gaps.push(now - last);
        }
        last = now;
    }
    describe(gaps, last)
}

fn describe(mut gaps: Vec<u64>, total: u64) -> Gaps {
    gaps.sort_unstable();
    let lost: u64 = gaps.iter().sum();
    Gaps {
        over_10us_a_second: gaps.len() as f64 * 1e9 / total as f64,
        lost: lost as f64 / total as f64,
        longest: gaps.last().copied().unwrap_or(0),
        lag_p99: lag(&gaps, total / 100),
    }
}

/// The lag that is exceeded for `share` of the time: what is due in a gap waits for its end, so
/// that a gap of length g exceeds a lag of l for g − l. The gaps are sorted.
fn lag(gaps: &[u64], share: u64) -> u64 {
    let (mut sum, mut count) = (0, 0);
    for (index, gap) in gaps.iter().enumerate().rev() {
        (sum, count) = (sum + gap, count + 1);
        // If the lag lies between the next shorter gap and this one, exactly these gaps exceed it.
        let shorter = if index == 0 { 0 } else { gaps[index - 1] };
        if sum.saturating_sub(count * shorter) >= share {
            return (sum - share) / count;
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lag_of_random_arrivals_follows_from_the_gaps() {
        // Ten gaps of 100 µs in 10 ms are a tenth of the time. What is due in them waits up to 100
        // µs, evenly distributed.
        let gaps = describe(vec![100_000; 10], 10_000_000);
        assert!((gaps.lost - 0.1).abs() < 1e-9);
        assert_eq!(gaps.lag_p99, 90_000);
        // The gap takes exactly one percent of the time, so beyond that nothing is late.
        assert_eq!(describe(vec![100_000], 10_000_000).lag_p99, 0);
        // Of one long and one short gap, only the long one counts.
        assert_eq!(lag(&[20, 200], 100), 100);
        assert_eq!(lag(&[], 100), 0);
    }
}
