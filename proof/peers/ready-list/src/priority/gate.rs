//! Where a producer is stopped in the middle of its push, until it is let go. There is one gate,
//! because a signal handler must find it.
//!
//! Everything here is async-signal-safe: atomics and futex calls, which leave errno as it was.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::SeqCst;

use rustix::thread::futex;

static STATE: AtomicU32 = AtomicU32::new(RUNS);
static OPEN: AtomicU32 = AtomicU32::new(0);

/// Every waiter: the kernel takes it for signed.
pub const ALL: u32 = i32::MAX.cast_unsigned();

const RUNS: u32 = 0;
const STOPPED: u32 = 1;
const ENDED: u32 = 2;

/// What became of the producer that was to be stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// It is at the gate, in the middle of its push.
    Stopped,
    /// Its push ended without coming to the gate.
    Ended,
}

/// Closes the gate for the next producer.
pub fn close() {
    STATE.store(RUNS, SeqCst);
    OPEN.store(0, SeqCst);
}

/// The producer stops here.
pub fn stop_here() {
    announce(STOPPED);
    while OPEN.load(SeqCst) == 0 {
        // Woken, interrupted, or open already.
        let _ = futex::wait(&OPEN, futex::Flags::PRIVATE, 0, None);
    }
}

/// The producer's push is over.
pub fn ended() {
    if STATE.load(SeqCst) == RUNS {
        announce(ENDED);
    }
}

fn announce(state: u32) {
    STATE.store(state, SeqCst);
    let _ = futex::wake(&STATE, futex::Flags::PRIVATE, ALL);
}

/// Waits for the producer to stop or to end.
pub fn arrival() -> Arrival {
    loop {
        match STATE.load(SeqCst) {
            STOPPED => return Arrival::Stopped,
            ENDED => return Arrival::Ended,
            _ => drop(futex::wait(&STATE, futex::Flags::PRIVATE, RUNS, None)),
        }
    }
}

/// Lets the producer go.
pub fn open() {
    OPEN.store(1, SeqCst);
    let _ = futex::wake(&OPEN, futex::Flags::PRIVATE, ALL);
}
