//! One line in a program: it is held for while it has traffic, and a forked child holds nothing.
#![cfg(feature = "watch")]
#![allow(unsafe_code)]

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use wakeful_awake::latency_device;

/// Set in the process that is enabled.
const ROLE: &str = "WAKEFUL_AWAKE_TEST_ROLE";
const GUARD: Duration = Duration::from_secs(10);
const FORKED: &str = "forked";

fn is_held() -> Option<bool> {
    let device = latency_device::open().ok()?;
    Some(latency_device::in_force(&device).ok()? == Some(Duration::ZERO))
}

/// Two threads that wake each other, until `until` is so.
fn traffic(until: impl Fn() -> bool) -> bool {
    let (mut here, mut there) = UnixStream::pair().unwrap();
    let echo = thread::spawn(move || {
        let mut byte = [0];
        while there.read(&mut byte).is_ok_and(|read| read > 0) && there.write_all(&byte).is_ok() {}
    });
    let start = Instant::now();
    while !until() && start.elapsed() < GUARD {
        for _ in 0..20 {
            here.write_all(&[1]).unwrap();
            here.read_exact(&mut [0]).unwrap();
        }
    }
    drop(here);
    echo.join().unwrap();
    until()
}

/// The process that is enabled: holds, forks a child that outlives it, and ends.
fn enabled() {
    if let Err(error) = wakeful_awake::enable() {
        println!("skipped: {error}");
        return;
    }
    wakeful_awake::enable().expect("a second call does nothing");
    if !traffic(|| is_held() == Some(true)) {
        println!("skipped: a hold is not worth it here");
        return;
    }
    // SAFETY: the child only sleeps and ends, which is allowed behind a fork.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: both are allowed behind a fork.
        unsafe {
            libc::sleep(30);
            libc::_exit(0);
        }
    }
    println!("{FORKED} {child}");
    // Still held: no drop runs.
    std::process::exit(0);
}

#[test]
fn a_child_that_outlives_its_parent_holds_nothing() {
    if std::env::var_os(ROLE).is_some() {
        return enabled();
    }
    if is_held() != Some(false) {
        eprintln!("skipped: {} may not be used, or somebody holds already", latency_device::PATH);
        return;
    }
    let name = "a_child_that_outlives_its_parent_holds_nothing";
    let mut program = Command::new(std::env::current_exe().unwrap());
    program.args(["--exact", name, "--nocapture", "--test-threads=1"]).env(ROLE, "enabled");
    let mut enabled = program.stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(enabled.stdout.take().unwrap()).lines();
    let said = lines.map_while(Result::ok).find_map(|line| {
        let begin = line.find(FORKED).or_else(|| line.find("skipped"))?;
        Some(line[begin..].to_owned())
    });
    enabled.wait().unwrap();
    let said = said.expect("it says something");
    let Some(child) = said.strip_prefix(FORKED) else {
        eprintln!("{said}");
        return;
    };
    let child: i32 = child.trim().parse().unwrap();
    let lives = || std::fs::metadata(format!("/proc/{child}")).is_ok();
    assert!(lives());
    let start = Instant::now();
    while is_held() == Some(true) {
        assert!(start.elapsed() < GUARD, "still held");
        thread::sleep(Duration::from_millis(5));
    }
    assert!(lives(), "it was not the child's end that ended the hold");
    // SAFETY: it is the child that was forked.
    unsafe { libc::kill(child, libc::SIGKILL) };
}
