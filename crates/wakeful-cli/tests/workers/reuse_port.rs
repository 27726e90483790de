//! `--accept reuse-port` with `--workers`: each loop of each worker has a socket of its own.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;

use super::common::{GUARD, PROGRAM, get};
use super::operators::{admin, listed};
use super::{AT_ANY_PORT, Clients, Master, children, has_closed_all, passing_socket, signal, with};

fn start(more: &[&'static str]) -> Master {
    let admin = ["--admin", "127.0.0.1:0"];
    Master::start(&with(&[&["--accept", "reuse-port"], &admin[..], more].concat()))
}

/// How many connections wait at each socket that listens on this address of IPv4.
fn backlogs(addr: &str) -> Vec<u32> {
    let port = addr.rsplit(':').next().unwrap().parse::<u16>().unwrap();
    let (listens, port) = ("0A", format!(":{port:04X}"));
    let table = fs::read_to_string("/proc/net/tcp").unwrap();
    let rows = table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    let listening = rows.filter(|row| row[3] == listens && row[1].ends_with(&port));
    let waiting = |row: Vec<&str>| u32::from_str_radix(row[4].rsplit(':').next().unwrap(), 16);
    listening.map(|row| waiting(row).unwrap()).collect()
}

/// The worker with this number, if it is listed.
fn listed_worker(admin: &str, number: usize) -> Option<u32> {
    let numbers = listed(admin, "number").into_iter();
    let mut workers = numbers.zip(listed(admin, "pid"));
    let (_, pid) = workers.find(|(one, _)| *one == number.to_string())?;
    pid.parse().ok()
}

/// The worker with this number, as soon as it is listed.
fn worker(master: &mut Master, admin: &str, number: usize) -> u32 {
    master.waits_until(|_| listed_worker(admin, number).is_some(), "listed");
    listed_worker(admin, number).unwrap()
}

/// Connections with a request on each.
struct Asked(Vec<TcpStream>);

impl Asked {
    fn new(addr: &str) -> Self {
        let ask = |()| {
            let mut stream = TcpStream::connect(addr).expect("a connect is refused");
            stream.set_read_timeout(Some(GUARD)).unwrap();
            stream
                .write_all(b"GET /healthz HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
                .unwrap();
            stream
        };
        Self([(); 64].map(ask).into())
    }

    fn are_answered(self) {
        for mut stream in self.0 {
            let mut answer = String::new();
            let read = stream.read_to_string(&mut answer);
            assert!(read.is_ok() && answer.ends_with("ok\n"), "{read:?}, {answer:?}");
        }
    }
}

/// Sends requests of which some wait at the socket of a worker that is stopped.
fn some_wait(master: &mut Master, stopped: u32) -> Asked {
    signal(stopped, "STOP");
    master.waits_for(&format!("worker {stopped} is stopped (SIGSTOP): its share"), 1);
    let addr = master.addr();
    let asked = Asked::new(&addr);
    let waits = |_: &Master| backlogs(&addr).iter().filter(|waiting| **waiting > 0).count() == 1;
    master.waits_until(waits, "at one socket only");
    asked
}

#[test]
fn each_worker_accepts_and_each_loop_has_a_socket() {
    let mut master = start(&["--workers", "3", "--loops", "2"]);
    let (addr, admin) = (master.addr(), admin(&mut master));
    assert_eq!(backlogs(&addr).len(), 6);
    Asked::new(&addr).are_answered();
    let accepted = listed(&admin, "connections_accepted");
    assert_eq!(accepted.len(), 3);
    assert!(accepted.iter().all(|accepted| accepted.parse::<u32>().unwrap() > 0), "{accepted:?}");
}

#[test]
fn what_waits_for_a_worker_that_is_killed_is_served_by_its_replacement() {
    let mut master = start(&["--workers", "2"]);
    let admin = admin(&mut master);
    let killed = worker(&mut master, &admin, 0);
    let asked = some_wait(&mut master, killed);
    signal(killed, "KILL");
    asked.are_answered();
    let is_replaced = |_: &Master| listed_worker(&admin, 0).is_some_and(|worker| worker != killed);
    master.waits_until(is_replaced, "replaced");
}

#[test]
fn what_waits_for_a_stopped_worker_is_served_by_the_one_that_a_reload_starts_in_its_place() {
    let mut master = start(&["--workers", "2"]);
    let admin = admin(&mut master);
    let stopped = worker(&mut master, &admin, 0);
    let asked = some_wait(&mut master, stopped);
    master.signal("HUP");
    asked.are_answered();
}

#[test]
fn what_waits_for_a_worker_that_leaves_is_answered_and_its_socket_closes() {
    for goes_on in [true, false] {
        let mut master = start(&["--workers", "2"]);
        let (addr, admin) = (master.addr(), admin(&mut master));
        let leaves = worker(&mut master, &admin, 1);
        let asked = some_wait(&mut master, leaves);
        master.signal("TTOU");
        master.waits_for("the number of workers is now 1", 1);
        if goes_on {
            signal(leaves, "CONT");
        }
        asked.are_answered();
        // And nobody comes to wait there.
        Asked::new(&addr).are_answered();
        signal(leaves, "CONT");
        master.waits_until(|_| backlogs(&addr).len() == 1, "closed");
        Asked::new(&addr).are_answered();
        assert_eq!(master.workers().len(), 1);
    }
}

#[test]
fn a_worker_more_gets_connections_when_it_accepts() {
    let mut master = start(&["--workers", "1"]);
    let (addr, admin) = (master.addr(), admin(&mut master));
    let clients = Clients::start(&addr);
    master.signal("TTIN");
    master.waits_until(|_| listed(&admin, "number").len() == 2, "more");
    let accepts = |_: &Master| {
        let accepted = listed(&admin, "connections_accepted");
        // The new one may not have answered yet.
        accepted.iter().all(|accepted| accepted.parse::<u32>().is_ok_and(|accepted| accepted > 0))
    };
    master.waits_until(accepts, "in use");
    assert!(clients.end() > 0);
}

/// A settings file, and a master that has it.
fn with_settings(text: &str) -> (tempfile::TempDir, Master, impl Fn(&str) + use<>) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("settings.toml");
    fs::write(&file, text).unwrap();
    let path = file.to_str().unwrap().to_owned();
    let arguments = [&AT_ANY_PORT[..], &["--config", &path]].concat();
    let master = Master::start_by(Command::new(PROGRAM), &arguments);
    (directory, master, move |text: &str| fs::write(&file, text).unwrap())
}

#[test]
fn an_upgrade_to_more_and_to_fewer_workers_loses_no_request() {
    let (_directory, mut master, settings) = with_settings("accept = 'reuse-port'\nworkers = 2\n");
    let addr = master.addr();
    let clients = Clients::start(&addr);
    for workers in [4, 1, 3, 2] {
        settings(&format!("accept = 'reuse-port'\nworkers = {workers}\n"));
        let before = master.pid();
        master.signal("USR2");
        master.waits_until(|this| this.pid() != before, "in charge");
        master.waits_until(|this| this.workers().len() == workers, "all there");
        master.waits_until(|_| backlogs(&addr).len() == workers, "all sockets");
    }
    assert!(clients.end() > 0);
    assert!(!master.log().contains("ERROR"), "{}", master.log());
}

#[test]
fn an_upgrade_that_fails_sends_nobody_to_the_sockets_that_it_has_made() {
    let (_directory, mut master, settings) = with_settings("accept = 'reuse-port'\nworkers = 2\n");
    let addr = master.addr();
    let clients = Clients::start(&addr);
    let missing = "tls-cert = '/nowhere/cert'\ntls-key = '/nowhere/key'\n";
    settings(&format!("accept = 'reuse-port'\nworkers = 5\n{missing}"));
    for failed in 1..4 {
        master.signal("USR2");
        master.waits_for("no upgrade: the new master has ended", failed);
        master.waits_until(|_| backlogs(&addr).len() == 2, "as before");
    }
    // The master knows which ones are its own.
    master.signal("TTIN");
    master.waits_until(|this| this.workers().len() == 3, "more");
    master.signal("TTOU");
    master.waits_until(|_| backlogs(&addr).len() == 2, "closed");
    assert!(clients.end() > 0);
}

/// Begins an upgrade to `workers` workers, and stops the first and the last new one. So the new
/// master never takes over. Returns it.
fn upgrade_without_end(master: &mut Master, workers: usize) -> u32 {
    let before = master.pid();
    master.signal("USR2");
    let new = |this: &Master| children(before).difference(&this.workers()).next().copied();
    let forked = |this: &Master| new(this).map(children).unwrap_or_default();
    master.waits_until(|this| !forked(this).is_empty(), "on the way");
    let stop = |master: &mut Master, worker: Option<u32>| {
        master.orphans.extend(worker);
        signal(worker.unwrap(), "STOP");
    };
    let first = forked(master).pop_first();
    stop(master, first);
    master.waits_until(|this| forked(this).len() == workers, "all there");
    let last = forked(master).pop_last();
    stop(master, last);
    assert_eq!(master.pid(), before, "it was faster: {}", master.log());
    new(master).unwrap()
}

#[test]
fn an_upgrade_that_is_killed_leaves_no_socket_that_later_clients_could_come_to() {
    let (_directory, mut master, settings) = with_settings("accept = 'reuse-port'\nworkers = 2\n");
    let (addr, before) = (master.addr(), master.pid());
    let clients = Clients::start(&addr);
    settings("accept = 'reuse-port'\nworkers = 5\n");
    let new = upgrade_without_end(&mut master, 5);
    assert_eq!(backlogs(&addr).len(), 5);
    // The last one of its workers still has the socket that was made for it.
    signal(new, "KILL");
    master.waits_for("no upgrade: the new master has ended (signal: 9", 1);
    master.signal("TTIN");
    master.waits_until(|this| this.workers().len() == 3, "more");
    assert_eq!((master.pid(), backlogs(&addr).len()), (before, 3));
    (0..3).for_each(|_| Asked::new(&addr).are_answered());
    assert!(clients.end() > 0);
}

#[test]
fn what_waits_for_a_dead_worker_at_the_end_is_answered() {
    for (workers, dies) in [("1", true), ("2", true), ("2", false)] {
        let mut master = start(&["--workers", workers]);
        let admin = admin(&mut master);
        let stopped = worker(&mut master, &admin, 0);
        let asked = some_wait(&mut master, stopped);
        // It hears of both at once.
        master.signal("STOP");
        if dies {
            signal(stopped, "KILL");
            // One that dies after the signal to end has failed to drain.
            master.waits_until(|_| has_closed_all(stopped), "dead");
        }
        master.signal("TERM");
        master.signal("CONT");
        asked.are_answered();
        signal(stopped, "CONT");
        let (status, log) = master.ended();
        assert!(status.success(), "{log}");
    }
}

#[test]
fn an_upgrade_or_a_reload_from_or_to_another_strategy_is_refused() {
    for (before, after) in [("exclusive", "reuse-port"), ("reuse-port", "exclusive")] {
        let file = |accept| format!("accept = '{accept}'\nworkers = 2\n");
        let (_directory, mut master, settings) = with_settings(&file(before));
        let pid = master.pid();
        settings(&file(after));
        master.signal("HUP");
        master.waits_for("--accept (by a restart)", 1);
        master.waits_for("all workers accept", 2);
        master.signal("USR2");
        master.waits_for("An upgrade cannot change --accept from or to reuse-port", 1);
        master.waits_for("no upgrade: the new master has ended (exit status: 1)", 1);
        assert_eq!(master.pid(), pid);
        assert!(get(&master.addr(), "/healthz").ends_with("ok\n"));
    }
}

#[test]
fn sockets_of_which_there_is_only_one_are_refused() {
    let refused = |mut command: Command, arguments: &[&str], code: i32, expected: &str| {
        command.args(["serve", "http", "--workers", "2", "--accept", "reuse-port"]);
        let output = command.args(arguments).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(said.contains(expected), "{said}");
    };
    let directory = tempfile::tempdir().unwrap();
    let unix = format!("unix:{}", directory.path().join("socket").display());
    let program = || Command::new(PROGRAM);
    refused(program(), &["--listen", &unix], 2, "a Unix socket has no SO_REUSEPORT");
    refused(passing_socket(), &["--listen", "systemd"], 2, "cannot be used with --listen systemd");
}
