//! Whether a wake gets shorter here when CPUs are held: found out once in a process, on a thread of
//! its own that lives for some 60 ms, when a loop that would hold them has seen traffic. A machine
//! that is busy just then says no: it is asked twice again.

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use wakeful_awake::{Gain, latency_device};

use super::survey::is_first;
use crate::sys::panics;
use crate::sys::thread::{start_thread, without_signals};

/// How often it is measured until a no is believed, and the pause in front of the next.
const ATTEMPTS: u32 = 3;
const PAUSE: Duration = Duration::from_secs(5);

static IS_WORTH_IT: OnceLock<bool> = OnceLock::new();

/// Is a hold worth it here? `None`: not known yet. The first call in the process of `stamp` begins
/// to find out.
pub(super) fn is_worth_it(stamp: u32) -> Option<bool> {
    static BEGUN: AtomicU32 = AtomicU32::new(0);
    let known = IS_WORTH_IT.get();
    if known.is_none() && is_first(&BEGUN, stamp) {
        let began = without_signals(|| {
            start_thread("wakeful-survey", || {
                let _ = IS_WORTH_IT.set(find_out(ATTEMPTS));
            })
        });
        if let Err(error) = began {
            panics::log!(warn, %error, "cannot find out what holding CPUs gains: they are not held");
            let _ = IS_WORTH_IT.set(false);
        }
    }
    known.copied()
}

/// `None`: somebody else holds the CPUs already, so there is nothing to compare with, and to join
/// costs nothing.
fn measure() -> io::Result<Option<Gain>> {
    let device = latency_device::open().map_err(io::Error::other)?;
    match latency_device::in_force(&device)? {
        Some(latency) if latency.is_zero() => Ok(None),
        _ => Gain::measure(&device).map(Some),
    }
}

fn find_out(attempts: u32) -> bool {
    match measure() {
        Ok(None) => true,
        Ok(Some(gain)) if gain.is_worth_it() => {
            let Gain { unheld, held } = gain;
            panics::log!(
                info,
                ?unheld,
                ?held,
                "CPUs are held while there is traffic: a wake is shorter"
            );
            true
        }
        Ok(Some(_)) if attempts > 1 => {
            std::thread::sleep(PAUSE);
            find_out(attempts - 1)
        }
        Ok(Some(Gain { unheld, held })) => {
            panics::log!(
                warn,
                ?unheld,
                ?held,
                "CPUs are not held, the loops park: a wake is hardly shorter with it here \
                 (`wakeful awake --probe` says more)"
            );
            false
        }
        Err(error) => {
            panics::log!(warn, %error, "cannot find out what holding CPUs gains: they are not held");
            false
        }
    }
}
