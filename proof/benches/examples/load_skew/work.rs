//! The work of a request: a number of steps of a computation, the same in every server.
//!
//! A request asks for steps and not for time: if other programs hold up a server, all of its work
//! still remains. How many steps take a microsecond is measured once, for all contenders.

use std::hint::black_box;
use std::time::{Duration, Instant};

/// The length of a request and of its answer. Both have the steps, and the time when the request
/// was due, in big-endian order.
pub const FRAME: usize = 16;

/// Makes a request for `steps` that was due at `due`, in nanoseconds on the client's clock.
pub fn frame(steps: u64, due: u64) -> [u8; FRAME] {
    let mut frame = [0; FRAME];
    frame[..8].copy_from_slice(&steps.to_be_bytes());
    frame[8..].copy_from_slice(&due.to_be_bytes());
    frame
}

/// Returns when the request was due.
pub fn due(frame: &[u8; FRAME]) -> u64 {
    frame.last_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

/// Computes what a request asks for.
pub fn answer(frame: &[u8; FRAME]) {
    compute(frame.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes)));
}

/// Computes. Each step needs the result of the one before.
fn compute(steps: u64) {
    let mut x = black_box(steps);
    for _ in 0..steps {
        x = (x ^ (x >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    }
    black_box(x);
}

/// Returns how many steps fit into `time`, in the best case.
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
