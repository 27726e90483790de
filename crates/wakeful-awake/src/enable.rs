//! One line in any program.
#![allow(unsafe_code)]

use std::io;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;

use crate::hold::HoldSettings;
use crate::watcher::{WatchError, Watcher, own};

/// By what this process's watcher holds; a forked child closes it.
static HELD_BY: AtomicI32 = AtomicI32::new(-1);
/// A thread of this process watches.
static RUNS: AtomicBool = AtomicBool::new(false);
static ENABLED: Mutex<bool> = Mutex::new(false);

/// From now on a thread of its own keeps the machine's CPUs from halting while this process has
/// traffic, whatever runtime it is built on. A second call does nothing.
///
/// ```no_run
/// if let Err(error) = wakeful_awake::enable() {
///     eprintln!("latency is as it was: {error}");
/// }
/// ```
///
/// It ends with the process. A forked child does not hold, and may call it again.
///
/// # Errors
/// Traffic cannot be seen, or CPUs may not be held; the text says what permits it. Nothing has
/// changed then.
pub fn enable() -> Result<(), WatchError> {
    enable_with(HoldSettings::new())
}

fn enable_with(settings: HoldSettings) -> Result<(), WatchError> {
    let mut enabled = ENABLED.lock().unwrap_or_else(PoisonError::into_inner);
    if *enabled && RUNS.load(Ordering::Relaxed) {
        return Ok(());
    }
    if !*enabled {
        // SAFETY: `in_child` only loads, stores and closes, which is allowed behind a fork.
        let failed = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        if failed != 0 {
            return Err(io::Error::from_raw_os_error(failed).into());
        }
    }
    *enabled = true;
    let (opened, result) = mpsc::sync_channel(1);
    // The thread opens, so that it does not count itself.
    let watching = thread::Builder::new().name("wakeful-awake".to_owned()).spawn(move || {
        let mut watcher = match Watcher::open(own(), settings) {
            Ok(watcher) => watcher,
            Err(error) => return drop(opened.send(Err(error))),
        };
        watcher.publish_descriptor(&HELD_BY);
        RUNS.store(true, Ordering::Relaxed);
        let _ = opened.send(Ok(()));
        // A kernel that refuses later on: the hold is gone with the device.
        let _ = watcher.run(None, None, |_| ());
        HELD_BY.store(-1, Ordering::Relaxed);
        RUNS.store(false, Ordering::Relaxed);
    });
    watching?;
    result.recv().map_err(|_| io::Error::other("the thread that watches has panicked"))?
}

/// The copy would go on holding for as long as the child lives.
extern "C" fn in_child() {
    RUNS.store(false, Ordering::Relaxed);
    let copy = HELD_BY.swap(-1, Ordering::Relaxed);
    if copy >= 0 {
        // SAFETY: it was the watcher's, whose thread is not in this process.
        unsafe { libc::close(copy) };
    }
}
