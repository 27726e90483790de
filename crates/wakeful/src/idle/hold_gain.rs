//! Whether a hold makes a wake shorter here. This is measured once per process, on a separate
//! thread, in some 60 ms, when a loop that would hold CPUs has seen traffic. If a hold gains
//! nothing, the thread continues to run, and measures again while there is traffic: a busy machine
//! may have caused the result, and an idle driver may be loaded later. If a hold does gain, the
//! thread checks whether the machine should [not be held](super::reluctance) at present.

use std::io;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread::sleep;
use std::time::Duration;

use wakeful_awake::{BackOff, Gain, latency_device};

use super::once::Once;
use super::reluctance::MACHINE;
use super::survey::start_wake_cost;
use crate::metrics::HoldState;
use crate::sys::panics;
use crate::sys::thread::{start_thread, without_signals};

/// If a measurement finds no gain, the thread measures again after the first of these times, then
/// after twice as long, up to the second. It measures only when there is traffic.
const AGAIN: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(3600));
/// After this many attempts in a row without a gain, a warning is logged. The first of them may be
/// a coincidence.
const TOLD: u32 = 3;

static GAIN: AtomicU8 = AtomicU8::new(UNKNOWN);
const UNKNOWN: u8 = 0;
const NONE: u8 = 1;
const SOME: u8 = 2;

/// Why a hold is not worth it here, as far as is known. The first call in the process with this
/// `stamp` starts the measurement. If there is no thread for it, a later call does.
pub(super) fn why_not(stamp: u32) -> Option<HoldState> {
    static THREAD: Once = Once::new();
    let had_failed = THREAD.has_failed();
    let began = THREAD.start(stamp, || {
        let started = without_signals(|| {
            start_thread("wakeful-survey", || {
                find_out();
                MACHINE.watch(BackOff::new());
            })
        });
        started.map(drop)
    });
    match began {
        Err(error) if had_failed => {
            panics::log!(debug, %error, "cannot measure what holding CPUs gains");
        }
        Err(error) => {
            panics::log!(warn, %error, "cannot measure what holding CPUs gains: they are not held, until there is a thread for it");
        }
        Ok(()) => {}
    }
    match GAIN.load(Ordering::Relaxed) {
        SOME => None,
        NONE => {
            // This records that there is traffic.
            MACHINE.why_not();
            Some(HoldState::NoGain)
        }
        _ if THREAD.has_failed() => Some(HoldState::Failed),
        _ => Some(HoldState::Measuring),
    }
}

fn find_out() {
    if GAIN.load(Ordering::Relaxed) == SOME {
        // The value is from before this process was forked.
        return;
    }
    let mut pause = AGAIN.0;
    for attempt in 1_u32.. {
        let is_told = attempt == TOLD;
        match measure() {
            Ok(None) => break,
            Ok(Some(gain)) if gain.is_worth_it() => {
                let Gain { unheld, held, .. } = gain;
                panics::log!(
                    info,
                    ?unheld,
                    ?held,
                    "CPUs are held while there is traffic, because that shortens a wake"
                );
                break;
            }
            Ok(Some(Gain { unheld, held, .. })) if is_told => panics::log!(
                warn,
                ?unheld,
                ?held,
                "CPUs are not held, and the loops park: holding hardly shortens a wake here \
                 (`wakeful awake --probe` says more)"
            ),
            Ok(Some(Gain { unheld, held, .. })) => panics::log!(
                debug,
                ?unheld,
                ?held,
                "holding CPUs hardly shortens a wake: measured again in {pause:?}"
            ),
            Err(error) if is_told => {
                panics::log!(warn, %error, "cannot measure what holding CPUs gains: they are not held");
            }
            Err(error) => panics::log!(debug, %error, "cannot measure what holding CPUs gains"),
        }
        GAIN.store(NONE, Ordering::Relaxed);
        sleep(pause);
        MACHINE.wait_for_a_new_question();
        pause = (pause * 2).min(AGAIN.1);
    }
    GAIN.store(SOME, Ordering::Relaxed);
}

/// `None`: another program holds the CPUs already. Then there is nothing to compare with, and
/// joining the hold costs nothing.
fn measure() -> io::Result<Option<Gain>> {
    let device = latency_device::open().map_err(io::Error::other)?;
    match latency_device::in_force(&device)? {
        Some(latency) if latency.is_zero() => Ok(None),
        _ => Gain::measure_with(&device, start_wake_cost).map(Some),
    }
}
