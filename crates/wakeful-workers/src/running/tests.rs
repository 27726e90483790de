use std::io::Write;
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::thread;

use nix::sys::signal::{SigSet, Signal as Name, raise};
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::process::kill_process;
use wakeful::LoopGroup;
use wakeful::accept::{ConnectionServer, SharedListener};
use wakeful::net::ListenAddr;

use super::requests::UNTIL_BACKLOGS_ARE_EMPTY;
use super::*;
use crate::listeners::UNTIL_HANDSHAKES_COMPLETE;

/// A master whose workers accept as far as it knows. There are no processes.
fn with_workers(workers: usize) -> Running {
    with_workers_at("127.0.0.1:0", workers)
}

fn with_workers_at(addr: &str, workers: usize) -> Running {
    let addr: ListenAddr = addr.parse().unwrap();
    let master = Master::new(LoopGroup::builder().loops(1)).listen([addr]).workers(workers);
    let master = master.strategy(AcceptStrategy::ReusePort);
    let mut running = Running::new(master, Program::this(), Inheritance::default()).unwrap();
    for place in 0..workers {
        let id = running.crew.started(place, Instant::now());
        running.crew.ready(id);
    }
    running
}

#[test]
fn a_worker_that_is_wanted_again_before_it_drains_gets_connections_again() {
    let mut running = with_workers(2);
    running.take(Name::SIGTTOU, Request::Fewer);
    running.take(Name::SIGTTIN, Request::More);
    let addr = running.listeners.addrs().next().unwrap().to_string();
    let clients: Vec<_> = (0..200).map(|_| TcpStream::connect(&addr).unwrap()).collect();
    assert_eq!(running.listeners.groups.waited_at().into_iter().collect::<Vec<_>>(), [0, 1]);
    drop(clients);
}

#[test]
fn the_only_worker_that_serves_stays_when_fewer_are_wanted() {
    let addr: ListenAddr = "127.0.0.1:0".parse().unwrap();
    let master = Master::new(LoopGroup::builder().loops(1)).listen([addr]).workers(2);
    let mut running = Running::new(master, Program::this(), Inheritance::default()).unwrap();
    let now = Instant::now();
    assert!(running.crew.next(now).is_some());
    let workers = [0, 1].map(|place| running.crew.started(place, now));
    for worker in workers {
        running.crew.ready(worker);
    }
    // Another one for this place may never serve.
    running.crew.lost(workers[0], true, now);
    running.take(Name::SIGTTOU, Request::Fewer);
    assert_eq!(running.crew.wanted(), 2);
    let again = running.crew.started(0, now);
    running.crew.ready(again);
    running.take(Name::SIGTTOU, Request::Fewer);
    assert_eq!(running.crew.wanted(), 1);
}

#[test]
fn a_first_worker_that_is_no_longer_wanted_does_not_keep_its_master_from_taking_charge() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pid");
    let addr: ListenAddr = "127.0.0.1:0".parse().unwrap();
    let master = Master::new(LoopGroup::builder().loops(1)).listen([addr]).workers(2);
    let master = master.pid_file(path.clone());
    let mut running = Running::new(master, Program::this(), Inheritance::default()).unwrap();
    let first: Vec<_> = (0..2).map(|place| running.crew.started(place, Instant::now())).collect();
    assert!(!running.crew.ready(first[0]));
    running.take(Name::SIGTTOU, Request::Fewer);
    assert!(running.is_in_charge);
    let pid = std::fs::read_to_string(&path).unwrap();
    assert_eq!(pid.trim(), std::process::id().to_string());
}

/// Otherwise another worker would be started for clients that the workers were about to accept.
#[test]
fn the_time_for_backlogs_begins_when_the_last_handshakes_are_complete() {
    let mut running = with_workers_at("0.0.0.0:0", 1);
    let before = Instant::now();
    running.end();
    let closing = running.closing.expect("clients may wait at a socket of each worker");
    assert!(closing - before >= UNTIL_HANDSHAKES_COMPLETE + UNTIL_BACKLOGS_ARE_EMPTY);
}

/// Starts a successor that never takes over, and that its first TERM ends.
fn upgrade(running: &mut Running) -> Pid {
    upgrade_to(running, Program::other("sleep", &["60"]))
}

fn upgrade_to(running: &mut Running, program: Program) -> Pid {
    // A successor has the mask of its master.
    SigSet::from(Name::SIGTERM).thread_unblock().unwrap();
    running.program = program;
    running.take(Name::SIGUSR2, Request::Upgrade);
    let successor = running.successor.as_ref().expect("it has been started");
    Pid::from_raw(successor.process().cast_signed()).unwrap()
}

/// If it were killed before, nobody would end its workers that are stopped or blocked.
#[test]
fn a_new_master_that_is_late_is_told_twice_to_end_before_it_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("terms");
    let counts = "n=0; say() { echo $n >> $0; }; trap 'n=$((n+1)); say' TERM; say; \
                  while :; do sleep 0.01; done";
    let mut running = with_workers(1);
    upgrade_to(&mut running, Program::other("sh", &["-c", counts, path.to_str().unwrap()]));
    let is_late = |running: &mut Running| {
        running.successor.as_mut().unwrap().start_by = Some(running.looked_at);
        running.kill_who_takes_too_long();
        running.successor.as_ref().unwrap().start_by.is_some()
    };
    for terms in ["0\n", "0\n1\n", "0\n1\n2\n"] {
        while !std::fs::read_to_string(&path).is_ok_and(|text| text == terms) {
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(is_late(&mut running), terms.len() < 6, "after {terms:?}");
    }
    while running.successor.is_some() {
        thread::sleep(Duration::from_millis(1));
        running.see_successor();
    }
}

/// Otherwise this master might find the successor's pid file, and end both.
#[test]
fn a_master_whose_first_workers_do_not_accept_yet_does_not_upgrade() {
    let addr: ListenAddr = "127.0.0.1:0".parse().unwrap();
    let master = Master::new(LoopGroup::builder().loops(1)).listen([addr]).workers(2);
    let mut running = Running::new(master, Program::this(), Inheritance::default()).unwrap();
    running.program = Program::other("false", &[]);
    for place in 0..2 {
        let first = running.crew.started(place, Instant::now());
        running.take(Name::SIGUSR2, Request::Upgrade);
        assert!(running.successor.is_none());
        running.crew.ready(first);
    }
    running.take(Name::SIGUSR2, Request::Upgrade);
    assert!(running.successor.is_some());
}

/// Otherwise a signal to all processes would be two for the successor.
#[test]
fn a_successor_is_told_to_end_before_the_last_handshakes_are_complete() {
    let is_told_before = || {
        let mut running = with_workers_at("0.0.0.0:0", 1);
        let pidfd = sys::pidfd_of(upgrade(&mut running)).unwrap();
        let told = thread::spawn(move || {
            poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], None).unwrap();
            Instant::now()
        });
        running.end();
        let closing = running.closing.expect("clients may wait at a socket of each worker");
        let told = told.join().unwrap();
        running.see_successor();
        assert!(running.successor.is_none());
        told < closing - UNTIL_BACKLOGS_ARE_EMPTY
    };
    // The thread may be late now and then.
    assert!((0..20).any(|_| is_told_before()));
}

/// The new master is told to end when it is ready, and before the old one has read that.
#[test]
fn clients_that_a_failed_successor_kept_out_come_in_again() {
    for strategy in [AcceptStrategy::Exclusive, AcceptStrategy::ReusePort] {
        let addr: ListenAddr = "127.0.0.1:0".parse().unwrap();
        let master = Master::new(LoopGroup::builder().loops(1)).listen([addr]).strategy(strategy);
        let mut running = Running::new(master, Program::this(), Inheritance::default()).unwrap();
        let addr = running.listeners.addrs().next().unwrap().to_string().parse().unwrap();
        let first = running.crew.started(0, Instant::now());
        running.crew.ready(first);
        let successor = upgrade(&mut running);
        // The successor has the same sockets.
        running.listeners.let_nobody_in();
        kill_process(successor, Signal::KILL).unwrap();
        while running.successor.is_some() {
            running.see_successor();
        }
        TcpStream::connect_timeout(&addr, Duration::from_secs(20)).unwrap();
    }
}

/// The predecessor may be stopped, or starved, when the new master reports that it is ready.
#[test]
fn a_master_that_ends_before_its_predecessor_knows_that_it_is_ready_leaves_the_sockets_open() {
    for does_know in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let addr = ListenAddr::Unix(path.clone());
        let predecessors = SharedListener::bind(&addr).unwrap();
        let inherited = vec![(addr.to_string(), sys::duplicate(&predecessors).unwrap())];
        let (ready, told) = sys::pipe_of_news().unwrap();
        let inheritance = Inheritance::of(getppid().unwrap(), told, inherited);
        let own: ListenAddr = format!("unix:{}", dir.path().join("own").display()).parse().unwrap();
        let listen = [addr, own];
        let master = Master::new(LoopGroup::builder().loops(1)).listen(listen);
        let mut running = Running::new(master, Program::this(), inheritance).unwrap();
        running.begin();
        if does_know {
            assert_eq!(sys::news(&ready), sys::News::Accepts);
        }
        running.end();
        drop(running);
        assert_eq!(UnixStream::connect(&path).is_ok(), !does_know);
        assert_eq!(path.exists(), !does_know);
        assert!(!dir.path().join("own").exists());
        assert_eq!(sys::news(&ready), sys::News::End);
    }
}

#[test]
fn a_request_that_nobody_has_read_when_a_master_ends_reaches_its_successor() {
    // Signals are not blocked yet in this process, so they are not blocked in that one.
    let mut successor = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
    let pid = Pid::from_child(&successor);
    let mut running = with_workers(1);
    running.succeeded_by = Some(InCharge { pid, pidfd: sys::pidfd_of(pid).unwrap() });
    // It is for this thread, so that other tests do not get it.
    raise(Name::SIGUSR1).unwrap();
    running.end_of_all().unwrap();
    // Without a signal it ends here, too.
    drop(successor.stdin.take());
    assert_eq!(successor.wait().unwrap().signal(), Some(Name::SIGUSR1 as i32));
}

/// A log that pauses this process until `until` when it has a line with `at`. A master logs between
/// two waits.
#[derive(Clone, Copy)]
struct PausesAt {
    at: &'static str,
    until: Instant,
}

impl Write for PausesAt {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if str::from_utf8(line).unwrap().contains(self.at) {
            thread::sleep(self.until.saturating_duration_since(Instant::now()));
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_pause_between_two_waits_counts_neither_for_a_start_nor_for_a_drain() {
    let mut running = with_workers(1);
    // It neither accepts nor ends. No process has such a number.
    let (ready, _told) = sys::pipe_of_news().unwrap();
    let (pidfd, _alive) = sys::pipe().unwrap();
    let pid = Pid::from_raw(i32::MAX).unwrap();
    let now = Instant::now();
    let by = now + Duration::from_secs(1);
    // What it was late before is no pause of this test.
    running.looked_at = now;
    running.processes.push(Process {
        id: running.crew.started(0, now),
        pid,
        pidfd,
        ready: Some(ready),
        has_accepted: false,
        start_by: Some(by),
        end_by: Some(by),
        is_to_reopen: false,
        heartbeats: running.watchdog.heartbeats_for(&running.group).unwrap(),
        sibling: None,
        is_stopped: false,
        forked: since_boot(),
        reports_at: running.desk.take(),
    });
    let log = PausesAt { at: "sending HUP", until: by + Duration::from_millis(1) };
    let log = tracing_subscriber::fmt().with_writer(move || log).finish();
    // The wait ends by this signal, and the master is paused when it has read it.
    raise(Name::SIGUSR1).unwrap();
    tracing::subscriber::with_default(log, || running.wait_and_see());
    assert!(running.processes[0].is_to_reopen && by <= Instant::now());
    let limits = |running: &Running| {
        let process = &running.processes[0];
        [process.start_by, process.end_by]
    };
    assert!(limits(&running).iter().all(Option::is_some), "killed at once");
    running.wait_and_see();
    assert!(limits(&running).iter().all(|limit| limit.is_some_and(|limit| limit > by)));
}

#[test]
fn clients_that_wait_at_the_end_are_served_though_the_master_is_paused_for_its_whole_drain() {
    let mut running = with_workers(1);
    let addr = running.listeners.addrs().next().unwrap().to_string();
    let _client = TcpStream::connect(&addr).unwrap();
    running.end();
    // Since the last wait the drain timeout has passed.
    running.ends_by = Some(running.looked_at + Duration::from_nanos(1));
    running.closing = Some(Instant::now());
    running.close_if_due(Instant::now());
    assert!(running.crew.is_clearing());
}

/// In an upgrade the workers of two masters wait at the same socket. Here the other master's worker
/// is a thread that was there first.
#[test]
fn a_client_that_the_other_masters_worker_was_woken_for_is_served_by_a_worker_of_this_one() {
    const LONG: Duration = Duration::from_secs(30);
    let addr: ListenAddr = "127.0.0.1:0".parse().unwrap();
    let master = Master::new(LoopGroup::builder().loops(1)).listen([addr]).workers(1);
    let mut running = Running::new(master, Program::this(), Inheritance::default()).unwrap();
    running.predecessor = getppid();
    let addr = running.listeners.addrs().next().unwrap().to_string();
    let (sockets, _) = running.listeners.for_worker(0).unwrap();
    let other = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
    let flags = epoll::EventFlags::IN | epoll::EventFlags::EXCLUSIVE;
    epoll::add(&other, sockets[0].as_fd(), epoll::EventData::new_u64(0), flags).unwrap();
    let sibling = running.siblings.as_ref().and_then(Siblings::join);
    let group = LoopGroup::builder().loops(1).sibling(sibling);
    let listeners = sockets.into_iter().map(|fd| SharedListener::from_socket(fd).unwrap());
    let server = ConnectionServer::new(listeners.collect()).group(group);
    let worker = server.start(|| |_connection| async {}).unwrap();
    let counts = worker.counts();
    let waits = thread::spawn(move || {
        let mut events = Vec::with_capacity(1);
        let limit = Timespec::try_from(LONG).unwrap();
        epoll::wait(&other, rustix::buffer::spare_capacity(&mut events), Some(&limit)).unwrap()
    });
    let mut clients = Vec::new();
    while !waits.is_finished() {
        clients.push(TcpStream::connect(&addr).unwrap());
        thread::sleep(Duration::from_millis(50));
    }
    // As after any event of an upgrade. Here there may be none that ends the first wait.
    running.look_for_others(Instant::now());
    let until = Instant::now() + LONG;
    let are_served = || counts.accepted() == clients.len() as u64;
    while !are_served() && Instant::now() < until {
        // The wait ends then at the latest, if no worker is told to look.
        running.look_at = Some(until);
        running.wait_and_see();
    }
    assert!(are_served());
    worker.shutdown(LONG).unwrap();
}
