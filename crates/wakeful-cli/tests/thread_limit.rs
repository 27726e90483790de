//! `wakeful serve` where the process may start no more threads: `pids.max` of a cgroup, and
//! `ulimit -u` of another user.

mod common;

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use common::{GUARD, PROGRAM, get};

/// Nobody else is this user, so that what counts is the program alone.
const USER: u32 = 54_322;

/// A cgroup of a test. Removed when it is dropped, which takes that all in it have ended.
struct Cgroup(PathBuf);

impl Cgroup {
    /// `Err`: why there is none.
    fn new(name: &str) -> Result<Self, String> {
        let pids = ["/sys/fs/cgroup", "/sys/fs/cgroup/pids"].map(Path::new);
        let has_pids = |root: &Path| {
            root.ends_with("pids")
                || fs::read_to_string(root.join("cgroup.subtree_control"))
                    .is_ok_and(|controllers| controllers.split_whitespace().any(|it| it == "pids"))
        };
        let root = pids.into_iter().rfind(|root| root.exists() && has_pids(root));
        let root = root.ok_or("no cgroup with the controller `pids` is mounted")?;
        let this = root.join(format!("wakeful-{name}-{}", std::process::id()));
        fs::create_dir(&this).map_err(|error| format!("cannot make a cgroup: {error}"))?;
        let this = Self(this);
        fs::metadata(this.0.join("pids.max")).map_err(|_| "the cgroup has no `pids.max`")?;
        Ok(this)
    }

    /// How many threads may be in it.
    fn limit(&self, most: u32) {
        fs::write(self.0.join("pids.max"), most.to_string()).unwrap();
    }

    /// The program, in it from its beginning.
    fn command(&self) -> Command {
        let mut command = Command::new("sh");
        let script = "echo $$ >\"$1\" && shift && exec \"$@\"";
        command.args(["-c", script, "sh"]).arg(self.0.join("cgroup.procs")).arg(PROGRAM);
        command
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // A process that has been waited for may still be in it for a moment.
        let start = Instant::now();
        while fs::remove_dir(&self.0).is_err() && start.elapsed() < Duration::from_secs(5) {
            thread::yield_now();
        }
    }
}

/// Killed when it is dropped.
struct Killed(Option<Child>);

impl Killed {
    fn id(&self) -> u32 {
        self.0.as_ref().unwrap().id()
    }

    fn wait(mut self) -> Output {
        self.0.take().unwrap().wait_with_output().unwrap()
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn cpu_time(process: u32) -> Duration {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let fields: Vec<_> = text.rsplit(')').next().unwrap().split_ascii_whitespace().collect();
    let ticks = |number: usize| fields[number].parse::<u64>().unwrap();
    Duration::from_millis(10 * (ticks(11) + ticks(12)))
}

/// The processes that this one has started.
fn children(process: u32) -> Vec<u32> {
    let text = fs::read_to_string(format!("/proc/{process}/task/{process}/children")).unwrap();
    text.split_whitespace().map(|number| number.parse().unwrap()).collect()
}

/// How many of its threads are for blocking work.
fn blocking_threads(process: u32) -> usize {
    let threads = fs::read_dir(format!("/proc/{process}/task")).unwrap().flatten();
    let names = threads.flat_map(|thread| fs::read_to_string(thread.path().join("comm")));
    names.filter(|name| name.starts_with("blocking-")).count()
}

/// Starts `serve http --root` by `command` with these options, has `limit` set its limit when the
/// text `ready` is in its log, and then asks for files and tells it to end.
fn serves_files_at_the_limit(
    mut command: Command,
    options: &[&str],
    ready: &str,
    limit: impl FnOnce(u32),
) {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    fs::write(dir.path().join("small"), "content").unwrap();
    // Several chunks, each of which is a job for the pool.
    fs::write(dir.path().join("large"), "x".repeat(1 << 20)).unwrap();
    let log = dir.path().join("log");
    command.args(["serve", "http", "--listen", "127.0.0.1:0", "--loops", "2"]).args(options);
    let child = command
        .arg("--root")
        .arg(dir.path())
        .stderr(fs::File::create(&log).unwrap())
        .spawn()
        .unwrap();
    let server = Killed(Some(child));
    let said = || fs::read_to_string(&log).unwrap();
    let start = Instant::now();
    let addr = loop {
        let text = said();
        if let Some((_, rest)) = text.split_once("listening on ")
            && text.contains(ready)
        {
            break rest.split([',', ' ']).next().unwrap().to_owned();
        }
        assert!(start.elapsed() < GUARD, "it does not listen: {text}");
        thread::yield_now();
    };
    limit(server.id());
    let mut processes = children(server.id());
    // A master has no thread but its first.
    let served_by = if processes.is_empty() { vec![server.id()] } else { processes.clone() };
    processes.push(server.id());
    for process in served_by {
        // A thread that has just begun has not its name yet.
        while blocking_threads(process) != 1 {
            assert!(start.elapsed() < GUARD, "{process} has no thread for files: {}", said());
            thread::yield_now();
        }
    }

    thread::scope(|scope| {
        for number in 0..20 {
            let (addr, said) = (&addr, &said);
            scope.spawn(move || {
                let path = if number % 2 == 0 { "/small" } else { "/large" };
                let answer = get(addr, path);
                let (ok, refused) = ("HTTP/1.1 200 ", "HTTP/1.1 503 ");
                assert!(answer.starts_with(ok) || answer.starts_with(refused), "{}", said());
                assert!(answer.starts_with(refused) || answer.len() > 7 + (number % 2) * (1 << 20));
            });
        }
    });
    let metrics = get(&addr, "/metrics");
    assert!(metrics.contains("wakeful_http_refused_total{reason=\"no_thread\"} 0"), "{metrics}");
    // The quiet second is what is measured, so this is no wait for something.
    let cpu_times = || processes.iter().map(|process| cpu_time(*process)).sum::<Duration>();
    let before = cpu_times();
    thread::sleep(Duration::from_secs(1));
    let spent = cpu_times() - before;
    assert!(spent < Duration::from_millis(500), "{spent:?}\n{}", said());
    assert!(!said().contains("panicked"), "{}", said());

    let told = Command::new("kill").args(["-TERM", &server.id().to_string()]).status();
    assert!(told.unwrap().success());
    let output = server.wait();
    assert!(output.status.success(), "{output:?}\n{}", said());
    assert!(said().contains("drained"), "{}", said());
}

#[test]
fn files_are_served_and_a_drain_works_at_pids_max() {
    let cgroup = match Cgroup::new("files") {
        Ok(cgroup) => cgroup,
        Err(reason) => return eprintln!("skipped: {reason}"),
    };
    serves_files_at_the_limit(cgroup.command(), &[], "listening on ", |_| cgroup.limit(1));
}

/// Each worker starts its thread after the fork.
#[test]
fn files_are_served_by_workers_and_a_drain_works_at_pids_max() {
    let cgroup = match Cgroup::new("workers") {
        Ok(cgroup) => cgroup,
        Err(reason) => return eprintln!("skipped: {reason}"),
    };
    let options = ["--workers", "2"];
    serves_files_at_the_limit(cgroup.command(), &options, "all workers accept", |_| {
        cgroup.limit(1);
    });
}

#[test]
fn files_are_served_and_a_drain_works_at_the_users_limit() {
    let mut command = Command::new(PROGRAM);
    command.uid(USER).gid(USER).stdin(Stdio::null());
    if let Err(error) = command.arg("--version").stdout(Stdio::null()).status() {
        return eprintln!("skipped: cannot start {PROGRAM} as another user: {error}");
    }
    let mut command = Command::new(PROGRAM);
    command.uid(USER).gid(USER);
    serves_files_at_the_limit(command, &[], "listening on ", |process| {
        let process = process.to_string();
        let mut prlimit = Command::new("prlimit");
        prlimit.args(["--nproc=0", "--pid", &process]).uid(USER).gid(USER);
        assert!(prlimit.status().unwrap().success());
    });
}

#[test]
fn a_start_without_threads_names_the_limit() {
    let cgroup = match Cgroup::new("start") {
        Ok(cgroup) => cgroup,
        Err(reason) => return eprintln!("skipped: {reason}"),
    };
    cgroup.limit(1);
    for arguments in [
        &["serve", "http", "--listen", "127.0.0.1:0", "--loops", "2"][..],
        &["serve", "http", "--listen", "127.0.0.1:0", "--access-log", "json"],
        &["serve", "kv", "--listen", "127.0.0.1:0"],
    ] {
        let output = cgroup.command().args(arguments).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("pids.max") && !said.contains("panicked"), "{said}");
    }
}

#[test]
fn a_load_without_threads_is_an_error() {
    let cgroup = match Cgroup::new("load") {
        Ok(cgroup) => cgroup,
        Err(reason) => return eprintln!("skipped: {reason}"),
    };
    cgroup.limit(1);
    let output = cgroup.command().args(["load", "--server", "echo {addr}"]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("pids.max") && !said.contains("panicked"), "{said}");
}

#[test]
fn a_start_without_room_for_stacks_names_the_limit_of_memory() {
    let mut command = Command::new("prlimit");
    command.args(["--as=400000000", PROGRAM, "serve", "http", "--listen", "127.0.0.1:0"]);
    // Large stacks: where there is no room for one more, the threads that run still have memory.
    command.args(["--loops", "100"]).env("RUST_MIN_STACK", "90000000");
    let output = command.output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("RLIMIT_AS") && !said.contains("pids.max"), "{said}");
}

#[test]
fn a_start_as_a_thread_of_sched_deadline_names_it() {
    let deadline = |more: &[&str]| {
        let mut chrt = Command::new("chrt");
        let times = ["--sched-runtime", "5000000", "--sched-deadline", "10000000"];
        chrt.arg("-d").args(times).args(["--sched-period", "10000000", "0"]).args(more);
        chrt.output()
    };
    if !deadline(&["true"]).is_ok_and(|output| output.status.success()) {
        return eprintln!("skipped: SCHED_DEADLINE cannot be had");
    }
    let output = deadline(&[PROGRAM, "serve", "http", "--listen", "127.0.0.1:0"]).unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("--reset-on-fork") && !said.contains("pids.max"), "{said}");
}
