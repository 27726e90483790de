//! The kernel gives a process's signal to any thread that does not block it. Threads that a program
//! knows nothing of block them, so that the program may read SIGTERM by sigwait(3) or signalfd(2).

use std::fs::{self, File};
use std::thread;
use std::time::{Duration, Instant};

use wakeful::EventLoop;
use wakeful::log::LossyWriter;
use wakeful::task::spawn_blocking;

/// The blocked signals of the thread of that name: a bit for each, from the lowest on.
fn blocked(name: &str) -> Option<u64> {
    let mut threads = fs::read_dir("/proc/self/task").unwrap().flatten();
    threads.find_map(|thread| {
        let read = |file: &str| fs::read_to_string(thread.path().join(file)).ok();
        let status = read("status").filter(|_| read("comm").is_some_and(|of| of.trim() == name))?;
        let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:"))?;
        u64::from_str_radix(mask.trim(), 16).ok()
    })
}

#[test]
fn the_log_and_blocking_work_take_no_signal_of_the_process() {
    let _log = LossyWriter::new(File::create("/dev/null").unwrap());
    let mut event_loop = EventLoop::new().unwrap();
    event_loop.block_on(async { spawn_blocking(|| ()).await }).unwrap().unwrap();
    for name in ["log", "blocking-1"] {
        let start = Instant::now();
        // A thread gives itself its name when it runs.
        let mask = loop {
            if let Some(mask) = blocked(name) {
                break mask;
            }
            assert!(start.elapsed() < Duration::from_secs(20), "no thread {name}");
            thread::yield_now();
        };
        let blocks = |signal: i32| mask & (1 << (signal - 1)) != 0;
        for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGCHLD, libc::SIGUSR1] {
            assert!(blocks(signal), "{name}: {signal}");
        }
        // So that a stack overflow is still reported, and a profiler sees the thread.
        for signal in [libc::SIGSEGV, libc::SIGBUS, libc::SIGPROF] {
            assert!(!blocks(signal), "{name}: {signal}");
        }
    }
}
