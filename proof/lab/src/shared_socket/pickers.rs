//! The cost of picking a loop, in the ways of the public case and by two choices. Each call picks
//! one of eight loops for any thread that asks.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use wakeful_load::internals::affinity;
use wakeful_load::internals::bench::BenchError;

use super::parts::PICKERS;
use crate::interleaved::{self, Failure, Measured};
use crate::lab::{Lab, LabError};

const LOOPS: usize = 8;

const PICKS: u32 = 1_000_000;

/// What all pickers share.
#[derive(Default)]
struct Loops {
    next: AtomicUsize,
    /// The connections of each loop.
    loads: [AtomicUsize; LOOPS],
    random: AtomicU64,
}

type Pick = fn(&Loops) -> usize;

const WAYS: [(&str, Pick); 5] = [
    ("in turn, add and compare", add_and_compare),
    ("in turn, a remainder", remainder),
    ("in turn, a mask", mask),
    ("at random", at_random),
    ("the less loaded of two at random", of_two),
];

/// The number never leaves the range, so this needs a compare-and-swap.
fn add_and_compare(loops: &Loops) -> usize {
    let mut now = loops.next.load(Ordering::Relaxed);
    loop {
        let next = if now + 1 == black_box(LOOPS) { 0 } else { now + 1 };
        match loops.next.compare_exchange_weak(now, next, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return now,
            Err(changed) => now = changed,
        }
    }
}

/// `black_box` hides the number of loops from the compiler, as if it were known only at run time.
fn remainder(loops: &Loops) -> usize {
    loops.next.fetch_add(1, Ordering::Relaxed) % black_box(LOOPS)
}

/// This needs a number of loops that is a power of two.
fn mask(loops: &Loops) -> usize {
    loops.next.fetch_add(1, Ordering::Relaxed) & (black_box(LOOPS) - 1)
}

fn at_random(loops: &Loops) -> usize {
    below(random(loops), black_box(LOOPS))
}

fn of_two(loops: &Loops) -> usize {
    let bits = random(loops);
    let (one, other) = (below(bits, black_box(LOOPS)), below(bits << 32, black_box(LOOPS)));
    let load = |index: usize| loops.loads[index].load(Ordering::Relaxed);
    if load(other) < load(one) { other } else { one }
}

/// SplitMix64, written out, because the state that is measured is one word that all threads share.
fn random(loops: &Loops) -> u64 {
    let mut bits = loops.random.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
    bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ bits >> 31
}

/// Scales the upper half of the bits to the range below `end`.
fn below(bits: u64, end: usize) -> usize {
    (((bits >> 32) * end as u64) >> 32) as usize
}

/// Tells the user how long the measurement will take.
pub(super) fn expect(lab: &mut Lab<'_>, rounds: usize) {
    lab.bench.progress.expect(rounds * WAYS.len(), Duration::from_millis(20));
}

/// Measures the nanoseconds of a pick.
pub(super) fn measure(lab: &mut Lab<'_>, rounds: usize) -> Result<Measured<f64>, LabError> {
    let names = WAYS.map(|(name, _)| name.to_owned());
    interleaved::measure(lab, PICKERS, &names, rounds, |lab, one, label| {
        let cpu = lab.bench.cpu;
        lab.bench.undisturbed(label, |_| {
            // The measurement has its own thread, so that nothing that is started later inherits
            // the pin.
            let timed = thread::Builder::new().spawn(move || {
                cpu.map_or(Ok(()), |cpu| affinity::pin_current_thread(&[cpu]))?;
                Ok(time(WAYS[one].1))
            });
            let timed = timed.and_then(|timed| {
                timed.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            });
            let doing = "cannot start or pin a thread";
            let value = timed.map_err(|error| BenchError::Kernel { doing, error });
            Ok::<_, Failure>((value?, false))
        })
    })
}

fn time(pick: Pick) -> f64 {
    let loops = Loops::default();
    let begun = Instant::now();
    for _ in 0..PICKS {
        black_box(black_box(pick)(black_box(&loops)));
    }
    begun.elapsed().as_nanos() as f64 / f64::from(PICKS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_picks_every_loop_and_none_beyond() {
        for (name, pick) in WAYS {
            let loops = Loops::default();
            let mut times = [0_u32; LOOPS];
            (0..8_000).for_each(|_| times[pick(&loops)] += 1);
            assert!(times.iter().all(|times| times.abs_diff(1_000) < 200), "{name}: {times:?}");
        }
    }

    #[test]
    fn of_two_the_less_loaded_is_picked() {
        let loops = Loops::default();
        loops.loads[3].store(1, Ordering::Relaxed);
        let picked = (0..8_000).filter(|_| of_two(&loops) == 3).count();
        // It is picked only if it is drawn twice: 1 in 64.
        assert!((60..200).contains(&picked), "{picked}");
    }
}
