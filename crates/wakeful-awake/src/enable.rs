//! One line in any program.
#![allow(unsafe_code)]

use std::io;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::Duration;

use crate::fork_gate::{self, NOBODY, said, word};
use crate::hold::HoldSettings;
use crate::watcher::{Done, WatchError, Watcher, own};

/// The number of the descriptor by which this process's watcher holds CPUs. A forked child closes
/// it.
static HELD_BY: AtomicU64 = AtomicU64::new(NOBODY);
/// The numbers of its perf events, which a forked child closes as well: they would keep the kernel
/// counting. Copies of any further events stay open.
static EVENTS: [AtomicU64; 4096] = [const { AtomicU64::new(NOBODY) }; 4096];
/// The state of this process's watcher. A forked child has none, and finds its parent's process
/// here. There is no lock, because a child could find it locked.
static STATE: AtomicU64 = AtomicU64::new(NOBODY);
/// What the watcher has done. It is locked only for a copy. A child that was forked during the copy
/// finds it locked for ever, so nobody waits for the lock.
static DONE: Mutex<Option<Done>> = Mutex::new(None);
/// How often a read of it is tried.
const TRIES: u32 = 100;
const OFF: u32 = 0;
const BEGINS: u32 = 1;
const RUNS: u32 = 2;
/// How often to check whether another thread's `enable` has ended.
const PAUSE: Duration = Duration::from_millis(1);

/// Starts a thread that keeps the machine's CPUs from halting while this process has traffic,
/// whatever runtime the process uses. A second call has no effect.
///
/// ```no_run
/// if let Err(error) = wakeful_awake::enable() {
///     eprintln!("latency is as it was: {error}");
/// }
/// ```
///
/// Where the machine's keeper runs (`wakeful keeper`), the thread holds the CPUs on which this
/// process ran in the last 0.2 s. Without a keeper it holds all CPUs of the machine, if there are
/// at most four and this process may use at least half of them.
///
/// It counts by perf events, each of which takes a descriptor: one for each thread and CPU. If they
/// would be more than 512, or more than a quarter of the soft limit of descriptors, it reads
/// `/proc` five times per second instead.
///
/// The thread ends with the process. A forked child does not hold CPUs, has no copy of the thread's
/// perf events (of the first 4,096), and may call this function again.
///
/// # Errors
/// Traffic cannot be observed, or CPUs may not be held. The message says what would permit it.
/// After an error no CPU is held.
pub fn enable() -> Result<(), WatchError> {
    enable_with(HoldSettings::new())
}

/// Returns the counters of the thread that [`enable`] has started: among others, how long it has
/// held CPUs, and why it did not. The values are updated 20 times per second while there is
/// traffic. Returns `None` if the thread was not started, or has ended because the kernel refused
/// something.
///
/// ```no_run
/// if let Some(done) = wakeful_awake::enabled() {
///     println!("held for {:?} of {:?} of traffic", done.held, done.traffic);
/// }
/// ```
#[must_use]
pub fn enabled() -> Option<Done> {
    if said(STATE.load(Ordering::Acquire)) != Some(RUNS) {
        return None;
    }
    for _ in 0..TRIES {
        if let Ok(done) = DONE.try_lock() {
            return done.clone();
        }
        thread::yield_now();
    }
    None
}

fn enable_with(settings: HoldSettings) -> Result<(), WatchError> {
    loop {
        let state = STATE.load(Ordering::Acquire);
        match said(state) {
            None | Some(OFF) => {
                let begins = word(BEGINS);
                let (acquire, relaxed) = (Ordering::Acquire, Ordering::Relaxed);
                if STATE.compare_exchange(state, begins, acquire, relaxed).is_ok() {
                    break;
                }
            }
            Some(RUNS) => return Ok(()),
            // Another thread is calling `enable`.
            Some(_) => thread::sleep(PAUSE),
        }
    }
    let began = begin(settings);
    if began.is_err() {
        STATE.store(word(OFF), Ordering::Release);
    }
    began
}

fn begin(settings: HoldSettings) -> Result<(), WatchError> {
    static REGISTERED: AtomicBool = AtomicBool::new(false);
    if !REGISTERED.swap(true, Ordering::Relaxed) {
        // SAFETY: the handlers only load, store, yield and close, which is allowed around a fork.
        let failed =
            unsafe { libc::pthread_atfork(Some(before_fork), Some(in_parent), Some(in_child)) };
        if failed != 0 {
            REGISTERED.store(false, Ordering::Relaxed);
            return Err(io::Error::from_raw_os_error(failed).into());
        }
    }
    let (opened, result) = mpsc::sync_channel(1);
    // The thread itself opens the events, so that it does not count itself.
    let watch = move || {
        let mut watcher = match Watcher::open_published(own(), settings, &HELD_BY, &EVENTS, &DONE) {
            Ok(watcher) => watcher,
            Err(error) => return drop(opened.send(Err(error))),
        };
        watcher.publish();
        STATE.store(word(RUNS), Ordering::Release);
        let _ = opened.send(Ok(()));
        // The kernel has refused something later on. The hold ended with the device.
        let _ = watcher.run(None, None, |_| ());
        drop(watcher);
        STATE.store(word(OFF), Ordering::Release);
    };
    without_signals(|| thread::Builder::new().name("wakeful-awake".to_owned()).spawn(watch))?;
    result.recv().map_err(|_| io::Error::other("the thread that watches has panicked"))?
}

/// The thread that `start` starts blocks the process's signals: the kernel gives those to any
/// thread that does not, and a program that reads SIGTERM by sigwait(3) would be killed by it.
fn without_signals<T>(start: impl FnOnce() -> T) -> T {
    let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // SAFETY: the first call fills in `all`, the second reads it and fills in `before`. Neither
    // fails with these arguments.
    let before = unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
        before.assume_init()
    };
    let started = start();
    // SAFETY: it reads the mask that this thread had.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut()) };
    started
}

extern "C" fn before_fork() {
    fork_gate::before_fork();
}

extern "C" fn in_parent() {
    fork_gate::after_fork();
}

/// In a forked child the copies would hold CPUs, and count, for as long as the child lives.
extern "C" fn in_child() {
    for place in std::iter::once(&HELD_BY).chain(&EVENTS) {
        if let Some(copy) = fork_gate::in_child(place) {
            // SAFETY: it was the watcher's, whose thread is not in this process.
            unsafe { libc::close(copy) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// This is a child in which no handler ran, and which has found its parent's state.
    #[test]
    fn what_another_process_s_watcher_does_is_nothing_here() {
        for state in [BEGINS, RUNS] {
            let parents = u64::from(std::process::id() + 1) << 32 | u64::from(state);
            STATE.store(parents, Ordering::Release);
            // Whether holding is permitted depends on the machine.
            let enabled = enable();
            let expected = if enabled.is_ok() { RUNS } else { OFF };
            assert_eq!(said(STATE.load(Ordering::Acquire)), Some(expected));
        }
    }
}
