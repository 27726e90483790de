//! What a test opens it closes: the process has the same descriptors afterwards.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::RawFd;
use std::thread;
use std::time::{Duration, Instant};

/// Longer than any thread takes to end that a test has left behind.
const LONG: Duration = Duration::from_secs(30);

/// The descriptors of this process, and what each of them is: `socket:[4711]`, a path.
pub(crate) fn open() -> BTreeMap<RawFd, String> {
    let mut open = BTreeMap::new();
    for entry in fs::read_dir("/proc/self/fd").expect("/proc is there").flatten() {
        // The directory that is being read is one of them, and has gone by the next look.
        if let Ok(target) = fs::read_link(entry.path())
            && !target.to_string_lossy().ends_with("/fd")
        {
            let number = entry.file_name().to_string_lossy().parse().expect("a number");
            open.insert(number, target.to_string_lossy().into_owned());
        }
    }
    open
}

/// Runs a test that is alone in its process, and waits until all descriptors are again what they
/// were before: none is left open, and none that the test did not open was closed.
pub(crate) fn kept(test: impl FnOnce()) {
    let before = before();
    test();
    let start = Instant::now();
    loop {
        let now = open();
        if now == before {
            return;
        }
        assert!(start.elapsed() < LONG, "descriptors before: {before:#?}, and now: {now:#?}");
        thread::yield_now();
    }
}

/// What is open before a test. What only a thread of an earlier test has is waited for: a file of
/// /proc (the cgroup's quota, for example), and what measures a wake: its bell, as no loop is there
/// yet, and the device that holds CPUs.
fn before() -> BTreeMap<RawFd, String> {
    let start = Instant::now();
    loop {
        let open = open();
        let is_passing = |target: &String| {
            target.starts_with("/proc/")
                || ["[eventfd]", "/cpu_dma_latency"].iter().any(|end| target.ends_with(end))
        };
        if !open.values().any(is_passing) || start.elapsed() > LONG {
            return open;
        }
        thread::yield_now();
    }
}

/// As [`kept`], where `WAKEFUL_TEST_DESCRIPTORS` says that tests run one at a time.
pub(crate) fn kept_if_alone(test: impl FnOnce()) {
    match std::env::var_os("WAKEFUL_TEST_DESCRIPTORS") {
        Some(_) => kept(test),
        None => test(),
    }
}
