//! The kernel gives a process's signal to any thread that does not block it. Threads that a program
//! knows nothing of block them, so that the program may read SIGTERM by sigwait(3) or signalfd(2).

use std::fs::{self, File};

use wakeful::EventLoop;
use wakeful::log::LossyWriter;
use wakeful::task::spawn_blocking;

/// The blocked signals of each thread, by the threads' names: a bit for each, from the lowest on.
fn blocked() -> Vec<(String, u64)> {
    let threads = fs::read_dir("/proc/self/task").unwrap().flatten();
    let blocked = threads.filter_map(|thread| {
        let read = |file: &str| fs::read_to_string(thread.path().join(file)).ok();
        let status = read("status")?;
        let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:"))?;
        Some((read("comm")?.trim().to_owned(), u64::from_str_radix(mask.trim(), 16).ok()?))
    });
    blocked.collect()
}

#[test]
fn the_log_and_blocking_work_take_no_signal_of_the_process() {
    let _log = LossyWriter::new(File::create("/dev/null").unwrap());
    let mut event_loop = EventLoop::new().unwrap();
    event_loop.block_on(async { spawn_blocking(|| ()).await }).unwrap().unwrap();
    let blocked = blocked();
    for name in ["log", "blocking-1"] {
        let (_, mask) = blocked.iter().find(|(thread, _)| thread == name).expect(name);
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
