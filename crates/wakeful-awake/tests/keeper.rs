//! The keeper on a tree of files in place of sysfs: what it restores, when, and what it refuses.
#![cfg(feature = "keeper")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType,
    connect, recv, send, socket_with,
};
use rustix::process::{Resource, Rlimit, setrlimit};
use wakeful_awake::keeper_protocol::{Answer, MOST_REQUEST_BYTES};
use wakeful_awake::{Keeper, KeeperClient, KeeperError, KeeperSettings, KeeperStartError};

const GUARD: Duration = Duration::from_secs(20);
/// The directory of a machine, in a process that is its keeper or a client.
const DIRECTORY: &str = "WAKEFUL_KEEPER_TEST_DIRECTORY";
const READY: &str = "ready";
const CPUS: usize = 4;

/// Four CPUs, and a directory for the keeper; removed with the value.
struct Machine(PathBuf);

impl Machine {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let machine =
            Self(std::env::temp_dir().join(format!("keeper-{}-{number}", std::process::id())));
        for cpu in 0..CPUS {
            fs::create_dir_all(machine.file(cpu).parent().unwrap()).unwrap();
            machine.put(cpu, "0");
        }
        machine
    }

    fn file(&self, cpu: usize) -> PathBuf {
        self.0.join(format!("cpu{cpu}/power/pm_qos_resume_latency_us"))
    }

    fn put(&self, cpu: usize, text: &str) {
        fs::write(self.file(cpu), format!("{text}\n")).unwrap();
    }

    fn says(&self) -> [String; CPUS] {
        std::array::from_fn(|cpu| {
            let text = fs::read_to_string(self.file(cpu)).unwrap();
            text.lines().next().unwrap().to_owned()
        })
    }

    fn socket(&self) -> PathBuf {
        self.0.join("sock")
    }

    fn state(&self) -> PathBuf {
        self.0.join("state")
    }

    /// With a lock of its own. A child of this process that another test has just forked keeps a
    /// copy of each descriptor until it executes its program, so of a lock that was given back.
    fn settings(&self) -> KeeperSettings {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        settings(&self.0).lock(self.0.join(format!("lock-{number}")))
    }

    fn client(&self) -> KeeperClient {
        KeeperClient::connect(&self.socket()).unwrap()
    }

    /// Waits until the files have these values: no client is told when another client's hold ends.
    fn wait_for(&self, expected: [&str; CPUS]) {
        let start = Instant::now();
        while self.says() != expected {
            assert!(start.elapsed() < GUARD, "{:?} is not {expected:?}", self.says());
            thread::yield_now();
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn settings(directory: &Path) -> KeeperSettings {
    let settings = KeeperSettings::new().cpu_directory(directory).unmeasured();
    let settings = settings.socket(directory.join("sock")).state(directory.join("state"));
    settings.lock(directory.join("lock"))
}

/// A keeper on a thread, stopped with the value.
struct Running {
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Running {
    fn start(settings: KeeperSettings) -> Self {
        let lines = Arc::<Mutex<Vec<String>>>::default();
        let said = Arc::clone(&lines);
        let settings = settings.lines(move |line| said.lock().unwrap().push(line.to_string()));
        let mut keeper = Keeper::open(settings).unwrap();
        let (stopped, stop) = UnixStream::pair().unwrap();
        let thread = thread::spawn(move || keeper.run(stopped.as_fd()).unwrap());
        Self { stop: Some(stop), thread: Some(thread), lines }
    }

    fn stop(mut self) -> Vec<String> {
        self.end();
        self.lines.lock().unwrap().clone()
    }

    fn end(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

/// This program again, as the test of this name; killed with the value.
struct Process(Child);

impl Process {
    /// Starts the process, and waits until it says that it is ready.
    fn start(role: &str, directory: &Path) -> Self {
        let mut program = Command::new(std::env::current_exe().unwrap());
        program.args(["--exact", role, "--nocapture", "--test-threads=1"]);
        program.env(DIRECTORY, directory).stdout(Stdio::piped());
        let mut child = program.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let is_ready = lines.map_while(Result::ok).any(|line| line.contains(READY));
        assert!(is_ready, "{role} ended early");
        Self(child)
    }

    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A role, if this process has one.
fn directory() -> Option<PathBuf> {
    std::env::var_os(DIRECTORY).map(PathBuf::from)
}

#[test]
fn role_keeper() {
    let Some(directory) = directory() else { return };
    let mut keeper = Keeper::open(settings(&directory)).unwrap();
    let (stop, _stopper) = UnixStream::pair().unwrap();
    println!("{READY}");
    keeper.run(stop.as_fd()).unwrap();
}

/// It has four descriptors left once it runs: one is for the state file.
#[test]
fn role_short_keeper() {
    let Some(directory) = directory() else { return };
    let mut keeper = Keeper::open(settings(&directory)).unwrap();
    let (stop, _stopper) = UnixStream::pair().unwrap();
    let limit = Rlimit { current: Some(64), maximum: Some(64) };
    setrlimit(Resource::Nofile, limit).unwrap();
    let mut all: Vec<UnixStream> = std::iter::from_fn(|| stop.try_clone().ok()).collect();
    all.truncate(all.len() - 4);
    println!("{READY}");
    keeper.run(stop.as_fd()).unwrap();
}

#[test]
fn role_client() {
    let Some(directory) = directory() else { return };
    let client = KeeperClient::connect(&directory.join("sock")).unwrap();
    hold(&client, &[0, 2], 0);
    println!("{READY}");
    // Until it is killed.
    loop {
        thread::park();
    }
}

fn hold(client: &KeeperClient, cpus: &[usize], microseconds: u64) {
    let answer = client.hold_and_wait(cpus, Duration::from_micros(microseconds), GUARD).unwrap();
    assert_eq!(answer, Answer::Held(cpus.to_vec()));
}

fn refused(client: &KeeperClient, cpus: &[usize]) -> String {
    match client.hold_and_wait(cpus, Duration::ZERO, GUARD).unwrap() {
        Answer::Refused(reason) => reason,
        answer => panic!("{answer:?}"),
    }
}

/// The next answer.
fn answer(client: &KeeperClient) -> Answer {
    let start = Instant::now();
    loop {
        if let Some(answer) = client.answer().unwrap() {
            return answer;
        }
        assert!(start.elapsed() < GUARD, "no answer");
        thread::yield_now();
    }
}

#[test]
fn the_last_release_restores_what_stood_there() {
    let machine = Machine::new();
    machine.put(1, "100");
    let running = Running::start(machine.settings());
    let (one, two) = (machine.client(), machine.client());
    hold(&one, &[0, 1], 0);
    hold(&two, &[1, 2], 5);
    assert_eq!(machine.says(), ["n/a", "n/a", "5", "0"]);
    one.release().unwrap();
    assert_eq!(answer(&one), Answer::Released);
    assert_eq!(machine.says(), ["0", "5", "5", "0"]);
    hold(&one, &[3], 2);
    drop(two);
    machine.wait_for(["0", "100", "0", "2"]);
    let status = one.status(GUARD).unwrap();
    assert!(status.contains("held      3\nclients   1\n"), "{status}");
    drop(one);
    machine.wait_for(["0", "100", "0", "0"]);
    assert_eq!(running.stop(), Vec::<String>::new());
}

#[test]
fn a_client_that_is_killed_gives_back() {
    let machine = Machine::new();
    let _running = Running::start(machine.settings());
    let mut client = Process::start("role_client", &machine.0);
    assert_eq!(machine.says(), ["n/a", "0", "n/a", "0"]);
    client.kill();
    machine.wait_for(["0"; CPUS]);
}

#[test]
fn a_keeper_that_stops_restores_and_its_clients_are_told() {
    let machine = Machine::new();
    let running = Running::start(machine.settings());
    let client = machine.client();
    hold(&client, &[0, 1], 0);
    running.stop();
    assert_eq!(machine.says(), ["0"; CPUS]);
    let start = Instant::now();
    while client.answer().is_ok() {
        assert!(start.elapsed() < GUARD, "it is not told");
        thread::yield_now();
    }
    assert!(client.hold(&[0], Duration::ZERO).is_err());
    for left in [machine.state(), machine.socket()] {
        assert!(!left.exists(), "{}", left.display());
    }
    let error = KeeperClient::connect(&machine.socket()).unwrap_err();
    assert!(matches!(error, KeeperError::Missing(_)), "{error}");
}

#[test]
fn the_successor_of_a_keeper_that_was_killed_restores() {
    let machine = Machine::new();
    machine.put(1, "100");
    let mut keeper = Process::start("role_keeper", &machine.0);
    let client = machine.client();
    hold(&client, &[0, 1], 0);
    keeper.kill();
    assert_eq!(machine.says(), ["n/a", "n/a", "0", "0"]);
    // The socket's file is still there.
    let error = KeeperClient::connect(&machine.socket()).unwrap_err();
    assert!(matches!(error, KeeperError::NotRunning(_)), "{error}");
    let running = Running::start(machine.settings());
    assert_eq!(machine.says(), ["0", "100", "0", "0"]);
    let client = machine.client();
    hold(&client, &[0], 0);
    let lines = running.stop();
    assert!(lines[0].contains("an earlier keeper was killed while it held CPUs 0-1"), "{lines:?}");
}

#[test]
fn kills_at_any_moment_leave_nothing_held_after_the_next_start() {
    let machine = Machine::new();
    let before = ["0", "100", "n/a", "0"];
    before.iter().enumerate().for_each(|(cpu, text)| machine.put(cpu, text));
    let mut random = Random::new();
    let mut below = |limit| random.below(limit);
    let mut left_held = 0;
    for round in 0..50 {
        let mut keeper = Process::start("role_keeper", &machine.0);
        assert_eq!(machine.says(), before);
        assert!(!machine.state().exists());
        let clients: Vec<_> = (0..3).map(|_| machine.client()).collect();
        // On a busy machine the keeper may get no turn before it is killed: some kills find a hold.
        let holder = machine.client();
        if round % 5 == 0 {
            hold(&holder, &[0], 0);
        }
        for client in &clients {
            for _ in 0..below(30) {
                let first = usize::try_from(below(4)).unwrap();
                let tolerated = Duration::from_micros(below(3) * 50);
                // It may not keep up.
                let _ = match below(3) {
                    0 => client.release(),
                    _ => client.hold(&Vec::from_iter(first..CPUS), tolerated),
                };
            }
        }
        (0..below(40_000)).for_each(|_| std::hint::spin_loop());
        keeper.kill();
        left_held += u32::from(machine.says() != before);
    }
    let running = Running::start(machine.settings());
    assert_eq!(machine.says(), before);
    running.stop();
    eprintln!("{left_held} of 50 kills left CPUs held");
    assert!(left_held >= 10, "no kill was in the middle");
}

/// A FIFO in the place of a CPU's file has the keeper wait between the state file and the CPU.
#[test]
fn a_cpu_is_written_after_the_state_and_before_it_is_forgotten() {
    let machine = Machine::new();
    let fifo = machine.file(1);
    fs::remove_file(&fifo).unwrap();
    mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let mut keeper = Process::start("role_keeper", &machine.0);
    let client = machine.client();
    client.hold(&[1], Duration::ZERO).unwrap();
    // The keeper reads it.
    fs::write(&fifo, "0\n").unwrap();
    // It cannot write, since nobody reads.
    let noted = || fs::read_to_string(machine.state()).unwrap_or_default();
    let start = Instant::now();
    while !noted().contains("cpu 1 before 0 wrote n/a holds 1\n") {
        assert!(start.elapsed() < GUARD, "it is not noted: {:?}", noted());
        thread::yield_now();
    }
    assert_eq!(fs::read_to_string(&fifo).unwrap(), "n/a\n");
    assert_eq!(answer(&client), Answer::Held(vec![1]));
    client.release().unwrap();
    fs::write(&fifo, "n/a\n").unwrap();
    // Now it waits for somebody who reads what it restores.
    if sleep_in(&keeper, if cfg!(target_arch = "x86_64") { "257" } else { "56" }).is_none() {
        return;
    }
    assert!(noted().contains("cpu 1 before 0 wrote n/a holds 1\n"), "{}", noted());
    keeper.kill();
    fs::remove_file(&fifo).unwrap();
    machine.put(1, "n/a");
    Running::start(machine.settings()).stop();
    assert_eq!(machine.says(), ["0"; CPUS]);
}

/// A generator of numbers; its seed is printed.
struct Random(u64);

impl Random {
    fn new() -> Self {
        let seed = SystemTime::UNIX_EPOCH.elapsed().unwrap().subsec_nanos();
        eprintln!("seed {seed}");
        Self(seed.into())
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % limit
    }
}

#[test]
fn whatever_clients_ask_for_the_files_say_the_least_of_it() {
    let machine = Machine::new();
    let before = [None, Some(100), Some(0), None];
    let text = |limit: Option<u64>| match limit {
        None => "0".to_owned(),
        Some(0) => "n/a".to_owned(),
        Some(number) => number.to_string(),
    };
    before.iter().enumerate().for_each(|(cpu, limit)| machine.put(cpu, &text(*limit)));
    let running = Running::start(machine.settings());
    let mut random = Random::new();
    // What each holds, in the model.
    let mut clients: Vec<_> = (0..4).map(|_| (machine.client(), Vec::new(), 0)).collect();
    for _ in 0..500 {
        let which = usize::try_from(random.below(4)).unwrap();
        let (client, held, microseconds) = &mut clients[which];
        match random.below(8) {
            0 | 1 => {
                client.release().unwrap();
                assert_eq!(answer(client), Answer::Released);
                held.clear();
            }
            2 => {
                refused(client, &[0, 9]);
                held.clear();
            }
            _ => {
                *held = (0..CPUS).filter(|_| random.below(2) == 0).collect();
                if held.is_empty() {
                    held.push(0);
                }
                *microseconds = random.below(3) * 70;
                hold(client, held, *microseconds);
            }
        }
        let expected = std::array::from_fn(|cpu| {
            let holders = clients.iter().filter(|(_, held, _)| held.contains(&cpu));
            let limits = holders.map(|(_, _, microseconds)| *microseconds);
            text(limits.chain(before[cpu]).min())
        });
        assert_eq!(machine.says(), expected);
    }
    running.stop();
    assert_eq!(machine.says(), before.map(text));
}

#[test]
fn what_somebody_else_writes_is_left_alone() {
    let machine = Machine::new();
    let running = Running::start(machine.settings());
    let client = machine.client();
    hold(&client, &[0, 1], 0);
    machine.put(0, "77");
    client.release().unwrap();
    assert_eq!(answer(&client), Answer::Released);
    assert_eq!(machine.says(), ["77", "0", "0", "0"]);
    hold(&client, &[1], 0);
    machine.put(1, "88");
    let lines = running.stop();
    assert_eq!(machine.says(), ["77", "88", "0", "0"]);
    assert!(lines.iter().any(|line| line.contains("wrote 77 to")), "{lines:?}");
    assert!(lines.iter().any(|line| line.contains("wrote 88 to")), "{lines:?}");

    let mut keeper = Process::start("role_keeper", &machine.0);
    let client = machine.client();
    hold(&client, &[2], 0);
    keeper.kill();
    machine.put(2, "99");
    let lines = Running::start(machine.settings()).stop();
    assert_eq!(machine.says(), ["77", "88", "99", "0"]);
    assert!(lines.iter().any(|line| line.contains("wrote 99 to")), "{lines:?}");
}

#[test]
fn what_somebody_else_writes_behind_a_release_outlives_a_kill() {
    let machine = Machine::new();
    for value in ["n/a", "50"] {
        let mut keeper = Process::start("role_keeper", &machine.0);
        let client = machine.client();
        hold(&client, &[0, 1], if value == "50" { 50 } else { 0 });
        client.release().unwrap();
        assert_eq!(answer(&client), Answer::Released);
        // What the keeper wrote a moment ago, and still has a line for.
        machine.put(1, value);
        assert!(machine.state().exists());
        keeper.kill();
        Running::start(machine.settings()).stop();
        assert_eq!(machine.says(), ["0", value, "0", "0"]);
        machine.put(1, "0");
    }
}

#[test]
fn a_state_that_cannot_be_noted_is_a_refusal() {
    let machine = Machine::new();
    let running = Running::start(machine.settings());
    // Each write to this device fails as on a full file system.
    symlink("/dev/full", machine.0.join("state.new")).unwrap();
    let client = machine.client();
    let reason = refused(&client, &[0]);
    assert!(reason.contains("No space left on device"), "{reason}");
    assert_eq!(machine.says(), ["0"; CPUS]);
    // The link is gone: there is room again.
    hold(&client, &[0], 0);
    running.stop();
    assert_eq!(machine.says(), ["0"; CPUS]);
}

#[test]
fn what_cannot_be_restored_is_tried_again() {
    let machine = Machine::new();
    let running = Running::start(machine.settings());
    let client = machine.client();
    hold(&client, &[0, 1], 0);
    fs::remove_file(machine.file(0)).unwrap();
    fs::create_dir(machine.file(0)).unwrap();
    client.release().unwrap();
    assert_eq!(answer(&client), Answer::Released);
    assert!(machine.state().exists());
    fs::remove_dir(machine.file(0)).unwrap();
    machine.put(0, "n/a");
    machine.wait_for(["0"; CPUS]);
    let lines = running.stop();
    assert!(
        lines[0].contains("CPU 0 is still held: cannot write its earlier value, 0, to"),
        "{lines:?}"
    );
}

#[test]
fn a_damaged_state_is_said_and_is_no_reason_not_to_start() {
    let machine = Machine::new();
    fs::write(machine.state(), "wakeful-keeper 1\nboot").unwrap();
    let running = Running::start(machine.settings());
    hold(&machine.client(), &[0], 0);
    let lines = running.stop();
    assert!(lines[0].contains("is damaged, and ignored"), "{lines:?}");
}

/// A client that says anything.
struct Raw(OwnedFd);

impl Raw {
    fn connect(machine: &Machine) -> Self {
        let socket =
            socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
        let socket = socket.unwrap();
        connect(&socket, &SocketAddrUnix::new(machine.socket()).unwrap()).unwrap();
        Self(socket)
    }

    fn say(&self, message: &[u8]) {
        assert_eq!(send(&self.0, message, SendFlags::NOSIGNAL), Ok(message.len()));
    }

    fn hears(&self) -> String {
        let mut bytes = [0; 8192];
        let (length, _) = recv(&self.0, &mut bytes, RecvFlags::empty()).unwrap();
        String::from_utf8(bytes[..length].to_vec()).unwrap()
    }
}

#[test]
fn cpus_that_the_machine_does_not_have_are_named_at_the_start() {
    let machine = Machine::new();
    let lines = Running::start(machine.settings().cpus([0, 98, 99])).stop();
    assert!(lines[0].contains("nobody can hold CPU 98-99"), "{lines:?}");
    let error = Keeper::open(machine.settings().cpus([98, 99])).unwrap_err();
    assert_eq!(error.to_string(), "clients may hold only CPU 98-99, and this machine has only 0-3");
}

#[test]
fn a_missing_directory_of_the_state_file_is_named_at_the_start() {
    let machine = Machine::new();
    let directory = machine.0.join("missing");
    let lines = Running::start(machine.settings().state(directory.join("state"))).stop();
    assert!(lines[0].contains(&format!("{}: No such file", directory.display())), "{lines:?}");
}

#[test]
fn hostile_messages_are_refused_and_harm_nobody() {
    let machine = Machine::new();
    let running = Running::start(machine.settings());
    let other = machine.client();
    hold(&other, &[0], 0);
    let hostile = Raw::connect(&machine);
    let huge = vec![b'0'; MOST_REQUEST_BYTES + 1];
    let larger = vec![0; 100_000];
    let list = format!("hold {}0 0", "0-8191,".repeat(500));
    for message in [
        &b""[..],
        b"\0",
        b"hold 0\0 0",
        b"\xff\xfe\xfd",
        &huge,
        &larger,
        list.as_bytes(),
        b"hold 0-18446744073709551615 0",
        b"hold 18446744073709551616 0",
        b"hold 0 18446744073709551616",
        b"hold 0 -1",
        b"hold 4 0",
        b"hold 0,8191 0",
        b"hold ../cpu0 0",
        b"HOLD 0 0",
        b"\n",
    ] {
        hostile.say(message);
        let heard = hostile.hears();
        assert!(heard.starts_with("refused "), "{}: {heard}", message.escape_ascii());
        assert_eq!(machine.says(), ["n/a", "0", "0", "0"]);
    }
    // A refusal leaves the client without the hold that it had.
    hostile.say(b"hold 1 0");
    assert_eq!(hostile.hears(), "held 1");
    hostile.say(b"");
    assert!(hostile.hears().starts_with("refused the message is empty"));
    assert_eq!(machine.says(), ["n/a", "0", "0", "0"]);
    hostile.say(b"hold 1 0\n");
    assert_eq!(hostile.hears(), "held 1");
    drop(hostile);
    machine.wait_for(["n/a", "0", "0", "0"]);
    drop(other);
    running.stop();
}

#[test]
fn a_client_that_reads_no_answers_loses_its_connection() {
    let machine = Machine::new();
    let _running = Running::start(machine.settings());
    let deaf = Raw::connect(&machine);
    deaf.say(b"hold 0 0");
    let start = Instant::now();
    while send(&deaf.0, b"hold 0 0", SendFlags::NOSIGNAL).is_ok() {
        assert!(start.elapsed() < GUARD, "it is still connected");
    }
    machine.wait_for(["0"; CPUS]);
    // The library's client drops what nobody reads.
    let client = machine.client();
    for _ in 0..2_000 {
        while client.hold(&[1], Duration::ZERO).is_err() {
            assert!(start.elapsed() < GUARD, "it is no longer connected");
            thread::yield_now();
        }
    }
    hold(&client, &[2], 0);
    assert_eq!(machine.says(), ["0", "0", "n/a", "0"]);
}

#[test]
fn limits_are_kept_and_say_why() {
    let machine = Machine::new();
    let settings = machine.settings().cpus([0, 1, 2]).most_cpus(2).most_clients(2);
    let _running = Running::start(settings);
    let (one, two) = (machine.client(), machine.client());
    assert!(refused(&one, &[0, 3]).contains("CPU 3 may not be held: this keeper holds only 0-2"));
    hold(&one, &[0, 1], 0);
    assert!(refused(&two, &[2]).contains("at most 2 at once"));
    hold(&two, &[1], 0);
    // Known to be let in, since they were answered.
    let third = Raw::connect(&machine);
    assert_eq!(
        third.hears(),
        "refused 2 clients are connected, which is as many as this keeper takes"
    );
    assert_eq!(third.hears(), "");
    assert!(refused(&machine.client(), &[0]).contains("2 clients are connected"));
    assert_eq!(machine.says(), ["n/a", "n/a", "0", "0"]);
}

#[test]
fn on_battery_holds_end_and_none_begins() {
    let machine = Machine::new();
    let supply = |name: &str, files: &[(&str, &str)]| {
        let supply = machine.0.join("power_supply").join(name);
        fs::create_dir_all(&supply).unwrap();
        for (file, text) in files {
            fs::write(supply.join(file), text).unwrap();
        }
    };
    let _running = Running::start(machine.settings());
    let client = machine.client();
    hold(&client, &[0], 0);
    supply("BAT0", &[("type", "Battery\n"), ("status", "Discharging\n")]);
    let ended = answer(&client);
    assert!(matches!(&ended, Answer::Ended(why) if why.contains("on its battery")), "{ended:?}");
    assert_eq!(machine.says(), ["0"; CPUS]);
    assert!(refused(&client, &[0]).contains("on its battery"));
    supply("AC", &[("type", "Mains\n"), ("online", "1\n")]);
    let start = Instant::now();
    while matches!(client.hold_and_wait(&[0], Duration::ZERO, GUARD).unwrap(), Answer::Refused(_)) {
        assert!(start.elapsed() < GUARD, "still refused");
        thread::yield_now();
    }
    assert_eq!(machine.says(), ["n/a", "0", "0", "0"]);
}

#[test]
fn a_hold_that_lasts_too_long_is_taken_away_until_a_release() {
    let machine = Machine::new();
    let _running = Running::start(machine.settings().longest(Duration::from_millis(20)));
    let client = machine.client();
    hold(&client, &[0], 0);
    let ended = answer(&client);
    assert!(matches!(&ended, Answer::Ended(why) if why.contains("release first")), "{ended:?}");
    assert_eq!(machine.says(), ["0"; CPUS]);
    assert!(refused(&client, &[0]).contains("release first"));
    client.release().unwrap();
    assert_eq!(answer(&client), Answer::Released);
    hold(&client, &[0], 0);
}

#[test]
fn a_cpu_that_goes_offline_is_a_refusal() {
    let machine = Machine::new();
    let _running = Running::start(machine.settings());
    let (one, two) = (machine.client(), machine.client());
    hold(&one, &[1], 0);
    fs::write(machine.0.join("cpu1/online"), "0\n").unwrap();
    assert!(refused(&two, &[0, 1]).contains("CPU 1 is offline"));
    assert_eq!(machine.says(), ["0", "n/a", "0", "0"]);
    fs::remove_dir_all(machine.0.join("cpu3")).unwrap();
    assert!(refused(&two, &[2, 3]).contains("CPU 3: No such file"));
    one.release().unwrap();
    assert_eq!(answer(&one), Answer::Released);
    let says = fs::read_to_string(machine.file(1)).unwrap();
    assert_eq!(says.lines().next(), Some("0"));
}

#[test]
fn a_cpu_that_went_offline_while_it_was_held_keeps_no_other_from_its_value() {
    for is_taken_out in [false, true] {
        for is_release in [false, true] {
            let machine = Machine::new();
            let _running = Running::start(machine.settings());
            let (one, two) = (machine.client(), machine.client());
            hold(&one, &[1, 2], 0);
            hold(&two, &[1, 2], 5);
            if is_taken_out {
                fs::remove_dir_all(machine.0.join("cpu1")).unwrap();
            } else {
                fs::write(machine.0.join("cpu1/online"), "0\n").unwrap();
            }
            let first = if is_release {
                one.release().unwrap();
                assert_eq!(answer(&one), Answer::Released);
                "0"
            } else {
                hold(&one, &[0], 0);
                "n/a"
            };
            if is_taken_out {
                fs::create_dir_all(machine.0.join("cpu1/power")).unwrap();
                machine.put(1, "gone");
            }
            let second = if is_taken_out { "gone" } else { "5" };
            assert_eq!(machine.says(), [first, second, "5", "0"]);
        }
    }
}

#[test]
fn there_is_one_keeper_and_its_socket_is_not_taken() {
    let machine = Machine::new();
    let _running = Running::start(settings(&machine.0));
    let second = Keeper::open(settings(&machine.0)).unwrap_err();
    let own = std::process::id();
    assert!(matches!(second, KeeperStartError::Running { pid, .. } if pid == Some(own)));
    assert!(second.to_string().contains("another keeper"), "{second}");
    // With a lock of its own it does not take the socket either.
    let other = machine.settings().state(machine.0.join("none"));
    let second = Keeper::open(other).unwrap_err();
    assert!(matches!(second, KeeperStartError::SocketInUse(_)), "{second}");
    hold(&machine.client(), &[0], 0);

    let file = machine.0.join("file");
    fs::write(&file, "").unwrap();
    let other = machine.settings().socket(&file);
    let second = Keeper::open(other.state(machine.0.join("none"))).unwrap_err();
    assert!(matches!(second, KeeperStartError::NotASocket(_)), "{second}");
    assert!(file.exists());
}

#[test]
fn the_socket_is_its_owner_s_and_its_group_s() {
    let machine = Machine::new();
    let group = rustix::process::getgid().as_raw();
    let _running = Running::start(machine.settings().group(group));
    let file = fs::metadata(machine.socket()).unwrap();
    assert!(file.file_type().is_socket());
    assert_eq!(file.permissions().mode() & 0o777, 0o660);
}

#[test]
fn a_socket_that_was_passed_is_used_and_left() {
    let machine = Machine::new();
    let socket =
        socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
    let socket = socket.unwrap();
    let not_yet = Keeper::open(machine.settings().listener(socket.try_clone().unwrap()));
    assert!(matches!(not_yet, Err(KeeperStartError::Listener)));
    rustix::net::bind(&socket, &SocketAddrUnix::new(machine.socket()).unwrap()).unwrap();
    rustix::net::listen(&socket, 8).unwrap();
    let running = Running::start(machine.settings().listener(socket));
    hold(&machine.client(), &[0], 0);
    running.stop();
    assert!(machine.socket().exists());
    assert_eq!(machine.says(), ["0"; CPUS]);
}

#[test]
fn a_socket_that_another_process_shuts_down_ends_the_keeper_with_an_error() {
    [Shutdown::Read, Shutdown::Both].into_iter().for_each(shut_down_a_passed_socket);
}

fn shut_down_a_passed_socket(how: Shutdown) {
    let machine = Machine::new();
    let socket =
        socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
    let socket = socket.unwrap();
    rustix::net::bind(&socket, &SocketAddrUnix::new(machine.socket()).unwrap()).unwrap();
    rustix::net::listen(&socket, 8).unwrap();
    let passed = socket.try_clone().unwrap();
    let mut keeper = Keeper::open(machine.settings().listener(passed)).unwrap();
    let (stopped, stop) = UnixStream::pair().unwrap();
    let thread = thread::spawn(move || keeper.run(stopped.as_fd()));
    let client = machine.client();
    hold(&client, &[0], 0);
    rustix::net::shutdown(&socket, how).unwrap();
    let error = thread.join().unwrap().unwrap_err().to_string();
    assert!(error.contains("shut down"), "{error}");
    assert_eq!(machine.says(), ["0"; CPUS]);
    drop(stop);
}

#[test]
fn where_nothing_is_gained_nothing_is_held() {
    let machine = Machine::new();
    let settings = KeeperSettings::new().cpu_directory(&machine.0).socket(machine.socket());
    let settings = settings.state(machine.state()).lock(machine.0.join("lock"));
    let running = Running::start(settings);
    let client = machine.client();
    assert!(refused(&client, &[0]).contains("without an idle driver"));
    assert_eq!(machine.says(), ["0"; CPUS]);
    assert!(client.status(GUARD).unwrap().contains("worth it  no: nothing is gained"));
    let lines = running.stop();
    assert_eq!(lines.len(), 1, "{lines:?}");
}

#[test]
fn to_join_a_hold_of_somebody_else_takes_no_gain() {
    let machine = Machine::new();
    machine.put(3, "n/a");
    let settings = KeeperSettings::new().cpu_directory(&machine.0).socket(machine.socket());
    let settings = settings.state(machine.state()).lock(machine.0.join("lock"));
    let running = Running::start(settings);
    let client = machine.client();
    hold(&client, &[0, 3], 0);
    assert!(client.status(GUARD).unwrap().contains("measured at the first hold"));
    running.stop();
    assert_eq!(machine.says(), ["0", "0", "0", "n/a"]);
}

#[test]
fn a_measurement_restores_what_it_held() {
    let machine = Machine::new();
    for (path, text) in [
        ("cpuidle/current_driver", "fake"),
        ("cpu0/cpuidle/state0/name", "C1"),
        ("cpu0/cpuidle/state0/latency", "50"),
        ("cpu0/cpuidle/state0/disable", "0"),
    ] {
        let path = machine.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let settings = KeeperSettings::new().cpu_directory(&machine.0).socket(machine.socket());
    let settings = settings.state(machine.state()).lock(machine.0.join("lock"));
    let running = Running::start(settings);
    let client = machine.client();
    // Files that no kernel reads gain nothing, but a busy machine may make it look so.
    let answer = client.hold_and_wait(&[0], Duration::ZERO, GUARD).unwrap();
    if let Answer::Refused(reason) = answer {
        assert!(reason.contains("nothing is gained: a wake takes"), "{reason}");
    }
    client.release().unwrap();
    running.stop();
    assert_eq!(machine.says(), ["0"; CPUS]);
}

/// Until it sleeps in this system call: the call and its arguments. `None`, and a line, where the
/// kernel does not say what threads wait for.
fn sleep_in(keeper: &Process, number: &str) -> Option<Vec<String>> {
    let tasks = format!("/proc/{}/task", keeper.0.id());
    let start = Instant::now();
    loop {
        let mut calls = Vec::new();
        for task in fs::read_dir(&tasks).unwrap() {
            match fs::read_to_string(task.unwrap().path().join("syscall")) {
                Ok(call) => calls.push(call),
                Err(error) => {
                    eprintln!("skipped: what a thread waits for is not said here: {error}");
                    return None;
                }
            }
        }
        let words = calls.iter().map(|call| call.split_whitespace().map(str::to_owned).collect());
        if let Some(words) = words.into_iter().find(|words: &Vec<_>| words[0] == number) {
            return Some(words);
        }
        assert!(start.elapsed() < GUARD, "{calls:?}");
        thread::yield_now();
    }
}

/// Until it sleeps in `poll`: the timeout, as an address.
fn timeout_of_sleep(keeper: &Process) -> Option<String> {
    let ppoll = if cfg!(target_arch = "x86_64") { "271" } else { "73" };
    // The number, the descriptors, how many, and the timeout.
    sleep_in(keeper, ppoll).map(|words| words[3].clone())
}

#[test]
fn in_silence_it_makes_no_system_call() {
    let machine = Machine::new();
    let keeper = Process::start("role_keeper", &machine.0);
    let client = machine.client();
    hold(&client, &[0], 0);
    // It looks once a second whether it should rather not hold.
    let Some(timeout) = timeout_of_sleep(&keeper) else { return };
    assert_ne!(timeout, "0x0");
    client.release().unwrap();
    assert_eq!(answer(&client), Answer::Released);
    // For a second it remembers the CPU.
    let start = Instant::now();
    while timeout_of_sleep(&keeper).is_some_and(|timeout| timeout != "0x0") {
        assert!(start.elapsed() < GUARD, "it has a timeout in silence");
        thread::yield_now();
    }
    assert!(!machine.state().exists());
}

#[test]
fn without_descriptors_it_sleeps_and_later_clients_are_served() {
    let machine = Machine::new();
    let keeper = Process::start("role_short_keeper", &machine.0);
    let (one, two) = (machine.client(), machine.client());
    hold(&one, &[0], 0);
    hold(&two, &[1], 0);
    // The last descriptor, and none for the files.
    let three = machine.client();
    assert!(refused(&three, &[2]).contains("Too many open files"));
    let four = machine.client();
    four.hold(&[3], Duration::ZERO).unwrap();
    // It would be awake, if it tried again and again.
    let start = Instant::now();
    while timeout_of_sleep(&keeper).is_some_and(|timeout| timeout == "0x0") {
        assert!(start.elapsed() < GUARD, "it has not seen the fourth client");
        thread::yield_now();
    }
    drop((one, two));
    // Refused, if the first one's descriptor is free before the second one's.
    answer(&four);
    hold(&four, &[3], 0);
    machine.wait_for(["0", "0", "0", "n/a"]);
}
