//! CPUs that are kept from halting: `wakeful awake`, and `wakeful serve --idle hold`.
#![allow(unsafe_code)]

mod common;

use std::cell::Cell;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use common::{GUARD, PROGRAM, Service, get};
use rustix::process::{Resource, Rlimit, setrlimit};
use tempfile::TempDir;
use wakeful_awake::{IdleDriver, check_share, latency_device};
use wakeful_load::internals::procfs::ProcessCpu;

const HTTP: [&str; 3] = ["http", "--listen", "127.0.0.1:0"];
/// May not use the device.
const USER: u32 = 54_323;

/// A hold is the machine's: one test at a time looks at it.
static MACHINE: Mutex<()> = Mutex::new(());

/// The device, where holding CPUs may gain something and nobody does.
fn device_that_matters() -> Option<OwnedFd> {
    if let Err(large) = check_share() {
        eprintln!("skipped: {large}");
        return None;
    }
    if IdleDriver::read().driver.is_none() {
        eprintln!("skipped: without an idle driver, a hold does not keep CPUs from halting");
        return None;
    }
    let Ok(device) = latency_device::open() else {
        eprintln!("skipped: {} may not be used here", latency_device::PATH);
        return None;
    };
    if latency_device::in_force(&device).unwrap() == Some(Duration::ZERO) {
        eprintln!("skipped: somebody holds the machine's CPUs");
        return None;
    }
    Some(device)
}

fn is_held(device: &OwnedFd) -> bool {
    latency_device::in_force(device).unwrap() == Some(Duration::ZERO)
}

/// Sends a request, and the next one not before the server sleeps. Otherwise a client that is
/// faster than the server keeps it awake, and where nothing is woken, nothing is held.
fn asks(addr: &str) {
    assert!(get(addr, "/healthz").starts_with("HTTP/1.1 200"));
    std::thread::sleep(Duration::from_micros(500));
}

/// Sends requests to a server until CPUs are held for it. The test holds them already, so nothing
/// is measured, which a busy machine would spoil.
fn asks_until_held(device: &OwnedFd, addr: &str) {
    let start = Instant::now();
    loop {
        latency_device::hold(device, Duration::ZERO).unwrap();
        (0..200).for_each(|_| asks(addr));
        latency_device::release(device).unwrap();
        if is_held(device) {
            return;
        }
        assert!(start.elapsed() < GUARD, "not held");
    }
}

#[test]
fn the_probe_says_how_cpus_idle_here_and_whether_a_hold_is_worth_it() {
    let _machine = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    let output = Command::new(PROGRAM).args(["awake", "--probe"]).output().unwrap();
    let report = String::from_utf8(output.stdout).unwrap();
    for field in ["idle driver  ", "governor  ", "a wake  ", "permitted  "] {
        assert!(report.contains(field), "{field}: {report}");
    }
    let is_worth_it = report.contains("worth it         yes");
    assert_eq!(output.status.success(), is_worth_it, "{report}");
}

#[test]
fn a_server_holds_while_it_has_traffic_not_in_silence_and_not_when_it_is_killed() {
    let _machine = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(device) = device_that_matters() else { return };
    let hypervisor = Hypervisor::new();
    let mut service = Service::start_idle(hypervisor.program(), &HTTP, "hold");
    let addr = service.behind("listening on ");
    for end_by_kill in [false, true] {
        asks_until_held(&device, &addr);
        if end_by_kill {
            service.child.kill().unwrap();
            service.child.wait().unwrap();
        }
        let start = Instant::now();
        while is_held(&device) {
            assert!(!end_by_kill && start.elapsed() < GUARD, "still held");
            std::thread::yield_now();
        }
    }
}

/// A process, ended with the value.
struct Killed(Child);

impl Killed {
    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_watched_process_is_held_while_it_has_traffic_and_not_when_the_watcher_is_killed() {
    let _machine = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(device) = device_that_matters() else { return };
    let hypervisor = Hypervisor::new();
    let mut service = Service::start_idle(Command::new(PROGRAM), &HTTP, "park");
    let addr = service.behind("listening on ");
    let mut command = hypervisor.program();
    command.args(["awake", "--pid", &service.child.id().to_string()]).stderr(Stdio::null());
    let mut awake = Killed(command.spawn().unwrap());
    for end_by_kill in [false, true] {
        asks_until_held(&device, &addr);
        if end_by_kill {
            awake.kill();
        }
        let start = Instant::now();
        while is_held(&device) {
            assert!(!end_by_kill && start.elapsed() < GUARD, "still held");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// `/proc/stat` of a machine whose hypervisor takes the half of its time, or nothing, as its
/// processes see it: a program started by [`command`](Self::command).
struct Hypervisor {
    directory: TempDir,
    ticks: Cell<u64>,
    stolen: Cell<u64>,
}

impl Hypervisor {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let hypervisor = Self { directory, ticks: Cell::new(1_000), stolen: Cell::new(0) };
        hypervisor.passes(0);
        hypervisor
    }

    fn stat(&self) -> PathBuf {
        self.directory.path().join("stat")
    }

    /// A second of two CPUs passes, of which the hypervisor takes `stolen` hundredths.
    fn passes(&self, stolen: u64) {
        self.ticks.set(self.ticks.get() + 200 - stolen);
        self.stolen.set(self.stolen.get() + stolen);
        let text = format!("cpu  {} 0 0 0 0 0 0 {} 0 0\n", self.ticks.get(), self.stolen.get());
        fs::write(self.stat(), text).unwrap();
    }

    /// The program that is appended to it sees this hypervisor. `None`: it can have no mounts of
    /// its own.
    fn command(&self) -> Option<Command> {
        let mut command = Command::new("unshare");
        let script = r#"mount --bind "$0" /proc/stat || exit 99; exec "$@""#;
        command.args(["--mount", "sh", "-c", script]).arg(self.stat());
        let mut tried = Command::new(command.get_program());
        let tried = tried.args(command.get_args()).arg("true").stderr(Stdio::null()).status();
        tried.is_ok_and(|status| status.success()).then_some(command)
    }

    /// This program, which asks no keeper, and sees this hypervisor where that can be.
    fn program(&self) -> Command {
        let mut command = match self.command() {
            Some(mut command) => {
                command.arg(PROGRAM);
                command
            }
            None => Command::new(PROGRAM),
        };
        command.env("WAKEFUL_KEEPER", "");
        command
    }
}

/// A server is asked until CPUs are held, and on while the hypervisor takes the half of their time,
/// until they are not and `says_so` says so.
fn is_not_held_while_time_is_stolen(
    hypervisor: &Hypervisor,
    device: &OwnedFd,
    addr: &str,
    mut says_so: impl FnMut() -> bool,
) {
    asks_until_held(device, addr);
    let (start, mut last) = (Instant::now(), Instant::now());
    hypervisor.passes(100);
    let mut ended = 0;
    // Not only between two stretches of traffic. The watcher sees traffic after 100 wakes.
    while ended < 1_000 || !says_so() {
        assert!(start.elapsed() < GUARD, "still held: {ended}");
        if last.elapsed() > Duration::from_secs(1) {
            last = Instant::now();
            hypervisor.passes(100);
        }
        asks(addr);
        ended = if is_held(device) { 0 } else { ended + 1 };
    }
}

#[test]
fn a_server_that_holds_by_the_device_lets_go_while_time_is_stolen() {
    let _machine = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(device) = device_that_matters() else { return };
    let hypervisor = Hypervisor::new();
    let Some(mut command) = hypervisor.command() else {
        return eprintln!("skipped: no mounts of its own");
    };
    command.arg(PROGRAM).env("WAKEFUL_KEEPER", "");
    // To join a hold takes no measurement, which a busy machine would spoil.
    latency_device::hold(&device, Duration::ZERO).unwrap();
    let mut service = Service::start_idle(command, &HTTP, "hold");
    let addr = service.behind("listening on ");
    let says_so = || {
        let page = get(&addr, "/metrics");
        page.lines()
            .any(|line| line.starts_with("wakeful_loop_hold{") && line.contains("state=\"stolen\""))
    };
    is_not_held_while_time_is_stolen(&hypervisor, &device, &addr, says_so);
}

#[test]
fn a_watched_process_is_let_go_while_time_is_stolen() {
    let _machine = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(device) = device_that_matters() else { return };
    let hypervisor = Hypervisor::new();
    let Some(mut command) = hypervisor.command() else {
        return eprintln!("skipped: no mounts of its own");
    };
    let mut service = Service::start_idle(Command::new(PROGRAM), &HTTP, "park");
    let addr = service.behind("listening on ");
    command.args([PROGRAM, "awake", "--pid", &service.child.id().to_string()]);
    latency_device::hold(&device, Duration::ZERO).unwrap();
    let mut command = command.env("WAKEFUL_KEEPER", "").stderr(Stdio::piped()).spawn().unwrap();
    is_not_held_while_time_is_stolen(&hypervisor, &device, &addr, || true);
    // `unshare` and the shell have become it.
    send(&command, "TERM");
    let mut said = String::new();
    command.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    command.wait().unwrap();
    assert!(said.contains(" s of traffic"), "{said}");
    assert!(said.contains("not held at the last traffic: the hypervisor took 50 %"), "{said}");
}

fn awake(arguments: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.arg("awake").args(arguments);
    command
}

#[test]
fn a_command_has_its_exit_code_its_output_and_its_signals() {
    let exit = |script: &str| {
        let output = awake(&["--quiet", "--", "sh", "-c", script]).output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    assert_eq!(exit("echo out; exit 7"), (Some(7), "out\n".to_owned()));
    assert_eq!(exit("kill -9 $$").0, Some(128 + 9));
    let missing = awake(&["--", "/nonexistent/command"]).output().unwrap();
    assert_eq!(missing.status.code(), Some(127));
    assert!(
        String::from_utf8_lossy(&missing.stderr).contains("/nonexistent/command: No such file")
    );

    let script = "trap 'exit 9' TERM; echo up; while :; do sleep 0.05; done";
    let mut command = awake(&["--", "sh", "-c", script]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "up\n");
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(9));
}

/// A shell that catches the signals, says which came, and ends with 9 at TERM.
fn that_catches(signals: &[&str]) -> String {
    let traps = signals.iter().map(|signal| format!("trap 'echo {signal}' {signal}; "));
    let traps: String = traps.collect();
    format!("{traps} trap 'exit 9' TERM; echo up; while :; do sleep 0.02; done")
}

fn send(child: &Child, signal: &str) {
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-s", signal, &pid]).status().unwrap().success());
}

#[test]
fn whatever_signal_is_sent_the_command_gets_it_and_none_stops_the_watch() {
    let signals = ["HUP", "USR1", "TTIN", "TTOU", "TSTP", "PWR", "ALRM", "XCPU", "WINCH"];
    let mut command = awake(&["--quiet", "--", "sh", "-c", &that_catches(&signals)]);
    // The tests may have been started by `nohup`.
    let as_by_default = || {
        for signal in 1..32 {
            // SAFETY: it is allowed after a fork, and refused for those that cannot be changed.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
        Ok(())
    };
    // SAFETY: what it calls is allowed after a fork.
    unsafe { command.pre_exec(as_by_default) };
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert_eq!(lines.next().as_deref(), Some("up"));
    for signal in signals {
        send(&child, signal);
        assert_eq!(lines.next().as_deref(), Some(signal));
    }
    send(&child, "TERM");
    assert_eq!(child.wait().unwrap().code(), Some(9));
}

#[test]
fn signals_that_were_blocked_by_whoever_started_it_end_it() {
    let mut command = awake(&["--quiet", "--", "sh", "-c", &that_catches(&[])]);
    let block = || {
        // SAFETY: it fills in a set of signals, and blocks them.
        unsafe {
            let mut all = std::mem::zeroed();
            libc::sigfillset(&raw mut all);
            libc::sigprocmask(libc::SIG_BLOCK, &raw const all, std::ptr::null_mut());
        }
        Ok(())
    };
    // SAFETY: what it calls is allowed after a fork.
    unsafe { command.pre_exec(block) };
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert_eq!(lines.next().as_deref(), Some("up"));
    send(&child, "TERM");
    assert_eq!(child.wait().unwrap().code(), Some(9));
}

/// An alarm survives an exec, but a forked command does not have it.
#[test]
fn an_alarm_of_whoever_started_it_ends_the_command() {
    let mut command = awake(&["--quiet", "--", "sleep", "60"]);
    // It waits until this program is ready for it.
    let alarm = || {
        // SAFETY: it fills in a set of signals, blocks them, and sets an alarm.
        unsafe {
            let mut set = std::mem::zeroed();
            libc::sigaddset(&raw mut set, libc::SIGALRM);
            libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
            libc::signal(libc::SIGALRM, libc::SIG_DFL);
            libc::alarm(1);
        }
        Ok(())
    };
    // SAFETY: what it calls is allowed after a fork.
    unsafe { command.pre_exec(alarm) };
    assert_eq!(command.status().unwrap().code(), Some(128 + libc::SIGALRM));
}

#[test]
fn what_was_ignored_stays_ignored_in_the_command() {
    let run = |script: &str| {
        let mut shell = Command::new("sh");
        let output = shell.args(["-c", script, PROGRAM]).output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    let lives =
        r#"trap '' HUP INT; exec "$0" awake -q -- sh -c 'kill -HUP $$; kill -INT $$; echo lives'"#;
    assert_eq!(run(lives), (Some(0), "lives\n".to_owned()));
    // A child that has ended would have no exit code.
    let ended = r#"trap '' CHLD; exec "$0" awake -q -- sh -c 'exit 3'"#;
    assert_eq!(run(ended), (Some(3), String::new()));
}

#[test]
fn a_command_runs_also_where_cpus_may_not_be_held() {
    let mut command = awake(&["--", "sh", "-c", "echo out; exit 3"]);
    command.uid(USER).gid(USER).current_dir("/");
    let Ok(output) = command.output() else {
        eprintln!("skipped: the program cannot be run as another user");
        return;
    };
    assert_eq!((output.status.code(), &output.stdout[..]), (Some(3), &b"out\n"[..]));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("the command runs, but no CPU is held for it"), "{said}");
    assert!(said.contains(latency_device::PATH), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}

/// As the first process of a container, which gets its orphans.
#[test]
fn as_the_first_process_it_leaves_no_zombies() {
    const ORPHANS: &str = "for n in 1 2 3 4 5; do (sleep 0.1 &) ; done; sleep 0.2
        n=0
        while grep -qs '^State:.Z' /proc/[0-9]*/status; do
            n=$((n + 1)); [ $n -lt 100 ] || exit 9; sleep 0.1
        done
        exit 3";
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--kill-child", "--mount-proc", PROGRAM, "awake", "--"]);
    let output = command.args(["sh", "-c", ORPHANS]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("unshare failed") {
        return println!("skipped: {said}");
    }
    assert_eq!(output.status.code(), Some(3), "{said}");
}

#[test]
fn a_report_says_that_there_was_no_traffic() {
    let _machine = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    if device_that_matters().is_none() {
        return;
    }
    let output = awake(&["--", "sleep", "0.1"]).env("WAKEFUL_KEEPER", "").output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("with CPUs held, for 0.0 s; there was no traffic"), "{said}");
}

/// A server of somebody else's, which is up and has nothing to do. `None`: it is not installed.
fn silent_server(program: &str, arguments: &[&str]) -> Option<Killed> {
    let addr = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let port = addr.port().to_string();
    let mut command = Command::new(program);
    command.args(arguments.iter().map(|word| word.replace("{port}", &port)));
    let server = match command.stdout(Stdio::null()).stderr(Stdio::null()).spawn() {
        Ok(server) => Killed(server),
        Err(error) => {
            eprintln!("skipped: {program}: {error}");
            return None;
        }
    };
    let start = Instant::now();
    while TcpStream::connect(addr).is_err() {
        assert!(start.elapsed() < GUARD, "{program} does not listen");
        std::thread::sleep(Duration::from_millis(20));
    }
    // A JVM compiles for a while.
    loop {
        let before = ProcessCpu::read_tree(server.0.id()).unwrap();
        std::thread::sleep(Duration::from_secs(1));
        let used = ProcessCpu::read_tree(server.0.id()).unwrap().used_since(&before);
        if used.voluntary_switches < 40 {
            return Some(server);
        }
        assert!(start.elapsed() < GUARD, "{program} is not silent: {used:?}");
    }
}

#[test]
fn what_redis_node_and_a_jvm_do_in_silence_is_no_traffic() {
    let _machine = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    if device_that_matters().is_none() {
        return;
    }
    const NODE: &str = "require('http').createServer().listen(process.argv[1], '127.0.0.1')";
    let servers: [(&str, &[&str]); 3] = [
        ("redis-server", &["--port", "{port}", "--bind", "127.0.0.1", "--save", ""]),
        ("node", &["-e", NODE, "{port}"]),
        // Killed, it would leave a file for `jstat`.
        ("rmiregistry", &["-J-XX:-UsePerfData", "{port}"]),
    ];
    for (program, arguments) in servers {
        let Some(server) = silent_server(program, arguments) else { continue };
        let mut command = awake(&["--pid", &server.0.id().to_string()]);
        command.env("WAKEFUL_KEEPER", "").stderr(Stdio::piped());
        let mut watcher = Killed(command.spawn().unwrap());
        std::thread::sleep(Duration::from_secs(3));
        send(&watcher.0, "TERM");
        let mut said = String::new();
        watcher.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        let nothing = "with CPUs held, for 0.0 s; there was no traffic";
        assert!(said.contains(nothing), "{program}: {said}");
    }
}

#[test]
fn who_cannot_be_watched_is_named() {
    let failed = |arguments: &[&str]| {
        let output = awake(arguments).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, said) = failed(&["--pid", &i32::MAX.to_string()]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("there is no process 2147483647"), "{said}");
    let (code, said) = failed(&["--cgroup", "/proc"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("/proc is not a cgroup's directory"), "{said}");
    for usage in [&[][..], &["--pid", "0"], &["--probe", "--pid", "1"], &["--pid", "1", "--", "a"]]
    {
        assert_eq!(failed(usage).0, Some(2), "{usage:?}");
    }
}

/// As in a sandbox: the process is there.
#[test]
fn without_proc_a_command_runs_and_the_reason_is_said() {
    let script = "mount -t tmpfs none /proc && exec \"$0\" awake -- sh -c 'exit 3'";
    let mut command = Command::new("unshare");
    let output = command.args(["--mount", "sh", "-c", script, PROGRAM]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    if ["unshare:", "mount:"].iter().any(|tool| said.starts_with(tool)) {
        return eprintln!("skipped: /proc cannot be hidden: {said}");
    }
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("/proc is not mounted"), "{said}");
}

#[test]
fn a_server_that_may_not_hold_says_so_and_serves() {
    let command = || {
        let mut command = Command::new(PROGRAM);
        command.uid(USER).gid(USER).current_dir("/");
        command
    };
    if !command().arg("--version").status().is_ok_and(|status| status.success()) {
        eprintln!("skipped: the program cannot be run as another user");
        return;
    }
    let mut service = Service::start_idle(command(), &HTTP, "hold");
    let why = service.behind("CPUs cannot be held here: loops park instead");
    let addr = service.behind("listening on ");
    assert!(why.contains(latency_device::PATH), "{why}");
    assert!(get(&addr, "/healthz").starts_with("HTTP/1.1 200"));
}

#[test]
fn without_descriptors_it_says_what_is_missing() {
    // With some of these limits it cannot start the watch, and with others it cannot count.
    for limit in 5..=10 {
        let mut command = Command::new(PROGRAM);
        command.args(["awake", "--", "sleep", "0.3"]);
        let few = Rlimit { current: Some(limit), maximum: Some(limit) };
        // SAFETY: a system call, which does not allocate.
        unsafe { command.pre_exec(move || Ok(setrlimit(Resource::Nofile, few)?)) };
        let said = String::from_utf8(command.output().unwrap().stderr).unwrap();
        assert!(said.contains("Too many open files") || limit > 8, "{limit}: {said}");
        assert!(!said.contains("CAP_PERFMON"), "{limit}: {said}");
        // Wakes could not be counted, so nothing is known of the traffic.
        let cannot = ["no CPU is held", "could not be counted"].iter().any(|it| said.contains(it));
        assert_ne!(cannot, said.contains("there was no traffic"), "{limit}: {said}");
    }
}
