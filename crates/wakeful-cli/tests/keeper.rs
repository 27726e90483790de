//! `wakeful keeper`, on the files of this machine's own CPUs. Needs root; elsewhere it is skipped.

mod common;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use common::{GUARD, PROGRAM};
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, prlimit};
use tempfile::TempDir;
use wakeful_awake::KeeperClient;
use wakeful_awake::keeper_protocol::Answer;

/// May not write the files.
const USER: u32 = 54_323;
/// Every machine has it, and it may be held.
const FILE: &str = "/sys/devices/system/cpu/cpu0/power/pm_qos_resume_latency_us";

/// The files are the machine's: one test at a time uses them.
static MACHINE: Mutex<()> = Mutex::new(());

/// The first CPU, which has no limit, and has none again when the value is dropped.
struct FirstCpu(#[allow(dead_code)] MutexGuard<'static, ()>);

impl FirstCpu {
    /// `None`, and a line, where it may not be used.
    fn of_this_machine() -> Option<Self> {
        let machine = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = File::options().write(true).open(FILE) {
            eprintln!("skipped: {FILE}: {error}");
            return None;
        }
        if Self::says() != "0" {
            eprintln!("skipped: somebody holds this machine's first CPU");
            return None;
        }
        Some(Self(machine))
    }

    fn says() -> String {
        fs::read_to_string(FILE).unwrap().trim().to_owned()
    }
}

impl Drop for FirstCpu {
    fn drop(&mut self) {
        let _ = fs::write(FILE, "0");
    }
}

/// `wakeful keeper` with its files in a directory, killed with the value.
struct Keeper {
    child: Child,
    stderr: BufReader<ChildStderr>,
}

impl Keeper {
    /// Until it says that it may be used.
    fn start(directory: &Path, arguments: &[&str]) -> Self {
        let mut keeper = Self::of(command(directory, arguments));
        keeper.line_with("may ask for");
        keeper
    }

    fn of(mut command: Command) -> Self {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        Self { child, stderr }
    }

    fn line_with(&mut self, text: &str) -> String {
        loop {
            let mut line = String::new();
            assert!(self.stderr.read_line(&mut line).unwrap() > 0, "it ended early");
            if line.contains(text) {
                return line;
            }
        }
    }

    /// Ends it. Returns its exit code and what else it said.
    fn end(mut self, signal: Signal) -> (Option<i32>, String) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
        let mut said = String::new();
        self.stderr.read_to_string(&mut said).unwrap();
        (self.child.wait().unwrap().code(), said)
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn command(directory: &Path, arguments: &[&str]) -> Command {
    command_with_state(directory, "state", arguments)
}

fn command_with_state(directory: &Path, state: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.arg("keeper").args(arguments).current_dir(directory);
    command.args(["--socket", "sock", "--state", state, "--lock", "lock", "--unmeasured"]);
    // Of a service that runs these tests.
    command.env_remove("NOTIFY_SOCKET").env_remove("LISTEN_FDS");
    command
}

fn directory() -> TempDir {
    tempfile::tempdir().unwrap()
}

fn holding(socket: &Path) -> KeeperClient {
    let client = KeeperClient::connect(socket).unwrap();
    let answer = client.hold_and_wait(&[0], Duration::ZERO, GUARD).unwrap();
    assert_eq!(answer, Answer::Held(vec![0]));
    client
}

/// The exit code, and what it said.
fn failed(command: &mut Command) -> (Option<i32>, String) {
    let output = command.output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn a_keeper_holds_says_so_and_restores_at_the_end() {
    let Some(_cpu) = FirstCpu::of_this_machine() else { return };
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let directory = directory();
        let keeper = Keeper::start(directory.path(), &["--cpus", "0"]);
        let client = holding(&directory.path().join("sock"));
        assert_eq!(FirstCpu::says(), "n/a");

        let mut status = Command::new(PROGRAM);
        status.args(["keeper", "--status", "--socket", "sock"]).current_dir(directory.path());
        let status = String::from_utf8(status.output().unwrap().stdout).unwrap();
        assert!(status.starts_with("held      0\nclients   2\n"), "{status}");
        // Unknown within a pid namespace.
        let own = format!("by process {} of user 0\n", std::process::id());
        assert!(status.ends_with(&own) || status.ends_with("by a process\n"), "{status}");

        client.release().unwrap();
        let start = Instant::now();
        while client.answer().unwrap().is_none() {
            assert!(start.elapsed() < GUARD, "no answer");
            std::thread::yield_now();
        }
        assert_eq!(FirstCpu::says(), "0");

        let _client = holding(&directory.path().join("sock"));
        assert_eq!(keeper.end(signal), (Some(0), String::new()));
        assert_eq!(FirstCpu::says(), "0");
        assert!(!directory.path().join("sock").exists());
    }
}

#[test]
fn the_next_keeper_restores_what_one_that_was_killed_has_left() {
    let Some(_cpu) = FirstCpu::of_this_machine() else { return };
    let directory = directory();
    let keeper = Keeper::start(directory.path(), &[]);
    let client = holding(&directory.path().join("sock"));
    assert_eq!(keeper.end(Signal::KILL).0, None);
    assert_eq!(FirstCpu::says(), "n/a");
    assert!(client.answer().is_err());
    let mut next = Keeper::of(command(directory.path(), &[]));
    next.line_with("an earlier keeper was killed while it held CPUs 0:");
    next.line_with("may ask for all CPUs");
    assert_eq!(FirstCpu::says(), "0");
}

#[test]
fn a_second_keeper_and_a_user_that_may_not_are_refused() {
    let Some(_cpu) = FirstCpu::of_this_machine() else { return };
    let directory = directory();
    let keeper = Keeper::start(directory.path(), &["--group", "0"]);
    let (code, said) = failed(&mut command(directory.path(), &[]));
    assert_eq!(code, Some(1), "{said}");
    let other = format!("another keeper (process {}) has the lock", keeper.child.id());
    assert!(said.contains(&other), "{said}");

    let mut other_user = command(Path::new("/"), &[]);
    let (code, said) = failed(other_user.uid(USER).gid(USER));
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("The keeper needs root"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");

    let socket = directory.path().join("sock");
    let mut status = Command::new(PROGRAM);
    status.args(["keeper", "--status", "--socket"]).arg(&socket).current_dir("/");
    let (code, said) = failed(status.uid(USER).gid(USER));
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("may not be used by this user: its group may"), "{said}");
}

#[test]
fn a_state_file_at_its_size_limit_is_a_refusal() {
    let Some(_cpu) = FirstCpu::of_this_machine() else { return };
    let directory = directory();
    let keeper = Keeper::start(directory.path(), &[]);
    let pid = Pid::from_child(&keeper.child);
    let few = Rlimit { current: Some(10), maximum: None };
    prlimit(Some(pid), Resource::Fsize, few).unwrap();
    let client = KeeperClient::connect(&directory.path().join("sock")).unwrap();
    let answer = client.hold_and_wait(&[0], Duration::ZERO, GUARD).unwrap();
    let Answer::Refused(reason) = answer else { panic!("{answer:?}") };
    assert!(reason.contains("File too large"), "{reason}");
    assert_eq!(FirstCpu::says(), "0");
    let unlimited = Rlimit { current: None, maximum: None };
    prlimit(Some(pid), Resource::Fsize, unlimited).unwrap();
    let answer = client.hold_and_wait(&[0], Duration::ZERO, GUARD).unwrap();
    assert_eq!(answer, Answer::Held(vec![0]));
    assert_eq!(keeper.end(Signal::TERM).0, Some(0));
    assert_eq!(FirstCpu::says(), "0");
}

#[test]
fn systemd_is_told_that_it_is_ready() {
    let Some(_cpu) = FirstCpu::of_this_machine() else { return };
    let directory = directory();
    let manager = UnixDatagram::bind(directory.path().join("notify")).unwrap();
    manager.set_read_timeout(Some(GUARD)).unwrap();
    let mut command = command(directory.path(), &["--quiet"]);
    command.env("NOTIFY_SOCKET", directory.path().join("notify"));
    let keeper = Keeper::of(command);
    let mut message = [0; 100];
    let length = manager.recv(&mut message).unwrap();
    assert_eq!(String::from_utf8_lossy(&message[..length]).trim(), "READY=1");
    // It listens by then.
    let _client = holding(&directory.path().join("sock"));
    assert_eq!(keeper.end(Signal::TERM), (Some(0), String::new()));
}

/// As where the service manager itself stands still.
#[test]
fn a_manager_that_does_not_read_holds_the_keeper_up_neither_at_its_start_nor_at_its_end() {
    let Some(_cpu) = FirstCpu::of_this_machine() else { return };
    let directory = directory();
    let path = directory.path().join("notify");
    let _manager = UnixDatagram::bind(&path).unwrap();
    let others = UnixDatagram::unbound().unwrap();
    others.set_nonblocking(true).unwrap();
    while others.send_to(b"STATUS=", &path).is_ok() {}
    let mut command = command(directory.path(), &["--quiet"]);
    command.env("NOTIFY_SOCKET", &path);
    let keeper = Keeper::of(command);
    let socket = directory.path().join("sock");
    let start = Instant::now();
    while !socket.exists() {
        assert!(start.elapsed() < GUARD, "it does not listen");
        thread::yield_now();
    }
    let client = holding(&socket);
    assert_eq!(FirstCpu::says(), "n/a");
    assert_eq!(keeper.end(Signal::TERM), (Some(0), String::new()));
    assert_eq!(FirstCpu::says(), "0");
    drop(client);
}

#[test]
fn no_signal_that_can_be_caught_leaves_a_cpu_held() {
    let Some(_cpu) = FirstCpu::of_this_machine() else { return };
    let ending = [Signal::ALARM, Signal::VTALARM, Signal::PROF, Signal::IO, Signal::XCPU];
    for ending in ending {
        let directory = directory();
        let keeper = Keeper::start(directory.path(), &[]);
        let _client = holding(&directory.path().join("sock"));
        assert_eq!(FirstCpu::says(), "n/a");
        for signal in [Signal::USR1, Signal::USR2] {
            kill_process(Pid::from_child(&keeper.child), signal).unwrap();
        }
        // It continues.
        let _other = holding(&directory.path().join("sock"));
        assert_eq!(keeper.end(ending).0, Some(0), "{ending:?}");
        assert_eq!(FirstCpu::says(), "0", "{ending:?}");
    }
}

#[test]
fn the_socket_that_systemd_passes_is_used() {
    let Some(_cpu) = FirstCpu::of_this_machine() else { return };
    let directory = directory();
    let socket = directory.path().join("passed");
    let mut activate = Command::new("systemd-socket-activate");
    activate.arg("--seqpacket").arg("--listen").arg(&socket).arg(PROGRAM);
    activate.args(["keeper", "--state", "state", "--lock", "lock", "--unmeasured"]);
    activate.current_dir(directory.path()).stderr(Stdio::piped());
    let mut child = match activate.spawn() {
        Ok(child) => child,
        Err(error) => {
            eprintln!("skipped: systemd-socket-activate: {error}");
            return;
        }
    };
    let stderr = BufReader::new(child.stderr.take().unwrap());
    let mut keeper = Keeper { child, stderr };
    keeper.line_with("Listening on");
    // It starts with the first client, in the same process.
    let client = KeeperClient::connect(&socket).unwrap();
    let answer = client.hold_and_wait(&[0], Duration::ZERO, GUARD).unwrap();
    assert_eq!(answer, Answer::Held(vec![0]));
    assert_eq!(FirstCpu::says(), "n/a");
    keeper.line_with("clients of systemd's socket may ask for all CPUs");
    assert_eq!(keeper.end(Signal::TERM).0, Some(0));
    assert_eq!(FirstCpu::says(), "0");
    assert!(socket.exists());
}

#[test]
fn without_a_keeper_the_status_says_how_to_get_one() {
    let directory = directory();
    let mut status = Command::new(PROGRAM);
    status.args(["keeper", "--status", "--socket", "none"]).current_dir(directory.path());
    let (code, said) = failed(&mut status);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("systemctl enable --now wakeful-keeper.socket"), "{said}");
    for usage in [
        &["--status", "--unmeasured"][..],
        &["--cpus", "3-1"],
        &["--most-cpus", "0"],
        &["--longest", "-1s"],
        &["--most-clients", "-1"],
    ] {
        let (code, said) = failed(Command::new(PROGRAM).arg("keeper").args(usage));
        assert_eq!(code, Some(2), "{usage:?}: {said}");
    }
    let (code, said) = failed(&mut command(directory.path(), &["--group", "no such group"]));
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("there is no group no such group"), "{said}");
}

/// The keeper with mounts of its own, which `script` makes. `None`, and a line: there are none.
fn command_with_mounts(directory: &Path, state: &str, script: &str) -> Option<Command> {
    let keeper = command_with_state(directory, state, &[]);
    let mut unshared = Command::new("unshare");
    let script = format!(r#"{script} || exit 99; exec "$0" "$@""#);
    unshared.args(["--mount", "sh", "-c", &script]).current_dir(directory);
    let mut tried = Command::new("unshare");
    tried.args(["--mount", "sh", "-c", &script, "true"]).current_dir(directory);
    if !tried.stderr(Stdio::null()).status().is_ok_and(|status| status.success()) {
        eprintln!("skipped: no mounts of its own");
        return None;
    }
    unshared.arg(keeper.get_program()).args(keeper.get_args());
    unshared.env_remove("NOTIFY_SOCKET").env_remove("LISTEN_FDS");
    Some(unshared)
}

/// Runs a command where the keeper's mounts are.
fn in_mounts_of(keeper: &Keeper, command: &[&str]) {
    let mut nsenter = Command::new("nsenter");
    nsenter.args(["--mount", "--target", &keeper.child.id().to_string()]).args(command);
    assert!(nsenter.status().unwrap().success(), "{command:?}");
}

#[test]
fn where_sys_may_not_be_written_a_keeper_does_not_start_and_says_why() {
    let Some(_cpu) = FirstCpu::of_this_machine() else { return };
    let directory = directory();
    let script = "mount -o remount,bind,ro /sys";
    let Some(mut command) = command_with_mounts(directory.path(), "state", script) else { return };
    let (code, said) = failed(&mut command);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("Read-only file system"), "{said}");
    assert!(said.contains("/sys mounted for writing"), "{said}");
}

#[test]
fn a_cpu_that_cannot_be_restored_while_sys_is_read_only_is_restored_later() {
    let Some(_cpu) = FirstCpu::of_this_machine() else { return };
    let directory = directory();
    let Some(command) = command_with_mounts(directory.path(), "state", "true") else { return };
    let mut keeper = Keeper::of(command);
    keeper.line_with("may ask for");
    let client = holding(&directory.path().join("sock"));
    in_mounts_of(&keeper, &["mount", "-o", "remount,bind,ro", "/sys"]);
    client.release().unwrap();
    keeper.line_with("CPU 0 is still held");
    assert_eq!(FirstCpu::says(), "n/a");
    in_mounts_of(&keeper, &["mount", "-o", "remount,bind,rw", "/sys"]);
    let start = Instant::now();
    while FirstCpu::says() != "0" {
        assert!(start.elapsed() < GUARD, "not restored");
        std::thread::yield_now();
    }
}

#[test]
fn where_run_is_full_holds_are_refused_until_there_is_room() {
    let Some(_cpu) = FirstCpu::of_this_machine() else { return };
    let directory = directory();
    fs::create_dir(directory.path().join("run")).unwrap();
    let script = "mount -t tmpfs -o size=64k none run";
    let command = command_with_mounts(directory.path(), "run/state", script);
    let Some(command) = command else { return };
    let mut keeper = Keeper::of(command);
    keeper.line_with("may ask for");
    let socket = directory.path().join("sock");
    let taken = directory.path().join("run/more");
    in_mounts_of(
        &keeper,
        &["sh", "-c", &format!("cat /dev/zero > {} 2>&- || true", taken.display())],
    );
    let client = KeeperClient::connect(&socket).unwrap();
    let answer = client.hold_and_wait(&[0], Duration::ZERO, GUARD).unwrap();
    let Answer::Refused(reason) = answer else { panic!("{answer:?}") };
    assert!(reason.contains("No space left on device"), "{reason}");
    assert_eq!(FirstCpu::says(), "0");
    in_mounts_of(&keeper, &["rm", &taken.display().to_string()]);
    let _client = holding(&socket);
    assert_eq!(FirstCpu::says(), "n/a");
}

#[test]
fn with_few_descriptors_it_starts_or_names_their_limit() {
    let Some(_cpu) = FirstCpu::of_this_machine() else { return };
    let mut started = 0;
    // Below four the loader finds no library.
    for limit in 4..=24 {
        let directory = directory();
        let keeper = command(directory.path(), &["--cpus", "0"]);
        let mut limited = Command::new("prlimit");
        limited.arg(format!("--nofile={limit}")).arg(keeper.get_program()).args(keeper.get_args());
        limited.current_dir(directory.path()).env_remove("NOTIFY_SOCKET").env_remove("LISTEN_FDS");
        let mut keeper = Keeper::of(limited);
        let mut line = String::new();
        while !line.contains("may ask for") && keeper.stderr.read_line(&mut line).unwrap() > 0 {}
        if line.contains("may ask for") {
            started += 1;
            drop(holding(&directory.path().join("sock")));
            let (code, said) = keeper.end(Signal::TERM);
            assert_eq!((code, said), (Some(0), String::new()));
        } else {
            assert_eq!(keeper.child.wait().unwrap().code(), Some(1), "{limit}: {line}");
            assert!(line.contains("RLIMIT_NOFILE"), "{limit}: {line}");
        }
    }
    assert!(started > 0, "twenty-four are enough");
}

#[test]
fn a_limit_of_descriptors_that_is_lowered_keeps_no_cpu_held() {
    let Some(_cpu) = FirstCpu::of_this_machine() else { return };
    let directory = directory();
    let mut keeper = Keeper::start(directory.path(), &["--cpus", "0"]);
    let socket = directory.path().join("sock");
    let client = holding(&socket);
    let pid = Pid::from_child(&keeper.child);
    let lower = |number, maximum| {
        let limit = Rlimit { current: Some(number), maximum };
        prlimit(Some(pid), Resource::Nofile, limit).unwrap();
    };
    let is_restored = || {
        let start = Instant::now();
        while FirstCpu::says() != "0" {
            assert!(start.elapsed() < GUARD, "the CPU is still held");
            std::thread::yield_now();
        }
    };
    // Inherited.
    let maximum = getrlimit(Resource::Nofile).maximum;
    lower(3, maximum);
    let refused = KeeperClient::connect(&socket).unwrap();
    assert!(keeper.line_with("no client is let in").contains("RLIMIT_NOFILE"));
    client.release().unwrap();
    is_restored();
    // It waits for more descriptors than the kernel lets it name now.
    lower(1, maximum);
    assert_eq!(client.hold_and_wait(&[0], Duration::ZERO, GUARD).unwrap(), Answer::Held(vec![0]));
    client.release().unwrap();
    is_restored();
    // Now nothing is left to do.
    lower(1, Some(1));
    drop((client, refused));
    assert!(keeper.line_with("waiting for clients").contains("RLIMIT_NOFILE"));
    assert_eq!(keeper.child.wait().unwrap().code(), Some(1));
    assert_eq!(FirstCpu::says(), "0");
}

#[test]
fn with_a_limit_of_descriptors_below_its_clients_it_serves_the_oldest_of_them() {
    let Some(_cpu) = FirstCpu::of_this_machine() else { return };
    let directory = directory();
    let mut keeper = Keeper::start(directory.path(), &["--cpus", "0"]);
    let socket = directory.path().join("sock");
    let first = KeeperClient::connect(&socket).unwrap();
    let waiting: Vec<_> = (0..40).map(|_| KeeperClient::connect(&socket).unwrap()).collect();
    let last = holding(&socket);
    assert_eq!(FirstCpu::says(), "n/a");
    let limit = Rlimit { current: Some(24), maximum: Some(24) };
    prlimit(Some(Pid::from_child(&keeper.child)), Resource::Nofile, limit).unwrap();
    let hold = || first.hold_and_wait(&[0], Duration::ZERO, GUARD).unwrap();
    // It notices as it waits anew, so a request that comes before is refused.
    let start = Instant::now();
    while let refused @ Answer::Refused(_) = hold() {
        assert!(start.elapsed() < GUARD, "{refused:?}");
    }
    assert!(keeper.line_with("sent away").contains("RLIMIT_NOFILE"));
    first.release().unwrap();
    let start = Instant::now();
    while FirstCpu::says() != "0" {
        assert!(start.elapsed() < GUARD, "the last client's hold outlives its connection");
        std::thread::yield_now();
    }
    assert_eq!(hold(), Answer::Held(vec![0]));
    drop((waiting, last));
    assert_eq!(keeper.end(Signal::TERM).0, Some(0));
    assert_eq!(FirstCpu::says(), "0");
}
