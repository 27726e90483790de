//! A debug mode that runs ready tasks in another order than the one in which they became ready, so
//! that code which relies on an order that nobody promised fails in a test and not in production.
//!
//! `WAKEFUL_SHUFFLE=seed` (a number) turns it on, in builds with debug assertions only. Promised
//! orders stay: closures, and tasks that have not begun, keep their order and their places. Only
//! tasks that were woken, or yielded, change places with one another, within the nodes of one turn.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// The order of one loop: random numbers, repeatable by the seed.
#[derive(Debug)]
pub(super) struct Shuffle(Cell<u64>);

impl Shuffle {
    /// The shuffle that the environment asks for. Each loop of the process gets its own order.
    pub(super) fn from_environment() -> Option<Self> {
        static SEED: OnceLock<Option<u64>> = OnceLock::new();
        static LOOPS: AtomicU64 = AtomicU64::new(0);
        let seed = SEED.get_or_init(|| {
            let seed = std::env::var("WAKEFUL_SHUFFLE").ok()?;
            let number = seed.parse().ok();
            if number.is_none() {
                crate::sys::panics::log!(
                    warn,
                    "WAKEFUL_SHUFFLE={seed} is not a number: tasks keep their order"
                );
            }
            number
        });
        let of_this_loop =
            LOOPS.fetch_add(1, Ordering::Relaxed).wrapping_mul(0xa076_1d64_78bd_642f);
        seed.map(|seed| Self(Cell::new(seed ^ of_this_loop)))
    }

    /// Fisher and Yates's algorithm.
    pub(super) fn shuffle<T>(&self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }

    /// A number from 0 to `end` - 1, by splitmix64 (Steele, Lea, Flood). It is written here, so
    /// that a seed repeats an order with every version of every dependency. The bias of the
    /// remainder does not matter.
    fn below(&self, end: usize) -> usize {
        let state = self.0.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.0.set(state);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        usize::try_from(z % end as u64).unwrap_or(0)
    }
}
