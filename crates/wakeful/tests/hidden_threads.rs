//! The kernel gives a process's signal to any thread that does not block it. Threads that a program
//! knows nothing of block them, so that the program may read SIGTERM by sigwait(3) or signalfd(2).
//! The program's own code does not run with this mask, which a process that it starts would keep.

#![allow(unsafe_code)] // Masks of signals, and a signal.

use std::fs::{self, File};
use std::mem::MaybeUninit;
use std::process::Command;
use std::ptr;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use wakeful::EventLoop;
use wakeful::log::LossyWriter;
use wakeful::signal::run_until_terminated;
use wakeful::task::spawn_blocking;

/// The tests share the threads for blocking work.
static TURN: Mutex<()> = Mutex::new(());

/// The signals that a line of this status says are blocked: a bit for each, from the lowest on.
fn blocked_in(status: &str) -> Option<u64> {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:"))?;
    u64::from_str_radix(mask.trim(), 16).ok()
}

/// The blocked signals of the thread of that name.
fn blocked(name: &str) -> Option<u64> {
    let mut threads = fs::read_dir("/proc/self/task").unwrap().flatten();
    threads.find_map(|thread| {
        let read = |file: &str| fs::read_to_string(thread.path().join(file)).ok();
        blocked_in(&read("status").filter(|_| read("comm").is_some_and(|of| of.trim() == name))?)
    })
}

fn blocked_here() -> Option<u64> {
    blocked_in(&fs::read_to_string("/proc/thread-self/status").unwrap())
}

/// The blocked signals of a process that this thread starts.
fn blocked_in_child() -> Option<u64> {
    let output = Command::new("cat").arg("/proc/self/status").output().unwrap();
    blocked_in(&String::from_utf8(output.stdout).unwrap())
}

/// From now on this thread blocks these signals, and no other ones.
fn block(signals: &[i32]) {
    let mut set = MaybeUninit::uninit();
    // SAFETY: the first call fills in `set`, and the others change and read it.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in signals {
            libc::sigaddset(set.as_mut_ptr(), *signal);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, set.as_ptr(), ptr::null_mut());
    }
}

#[test]
fn the_log_and_blocking_work_take_no_signal_of_the_process() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let _log = LossyWriter::new(File::create("/dev/null").unwrap());
    let mut event_loop = EventLoop::new().unwrap();
    event_loop
        .block_on(async {
            spawn_blocking(|| ()).await.unwrap();
            assert!(spawn_blocking(|| panic!("in blocking work")).await.unwrap_err().is_panic());
        })
        .unwrap();
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

/// So that a signal ends a process that blocking work or a drain has started.
#[test]
fn blocking_work_and_a_drain_block_what_the_thread_blocks_that_begins_them() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut event_loop = EventLoop::new().unwrap();
    for signals in [&[][..], &[libc::SIGUSR1, libc::SIGHUP]] {
        block(signals);
        let mask = Some(signals.iter().map(|signal| 1 << (signal - 1)).sum::<u64>());
        let in_both = || (blocked_here(), blocked_in_child());
        assert_eq!(in_both(), (mask, mask));
        let in_work = event_loop.block_on(async { spawn_blocking(in_both).await }).unwrap();
        assert_eq!(in_work.unwrap(), (mask, mask));
        let told = || {
            // SAFETY: it takes two numbers.
            assert_eq!(unsafe { libc::kill(libc::getpid(), libc::SIGTERM) }, 0);
            Ok(())
        };
        let in_drain = run_until_terminated(told, move |()| in_both()).unwrap();
        assert_eq!(in_drain, Some((mask, mask)));
    }
}
