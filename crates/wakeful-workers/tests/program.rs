//! What a program of one's own meets as a master and as a worker: signals, starts that fail, and
//! the end of the master. Each test runs with workers that are only forked, and with workers that
//! execute the program.
//!
//! This program starts itself again as a master. So it has no harness: see `Cargo.toml`.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::process::{Child, ChildStderr, Command, ExitCode, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, WaitOptions, waitpid};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use tracing_subscriber::fmt::MakeWriter;
use wakeful::LoopGroup;
use wakeful::accept::{AcceptStrategy, Connection, ConnectionServer, Serving, SharedListener};
use wakeful::log::LossyWriter;
use wakeful::time::sleep;
use wakeful_workers::{Master, Orphans, Role, StartMethod, is_executed_worker};

#[path = "../../wakeful/tests/refused/mod.rs"]
mod refused;

/// What the started master should do.
const ROLE: &str = "WAKEFUL_TEST_ROLE";
/// A file: while it exists, new workers do not get ready.
const SLOW: &str = "WAKEFUL_TEST_SLOW";
/// Set if workers execute the program.
const EXEC: &str = "WAKEFUL_TEST_EXEC";
/// Tells an executed worker that it is one.
const WORKER: &str = "WAKEFUL_WORKER";

const GUARD: Duration = Duration::from_secs(60);

/// A master cannot do without these. By the role of a master that has none of it.
const NEEDED: [(&str, libc::c_long); 6] = [
    ("memfd_create", libc::SYS_memfd_create),
    ("eventfd2", libc::SYS_eventfd2),
    ("signalfd4", libc::SYS_signalfd4),
    ("pipe2", libc::SYS_pipe2),
    ("pidfd_open", libc::SYS_pidfd_open),
    ("clone", libc::SYS_clone),
];

/// Its name, and what it does with workers that are started in this way.
type Test = (&'static str, fn(StartMethod));

const TESTS: [Test; 27] = [
    // The longest one comes first.
    (
        "a_pause_of_all_processes_counts_neither_for_a_start_nor_for_a_drain",
        a_pause_of_all_processes_counts_neither_for_a_start_nor_for_a_drain,
    ),
    (
        "a_master_that_may_not_wait_for_events_names_the_call",
        a_master_that_may_not_wait_for_events_names_the_call,
    ),
    (
        "a_call_that_a_master_cannot_do_without_is_named",
        a_call_that_a_master_cannot_do_without_is_named,
    ),
    (
        "where_limits_cannot_be_asked_for_workers_are_listed",
        where_limits_cannot_be_asked_for_workers_are_listed,
    ),
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
        "a_group_that_is_told_to_end_during_the_first_start_has_not_failed",
        a_group_that_is_told_to_end_during_the_first_start_has_not_failed,
    ),
    (
        "a_worker_whose_program_takes_term_while_it_starts_drains_when_it_accepts",
        a_worker_whose_program_takes_term_while_it_starts_drains_when_it_accepts,
    ),
    (
        "a_worker_that_accepts_and_dies_before_its_master_looks_has_started",
        a_worker_that_accepts_and_dies_before_its_master_looks_has_started,
    ),
    (
        "a_handler_that_ends_its_process_during_the_first_start_costs_one_worker",
        a_handler_that_ends_its_process_during_the_first_start_costs_one_worker,
    ),
    (
        "a_first_worker_that_ends_or_blocks_in_a_set_up_ends_the_master",
        a_first_worker_that_ends_or_blocks_in_a_set_up_ends_the_master,
    ),
    (
        "where_each_loop_has_its_own_socket_workers_start_after_a_change_of_the_cpus",
        where_each_loop_has_its_own_socket_workers_start_after_a_change_of_the_cpus,
    ),
    (
        "a_worker_that_does_not_start_is_killed_and_the_old_one_stays",
        a_worker_that_does_not_start_is_killed_and_the_old_one_stays,
    ),
    (
        "a_second_signal_ends_the_workers_of_a_new_master_too",
        a_second_signal_ends_the_workers_of_a_new_master_too,
    ),
    (
        "a_signal_ends_the_workers_of_a_new_master_that_cannot_end",
        a_signal_ends_the_workers_of_a_new_master_that_cannot_end,
    ),
    (
        "what_a_master_is_told_during_an_upgrade_reaches_the_new_one",
        what_a_master_is_told_during_an_upgrade_reaches_the_new_one,
    ),
    (
        "what_an_old_master_is_told_after_an_upgrade_reaches_the_new_one",
        what_an_old_master_is_told_after_an_upgrade_reaches_the_new_one,
    ),
    ("workers_end_with_a_master_that_is_killed", workers_end_with_a_master_that_is_killed),
    (
        "a_worker_that_waits_in_a_set_up_ends_with_a_master_that_is_killed",
        a_worker_that_waits_in_a_set_up_ends_with_a_master_that_is_killed,
    ),
    (
        "a_worker_that_is_to_go_on_without_its_master_ends_its_set_up",
        a_worker_that_is_to_go_on_without_its_master_ends_its_set_up,
    ),
    (
        "after_its_end_a_master_has_its_signals_as_before",
        after_its_end_a_master_has_its_signals_as_before,
    ),
    ("a_log_that_panics_ends_no_master", a_log_that_panics_ends_no_master),
    ("a_log_that_forks_makes_no_second_master", a_log_that_forks_makes_no_second_master),
    (
        "a_log_that_starts_a_thread_ends_the_first_start",
        a_log_that_starts_a_thread_ends_the_first_start,
    ),
];

/// The tests that only executed workers have.
const OF_EXECUTED: [(&str, fn()); 4] = [
    (
        "a_process_that_inherits_a_worker_s_variable_is_a_master",
        a_process_that_inherits_a_worker_s_variable_is_a_master,
    ),
    (
        "a_worker_that_is_told_nonsense_ends_and_is_no_master",
        a_worker_that_is_told_nonsense_ends_and_is_no_master,
    ),
    (
        "a_worker_whose_master_is_killed_before_it_begins_ends",
        a_worker_whose_master_is_killed_before_it_begins_ends,
    ),
    (
        "each_executed_worker_has_an_address_space_of_its_own",
        each_executed_worker_has_an_address_space_of_its_own,
    ),
];

fn main() -> io::Result<ExitCode> {
    if let Ok(role) = env::var(ROLE) {
        return serve(&role);
    }
    // As a harness answers it: `.ci/contract` asks all programs of tests.
    let is_asked = |option| env::args().any(|argument| argument == option);
    if is_asked("--list") {
        let names =
            TESTS.iter().map(|(name, _)| name).chain(OF_EXECUTED.iter().map(|(name, _)| name));
        if !is_asked("--ignored") {
            names.for_each(|name| println!("{name}: test"));
        }
        return Ok(ExitCode::SUCCESS);
    }
    let of_both = TESTS.into_iter().flat_map(|(name, test)| {
        [StartMethod::Fork, StartMethod::Exec].map(|method| {
            let test = move || test(method);
            (format!("{name} ({method:?})"), Box::new(test) as Box<dyn Fn() + Send>)
        })
    });
    let of_executed = OF_EXECUTED.map(|(name, test)| (name.to_owned(), Box::new(test) as _));
    let tests = Mutex::new(of_both.chain(of_executed));
    let next = || tests.lock().unwrap().next();
    // Three at a time, because they mostly wait.
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while let Some((name, test)) = next() {
                    test();
                    println!("test {name} ... ok");
                }
            });
        }
    });
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

/// Writes each line, and panics. The standard subscriber panics by itself if standard error is a
/// pipe that nobody reads any more.
struct Panics;

impl Write for Panics {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        io::stderr().write_all(line)?;
        panic!("of a log, on purpose")
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Before each line of the master it forks, and the child returns.
struct Forks {
    master: u32,
}

impl Write for Forks {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if std::process::id() == self.master {
            // SAFETY: a master has one thread.
            #[allow(unsafe_code, reason = "a fork has no safe wrapper")]
            let child = unsafe { libc::fork() };
            let Some(child) = Pid::from_raw(child) else { return Ok(line.len()) };
            waitpid(Some(child), WaitOptions::empty())?;
        }
        io::stderr().write(line)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn serve(role: &str) -> io::Result<ExitCode> {
    if role == "log" {
        tracing_subscriber::fmt().with_writer(WithThread).init();
    } else if role == "broken log" {
        tracing_subscriber::fmt().with_writer(|| Panics).init();
    } else if role == "forking log" {
        let master = if is_executed_worker() { 0 } else { std::process::id() };
        tracing_subscriber::fmt().with_writer(move || Forks { master }).init();
    } else {
        let writer = || LossyWriter::without_thread(io::stderr());
        tracing_subscriber::fmt().with_writer(writer).init();
    }
    for call in refused_calls(role) {
        refused::refuse(*call)?;
    }
    let serves_early = role.starts_with("serves early") || role == "goes on";
    if is_executed_worker() && !serves_early && role != "takes TERM" {
        wait_while_slow();
    }
    let (group, master) = if role == "own sockets" {
        let group = LoopGroup::builder();
        let master = Master::new(group.clone()).strategy(AcceptStrategy::ReusePort);
        (group, master.listen(["127.0.0.1:0".parse().unwrap()]))
    } else {
        let group = LoopGroup::builder().loops(1);
        // An upgrade gets it from the master before.
        let first = OwnedFd::from(TcpListener::bind("127.0.0.1:0")?);
        (group.clone(), Master::new(group).passed([SharedListener::from_socket(first)?]))
    };
    let master = master
        .workers(1)
        .shared_data(SHARED)
        .start_method(match env::var_os(EXEC) {
            Some(_) => StartMethod::Exec,
            None => StartMethod::Fork,
        })
        .start_timeout(match role {
            "takes TERM" | "set-up waits" => GUARD,
            _ if serves_early => GUARD,
            _ => Duration::from_secs(1),
        });
    let master = match role {
        "paused" => master.start_timeout(LIMIT).drain_timeout(LIMIT),
        "serves early, ends soon" => master.drain_timeout(Duration::from_secs(1)),
        "goes on" => master.orphans(Orphans::GoOn),
        _ => master,
    };
    let mut worker = match master.run()? {
        Role::Worker(worker) => worker,
        Role::Ended(code) => {
            eprintln!("after the end: {}", blocked("self")?);
            return Ok(code);
        }
    };
    if role == "late" {
        // It does not catch TERM yet.
        wait_while_slow();
    }
    if role == "takes TERM" {
        signal_hook::flag::register(libc::SIGTERM, Arc::default())?;
        eprintln!("the program takes TERM");
        wait_while_slow();
    }
    assert_eq!((worker.number(), worker.shared_data()), (0, SHARED));
    assert_eq!(is_executed_worker(), env::var_os(EXEC).is_some());
    if is_executed_worker() {
        // It would be the master of a worker that is the next master.
        let error = Master::new(LoopGroup::builder()).run().unwrap_err();
        assert!(error.to_string().contains("an executed worker cannot be a master"), "{error}");
    }
    let server = ConnectionServer::new(worker.listeners()?)
        .group(group.heartbeats(worker.heartbeats()).sibling(worker.sibling()));
    let server = match role {
        "set-up ends" => server.on_each_loop(|| async { std::process::exit(CODE) }),
        "set-up blocks" => server.on_each_loop(|| async {
            std::thread::sleep(GUARD);
            Ok(())
        }),
        "set-up waits" => server.on_each_loop(|| {
            eprintln!("the set-up waits");
            std::future::pending()
        }),
        "goes on" => server.on_each_loop(|| async {
            eprintln!("the set-up waits");
            while is_slow() {
                sleep(Duration::from_millis(1)).await;
            }
            Ok(())
        }),
        _ => server,
    };
    let start = || {
        if !serves_early {
            wait_while_slow();
        }
        let serving = server.start(|| answer)?;
        wait_while_slow();
        Ok(serving)
    };
    let failure = |serving: &Serving| {
        if role == "told" {
            // It is called after the master was told.
            eprintln!("the master is told");
        }
        serving.failure()
    };
    worker.serve(start, failure, |serving| serving.shutdown(Duration::from_secs(10)))?;
    Ok(ExitCode::SUCCESS)
}

/// Contains line ends, and bytes that are not UTF-8.
const SHARED: &[u8] = b"\n\nshared\0\xff";

fn wait_while_slow() {
    while is_slow() {
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn is_slow() -> bool {
    env::var_os(SLOW).is_some_and(|file| fs::exists(file).is_ok_and(|is| is))
}

/// The system calls that a seccomp filter refuses.
fn refused_calls(role: &str) -> &'static [libc::c_long] {
    match role {
        "no kill" => &[libc::SYS_kill],
        "no signal" => &[libc::SYS_kill, libc::SYS_pidfd_send_signal],
        "no limits" => &[libc::SYS_prlimit64],
        "no waits" => &[libc::SYS_ppoll],
        _ => {
            let needed = NEEDED.iter().find(|(call, _)| *call == role);
            needed.map_or(&[], |(_, number)| std::slice::from_ref(number))
        }
    }
}

/// The limits of starts and drains where processes are paused. A pause lasts longer.
const LIMIT: Duration = Duration::from_secs(4);

/// The exit code of a set-up that ends its process.
const CODE: i32 = 3;

/// Asks a handler to end its process.
const END: u8 = b'e';

/// With what a process that it starts has blocked, and whether it is told to be a worker.
async fn answer(connection: Connection) {
    let mut stream = connection.stream;
    let mut question = [0; 1];
    let asked = stream.read(&mut question).await;
    if question == [END] {
        std::process::abort();
    }
    let script = r#"grep SigBlk /proc/self/status; env | grep WAKEFUL_WORKER; exit 0"#;
    let output = Command::new("sh").args(["-c", script]).output();
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
    /// All that was read of it.
    read: String,
    /// All processes that were seen.
    seen: BTreeSet<u32>,
}

impl Running {
    fn start(role: &str, method: StartMethod, slow: Option<&std::path::Path>) -> Self {
        let mut command = Command::new(env::current_exe().unwrap());
        if let Some(slow) = slow {
            command.env(SLOW, slow);
        }
        Self::start_by(command, role, method)
    }

    fn start_by(mut command: Command, role: &str, method: StartMethod) -> Self {
        command.env(ROLE, role).env("NO_COLOR", "1").stdin(Stdio::null()).stderr(Stdio::piped());
        command.env_remove("NOTIFY_SOCKET");
        if method == StartMethod::Exec {
            command.env(EXEC, "");
        }
        let mut first = command.spawn().unwrap();
        let log = BufReader::new(first.stderr.take().unwrap());
        let seen = BTreeSet::from([first.id()]);
        Self { first, log, read: String::new(), seen }
    }

    /// What is after `text` in the next line that has it.
    fn says(&mut self, text: &str) -> String {
        loop {
            let mut line = String::new();
            let read = self.log.read_line(&mut line).unwrap();
            assert!(read > 0, "no further {text:?} in:\n{}", self.read);
            self.read.push_str(&line);
            if let Some((_, rest)) = line.split_once(text) {
                return rest.trim().to_owned();
            }
        }
    }

    /// Has it start another master, and returns that one's process id.
    fn upgrades(&mut self) -> u32 {
        self.signal("USR2");
        let successor = self.says("upgrading: process ");
        let successor = successor.split(' ').next().unwrap().parse().unwrap();
        self.seen.insert(successor);
        successor
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

/// Is this process ours, and not another process that has the number now?
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

/// The new master, and its worker. (Its lines may come before the one that says that it starts.)
fn upgrade(master: &mut Running) -> (u32, u32) {
    let before = master.read.len();
    master.signal("USR2");
    master.says(" has taken over");
    let number_behind = |text: &str| {
        let (_, rest) = master.read[before..].split_once(text).unwrap();
        rest.split(' ').next().unwrap().parse().unwrap()
    };
    let (successor, worker) = (number_behind("upgrading: process "), number_behind(": worker "));
    master.seen.extend([successor, worker]);
    (successor, worker)
}

fn what_a_worker_starts_has_no_signal_blocked_also_after_an_upgrade(method: StartMethod) {
    let mut master = Running::start("serve", method, None);
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

fn can_refuse() -> bool {
    let refused = std::thread::spawn(|| refused::refuse(libc::SYS_kill)).join().unwrap();
    refused.inspect_err(|error| eprintln!("skipped: no filter can be set: {error}")).is_ok()
}

fn a_call_that_a_master_cannot_do_without_is_named(method: StartMethod) {
    if !can_refuse() {
        return;
    }
    for (call, _) in NEEDED {
        let mut master = Running::start(call, method, None);
        // It is the result of `main`, and so the last line.
        let error = master.says("Error: ");
        assert!(error.contains(&format!("the system call {call} is refused")), "{call}: {error}");
        assert!(!master.ends_within_guard().success());
    }
}

fn a_master_that_may_not_wait_for_events_names_the_call(method: StartMethod) {
    if !can_refuse() {
        return;
    }
    let mut master = Running::start("no waits", method, None);
    let said = master.says("cannot wait for events");
    assert!(said.contains("the system call ppoll is refused"), "{said}");
    assert!(!said.contains("RLIMIT_NOFILE"), "{said}");
}

fn where_limits_cannot_be_asked_for_workers_are_listed(method: StartMethod) {
    let Some((mut master, ..)) = start_with_filter("no limits", method) else { return };
    master.signal("TERM");
    assert!(master.ends_within_guard().success());
    let mut rest = String::new();
    master.log.read_to_string(&mut rest).unwrap();
    let all = [&master.read[..], &rest].concat();
    assert!(!all.contains("cannot write the list of workers"), "{all}");
}

/// A master and its first worker. `None`: no filter can be set here.
fn start_with_filter(role: &str, method: StartMethod) -> Option<(Running, String, u32)> {
    if !can_refuse() {
        return None;
    }
    let mut master = Running::start(role, method, None);
    let addr = master.addr();
    let worker = master.next_worker();
    Some((master, addr, worker))
}

fn where_kill_is_refused_workers_are_told_by_their_pidfds(method: StartMethod) {
    let Some((mut master, addr, before)) = start_with_filter("no kill", method) else { return };
    master.signal("HUP");
    let worker = master.next_worker();
    assert_ne!(worker, before);
    assert!(asks(&addr).starts_with("SigBlk"));
    master.signal("TERM");
    assert!(master.ends_within_guard().success());
    assert!(!is_ours(worker) && !is_ours(before));
}

fn a_worker_that_cannot_be_signalled_is_logged_and_an_upgrade_goes_on(method: StartMethod) {
    let Some((mut master, addr, before)) = start_with_filter("no signal", method) else { return };
    let (successor, worker) = upgrade(&mut master);
    let said = master.says("cannot send SIGTERM to process ");
    assert!(said.starts_with(&format!("{before} (kill: ")) && said.contains("seccomp"), "{said}");
    assert!(asks(&addr).starts_with("SigBlk"));
    // The old master looks after its worker, which others may end.
    signal(before, "TERM");
    assert!(master.ends_within_guard().success());
    assert!(is_ours(successor) && is_ours(worker));
}

fn a_hangup_ends_no_worker(method: StartMethod) {
    let mut master = Running::start("serve", method, None);
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

fn signals_for_the_master_end_no_worker_that_starts(method: StartMethod) {
    let directory = tempfile::tempdir().unwrap();
    let slow = directory.path().join("slow");
    fs::write(&slow, "").unwrap();
    let mut master = Running::start("serve", method, Some(&slow));
    let addr = master.addr();
    let first = master.first.id();
    let worker = worker_that_starts(&mut master, first, method);
    for name in ["HUP", "USR1", "USR2"] {
        signal(worker, name);
    }
    fs::remove_file(&slow).unwrap();
    assert_eq!(master.next_worker(), worker);
    assert!(asks(&addr).starts_with("SigBlk"));
    master.signal("TERM");
    assert!(master.ends_within_guard().success());
}

fn a_group_that_is_told_to_end_during_the_first_start_has_not_failed(method: StartMethod) {
    let directory = tempfile::tempdir().unwrap();
    let slow = directory.path().join("slow");
    fs::write(&slow, "").unwrap();
    let mut master = Running::start("late", method, Some(&slow));
    let first = master.first.id();
    let worker = worker_that_starts(&mut master, first, method);
    master.signal("STOP");
    signal(worker, "TERM");
    wait_until_dead(worker);
    master.signal("TERM");
    master.signal("CONT");
    master.says("was killed by signal 15 before it accepted");
    assert!(master.ends_within_guard().success());
}

fn a_worker_whose_program_takes_term_while_it_starts_drains_when_it_accepts(method: StartMethod) {
    let directory = tempfile::tempdir().unwrap();
    let slow = directory.path().join("slow");
    fs::write(&slow, "").unwrap();
    let mut master = Running::start("takes TERM", method, Some(&slow));
    master.says("the program takes TERM");
    master.signal("TERM");
    master.says("SIGTERM");
    fs::remove_file(&slow).unwrap();
    assert!(master.ends_within_guard().success());
}

/// Its first thread may be dead before the others. Only the death of all is the worker's.
fn wait_until_dead(worker: u32) {
    wait_until_in_state(worker, "Z");
    let start = Instant::now();
    while fs::read_dir(format!("/proc/{worker}/task")).unwrap().count() > 1 {
        assert!(start.elapsed() < GUARD, "threads of it live on");
    }
}

fn wait_until_in_state(worker: u32, state: &str) {
    let state = format!(") {state} ");
    let is_in_it = || fs::read_to_string(format!("/proc/{worker}/stat")).unwrap().contains(&state);
    let start = Instant::now();
    while !is_in_it() {
        assert!(start.elapsed() < GUARD, "its state is not{state}");
    }
}

fn a_worker_that_accepts_and_dies_before_its_master_looks_has_started(method: StartMethod) {
    let directory = tempfile::tempdir().unwrap();
    let slow = directory.path().join("slow");
    fs::write(&slow, "").unwrap();
    let mut master = Running::start("told", method, Some(&slow));
    let first = master.first.id();
    let worker = worker_that_starts(&mut master, first, method);
    master.signal("STOP");
    fs::remove_file(&slow).unwrap();
    master.says("the master is told");
    signal(worker, "KILL");
    wait_until_dead(worker);
    master.signal("TERM");
    master.signal("CONT");
    master.says("was killed by signal 9; another one takes its place");
    assert!(master.ends_within_guard().success());
}

fn a_handler_that_ends_its_process_during_the_first_start_costs_one_worker(method: StartMethod) {
    let directory = tempfile::tempdir().unwrap();
    let slow = directory.path().join("slow");
    fs::write(&slow, "").unwrap();
    let mut master = Running::start("serves early", method, Some(&slow));
    let addr = master.addr();
    TcpStream::connect(&addr).unwrap().write_all(&[END]).unwrap();
    master.says("was killed by signal 6; another one takes its place");
    let _ = fs::remove_file(&slow);
    master.next_worker();
    assert!(asks(&addr).starts_with("SigBlk"));
    master.signal("TERM");
    assert!(master.ends_within_guard().success());
}

/// It would do the same again and again.
fn a_first_worker_that_ends_or_blocks_in_a_set_up_ends_the_master(method: StartMethod) {
    for (role, how, code) in [
        ("set-up ends", "has ended with exit code 3", CODE),
        ("set-up blocks", "was killed by signal 9", 1),
    ] {
        let mut master = Running::start(role, method, None);
        assert!(master.says(how).starts_with("before it accepted: this master ends"));
        assert_eq!(master.ends_within_guard().code(), Some(code));
    }
}

/// The master has made a socket for each loop, so it must not count the loops anew.
fn where_each_loop_has_its_own_socket_workers_start_after_a_change_of_the_cpus(
    method: StartMethod,
) {
    let all = sched_getaffinity(None).unwrap();
    let Some(first) = (0..CpuSet::MAX_CPU).find(|cpu| all.is_set(*cpu)) else { return };
    let mut one = CpuSet::new();
    one.set(first);
    if all == one {
        return eprintln!("skipped: there is only one CPU");
    }
    for (before, after) in [(&all, &one), (&one, &all)] {
        sched_setaffinity(None, before).unwrap();
        let mut master = Running::start("own sockets", method, None);
        sched_setaffinity(None, &all).unwrap();
        let addr = master.addr();
        let worker = master.next_worker();
        sched_setaffinity(Some(Pid::from_child(&master.first)), after).unwrap();
        signal(worker, "KILL");
        master.says("another one takes its place");
        let said = master.says(": worker ");
        assert!(said.ends_with(" accepts"), "{said}");
        assert!(asks(&addr).starts_with("SigBlk"));
    }
}

fn a_worker_that_does_not_start_is_killed_and_the_old_one_stays(method: StartMethod) {
    let directory = tempfile::tempdir().unwrap();
    let slow = directory.path().join("slow");
    let mut master = Running::start("serve", method, Some(&slow));
    let addr = master.addr();
    master.next_worker();
    fs::write(&slow, "").unwrap();
    master.signal("HUP");
    master.says(": it does not accept connections after 1s");
    master.says("before it accepted: the old workers continue");
    assert!(asks(&addr).starts_with("SigBlk"));
    // The same in an upgrade.
    let successor = master.upgrades();
    // It has this one blocked from its first instruction on, and reads it later.
    signal(successor, "USR2");
    master.says("no upgrade: this process has not taken over yet");
    master.says("no upgrade: the new master has ended (exit status: 1");
    assert!(asks(&addr).starts_with("SigBlk"));
    // A worker that starts does not keep the others from ending.
    master.signal("HUP");
    master.says("replacing the workers");
    master.signal("TERM");
    assert!(master.ends_within_guard().success());
}

fn a_pause_of_all_processes_counts_neither_for_a_start_nor_for_a_drain(method: StartMethod) {
    let directory = tempfile::tempdir().unwrap();
    let slow = directory.path().join("slow");
    fs::write(&slow, "").unwrap();
    let mut master = Running::start("paused", method, Some(&slow));
    let addr = master.addr();
    let first = master.first.id();
    let worker = worker_that_starts(&mut master, first, method);
    let pause = |master: &Running| {
        let all = [master.first.id(), worker];
        all.iter().for_each(|pid| signal(*pid, "STOP"));
        std::thread::sleep(LIMIT + LIMIT / 4);
        all.iter().for_each(|pid| signal(*pid, "CONT"));
    };
    pause(&master);
    fs::remove_file(&slow).unwrap();
    assert_eq!(master.next_worker(), worker);
    let mut stream = TcpStream::connect(&addr).unwrap();
    // A connection that came later was accepted, so that one is, too.
    assert!(asks(&addr).starts_with("SigBlk"));
    master.signal("TERM");
    master.says("the workers drain");
    pause(&master);
    stream.write_all(b"?").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("SigBlk"), "{answer:?}");
    assert!(master.ends_within_guard().success());
}

fn a_second_signal_ends_the_workers_of_a_new_master_too(method: StartMethod) {
    let directory = tempfile::tempdir().unwrap();
    let slow = directory.path().join("slow");
    let mut master = Running::start("serves early", method, Some(&slow));
    master.next_worker();
    fs::write(&slow, "").unwrap();
    let successor = master.upgrades();
    let worker = worker_that_starts(&mut master, successor, method);
    // It can neither accept nor end. But a TERM that it gets before it has stopped would end it.
    signal(worker, "STOP");
    wait_until_in_state(worker, "T");
    master.signal("TERM");
    master.says("the workers drain");
    // A second signal is not part of the first one only after a moment.
    std::thread::sleep(Duration::from_millis(200));
    master.signal("TERM");
    master.says("the second one: ending at once");
    assert!(!master.ends_within_guard().success());
    assert!(!is_ours(successor) && !is_ours(worker));
}

/// The old master must not kill the new one before that has killed its worker.
fn a_signal_ends_the_workers_of_a_new_master_that_cannot_end(method: StartMethod) {
    let directory = tempfile::tempdir().unwrap();
    let slow = directory.path().join("slow");
    let mut master = Running::start("serves early, ends soon", method, Some(&slow));
    master.next_worker();
    fs::write(&slow, "").unwrap();
    let successor = master.upgrades();
    let worker = worker_that_starts(&mut master, successor, method);
    signal(worker, "STOP");
    wait_until_in_state(worker, "T");
    master.signal("TERM");
    master.ends_within_guard();
    assert!(!is_ours(successor) && !is_ours(worker));
}

fn what_a_master_is_told_during_an_upgrade_reaches_the_new_one(method: StartMethod) {
    for (name, effect) in
        [("USR1", "SIGUSR1: sending HUP to the workers"), ("HUP", "SIGHUP: replacing the workers")]
    {
        let directory = tempfile::tempdir().unwrap();
        let slow = directory.path().join("slow");
        let mut master = Running::start("serves early", method, Some(&slow));
        master.next_worker();
        fs::write(&slow, "").unwrap();
        let successor = master.upgrades();
        master.signal(name);
        master.says(effect);
        master.says("the new master gets it too");
        fs::remove_file(&slow).unwrap();
        master.says(" has taken over");
        assert!(master.ends_within_guard().success());
        // It reads this one after those that came before: their numbers are lower.
        signal(successor, "TERM");
        master.says(effect);
    }
}

fn what_an_old_master_is_told_after_an_upgrade_reaches_the_new_one(method: StartMethod) {
    let mut master = Running::start("serve", method, None);
    let addr = master.addr();
    master.next_worker();
    let mut stream = TcpStream::connect(&addr).unwrap();
    // A connection that came later was accepted, so that one is, too. It keeps the old master.
    assert!(asks(&addr).starts_with("SigBlk"));
    let (successor, _) = upgrade(&mut master);
    for (name, effect) in [("USR1", "sending HUP to the workers"), ("HUP", "replacing the workers")]
    {
        master.signal(name);
        let answer = format!("SIG{name}: ");
        let passed_on = format!("passed on to process {successor}, the new master");
        assert_eq!(master.says(&answer), passed_on);
        assert!(master.says(&answer).starts_with(effect));
    }
    stream.write_all(b"?").unwrap();
    assert!(master.ends_within_guard().success());
}

fn workers_end_with_a_master_that_is_killed(method: StartMethod) {
    let mut master = Running::start("serve", method, None);
    let addr = master.addr();
    let worker = master.next_worker();
    assert!(asks(&addr).starts_with("SigBlk"));
    master.signal("KILL");
    master.says("the master is gone");
    wait_until_gone(worker);
}

/// Otherwise it would keep the sockets for ever.
fn a_worker_that_waits_in_a_set_up_ends_with_a_master_that_is_killed(method: StartMethod) {
    let mut master = Running::start("set-up waits", method, None);
    let first = master.first.id();
    let worker = worker_that_starts(&mut master, first, method);
    master.says("the set-up waits");
    master.signal("KILL");
    wait_until_gone(worker);
    // It is the result of `main`.
    master.says("MasterIsGone");
}

fn a_worker_that_is_to_go_on_without_its_master_ends_its_set_up(method: StartMethod) {
    let directory = tempfile::tempdir().unwrap();
    let slow = directory.path().join("slow");
    fs::write(&slow, "").unwrap();
    let mut master = Running::start("goes on", method, Some(&slow));
    let addr = master.addr();
    let first = master.first.id();
    worker_that_starts(&mut master, first, method);
    master.says("the set-up waits");
    master.signal("KILL");
    assert!(!master.ends_within_guard().success());
    fs::remove_file(&slow).unwrap();
    assert!(asks(&addr).starts_with("SigBlk"));
}

fn wait_until_gone(worker: u32) {
    let start = Instant::now();
    while is_ours(worker) {
        assert!(start.elapsed() < GUARD, "the worker lives on");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn after_its_end_a_master_has_its_signals_as_before(method: StartMethod) {
    let mut master = Running::start("serve", method, None);
    master.addr();
    master.next_worker();
    master.signal("TERM");
    let line = master.says("after the end: ");
    assert!(none_is_blocked(&line), "{line}");
    assert!(master.ends_within_guard().success());
}

fn a_log_that_panics_ends_no_master(method: StartMethod) {
    let mut master = Running::start("broken log", method, None);
    let addr = master.addr();
    let first = master.next_worker();
    master.signal("HUP");
    master.says(&format!("worker {first} has ended"));
    assert!(asks(&addr).starts_with("SigBlk"));
    master.signal("TERM");
    assert!(master.ends_within_guard().success());
}

fn a_log_that_forks_makes_no_second_master(method: StartMethod) {
    let mut master = Running::start("forking log", method, None);
    let addr = master.addr();
    let first = master.next_worker();
    master.signal("HUP");
    master.says(&format!("worker {first} has ended"));
    assert!(asks(&addr).starts_with("SigBlk"));
    master.signal("TERM");
    assert!(master.ends_within_guard().success());
}

fn a_log_that_starts_a_thread_ends_the_first_start(method: StartMethod) {
    let mut master = Running::start("log", method, None);
    master.says("a master must not start a thread");
    assert!(!master.ends_within_guard().success());
}

/// Returns the worker that the master `of` is starting. If it executes the program, it has begun to
/// do so.
fn worker_that_starts(master: &mut Running, of: u32, method: StartMethod) -> u32 {
    let start = Instant::now();
    let worker = loop {
        let children = fs::read_to_string(format!("/proc/{of}/task/{of}/children")).unwrap();
        if let Some(worker) = children.split_whitespace().next() {
            break worker.parse().unwrap();
        }
        assert!(start.elapsed() < GUARD, "there is no worker");
    };
    master.seen.insert(worker);
    while method == StartMethod::Exec && !is_told_to_be_a_worker(worker) {
        assert!(start.elapsed() < GUARD, "it is not executed");
    }
    worker
}

fn is_told_to_be_a_worker(pid: u32) -> bool {
    fs::read(format!("/proc/{pid}/environ"))
        .is_ok_and(|all| all.windows(WORKER.len()).any(|part| part == WORKER.as_bytes()))
}

fn a_process_that_inherits_a_worker_s_variable_is_a_master() {
    let mut command = Command::new(env::current_exe().unwrap());
    // This process is another one than that.
    command.env(WORKER, format!("{} 0", std::process::id()));
    let mut master = Running::start_by(command, "serve", StartMethod::Exec);
    let addr = master.addr();
    let worker = master.next_worker();
    assert!(is_told_to_be_a_worker(worker));
    // Programs that the worker starts are not told that they are workers.
    let answer = asks(&addr);
    assert!(answer.starts_with("SigBlk") && !answer.contains(WORKER), "{answer}");
}

fn a_worker_that_is_told_nonsense_ends_and_is_no_master() {
    for descriptor in ["0", "999", "2147483647", "3"] {
        let mut shell = Command::new("sh");
        let script = format!(r#"{WORKER}="$$ {descriptor}" exec "$0" 3</dev/null"#);
        shell.args(["-c", &script]).arg(env::current_exe().unwrap());
        let mut process = Running::start_by(shell, "serve", StartMethod::Exec);
        process.says("this process was told by WAKEFUL_WORKER that it is a worker: ");
        assert!(!process.ends_within_guard().success());
    }
}

fn a_worker_whose_master_is_killed_before_it_begins_ends() {
    let directory = tempfile::tempdir().unwrap();
    let slow = directory.path().join("slow");
    fs::write(&slow, "").unwrap();
    let mut master = Running::start("serve", StartMethod::Exec, Some(&slow));
    master.addr();
    let first = master.first.id();
    let worker = worker_that_starts(&mut master, first, StartMethod::Exec);
    master.signal("KILL");
    assert!(!master.ends_within_guard().success());
    // It has another parent by now, and is a worker all the same.
    fs::remove_file(&slow).unwrap();
    master.says("the master is gone");
    wait_until_gone(worker);
}

/// Where the program's own file is in the memory of a process.
fn base(pid: u32) -> String {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    maps.split('-').next().unwrap().to_owned()
}

fn each_executed_worker_has_an_address_space_of_its_own() {
    for method in [StartMethod::Fork, StartMethod::Exec] {
        let mut master = Running::start("serve", method, None);
        master.addr();
        let first = master.next_worker();
        let (of_master, of_first) = (base(master.first.id()), base(first));
        master.signal("HUP");
        let second = base(master.next_worker());
        let is_random = fs::read_to_string("/proc/sys/kernel/randomize_va_space").unwrap();
        if method == StartMethod::Fork || is_random.trim() == "0" {
            assert_eq!([&of_first, &second], [&of_master; 2]);
        } else {
            assert!(of_first != of_master && second != of_master && of_first != second);
        }
    }
}
