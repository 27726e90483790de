//! What a request asks for: so many steps of a computation, the same in every server.
//!
//! Steps and not time: a server that is held up by others still has all of its work to do. How many
//! a microsecond has is measured once for all contenders.

use std::hint::black_box;
use std::time::{Duration, Instant};

/// A request, and its answer: the steps, and when it was due, both big-endian.
pub const FRAME: usize = 16;

/// A request for `steps` that was due at `due`, in nanoseconds on the client's clock.
pub fn frame(steps: u64, due: u64) -> [u8; FRAME] {
    let mut frame = [0; FRAME];
    frame[..8].copy_from_slice(&steps.to_be_bytes());
    frame[8..].copy_from_slice(&due.to_be_bytes());
    frame
}

/// When it was due.
pub fn due(frame: &[u8; FRAME]) -> u64 {
    frame.last_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

/// Computes what a request asks for.
pub fn answer(frame: &[u8; FRAME]) {
    compute(frame.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes)));
}

/// Each step needs the one before.
fn compute(steps: u64) {
    let mut x = black_box(steps);
    for _ in 0..steps {
        x = (x ^ (x >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    }
    black_box(x);
}

/// How many steps there are in so much time, at best.
pub fn steps_in(time: Duration) -> u64 {
    const TRIAL: u64 = 1_000_000;
    let trial = |_| {
        let began = Instant::now();
        compute(TRIAL);
        began.elapsed()
    };
    let best = (0..50).map(trial).min().unwrap_or_default().as_nanos().max(1);
    u64::try_from(time.as_nanos() * u128::from(TRIAL) / best).unwrap_or(u64::MAX).max(1)
}
