//! `--admin` with `--workers`: whichever worker is asked, it answers for all.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::panic;
use std::process::{Child, Command, Stdio};
use std::thread;

use super::common::{PROGRAM, get};
use super::{Master, is_answered, signal, slow_request, with};

const ADMIN: [&str; 2] = ["--admin", "127.0.0.1:0"];

fn start(workers: &'static str, more: &[&'static str]) -> Master {
    Master::start(&with(&[&["--workers", workers], &ADMIN[..], more].concat()))
}

pub(super) fn admin(master: &mut Master) -> String {
    // A worker's log comes after the master's.
    master.waits_for("admin on ", 1);
    let log = master.log();
    let line = log.lines().find(|line| line.contains("admin on ")).unwrap();
    line.split_once("admin on ").unwrap().1.trim().to_owned()
}

/// The sum of a counter over its labels.
fn counted(text: &str, counter: &str) -> u64 {
    let samples = text.lines().filter(|line| line.split(['{', ' ']).next() == Some(counter));
    samples.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
}

fn requests(admin: &str) -> u64 {
    let answer = get(admin, "/metrics");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(answer.matches("# TYPE wakeful_http_requests counter").count(), 1);
    assert!(answer.ends_with("# EOF\n"), "{answer}");
    counted(&answer, "wakeful_http_requests_total")
}

/// A field of each worker in the list.
pub(super) fn listed(admin: &str, field: &str) -> Vec<String> {
    let answer = get(admin, "/workers");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.contains("content-type: application/json"), "{head}");
    let workers = body.strip_prefix("[\n").and_then(|body| body.strip_suffix("\n]\n"));
    let name = format!("\"{field}\": ");
    let value = |line: &str| {
        let rest = line.split_once(&name).unwrap().1;
        rest.split([',', '}']).next().unwrap().trim_matches('"').to_owned()
    };
    workers.unwrap().lines().map(value).collect()
}

fn pids(admin: &str) -> BTreeSet<u32> {
    listed(admin, "pid").iter().map(|pid| pid.parse().unwrap()).collect()
}

fn ask(addr: &str, times: usize) {
    (0..times).for_each(|_| assert!(get(addr, "/healthz").ends_with("ok\n")));
}

#[test]
fn whichever_worker_is_asked_answers_for_all() {
    let mut master = start("3", &[]);
    let (addr, admin) = (master.addr(), admin(&mut master));
    // Kept open, so that not all go to one worker.
    let open: Vec<_> = (0..6).map(|_| TcpStream::connect(&addr).unwrap()).collect();
    ask(&addr, 14);
    for _ in 0..10 {
        assert_eq!(requests(&admin), 14);
        assert_eq!(pids(&admin), master.workers());
    }
    // The service has no such page beside theirs, and this request counts.
    assert!(get(&addr, "/metrics").starts_with("HTTP/1.1 404"));
    assert_eq!(requests(&admin), 15);
    assert_eq!(listed(&admin, "answers"), ["true"; 3]);
    assert_eq!(listed(&admin, "state"), ["serving"; 3]);
    assert_eq!(listed(&admin, "number"), ["0", "1", "2"]);
    let by_worker = listed(&admin, "requests");
    assert_eq!(by_worker.iter().map(|count| count.parse::<u64>().unwrap()).sum::<u64>(), 15);
    drop(open);
}

#[test]
fn a_limit_of_file_sizes_hides_no_worker_from_operators() {
    // 100 MiB, as for a log. It also counts for what workers write for each other.
    let mut limited = Command::new("sh");
    limited.args(["-c", r#"ulimit -f 204800 && exec "$0" "$@""#, PROGRAM]);
    let arguments = with(&[&["--workers", "3"], &ADMIN[..]].concat());
    let mut master = Master::start_by(limited, &arguments);
    let (addr, admin) = (master.addr(), admin(&mut master));
    ask(&addr, 14);
    assert_eq!(requests(&admin), 14);
    assert_eq!(listed(&admin, "answers"), ["true"; 3]);
}

#[test]
fn without_operators_the_service_answers_for_all_workers() {
    let master = Master::start(&with(&["--workers", "3"]));
    let addr = master.addr();
    ask(&addr, 14);
    // This request counts.
    assert_eq!(requests(&addr), 15);
}

#[test]
fn counts_survive_the_workers() {
    let mut master = start("2", &[]);
    let (addr, admin) = (master.addr(), admin(&mut master));
    ask(&addr, 8);
    assert_eq!(requests(&admin), 8);
    for (round, asked) in (0..4).zip([12, 16, 20, 24]) {
        ask(&addr, 4);
        if round % 2 == 0 {
            // What has been asked for stays when a worker is killed.
            assert_eq!(requests(&admin), asked);
            let workers = master.workers();
            signal(*workers.first().unwrap(), "KILL");
            master.waits_for("another one takes its place", round / 2 + 1);
            master.waits_until(|this| this.workers() != workers, "replaced");
        } else {
            // A worker that ends says its last before.
            master.signal("HUP");
            master.waits_for("all workers accept", round / 2 + 2);
            master.waits_until(|this| this.workers().len() == 2, "drained");
        }
        assert_eq!(requests(&admin), asked, "{round}");
    }
    master.signal("TTOU");
    master.waits_until(|this| this.workers().len() == 1, "fewer");
    assert_eq!(requests(&admin), 24);
    assert_eq!(pids(&admin), master.workers());
}

#[test]
fn a_stopped_worker_keeps_no_operator_waiting() {
    let mut master = start("2", &[]);
    let (addr, admin) = (master.addr(), admin(&mut master));
    ask(&addr, 5);
    assert_eq!(requests(&admin), 5);
    let stopped = *master.workers().first().unwrap();
    signal(stopped, "STOP");
    master.waits_for(&format!("worker {stopped} is stopped"), 1);
    // A connection that the stopped one has been woken for is taken by the other one.
    master.waits_until(|_| listed(&admin, "state").contains(&"stopped".to_owned()), "listed");
    assert_eq!(requests(&admin), 5);
    let answers: BTreeSet<_> = listed(&admin, "answers").into_iter().collect();
    assert_eq!(answers, ["false".to_owned(), "true".to_owned()].into());
    signal(stopped, "CONT");
    master.waits_for(&format!("worker {stopped} continues"), 1);
    master.waits_until(|_| listed(&admin, "answers") == ["true", "true"], "answering");
}

/// The loops of each worker, as text.
fn loops(admin: &str) -> Vec<Option<String>> {
    let answer = get(admin, "/workers");
    let workers = answer.lines().filter(|line| line.starts_with("{\"number\""));
    let of = |line: &str| Some(line.split_once("\"loops\": [")?.1.split_once(']')?.0.to_owned());
    workers.map(of).collect()
}

#[test]
fn the_master_says_what_the_loops_do_also_of_a_worker_that_cannot() {
    let mut master = start("2", &[]);
    let admin = admin(&mut master);
    let stopped = *master.workers().first().unwrap();
    signal(stopped, "STOP");
    master.waits_for(&format!("worker {stopped} is stopped"), 1);
    for _ in 0..5 {
        let loops = loops(&admin);
        assert_eq!(loops.len(), 2);
        for loops in loops {
            let loops = loops.unwrap();
            assert_eq!(loops.matches("\"state\": \"a").count(), 1, "{loops}");
        }
    }
    signal(master.pid(), "STOP");
    assert_eq!(loops(&admin), [None, None], "it does not answer");
    signal(master.pid(), "CONT");
    master.waits_until(|_| loops(&admin).iter().all(Option::is_some), "answering");
    signal(stopped, "CONT");
}

#[test]
fn orphans_answer_for_those_that_are_left() {
    let mut master = start("3", &["--orphan", "go-on"]);
    let admin = admin(&mut master);
    let mut workers = master.workers();
    master.orphans.clone_from(&workers);
    signal(master.pid(), "KILL");
    assert_eq!(pids(&admin), workers);
    let killed = workers.pop_first().unwrap();
    signal(killed, "KILL");
    while pids(&admin) != workers {
        thread::yield_now();
    }
    assert_eq!(listed(&admin, "answers"), ["true"; 2]);
}

/// Keeps a CPU from all others, at real-time priority.
struct Hog(Child);

impl Hog {
    /// `None`: it may not.
    fn on(cpu: &str) -> Option<Self> {
        let mut hog = Command::new("timeout");
        hog.args(["20", "chrt", "--fifo", "1", "taskset", "--cpu-list", cpu]);
        // It ends by itself, also if timeout(1) is killed.
        hog.args(["sh", "-c", "ulimit -t 20; echo; while :; do :; done"]).stdout(Stdio::piped());
        let mut hog = Self(hog.spawn().ok()?);
        let mut line = [0];
        hog.0.stdout.as_mut().unwrap().read_exact(&mut line).ok().map(|()| hog)
    }
}

impl Drop for Hog {
    fn drop(&mut self) {
        // timeout(1) passes it on.
        signal(self.0.id(), "TERM");
        self.0.wait().unwrap();
    }
}

/// The last one that this process may use, unless that is the only one.
fn second_cpu() -> Option<String> {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
    list.rsplit_once([',', '-']).map(|(_, last)| last.trim().to_owned())
}

/// The kernel wakes a killed process for a connection as long as that could not run, and then wakes
/// nobody else.
#[test]
fn a_connection_for_which_a_killed_orphan_was_woken_goes_to_another_one() {
    let Some(cpu) = second_cpu() else {
        println!("skipped: one CPU");
        return;
    };
    let mut master = start("5", &["--orphan", "go-on", "--accept", "exclusive"]);
    let (addr, admin) = (master.addr(), admin(&mut master));
    let mut workers = master.workers();
    master.orphans.clone_from(&workers);
    signal(master.pid(), "KILL");
    // Which one the kernel would wake is not known.
    workers.pop_last();
    for worker in &workers {
        let pin = ["--all-tasks", "--cpu-list", "--pid", &cpu, &worker.to_string()];
        assert!(Command::new("taskset").args(pin).output().unwrap().status.success());
    }
    let Some(_hog) = Hog::on(&cpu) else {
        println!("skipped: no SCHED_FIFO here (chrt(1), as root)");
        return;
    };
    workers.iter().for_each(|worker| signal(*worker, "KILL"));
    assert!(get(&addr, "/healthz").ends_with("ok\n"));
    assert!(get(&admin, "/healthz").ends_with("ok\n"));
}

#[test]
fn it_is_ready_as_long_as_somebody_serves() {
    let mut master = start("2", &[]);
    let (addr, admin) = (master.addr(), admin(&mut master));
    let slow = slow_request(&master);
    master.signal("HUP");
    while master.log().matches("all workers accept").count() < 2 {
        assert!(get(&admin, "/readyz").ends_with("\r\n\r\nready\n"));
        assert!(get(&admin, "/healthz").ends_with("\r\n\r\nok\n"));
    }
    assert!(is_answered(slow));
    let before = master.pid();
    master.signal("USR2");
    while master.pid() == before {
        assert!(get(&admin, "/readyz").ends_with("\r\n\r\nready\n"));
    }
    // The new master's workers answer, and count anew. An old worker accepts clients until it is
    // told to end. Four workers end: the two that were replaced, and these two.
    master.waits_until(|this| pids(&admin) == this.workers(), "answering");
    master.waits_for("has ended", 4);
    ask(&addr, 2);
    assert_eq!(requests(&admin), 2);
}

#[test]
fn all_that_drain_are_not_ready_and_answer_until_the_end() {
    let mut master = start("2", &[]);
    let admin = admin(&mut master);
    let slow = slow_request(&master);
    let pid = master.pid();
    signal(pid, "TERM");
    master.waits_for(", for 10s at most", 2);
    assert!(get(&admin, "/readyz").starts_with("HTTP/1.1 503"));
    assert!(get(&admin, "/healthz").starts_with("HTTP/1.1 200"));
    assert!(requests(&admin) >= 1);
    assert!(is_answered(slow));
}

#[test]
fn half_a_request_of_an_operator_does_not_prolong_the_end() {
    let mut master = start("1", &[]);
    let admin = admin(&mut master);
    let mut half = TcpStream::connect(&admin).unwrap();
    half.write_all(b"GET /rea").unwrap();
    // Both are accepted in their order.
    assert!(get(&admin, "/healthz").ends_with("ok\n"));
    let pid = master.pid();
    signal(pid, "TERM");
    let (status, log) = master.ended();
    assert!(status.success() && !log.contains("for 2s at most"), "{log}");
}

/// A load balancer needs this time to hear of `/readyz`: clients come until then.
#[test]
fn new_clients_are_served_while_all_say_that_they_are_not_ready() {
    let mut master = start("2", &["--pre-drain", "2"]);
    let (addr, admin) = (master.addr(), admin(&mut master));
    let pid = master.pid();
    signal(pid, "TERM");
    master.waits_for("the drain begins in 2s", 2);
    assert!(get(&admin, "/readyz").starts_with("HTTP/1.1 503"));
    ask(&addr, 5);
    assert!(get(&addr, "/readyz").starts_with("HTTP/1.1 503"));
    let (status, log) = master.ended();
    assert!(status.success(), "{log}");
}

/// As Ctrl-C does it: workers may hear of it before their master.
#[test]
fn operators_are_answered_when_all_processes_are_signalled() {
    let mut master = start("2", &[]);
    let admin = admin(&mut master);
    let slow = slow_request(&master);
    for worker in master.workers() {
        signal(worker, "TERM");
    }
    signal(master.pid(), "TERM");
    master.waits_for(", for 10s at most", 2);
    assert!(get(&admin, "/healthz").starts_with("HTTP/1.1 200"));
    assert!(requests(&admin) >= 1);
    assert!(is_answered(slow));
}

#[test]
fn an_upgrade_that_fails_is_not_seen_by_operators() {
    let mut master = start("2", &[]);
    let (addr, admin) = (master.addr(), admin(&mut master));
    ask(&addr, 3);
    let pid = master.pid();
    signal(pid, "USR2");
    master.waits_for("upgrading: process", 1);
    let log = master.log();
    let new = log.split_once("upgrading: process ").unwrap().1.split(' ').next().unwrap();
    signal(new.parse().unwrap(), "TERM");
    while !master.log().contains("no upgrade: the new master") {
        // It may have taken over before the signal: nobody answers then.
        let answer = panic::catch_unwind(|| get(&admin, "/readyz"));
        if master.log().contains("has taken over") {
            return;
        }
        assert!(answer.unwrap().ends_with("\r\n\r\nready\n"));
    }
    master.waits_until(|this| pids(&admin) == this.workers(), "answering");
    assert_eq!(requests(&admin), 3);
}

#[test]
fn several_operators_may_ask_at_once() {
    let mut master = start("3", &[]);
    let (addr, admin) = (master.addr(), admin(&mut master));
    ask(&addr, 3);
    let asking = (0..8).map(|_| {
        let admin = admin.clone();
        thread::spawn(move || (0..5).for_each(|_| assert_eq!(requests(&admin), 3)))
    });
    let asking: Vec<_> = asking.collect();
    asking.into_iter().for_each(|asks| asks.join().unwrap());
}
