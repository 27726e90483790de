//! One line in a program: it is held for while it has traffic, and a forked child holds nothing.
#![cfg(feature = "watch")]
#![allow(unsafe_code)]

use std::collections::BTreeSet;
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

/// This program again, for one test, in a role.
fn again(test: &str, role: &str) -> Command {
    let mut program = Command::new(std::env::current_exe().unwrap());
    program.args(["--exact", test, "--nocapture", "--test-threads=1"]).env(ROLE, role);
    program
}

/// The process that is enabled: holds, forks a child that outlives it, and ends.
fn enabled() {
    if let Err(error) = wakeful_awake::enable() {
        println!("skipped: {error}");
        return;
    }
    wakeful_awake::enable().expect("a second call does nothing");
    let done = wakeful_awake::enabled().expect("it has just been enabled");
    assert_eq!((done.held, done.traffic), (Duration::ZERO, Duration::ZERO));
    // To join a hold takes no measurement, which a busy machine would spoil.
    let device = latency_device::open().unwrap();
    latency_device::hold(&device, Duration::ZERO).unwrap();
    let holds = || wakeful_awake::enabled().is_some_and(|done| !done.held.is_zero());
    assert!(traffic(holds), "{:?}", wakeful_awake::enabled());
    let done = wakeful_awake::enabled().expect("it watches");
    assert!(done.why_not.is_none(), "{done:?}");
    drop(device);
    assert!(traffic(|| is_held() == Some(true)), "it ended with another one's");
    // SAFETY: the child only sleeps and ends, which is allowed after a fork.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // It does not watch, and waits for nobody to say so.
        assert!(wakeful_awake::enabled().is_none());
        // SAFETY: both are allowed after a fork.
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
    let mut program = again("a_child_that_outlives_its_parent_holds_nothing", "enabled");
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

/// Forks `after` microseconds after another thread has begun to enable. The child enables, too.
fn forked_meanwhile(after: u64) {
    let enabling = thread::spawn(|| drop(wakeful_awake::enable()));
    thread::sleep(Duration::from_micros(after));
    // SAFETY: the child is alone, and glibc lets it allocate and start threads.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: it ends the child if it hangs.
        unsafe { libc::alarm(GUARD.as_secs() as u32) };
        drop(wakeful_awake::enable());
        // SAFETY: nothing of the parent's runs here.
        unsafe { libc::_exit(0) };
    }
    enabling.join().unwrap();
    let mut status = -1;
    // SAFETY: the child is this process's, and `status` is written.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(status, 0, "the child hung, or was killed");
}

#[test]
fn a_child_that_is_forked_while_another_thread_enables_may_enable() {
    if let Some(after) = std::env::var_os(ROLE) {
        return forked_meanwhile(after.to_str().unwrap().parse().unwrap());
    }
    let name = "a_child_that_is_forked_while_another_thread_enables_may_enable";
    for after in (0..3000).step_by(150) {
        let mut program = again(name, &after.to_string());
        let output = program.output().unwrap();
        assert!(output.status.success(), "after {after} µs: {output:?}");
    }
}

/// How many descriptors of perf events this process has.
fn perf_events() -> usize {
    let descriptors = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let links = descriptors.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    links.filter(|link| link.to_string_lossy().contains("perf_event")).count()
}

#[test]
fn a_forked_child_has_no_copy_of_the_events() {
    if std::env::var_os(ROLE).is_none() {
        let name = "a_forked_child_has_no_copy_of_the_events";
        let output = again(name, "forks").output().unwrap();
        assert!(output.status.success(), "{output:?}");
        return;
    }
    if let Err(error) = wakeful_awake::enable() {
        return println!("skipped: {error}");
    }
    let before = perf_events();
    if before == 0 {
        return println!("skipped: perf events are refused");
    }
    // SAFETY: the child is alone, and glibc lets it allocate.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let copies = perf_events().try_into().unwrap_or(i32::MAX);
        // SAFETY: nothing of the parent's runs here.
        unsafe { libc::_exit(copies) };
    }
    let mut status = -1;
    // SAFETY: the child is this process's, and `status` is written.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(status, 0, "{} copies of {before}", libc::WEXITSTATUS(status));
    assert_eq!(perf_events(), before, "the parent's own");
}

/// Too few wakes for a hold, which other tests would see.
fn wakes_are_counted() {
    let start = Instant::now();
    while wakeful_awake::enabled().expect("it watches").wakes == 0 {
        assert!(start.elapsed() < GUARD, "nothing is counted");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Starts threads that sleep until the process ends, and calls `enable`. Returns how many
/// descriptors of events there are then.
fn events_beside(threads: usize) -> Option<usize> {
    for _ in 0..threads {
        thread::spawn(thread::park);
    }
    wakeful_awake::enable().inspect_err(|error| println!("skipped: {error}")).ok()?;
    Some(perf_events())
}

/// It needs them for its connections.
#[test]
fn most_descriptors_are_left_to_the_program() {
    const NAME: &str = "most_descriptors_are_left_to_the_program";
    const LIMIT: usize = 1024;
    let Some(role) = std::env::var_os(ROLE) else {
        for role in ["few", "many"] {
            let output = again(NAME, role).output().unwrap();
            assert!(output.status.success(), "{role}: {output:?}");
        }
        return;
    };
    let limits = libc::rlimit { rlim_cur: LIMIT as u64, rlim_max: LIMIT as u64 };
    // SAFETY: it reads the limits.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limits) }, 0);
    let cpus = thread::available_parallelism().unwrap().get();
    let is_few = role == "few";
    let threads = if is_few { LIMIT / 16 / cpus } else { (LIMIT - 200) / cpus };
    let Some(events) = events_beside(threads) else { return };
    assert!(events <= LIMIT / 4, "{events} of {LIMIT} descriptors");
    let done = wakeful_awake::enabled().expect("it watches");
    if is_few && cpus < LIMIT / 64 && !done.is_sampled {
        assert!(events > threads, "{events} for {threads} threads");
    }
    wakes_are_counted();
}

#[test]
fn the_thread_that_watches_takes_no_signal_of_the_process() {
    if std::env::var_os(ROLE).is_none() {
        let name = "the_thread_that_watches_takes_no_signal_of_the_process";
        let output = again(name, "watched").output().unwrap();
        assert!(output.status.success(), "{output:?}");
        return;
    }
    if let Err(error) = wakeful_awake::enable() {
        println!("skipped: {error}");
        return;
    }
    let threads = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let blocked = threads.into_iter().find_map(|thread| {
        let read = |file: &str| std::fs::read_to_string(thread.path().join(file)).ok();
        (read("comm")?.trim() == "wakeful-awake").then(|| read("status"))?
    });
    let blocked = blocked.expect("it has a name");
    let blocked = blocked.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap().trim();
    let blocked = u64::from_str_radix(blocked, 16).unwrap();
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGCHLD, libc::SIGUSR1] {
        assert!(blocked & (1 << (signal - 1)) != 0, "{signal}");
    }
}

/// From now on the kernel refuses this thread, and those that it starts, to open pidfds.
fn refuse_pidfds() -> bool {
    let instruction = |code: u32, jt, k| libc::sock_filter { code: code as u16, jt, jf: 0, k };
    let (load, jump, end) = (
        libc::BPF_LD | libc::BPF_W | libc::BPF_ABS,
        libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
        libc::BPF_RET | libc::BPF_K,
    );
    // The call's number is the first field.
    let mut filter = [
        instruction(load, 0, 0),
        instruction(jump, 1, libc::SYS_pidfd_open as u32),
        instruction(end, 0, libc::SECCOMP_RET_ALLOW),
        instruction(end, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the kernel reads the filter.
    unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0
    }
}

#[test]
fn a_filter_that_refuses_a_descriptor_of_the_process_does_not_end_the_watch() {
    const NAME: &str = "a_filter_that_refuses_a_descriptor_of_the_process_does_not_end_the_watch";
    if std::env::var_os(ROLE).is_none() {
        let output = again(NAME, "refused").output().unwrap();
        assert!(output.status.success(), "{output:?}");
        return;
    }
    if !refuse_pidfds() {
        return println!("skipped: no filter can be set here");
    }
    if let Err(error) = wakeful_awake::enable() {
        return println!("skipped: {error}");
    }
    wakes_are_counted();
}

#[test]
fn a_limit_of_descriptors_that_is_lowered_does_not_end_the_watch() {
    const NAME: &str = "a_limit_of_descriptors_that_is_lowered_does_not_end_the_watch";
    if std::env::var_os(ROLE).is_none() {
        let output = again(NAME, "limited").output().unwrap();
        assert!(output.status.success(), "{output:?}");
        return;
    }
    if let Err(error) = wakeful_awake::enable() {
        return println!("skipped: {error}");
    }
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: it reads the limits.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const none) }, 0);
    let start = Instant::now();
    // The wait after the first wakes is refused. What comes later is counted all the same.
    let mut counts = BTreeSet::new();
    while counts.len() < 3 {
        assert!(start.elapsed() < GUARD, "nothing is counted");
        counts.insert(wakeful_awake::enabled().expect("it watches").wakes);
        thread::sleep(Duration::from_millis(30));
    }
}
