//! What a sleep costs on this machine, and whether a quota limits this process: found out once, on
//! two threads of its own that live for some 20 ms, when a loop has seen traffic. Until then, and
//! if it fails, there are defaults.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use rustix::thread::CpuSet;

use super::quota::Quota;
use crate::sys::panics;
use crate::sys::thread::{allowed_cpus, pin_to, start_scoped, start_thread, without_signals};

/// A window may be so many times as long as what a wake from sleep takes: with one event a window,
/// spinning for all of them then costs what so many wakes would.
const WORTH: u32 = 25;
const LEAST: Duration = Duration::from_micros(200);
const MOST: Duration = Duration::from_millis(2);
/// Before it is known.
pub(super) const UNKNOWN: Duration = Duration::from_millis(1);

/// Wakes that are timed.
const WAKES: usize = 31;

/// What was found out.
#[derive(Debug)]
pub(super) struct Survey {
    pub(super) max_window: Duration,
    pub(super) quota: &'static Quota,
}

static SURVEY: OnceLock<Survey> = OnceLock::new();

/// What was found out, once it is. The first call in the process of `stamp` begins: the thread is
/// not in a fork that comes meanwhile.
pub(super) fn survey(stamp: u32) -> Option<&'static Survey> {
    static BEGUN: AtomicU32 = AtomicU32::new(0);
    let found = SURVEY.get();
    if found.is_none() && is_first(&BEGUN, stamp) {
        let began = without_signals(|| start_thread("wakeful-survey", find_out));
        if let Err(error) = began {
            panics::log!(info, %error, "cannot find out what a sleep costs here");
            let _ = SURVEY.set(Survey { max_window: UNKNOWN, quota: Quota::find() });
        }
    }
    found
}

fn is_first(begun: &AtomicU32, stamp: u32) -> bool {
    begun.swap(stamp, Ordering::Relaxed) != stamp
}

fn find_out() {
    let max_window = match wake_cost() {
        Ok(cost) => (cost * WORTH).clamp(LEAST, MOST),
        Err(error) => {
            panics::log!(info, %error, "cannot find out what a wake from sleep takes here");
            UNKNOWN
        }
    };
    let _ = SURVEY.set(Survey { max_window, quota: Quota::find() });
}

/// How long it takes, in the median, until a thread that slept on a CPU of its own runs.
fn wake_cost() -> io::Result<Duration> {
    // Not only where the loop is pinned that began this.
    pin_to(0..CpuSet::MAX_CPU)?;
    let mut cpus = allowed_cpus()?.into_iter();
    let (first, second) = (cpus.next(), cpus.next());
    // One read a ring, also behind two of them.
    let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::SEMAPHORE)?;
    let (rung, epoch) = (AtomicU64::new(0), Instant::now());
    thread::scope(|scope| {
        let sleeper = start_scoped(scope, "wakeful-survey", || {
            let pinned = pin(first);
            wakes(&bell, &rung, epoch).and_then(|took| pinned.map(|()| took))
        })?;
        // In any case it rings: the other one sleeps until it does.
        let pinned = pin(second);
        let rings = ring(&bell, &rung, epoch);
        let wakes = sleeper.join().unwrap_or_else(|_| Err(io::Error::other("a panic")));
        pinned.and(rings).and(wakes)
    })
}

fn pin(cpu: Option<usize>) -> io::Result<()> {
    cpu.map_or(Ok(()), |cpu| pin_to([cpu]))
}

fn nanoseconds(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

fn ring(bell: &OwnedFd, rung: &AtomicU64, epoch: Instant) -> io::Result<()> {
    for _ in 0..WAKES {
        thread::sleep(Duration::from_micros(200));
        rung.store(nanoseconds(epoch), Ordering::Relaxed);
        rustix::io::write(bell, &1_u64.to_ne_bytes())?;
    }
    Ok(())
}

fn wakes(bell: &OwnedFd, rung: &AtomicU64, epoch: Instant) -> io::Result<Duration> {
    let mut took = [0; WAKES];
    for took in &mut took {
        rustix::io::retry_on_intr(|| rustix::io::read(bell, &mut [0; 8]))?;
        *took = nanoseconds(epoch).saturating_sub(rung.load(Ordering::Relaxed));
    }
    took.sort_unstable();
    Ok(Duration::from_nanos(took[WAKES / 2]))
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

    #[test]
    fn a_wake_takes_some_time_and_not_for_ever() {
        let cost = thread::spawn(wake_cost).join().unwrap().unwrap();
        assert!(cost > Duration::ZERO && cost < Duration::from_secs(1), "{cost:?}");
    }
}
