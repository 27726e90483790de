//! Whatever is killed, and however: no CPU stays held by the kernel's device, and by a keeper only
//! until its next start. The real programs, and a keeper on files in place of sysfs.
//!
//! `WAKEFUL_KILLS=200` kills so often, and not only a few times.

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use common::{GUARD, PROGRAM, Service, get};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use wakeful_awake::{Keeper, KeeperSettings, latency_device};

const HTTP: [&str; 3] = ["http", "--listen", "127.0.0.1:0"];
/// The directory of the machine, in a process that is its keeper.
const DIRECTORY: &str = "WAKEFUL_KILLS_TEST_DIRECTORY";
const READY: &str = "ready";
const HELD: &str = "n/a";
/// How often all are killed, unless the environment says more.
const ROUNDS: usize = 20;

/// The device is the machine's: one test at a time looks at it.
fn alone() -> MutexGuard<'static, ()> {
    static MACHINE: Mutex<()> = Mutex::new(());
    MACHINE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What ends a process when it is dropped.
struct Killed(Child);

impl Killed {
    fn spawn(command: &mut Command) -> Self {
        Self(command.spawn().unwrap())
    }

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

/// CPUs that are files, which a keeper writes.
struct Cpus(TempDir);

impl Cpus {
    /// One of them has a limit.
    fn new() -> Self {
        let cpus = Self(tempfile::tempdir().unwrap());
        let all = fs::read_to_string("/sys/devices/system/cpu/possible").unwrap();
        let last = all.trim().rsplit(['-', ',']).next().unwrap().parse::<usize>().unwrap();
        for cpu in 0..=last {
            fs::create_dir_all(cpus.file(cpu).parent().unwrap()).unwrap();
            fs::write(cpus.file(cpu), if cpu == 0 { "100\n" } else { "0\n" }).unwrap();
        }
        cpus
    }

    fn file(&self, cpu: usize) -> PathBuf {
        self.0.path().join(format!("cpu{cpu}/power/pm_qos_resume_latency_us"))
    }

    fn say(&self) -> Vec<String> {
        let texts = (0..).map_while(|cpu| fs::read_to_string(self.file(cpu)).ok());
        // A file that is no sysfs keeps the end of a longer text.
        texts.map(|text| text.lines().next().unwrap_or_default().to_owned()).collect()
    }

    fn are_held(&self) -> bool {
        self.say().iter().any(|text| text == HELD)
    }

    fn socket(&self) -> PathBuf {
        self.0.path().join("sock")
    }

    /// A process that keeps them, once it does.
    fn keeper(&self) -> Killed {
        let mut program = Command::new(std::env::current_exe().unwrap());
        program.args(["--exact", "role_keeper", "--nocapture", "--test-threads=1"]);
        program.env(DIRECTORY, self.0.path()).stdout(Stdio::piped());
        let mut keeper = Killed::spawn(&mut program);
        let lines = BufReader::new(keeper.0.stdout.take().unwrap()).lines();
        let is_ready = lines.map_while(Result::ok).any(|line| line.contains(READY));
        assert!(is_ready, "the keeper ended early");
        keeper
    }
}

/// Not a test: what [`Cpus::keeper`] starts.
#[test]
fn role_keeper() {
    let Some(directory) = std::env::var_os(DIRECTORY).map(PathBuf::from) else { return };
    let settings = KeeperSettings::new()
        .socket(directory.join("sock"))
        .state(directory.join("state"))
        .lock(directory.join("lock"))
        .cpu_directory(&directory)
        .unmeasured();
    let mut keeper = Keeper::open(settings).unwrap();
    let (stop, _stopper) = UnixStream::pair().unwrap();
    println!("{READY}");
    keeper.run(stop.as_fd()).unwrap();
}

/// Which keeper a program asks: this one, or none.
fn keeper_of(socket: Option<&Path>) -> PathBuf {
    socket.map(Path::to_owned).unwrap_or_default()
}

fn server(policy: &str, socket: Option<&Path>) -> (Service, String) {
    let mut command = Command::new(PROGRAM);
    command.env("WAKEFUL_KEEPER", keeper_of(socket));
    let mut service = Service::start_idle(command, &HTTP, policy);
    let addr = service.behind("listening on ");
    (service, addr)
}

fn watcher(of: u32, socket: Option<&Path>) -> Killed {
    let mut command = Command::new(PROGRAM);
    command.args(["awake", "--quiet", "--pid", &of.to_string()]).stderr(Stdio::null());
    Killed::spawn(command.env("WAKEFUL_KEEPER", keeper_of(socket)))
}

/// Requests without a pause, to servers that may be killed meanwhile; until the value is dropped.
struct Traffic {
    goes_on: &'static AtomicBool,
    threads: Vec<JoinHandle<()>>,
}

impl Traffic {
    fn to(addrs: &[&str]) -> Self {
        let goes_on: &'static AtomicBool = Box::leak(Box::new(AtomicBool::new(true)));
        let ask = |addr: String| {
            let mut stream = TcpStream::connect(addr).ok()?;
            stream.set_read_timeout(Some(GUARD)).ok()?;
            while goes_on.load(Ordering::Relaxed) {
                stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n").ok()?;
                stream.read(&mut [0; 1024]).ok().filter(|read| *read > 0)?;
            }
            Some(())
        };
        let threads = addrs.iter().map(|addr| {
            let addr = (*addr).to_owned();
            thread::spawn(move || _ = ask(addr))
        });
        Self { goes_on, threads: threads.collect() }
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.goes_on.store(false, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().unwrap();
        }
    }
}

/// The device, if it may be used and nobody holds.
fn device() -> Option<OwnedFd> {
    let device = latency_device::open().ok()?;
    (!is_held(&device)).then_some(device)
}

fn is_held(device: &OwnedFd) -> bool {
    latency_device::in_force(device).unwrap() == Some(Duration::ZERO)
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < GUARD, "{what}");
        thread::yield_now();
    }
}

/// Numbers that nobody knows before; the seed is printed.
struct Random(u64);

impl Random {
    fn new() -> Self {
        let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        let seed = u64::from(time.subsec_nanos()) | 1;
        eprintln!("seed {seed}");
        Self(seed)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

fn rounds() -> usize {
    std::env::var("WAKEFUL_KILLS").map_or(ROUNDS, |text| text.parse().expect("a number of kills"))
}

#[test]
fn kills_of_holders_keeper_and_watchers_in_any_order_leave_nothing_held() {
    let _alone = alone();
    let cpus = Cpus::new();
    let before = cpus.say();
    let device = device();
    if device.is_none() {
        eprintln!("without {}: it may not be used, or somebody holds", latency_device::PATH);
    }
    let mut random = Random::new();
    // Two that are watched, one beside each means.
    let (kept, kept_addr) = server("park", None);
    let (other, other_addr) = server("park", None);
    let mut left = [0, 0];
    for _ in 0..rounds() {
        let keeper = cpus.keeper();
        assert_eq!(cpus.say(), before, "behind the next start of a keeper");
        let socket = cpus.socket();
        let (by_keeper, by_keeper_addr) = server("hold", Some(&socket));
        let mut all = vec![keeper, watcher(kept.child.id(), Some(&socket))];
        let mut servers = vec![by_keeper];
        let mut addrs = vec![kept_addr.as_str(), &by_keeper_addr];
        let by_device_addr;
        if let Some(device) = &device {
            // To join a hold takes no measurement.
            latency_device::hold(device, Duration::ZERO).unwrap();
            let (by_device, addr) = server("hold", None);
            by_device_addr = addr;
            servers.push(by_device);
            all.push(watcher(other.child.id(), None));
            addrs.extend([other_addr.as_str(), &by_device_addr]);
        }
        let traffic = Traffic::to(&addrs);
        // Sometimes nothing is held yet, sometimes only by one of them.
        if random.below(4) > 0 {
            wait_until("not held by the keeper", || cpus.are_held());
            if let Some(device) = &device {
                let holds = |addr: &str| {
                    get(addr, "/metrics").contains("wakeful_loop_hold{loop=\"0\",state=\"held\"}")
                };
                wait_until("not held by the device", || holds(addrs[3]));
                latency_device::release(device).unwrap();
                left[1] += u32::from(is_held(device));
            }
        }
        thread::sleep(Duration::from_micros(random.below(150_000)));
        while all.len() + servers.len() > 0 {
            let number = usize::try_from(random.below((all.len() + servers.len()) as u64)).unwrap();
            if number < all.len() {
                all.swap_remove(number).kill();
            } else {
                let mut server = servers.swap_remove(number - all.len());
                server.child.kill().unwrap();
                server.child.wait().unwrap();
            }
            if random.below(2) == 0 {
                thread::sleep(Duration::from_micros(random.below(2_000)));
            }
        }
        left[0] += u32::from(cpus.say() != before);
        if let Some(device) = &device {
            latency_device::release(device).unwrap();
            // Another program of this machine may hold by chance; it ends.
            wait_until("the device is held", || !is_held(device));
        }
        drop(traffic);
    }
    let _keeper = cpus.keeper();
    assert_eq!(cpus.say(), before);
    let [in_files, by_device] = left;
    eprintln!(
        "{} rounds: {in_files} left CPUs held until the next keeper, {by_device} killed a holder by the device",
        rounds()
    );
    // They lived through all of it.
    for addr in [&kept_addr, &other_addr] {
        assert!(get(addr, "/healthz").starts_with("HTTP/1.1 200"));
    }
}

/// The first process of a PID namespace, as a container has, with a server and its watcher in it.
fn in_a_namespace(socket: Option<&Path>) -> Option<(Killed, Pid, String)> {
    let script = r#""$0" serve http --listen 127.0.0.1:0 --loops 1 --idle hold &
        "$0" awake --quiet --pid $! & wait"#;
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", script, PROGRAM]);
    command.env("WAKEFUL_KEEPER", keeper_of(socket)).stderr(Stdio::piped());
    let mut unshare = Killed::spawn(&mut command);
    let mut lines = BufReader::new(unshare.0.stderr.take().unwrap()).lines().map_while(Result::ok);
    let addr = lines.find_map(|line| {
        let (_, rest) = line.split_once("listening on ")?;
        Some(rest.split(',').next().unwrap().to_owned())
    });
    let Some(addr) = addr else {
        eprintln!("skipped: no PID namespace");
        return None;
    };
    thread::spawn(move || lines.for_each(drop));
    let id = unshare.0.id();
    let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap();
    let first = Pid::from_raw(children.trim().parse().unwrap()).unwrap();
    Some((unshare, first, addr))
}

#[test]
fn the_first_process_of_a_pid_namespace_that_is_killed_takes_all_holds_along() {
    let _alone = alone();
    let cpus = Cpus::new();
    let before = cpus.say();
    let _keeper = cpus.keeper();
    let Some((mut unshare, first, addr)) = in_a_namespace(Some(&cpus.socket())) else { return };
    let traffic = Traffic::to(&[&addr]);
    wait_until("not held", || cpus.are_held());
    kill_process(first, Signal::KILL).unwrap();
    unshare.0.wait().unwrap();
    drop(traffic);
    wait_until("still held", || cpus.say() == before);

    let Some(device) = device() else {
        return eprintln!("skipped: {} may not be used here", latency_device::PATH);
    };
    latency_device::hold(&device, Duration::ZERO).unwrap();
    let Some((mut unshare, first, addr)) = in_a_namespace(None) else { return };
    let traffic = Traffic::to(&[&addr]);
    let holds = || get(&addr, "/metrics").contains("state=\"held\"}");
    wait_until("not held by the device", holds);
    latency_device::release(&device).unwrap();
    assert!(is_held(&device));
    kill_process(first, Signal::KILL).unwrap();
    unshare.0.wait().unwrap();
    drop(traffic);
    wait_until("still held", || !is_held(&device));
}

/// A cgroup (v2) that is removed with the value.
struct Cgroup(PathBuf);

impl Cgroup {
    fn new(name: &str) -> Option<Self> {
        let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
        let root = mounts.lines().find_map(|line| {
            let mut fields = line.split(' ').skip(1);
            let path = fields.next()?;
            (fields.next()? == "cgroup2").then(|| PathBuf::from(path))
        })?;
        let path = root.join(format!("wakeful-test-{}-{name}", std::process::id()));
        fs::create_dir(&path).ok()?;
        Some(Self(path))
    }

    fn takes(&self, pid: u32) -> bool {
        fs::write(self.0.join("cgroup.procs"), pid.to_string()).is_ok()
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let start = Instant::now();
        // The last process is gone a moment after its end.
        while fs::remove_dir(&self.0).is_err() && start.elapsed() < GUARD && self.0.exists() {
            thread::yield_now();
        }
    }
}

#[test]
fn a_process_that_is_moved_out_of_a_watched_cgroup_is_let_go_and_into_it_held() {
    let _alone = alone();
    let cpus = Cpus::new();
    let before = cpus.say();
    let _keeper = cpus.keeper();
    let (Some(here), Some(elsewhere)) = (Cgroup::new("here"), Cgroup::new("elsewhere")) else {
        return eprintln!("skipped: no cgroup (v2) may be made");
    };
    let (service, addr) = server("park", None);
    let pid = service.child.id();
    if !here.takes(pid) {
        return eprintln!("skipped: no process may be moved");
    }
    let mut command = Command::new(PROGRAM);
    command.args(["awake", "--quiet", "--cgroup"]).arg(&here.0).stderr(Stdio::null());
    let mut awake = Killed::spawn(command.env("WAKEFUL_KEEPER", cpus.socket()));
    let traffic = Traffic::to(&[&addr]);
    let start = Instant::now();
    while !cpus.are_held() {
        assert!(start.elapsed() < GUARD, "not held");
        if let Some(status) = awake.0.try_wait().unwrap() {
            drop((traffic, service));
            return eprintln!("skipped: a cgroup may not be watched here: {status}");
        }
    }
    for _ in 0..2 {
        assert!(elsewhere.takes(pid));
        wait_until("still held", || cpus.say() == before);
        assert!(here.takes(pid));
        wait_until("not held", || cpus.are_held());
    }
    awake.kill();
    wait_until("still held", || cpus.say() == before);
    drop((traffic, service));
}
