//! What a program of one's own meets as a master and as a worker: signals, starts that fail, and
//! the end of the master.
//!
//! This program starts itself again as a master. So it has no harness: see `Cargo.toml`.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::process::{Child, ChildStderr, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use tracing_subscriber::fmt::MakeWriter;
use wakeful::LoopGroup;
use wakeful::accept::{Connection, ConnectionServer, Serving, SharedListener};
use wakeful::log::LossyWriter;
use wakeful_workers::{Master, Role};

#[path = "../../wakeful/tests/refused/mod.rs"]
mod refused;

/// What the master that is started is to do.
const ROLE: &str = "WAKEFUL_TEST_ROLE";
/// A file: while it exists, new workers do not get ready.
const SLOW: &str = "WAKEFUL_TEST_SLOW";

const GUARD: Duration = Duration::from_secs(60);

const TESTS: [(&str, fn()); 9] = [
    (
        "where_kill_is_refused_workers_are_told_by_their_pidfds",
        where_kill_is_refused_workers_are_told_by_their_pidfds,
    ),
    (
        "a_worker_that_cannot_be_signalled_is_logged_and_an_upgrade_goes_on",
        a_worker_that_cannot_be_signalled_is_logged_and_an_upgrade_goes_on,
    ),
    (
        "what_a_worker_starts_has_no_signal_blocked_also_after_an_upgrade",
        what_a_worker_starts_has_no_signal_blocked_also_after_an_upgrade,
    ),
    ("a_hangup_ends_no_worker", a_hangup_ends_no_worker),
    (
        "signals_for_the_master_end_no_worker_that_starts",
        signals_for_the_master_end_no_worker_that_starts,
    ),
    (
        "a_worker_that_does_not_start_is_killed_and_the_old_one_stays",
        a_worker_that_does_not_start_is_killed_and_the_old_one_stays,
    ),
    ("workers_end_with_a_master_that_is_killed", workers_end_with_a_master_that_is_killed),
    (
        "after_its_end_a_master_has_its_signals_as_before",
        after_its_end_a_master_has_its_signals_as_before,
    ),
    (
        "a_log_that_starts_a_thread_ends_the_first_start",
        a_log_that_starts_a_thread_ends_the_first_start,
    ),
];

fn main() -> io::Result<ExitCode> {
    if let Ok(role) = env::var(ROLE) {
        return serve(&role);
    }
    // As a harness answers it: `.ci/contract` asks all programs of tests.
    let is_asked = |option| env::args().any(|argument| argument == option);
    for (name, test) in TESTS {
        if !is_asked("--list") {
            test();
            println!("test {name} ... ok");
        } else if !is_asked("--ignored") {
            println!("{name}: test");
        }
    }
    Ok(ExitCode::SUCCESS)
}

// The program under test.

/// Starts a thread with its first line, as some do.
struct WithThread;

impl<'a> MakeWriter<'a> for WithThread {
    type Writer = io::Stderr;

    fn make_writer(&'a self) -> Self::Writer {
        std::thread::spawn(|| std::thread::sleep(GUARD));
        io::stderr()
    }
}

fn serve(role: &str) -> io::Result<ExitCode> {
    if role == "log" {
        tracing_subscriber::fmt().with_writer(WithThread).init();
    } else {
        let writer = || LossyWriter::without_thread(io::stderr());
        tracing_subscriber::fmt().with_writer(writer).init();
    }
    for call in refused_calls(role) {
        refused::refuse(*call)?;
    }
    let group = LoopGroup::builder().loops(1);
    // An upgrade gets it from the master before.
    let first = TcpListener::bind("127.0.0.1:0")?;
    let master = Master::new(group.clone())
        .passed([SharedListener::from_socket(OwnedFd::from(first))?])
        .workers(1)
        .start_timeout(Duration::from_secs(1));
    let mut worker = match master.run()? {
        Role::Worker(worker) => worker,
        Role::Ended(code) => {
            eprintln!("after the end: {}", blocked("self")?);
            return Ok(code);
        }
    };
    let server = ConnectionServer::new(worker.listeners()?)
        .group(group.heartbeats(worker.heartbeats()).sibling(worker.sibling()));
    let start = || {
        while env::var_os(SLOW).is_some_and(|file| fs::exists(file).is_ok_and(|is| is)) {
            std::thread::sleep(Duration::from_millis(10));
        }
        server.start(|| answer)
    };
    worker.serve(start, Serving::failure, |serving| serving.shutdown(Duration::from_secs(10)))?;
    Ok(ExitCode::SUCCESS)
}

/// Those that a seccomp filter refuses.
fn refused_calls(role: &str) -> &'static [libc::c_long] {
    match role {
        "no kill" => &[libc::SYS_kill],
        "no signal" => &[libc::SYS_kill, libc::SYS_pidfd_send_signal],
        _ => &[],
    }
}

/// With what a process that it starts has blocked.
async fn answer(connection: Connection) {
    let mut stream = connection.stream;
    let asked = stream.read(&mut [0; 1]).await;
    let output = Command::new("grep").args(["SigBlk", "/proc/self/status"]).output();
    if let (Ok(1), Ok(output)) = (asked, output) {
        let _ = stream.write_all(&output.stdout).await;
    }
}

/// The line of a process's status that says which signals its main thread has blocked.
fn blocked(process: &str) -> io::Result<String> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find(|line| line.starts_with("SigBlk"));
    Ok(line.unwrap_or_default().to_owned())
}

// The tests.

/// A master that runs. It and its workers are killed when it is dropped.
struct Running {
    first: Child,
    log: BufReader<ChildStderr>,
    /// All processes that were seen.
    seen: BTreeSet<u32>,
}

impl Running {
    fn start(role: &str, slow: Option<&std::path::Path>) -> Self {
        let mut command = Command::new(env::current_exe().unwrap());
        command.env(ROLE, role).env("NO_COLOR", "1").stdin(Stdio::null()).stderr(Stdio::piped());
        command.env_remove("NOTIFY_SOCKET").env_remove(SLOW);
        if let Some(slow) = slow {
            command.env(SLOW, slow);
        }
        let mut first = command.spawn().unwrap();
        let log = BufReader::new(first.stderr.take().unwrap());
        let seen = BTreeSet::from([first.id()]);
        Self { first, log, seen }
    }

    /// What is behind `text` in the next line that has it.
    fn says(&mut self, text: &str) -> String {
        let mut all = String::new();
        loop {
            let mut line = String::new();
            assert!(self.log.read_line(&mut line).unwrap() > 0, "no {text:?} in:\n{all}");
            if let Some((_, rest)) = line.split_once(text) {
                return rest.trim().to_owned();
            }
            all.push_str(&line);
        }
    }

    fn addr(&mut self) -> String {
        let line = self.says("master listening on ");
        line.split(' ').next().unwrap().to_owned()
    }

    fn next_worker(&mut self) -> u32 {
        let line = self.says(": worker ");
        let pid = line.split(' ').next().unwrap().parse().unwrap();
        self.seen.insert(pid);
        self.says("all workers accept");
        pid
    }

    fn signal(&self, name: &str) {
        signal(self.first.id(), name);
    }

    fn ends_within_guard(&mut self) -> std::process::ExitStatus {
        let start = Instant::now();
        loop {
            if let Some(status) = self.first.try_wait().unwrap() {
                return status;
            }
            assert!(start.elapsed() < GUARD, "it does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let children = |pid: &u32| {
            let path = format!("/proc/{pid}/task/{pid}/children");
            fs::read_to_string(path).unwrap_or_default()
        };
        let children: String = self.seen.iter().map(children).collect();
        self.seen.extend(children.split_whitespace().map(|pid| pid.parse::<u32>().unwrap()));
        self.seen.iter().filter(|pid| is_ours(**pid)).for_each(|pid| signal(*pid, "KILL"));
        let _ = self.first.wait();
    }
}

/// Not another process that was given the number since.
fn is_ours(pid: u32) -> bool {
    fs::read(format!("/proc/{pid}/environ"))
        .is_ok_and(|all| all.windows(ROLE.len()).any(|part| part == ROLE.as_bytes()))
}

fn signal(pid: u32, name: &str) {
    let status = Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status();
    assert!(status.unwrap().success(), "process {pid} is gone");
}

fn asks(addr: &str) -> String {
    let mut stream = TcpStream::connect(addr).unwrap();
    stream.set_read_timeout(Some(GUARD)).unwrap();
    stream.write_all(b"?").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn none_is_blocked(line: &str) -> bool {
    line.trim().ends_with("\t0000000000000000")
}

/// The new master, and its worker.
fn upgrade(master: &mut Running) -> (u32, u32) {
    master.signal("USR2");
    let successor = master.says("upgrading: process ");
    let successor = successor.split(' ').next().unwrap().parse().unwrap();
    master.seen.insert(successor);
    let worker = master.next_worker();
    master.says(" has taken over");
    (successor, worker)
}

fn what_a_worker_starts_has_no_signal_blocked_also_after_an_upgrade() {
    let mut master = Running::start("serve", None);
    let addr = master.addr();
    let worker = master.next_worker();
    let answer = asks(&addr);
    assert!(none_is_blocked(&answer), "{answer}");
    let line = blocked(&worker.to_string()).unwrap();
    assert!(none_is_blocked(&line), "{line}");
    let (successor, worker) = upgrade(&mut master);
    assert!(master.ends_within_guard().success());
    let answer = asks(&addr);
    assert!(none_is_blocked(&answer), "{answer}");
    let line = blocked(&worker.to_string()).unwrap();
    assert!(none_is_blocked(&line), "{line}");
    signal(successor, "TERM");
    master.says("after the end: ");
}

/// A master and its first worker. `None`: no filter can be set here.
fn start_with_filter(role: &str) -> Option<(Running, String, u32)> {
    let refused = std::thread::spawn(|| refused::refuse(libc::SYS_kill)).join().unwrap();
    if let Err(error) = refused {
        eprintln!("skipped: no filter can be set: {error}");
        return None;
    }
    let mut master = Running::start(role, None);
    let addr = master.addr();
    let worker = master.next_worker();
    Some((master, addr, worker))
}

fn where_kill_is_refused_workers_are_told_by_their_pidfds() {
    let Some((mut master, addr, before)) = start_with_filter("no kill") else { return };
    master.signal("HUP");
    let worker = master.next_worker();
    assert_ne!(worker, before);
    assert!(asks(&addr).starts_with("SigBlk"));
    master.signal("TERM");
    assert!(master.ends_within_guard().success());
    assert!(!is_ours(worker) && !is_ours(before));
}

fn a_worker_that_cannot_be_signalled_is_logged_and_an_upgrade_goes_on() {
    let Some((mut master, addr, before)) = start_with_filter("no signal") else { return };
    let (successor, worker) = upgrade(&mut master);
    let said = master.says("cannot send SIGTERM to process ");
    assert!(said.starts_with(&format!("{before} (kill: ")) && said.contains("seccomp"), "{said}");
    assert!(asks(&addr).starts_with("SigBlk"));
    // The old master looks after its worker, which others may end.
    signal(before, "TERM");
    assert!(master.ends_within_guard().success());
    assert!(is_ours(successor) && is_ours(worker));
}

fn a_hangup_ends_no_worker() {
    let mut master = Running::start("serve", None);
    let addr = master.addr();
    let worker = master.next_worker();
    master.signal("USR1");
    master.says("sending HUP to the workers");
    signal(worker, "HUP");
    assert!(asks(&addr).starts_with("SigBlk"));
    master.signal("TERM");
    // Told to end, not killed by a HUP.
    assert!(master.says(&format!("worker {worker} ")).starts_with("has ended"));
    assert!(master.ends_within_guard().success());
}

fn signals_for_the_master_end_no_worker_that_starts() {
    let directory = tempfile::tempdir().unwrap();
    let slow = directory.path().join("slow");
    fs::write(&slow, "").unwrap();
    let mut master = Running::start("serve", Some(&slow));
    let addr = master.addr();
    let (pid, start) = (master.first.id(), Instant::now());
    let worker = loop {
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        if let Some(worker) = children.split_whitespace().next() {
            break worker.parse().unwrap();
        }
        assert!(start.elapsed() < GUARD, "there is no worker");
    };
    master.seen.insert(worker);
    for name in ["HUP", "USR1", "USR2"] {
        signal(worker, name);
    }
    fs::remove_file(&slow).unwrap();
    assert_eq!(master.next_worker(), worker);
    assert!(asks(&addr).starts_with("SigBlk"));
    master.signal("TERM");
    assert!(master.ends_within_guard().success());
}

fn a_worker_that_does_not_start_is_killed_and_the_old_one_stays() {
    let directory = tempfile::tempdir().unwrap();
    let slow = directory.path().join("slow");
    let mut master = Running::start("serve", Some(&slow));
    let addr = master.addr();
    master.next_worker();
    fs::write(&slow, "").unwrap();
    master.signal("HUP");
    master.says("is killed: it does not accept after 1s");
    master.says("before it accepted: the old workers continue");
    assert!(asks(&addr).starts_with("SigBlk"));
    // The same in an upgrade.
    master.signal("USR2");
    let successor = master.says("upgrading: process ");
    let successor: u32 = successor.split(' ').next().unwrap().parse().unwrap();
    master.seen.insert(successor);
    // It has this one blocked from its first instruction on, and reads it later.
    signal(successor, "USR2");
    master.says("no upgrade: this process has not taken over yet");
    master.says("no upgrade: the new master has ended (exit status: 1");
    assert!(asks(&addr).starts_with("SigBlk"));
    // One that starts does not keep the others from ending.
    master.signal("HUP");
    master.says("replacing the workers");
    master.signal("TERM");
    assert!(master.ends_within_guard().success());
}

fn workers_end_with_a_master_that_is_killed() {
    let mut master = Running::start("serve", None);
    let addr = master.addr();
    let worker = master.next_worker();
    assert!(asks(&addr).starts_with("SigBlk"));
    master.signal("KILL");
    master.says("the master is gone");
    let start = Instant::now();
    while is_ours(worker) {
        assert!(start.elapsed() < GUARD, "the worker lives on");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn after_its_end_a_master_has_its_signals_as_before() {
    let mut master = Running::start("serve", None);
    master.addr();
    master.next_worker();
    master.signal("TERM");
    let line = master.says("after the end: ");
    assert!(none_is_blocked(&line), "{line}");
    assert!(master.ends_within_guard().success());
}

fn a_log_that_starts_a_thread_ends_the_first_start() {
    let mut master = Running::start("log", None);
    master.says("a master must not start a thread");
    assert!(!master.ends_within_guard().success());
}
