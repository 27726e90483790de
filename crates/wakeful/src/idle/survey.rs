//! The cost of a sleep on this machine, and whether a quota limits this process: measured once, on
//! two extra threads that live for some 20 ms, when a loop has seen traffic. Until then, and if the
//! measurement fails, there are defaults.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::Duration;

use wakeful_awake::wake_cost;

use super::quota::Quota;
use crate::sys::panics;
use crate::sys::thread::{start_thread, without_signals};

/// The longest window is this many times as long as a wake from sleep takes. If one event comes per
/// window, spinning all the time then costs as much as this many wakes.
const WORTH: u32 = 25;
const LEAST: Duration = Duration::from_micros(200);
const MOST: Duration = Duration::from_millis(2);
/// How often a quota that cannot be found for want of descriptors is looked for.
const AGAIN: Duration = Duration::from_secs(1);
/// The longest window before the survey.
pub(super) const UNKNOWN: Duration = Duration::from_millis(1);

/// The results of the survey.
#[derive(Debug)]
pub(super) struct Survey {
    pub(super) max_window: Duration,
    pub(super) quota: &'static Quota,
}

static SURVEY: OnceLock<Survey> = OnceLock::new();

/// Returns the results, once they are there. The first call in the process with this `stamp` starts
/// the survey. (A child that is forked meanwhile does not have the survey's thread.)
pub(super) fn survey(stamp: u32) -> Option<&'static Survey> {
    static BEGUN: AtomicU32 = AtomicU32::new(0);
    let found = SURVEY.get();
    if found.is_none() && is_first(&BEGUN, stamp) {
        let began = without_signals(|| start_thread("wakeful-survey", find_out));
        if let Err(error) = began {
            panics::log!(info, %error, "cannot start the thread that measures a wake: a spin lasts up to 1 ms");
            if let Ok(quota) = Quota::find() {
                let _ = SURVEY.set(Survey { max_window: UNKNOWN, quota });
            }
        }
    }
    found
}

pub(super) fn is_first(begun: &AtomicU32, stamp: u32) -> bool {
    begun.load(Ordering::Relaxed) != stamp && begun.swap(stamp, Ordering::Relaxed) != stamp
}

/// Returns the results if they are there, without starting the survey.
pub(super) fn known() -> Option<&'static Survey> {
    SURVEY.get()
}

fn find_out() {
    let max_window = match wake_cost() {
        Ok(cost) => (cost * WORTH).clamp(LEAST, MOST),
        Err(error) => {
            panics::log!(info, %error, "cannot measure what a wake takes here: a spin lasts up to 1 ms");
            UNKNOWN
        }
    };
    // While no descriptor is free, nobody knows whether there is a quota.
    let quota = loop {
        match Quota::find() {
            Ok(quota) => break quota,
            Err(_) => sleep(AGAIN),
        }
    };
    let _ = SURVEY.set(Survey { max_window, quota });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_each_process_begins() {
        let begun = AtomicU32::new(0);
        let (parent, child) = (1, 2);
        assert_eq!(
            [parent, parent, child, child].map(|stamp| is_first(&begun, stamp)),
            [true, false, true, false]
        );
    }
}
