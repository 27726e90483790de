//! The cost of a sleep on this machine, and whether a quota limits this process: measured once, on
//! two extra threads that live for some 20 ms, when a loop has seen traffic. Until then, and if the
//! measurement fails, there are defaults.

use std::io;
use std::thread::{JoinHandle, sleep};
use std::time::Duration;

use once_cell::race::OnceBox;
use wakeful_awake::wake_cost_with;

use super::once::Once;
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

/// There is no lock, because a forked child would inherit it from the thread that measures.
static SURVEY: OnceBox<Survey> = OnceBox::new();

/// Returns the results, once they are there. The first call in the process with this `stamp` starts
/// the survey. (A child that is forked meanwhile does not have the survey's thread.)
pub(super) fn survey(stamp: u32) -> Option<&'static Survey> {
    static THREAD: Once = Once::new();
    let found = SURVEY.get();
    if found.is_none() {
        let start = || without_signals(|| start_thread("wakeful-survey", find_out)).map(drop);
        if let Err(error) = THREAD.start(stamp, start) {
            panics::log!(info, %error, "cannot start the thread that measures a wake: a spin lasts up to 1 ms");
            // Without descriptors either, the next attempt looks again.
            if let Ok(quota) = Quota::find() {
                let _ = SURVEY.set(Box::new(Survey { max_window: UNKNOWN, quota }));
            }
        }
    }
    found
}

/// Returns the results if they are there, without starting the survey.
pub(super) fn known() -> Option<&'static Survey> {
    SURVEY.get()
}

/// Starts the second thread of a measurement, so that a fork waits for it.
pub(super) fn start_wake_cost(run: Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle<()>> {
    start_thread("wake-cost", run)
}

fn find_out() {
    let max_window = match wake_cost_with(start_wake_cost) {
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
    let _ = SURVEY.set(Box::new(Survey { max_window, quota }));
}

#[cfg(all(test, not(wakeful_loom)))]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;
    use crate::sys::before_fork::{after, before};

    #[test]
    fn a_thread_that_measures_a_wake_does_not_start_during_a_fork() {
        let (done, is_done) = mpsc::channel();
        // For the crate, this thread forks.
        before();
        thread::spawn(move || done.send(wake_cost_with(start_wake_cost)));
        // Ten times as long as a measurement takes. The thread waits for twice as long at least.
        let early = is_done.recv_timeout(Duration::from_millis(200));
        after();
        assert!(early.is_err(), "{early:?}");
        is_done.recv_timeout(Duration::from_secs(30)).unwrap().unwrap();
    }
}
