//! The gate at which a producer is stopped in the middle of its push, until it may continue. There
//! is one gate, because a signal handler must find it.
//!
//! Everything here is async-signal-safe: atomics and futex calls, which do not change errno.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::SeqCst;

use rustix::thread::futex;

static STATE: AtomicU32 = AtomicU32::new(RUNS);
static OPEN: AtomicU32 = AtomicU32::new(0);

/// Wakes every waiter. The kernel treats the number as signed.
pub const ALL: u32 = i32::MAX.cast_unsigned();

const RUNS: u32 = 0;
const STOPPED: u32 = 1;
const ENDED: u32 = 2;

/// What happened to the producer that should be stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// It is at the gate, in the middle of its push.
    Stopped,
    /// Its push ended before it came to the gate.
    Ended,
}

/// Closes the gate for the next producer.
pub fn close() {
    STATE.store(RUNS, SeqCst);
    OPEN.store(0, SeqCst);
}

/// Stops the producer here.
pub fn stop_here() {
    announce(STOPPED);
    while OPEN.load(SeqCst) == 0 {
        // The wait ends because the gate was opened, by a signal, or because the gate was open
        // already.
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

/// Waits until the producer stops or its push ends.
pub fn arrival() -> Arrival {
    loop {
        match STATE.load(SeqCst) {
            STOPPED => return Arrival::Stopped,
            ENDED => return Arrival::Ended,
            _ => drop(futex::wait(&STATE, futex::Flags::PRIVATE, RUNS, None)),
        }
    }
}

/// Lets the producer continue.
pub fn open() {
    OPEN.store(1, SeqCst);
    let _ = futex::wake(&OPEN, futex::Flags::PRIVATE, ALL);
}
