//! `wakeful serve` and `wakeful awake` beside a keeper of CPUs: the real one, on files in place of
//! the CPUs' own.

mod common;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use common::{GUARD, PROGRAM, Service, get};
use tempfile::TempDir;
use wakeful::idle::Hold;
use wakeful::{EventLoop, IdlePolicy};
use wakeful_awake::{Keeper, KeeperSettings};

const HTTP: [&str; 3] = ["http", "--listen", "127.0.0.1:0"];
const HELD: &str = "n/a";

/// A keeper that runs until it is stopped, and the files that it writes.
struct Kept {
    directory: TempDir,
    running: Option<(UnixStream, JoinHandle<()>)>,
}

impl Kept {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let cpus = thread::available_parallelism().unwrap().get().max(2);
        // More than this process may use.
        for cpu in 0..cpus * 8 {
            let power = directory.path().join(format!("cpu{cpu}/power"));
            fs::create_dir_all(&power).unwrap();
            fs::write(power.join("pm_qos_resume_latency_us"), "0\n").unwrap();
        }
        let mut kept = Self { directory, running: None };
        kept.start();
        kept
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn socket(&self) -> PathBuf {
        self.path("sock")
    }

    fn start(&mut self) {
        let settings = KeeperSettings::new()
            .socket(self.socket())
            .state(self.path("state"))
            .lock(self.path("lock"))
            .cpu_directory(self.directory.path())
            .unmeasured();
        let mut keeper = Keeper::open(settings).unwrap();
        let (stop, stopper) = UnixStream::pair().unwrap();
        let running = thread::spawn(move || keeper.run(stop.as_fd()).unwrap());
        self.running = Some((stopper, running));
    }

    fn stop(&mut self) {
        if let Some((stopper, running)) = self.running.take() {
            drop(stopper);
            running.join().unwrap();
        }
    }

    fn is_held(&self) -> bool {
        is_held(self.directory.path())
    }

    fn server(&self, policy: &str) -> (Service, String) {
        let mut command = Command::new(PROGRAM);
        command.env("WAKEFUL_KEEPER", self.socket());
        let mut service = Service::start_idle(command, &HTTP, policy);
        let addr = service.behind("listening on ");
        (service, addr)
    }

    /// Requests until a CPU is held, and then none until none is.
    fn is_held_while_there_is_traffic(&self, addr: &str) {
        let start = Instant::now();
        while !self.is_held() {
            assert!(start.elapsed() < GUARD, "not held");
            assert!(get(addr, "/healthz").starts_with("HTTP/1.1 200"));
        }
        let start = Instant::now();
        while self.is_held() {
            assert!(start.elapsed() < GUARD, "still held");
            thread::yield_now();
        }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.stop();
    }
}

fn is_held(directory: &Path) -> bool {
    let cpus = fs::read_dir(directory).unwrap().flatten();
    cpus.into_iter().any(|cpu| {
        let value = fs::read_to_string(cpu.path().join("power/pm_qos_resume_latency_us"));
        value.is_ok_and(|value| value.trim() == HELD)
    })
}

/// The sum of a metric over all loops.
fn metric(addr: &str, name: &str) -> f64 {
    let page = get(addr, "/metrics");
    let lines = page.lines().filter(|line| line.starts_with(name));
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

#[test]
fn a_server_that_adapts_has_its_cpu_held_in_the_place_of_spins() {
    let kept = Kept::new();
    let (_service, addr) = kept.server("adaptive");
    kept.is_held_while_there_is_traffic(&addr);
    assert!(metric(&addr, "wakeful_loop_held_seconds_total") > 0.0);
}

#[test]
fn a_server_whose_policy_is_hold_asks_the_keeper_and_not_the_device() {
    let kept = Kept::new();
    let (_service, addr) = kept.server("hold");
    kept.is_held_while_there_is_traffic(&addr);
}

/// Returns what the server's only loop reports about its hold.
fn hold_state(addr: &str) -> String {
    let page = get(addr, "/metrics");
    let line = page.lines().find(|line| line.starts_with("wakeful_loop_hold{")).unwrap();
    let state = line.split_once("state=\"").unwrap().1;
    state.split_once('"').unwrap().0.to_owned()
}

/// What a kept connection is answered: a request is one event of its loop then.
fn ask(connection: &mut TcpStream, path: &str) -> String {
    write!(connection, "GET {path} HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
    let (mut answer, mut piece) = (String::new(), [0; 4096]);
    loop {
        let read = connection.read(&mut piece).unwrap();
        assert!(read > 0, "{answer}");
        answer += std::str::from_utf8(&piece[..read]).unwrap();
        let Some((head, body)) = answer.split_once("\r\n\r\n") else { continue };
        let lengths = head.lines().filter_map(|line| line.split_once(": "));
        let mut lengths = lengths.filter(|(name, _)| name.eq_ignore_ascii_case("content-length"));
        if lengths.next().is_some_and(|(_, length)| length.parse() == Ok(body.len())) {
            return answer;
        }
    }
}

#[test]
fn a_server_to_which_held_time_is_dear_holds_for_frequent_requests_only() {
    let kept = Kept::new();
    // The prices are far apart: on a busy machine a request waits tens of milliseconds for a CPU,
    // and a wake seems to cost next to nothing.
    let frequent = ("0.000001", Duration::ZERO, "held");
    let rare = ("1", Duration::from_millis(100), "too_dear");
    for (price, pause, state) in [frequent, rare] {
        let mut command = Command::new(PROGRAM);
        command.env("WAKEFUL_KEEPER", kept.socket());
        let arguments = [&HTTP[..], &["--hold-cost", price]].concat();
        let mut service = Service::start_idle(command, &arguments, "hold");
        let addr = service.behind("listening on ");
        let mut connection = TcpStream::connect(&addr).unwrap();
        let expected = format!("state=\"{state}\"");
        let start = Instant::now();
        while !ask(&mut connection, "/metrics").contains(&expected) {
            assert!(start.elapsed() < GUARD, "not {state}");
            thread::sleep(pause);
        }
    }
}

#[test]
fn a_server_says_whether_it_holds_and_why_not() {
    let mut kept = Kept::new();
    let (_service, addr) = kept.server("hold");
    let waits_for = |expected: &str| {
        let start = Instant::now();
        loop {
            let state = hold_state(&addr);
            if state == expected {
                break;
            }
            assert!(start.elapsed() < GUARD, "{state} is not {expected}");
        }
    };
    waits_for("held");
    kept.stop();
    waits_for("no_keeper");
    kept.start();
    waits_for("held");
    let (_service, addr) = kept.server("park");
    assert_eq!(hold_state(&addr), "not_asked");
}

#[test]
fn a_server_outlives_its_keeper_and_returns_to_the_next_one() {
    let mut kept = Kept::new();
    let (_service, addr) = kept.server("hold");
    kept.is_held_while_there_is_traffic(&addr);
    kept.stop();
    for _ in 0..100 {
        assert!(get(&addr, "/healthz").starts_with("HTTP/1.1 200"));
    }
    assert!(!kept.is_held());
    kept.start();
    kept.is_held_while_there_is_traffic(&addr);
}

#[test]
fn a_server_that_is_killed_leaves_no_cpu_held() {
    let kept = Kept::new();
    let (mut service, addr) = kept.server("hold");
    let start = Instant::now();
    while !kept.is_held() {
        assert!(start.elapsed() < GUARD, "not held");
        assert!(get(&addr, "/healthz").starts_with("HTTP/1.1 200"));
    }
    service.child.kill().unwrap();
    service.child.wait().unwrap();
    let start = Instant::now();
    while kept.is_held() {
        assert!(start.elapsed() < GUARD, "still held");
        thread::yield_now();
    }
}

#[test]
fn a_server_that_is_never_to_hold_spins() {
    let kept = Kept::new();
    let mut command = Command::new(PROGRAM);
    command.env("WAKEFUL_KEEPER", kept.socket());
    let mut service =
        Service::start_idle(command, &[&HTTP[..], &["--never-hold"]].concat(), "adaptive");
    let addr = service.behind("listening on ");
    let start = Instant::now();
    while metric(&addr, "wakeful_loop_spin_hits_total") == 0.0 {
        assert!(start.elapsed() < GUARD, "it does not spin");
    }
    assert!(metric(&addr, "wakeful_loop_held_seconds_total") == 0.0);
}

#[test]
fn a_watched_process_is_held_by_the_keeper_on_the_cpus_that_it_uses() {
    let kept = Kept::new();
    let (service, addr) = kept.server("park");
    let mut command = Command::new(PROGRAM);
    command.args(["awake", "--pid", &service.child.id().to_string()]).stderr(Stdio::null());
    let mut awake = command.env("WAKEFUL_KEEPER", kept.socket()).spawn().unwrap();
    kept.is_held_while_there_is_traffic(&addr);
    awake.kill().unwrap();
    awake.wait().unwrap();
}

/// How many perf events a process has open.
fn events_of(pid: u32) -> usize {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let is_event = |path: PathBuf| {
        fs::read_link(path).is_ok_and(|link| link.to_string_lossy().contains("perf_event"))
    };
    descriptors.filter(|descriptor| is_event(descriptor.path())).count()
}

#[test]
fn a_watched_process_pays_for_no_perf_event_while_it_is_held() {
    let kept = Kept::new();
    let (service, addr) = kept.server("park");
    let said = kept.path("said");
    let mut command = Command::new(PROGRAM);
    command.args(["awake", "--pid", &service.child.id().to_string()]);
    command.env("WAKEFUL_KEEPER", kept.socket()).stderr(File::create(&said).unwrap());
    let mut awake = command.spawn().unwrap();
    let pid = awake.id();
    let events = || events_of(pid);
    let start = Instant::now();
    while events() == 0 {
        let said = fs::read_to_string(&said).unwrap();
        if said.contains("perf events are refused") {
            eprintln!("skipped: {said}");
            awake.kill().unwrap();
            awake.wait().unwrap();
            return;
        }
        assert!(start.elapsed() < GUARD, "it watches nothing: {said}");
        thread::yield_now();
    }
    let mut connection = TcpStream::connect(&addr).unwrap();
    let mut asks = || {
        connection.write_all(b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
        assert!(connection.read(&mut [0; 4096]).unwrap() > 0);
    };
    // Twice: what was closed is there again, and sees the next traffic.
    for _ in 0..2 {
        let start = Instant::now();
        while !(kept.is_held() && events() == 0) {
            assert!(start.elapsed() < GUARD, "{} events, held: {}", events(), kept.is_held());
            (0..100).for_each(|_| asks());
        }
        let start = Instant::now();
        while kept.is_held() || events() == 0 {
            assert!(start.elapsed() < GUARD, "{} events, held: {}", events(), kept.is_held());
            thread::yield_now();
        }
    }
    awake.kill().unwrap();
    awake.wait().unwrap();
}

/// Set in a process that drives a loop by turns: the directory of the machine.
const DRIVES: &str = "WAKEFUL_KEPT_TEST_DRIVES";
const HOLDS: &str = "holds, and takes no more turns";

/// Not a test: a loop that somebody else's loop drives, which forgets it in the midst of traffic.
#[test]
fn role_driver() {
    let Some(directory) = std::env::var_os(DRIVES).map(PathBuf::from) else { return };
    let idle = IdlePolicy::Hold(Hold::new());
    let mut event_loop = EventLoop::builder().idle(idle).build().unwrap();
    let handle = event_loop.handle();
    let posts = thread::spawn(move || {
        while handle.post(|| ()).is_ok() {
            thread::yield_now();
        }
    });
    while !is_held(&directory) {
        event_loop.turn(Some(Duration::from_millis(10))).unwrap();
    }
    println!("{HOLDS}");
    std::io::stdin().read_to_string(&mut String::new()).unwrap();
    drop(event_loop);
    posts.join().unwrap();
}

#[test]
fn a_loop_whose_driver_takes_no_more_turns_holds_no_longer_than_a_silence() {
    let kept = Kept::new();
    let mut driver = Command::new(std::env::current_exe().unwrap());
    driver.args(["--exact", "role_driver", "--nocapture", "--test-threads=1"]);
    driver.env(DRIVES, kept.directory.path()).env("WAKEFUL_KEEPER", kept.socket());
    let mut driver = driver.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(driver.stdout.take().unwrap()).lines();
    assert!(lines.map_while(Result::ok).any(|line| line.contains(HOLDS)), "it ended early");
    let start = Instant::now();
    while kept.is_held() {
        assert!(start.elapsed() < GUARD, "still held");
        thread::yield_now();
    }
    assert!(driver.try_wait().unwrap().is_none(), "its end ended the hold");
    driver.kill().unwrap();
    driver.wait().unwrap();
}

#[test]
fn chosen_cpus_take_a_keeper() {
    let kept = Kept::new();
    let awake = |keeper: &Path| {
        let mut command = Command::new(PROGRAM);
        command.args(["awake", "--cpus", "0-1", "--", "true"]).env("WAKEFUL_KEEPER", keeper);
        String::from_utf8(command.output().unwrap().stderr).unwrap()
    };
    let said = awake(&kept.socket());
    assert!(!said.contains("only a keeper can hold"), "{said}");
    for (keeper, why) in
        [(kept.path("nowhere"), "there is no keeper"), (PathBuf::new(), "is empty")]
    {
        let said = awake(&keeper);
        assert!(said.contains("only a keeper can hold single CPUs"), "{said}");
        assert!(said.contains(why), "{said}");
    }
}
