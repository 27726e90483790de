//! The program of docs/own-service.md runs: as a master with workers, and as one process.
//!
//! This test starts itself again as that program. So it has no harness: see `Cargo.toml`.

#[path = "fragments/own_pod.rs"]
mod pod;
#[path = "fragments/own_service.rs"]
mod program;

use std::env;
use std::error::Error;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// What is started: `master`, or `pod`.
const ROLE: &str = "OWN_SERVICE_TEST_ROLE";

/// For a test that waits in vain.
const GUARD: Duration = Duration::from_secs(60);
const A_MOMENT: Duration = Duration::from_millis(5);

fn main() -> Result<ExitCode, Box<dyn Error>> {
    match env::var(ROLE).as_deref() {
        Ok("master") => return program::run(),
        Ok(_) => return pod::run().map(|()| ExitCode::SUCCESS),
        Err(_) => {}
    }
    for (name, test) in TESTS {
        test();
        println!("test {name} ... ok");
    }
    Ok(ExitCode::SUCCESS)
}

const TESTS: [(&str, fn()); 4] = [
    ("a_master_s_workers_serve_and_are_replaced", a_master_s_workers_serve_and_are_replaced),
    ("a_pod_serves_and_drains", a_pod_serves_and_drains),
    ("a_master_whose_workers_have_no_pool_ends", || has_no_pool("master")),
    ("a_pod_without_a_pool_ends", || has_no_pool("pod")),
];

/// The program, with sockets in a folder of its own. It is killed if a test fails.
struct Program {
    folder: tempfile::TempDir,
    process: Child,
}

impl Program {
    fn start(role: &str, database: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = |name: &str| format!("unix:{}", folder.path().join(name).display());
        let log = folder.path().join("access.log");
        // The pod writes its access log there.
        let stdout = match role {
            "pod" => Stdio::from(File::create(&log).unwrap()),
            _ => Stdio::inherit(),
        };
        let process = Command::new(env::current_exe().unwrap())
            .env(ROLE, role)
            .env("LISTEN", socket("http"))
            .env("ADMIN", socket("admin"))
            .env("PID_FILE", folder.path().join("pid"))
            .env("DATABASE_URL", database)
            .env("ACCESS_LOG", log)
            .stdout(stdout)
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self { folder, process }
    }

    fn ask(&self, socket: &str, path: &str) -> io::Result<String> {
        let mut stream = UnixStream::connect(self.folder.path().join(socket))?;
        stream.set_read_timeout(Some(GUARD))?;
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }

    /// Asks until the answer is right. An error is that of a server that does not listen yet, or of
    /// a worker that was killed.
    fn until(&self, socket: &str, path: &str, is_right: impl Fn(&str) -> bool) -> String {
        let start = Instant::now();
        loop {
            match self.ask(socket, path) {
                Ok(answer) if is_right(&answer) => return answer,
                other => assert!(start.elapsed() < GUARD, "{path}: {other:?}"),
            }
            thread::sleep(A_MOMENT);
        }
    }

    fn logged(&self) -> usize {
        let log = std::fs::read_to_string(self.folder.path().join("access.log"));
        log.unwrap_or_default().matches("\"path\":\"/notes/1\"").count()
    }

    /// Waits until the access log has that many requests for the note.
    fn until_logged(&self, count: usize) {
        let start = Instant::now();
        while self.logged() < count {
            assert!(start.elapsed() < GUARD, "{} of {count} requests are logged", self.logged());
            thread::sleep(A_MOMENT);
        }
    }

    /// Renames the log; who writes it is told by that signal.
    fn rotate(&self, signal: &str) {
        let log = self.folder.path().join("access.log");
        std::fs::rename(&log, log.with_extension("old")).unwrap();
        self.signal(signal, self.process.id());
        // Until it is open again, lines are in the old file.
        let start = Instant::now();
        while !log.exists() {
            assert!(start.elapsed() < GUARD, "no new log after {signal}");
            thread::sleep(A_MOMENT);
        }
    }

    fn signal(&self, signal: &str, pid: u32) {
        let sent = Command::new("kill").args(["-s", signal, &pid.to_string()]).status();
        assert!(sent.unwrap().success());
    }

    fn end(mut self) {
        self.signal("TERM", self.process.id());
        self.until("admin", "/readyz", |answer| answer.starts_with("HTTP/1.1 503"));
        assert!(self.process.wait().unwrap().success());
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn serves(program: &Program) {
    let note = program.until("http", "/notes/1", |answer| !answer.is_empty());
    assert!(note.starts_with("HTTP/1.1 200") && note.ends_with("a note of notes\n"), "{note}");
    program.until("admin", "/readyz", |answer| answer.starts_with("HTTP/1.1 200"));
}

/// Of all workers, and of those that were here before.
fn requests(metrics: &str) -> u64 {
    let lines = metrics.lines().filter(|line| line.starts_with("wakeful_http_requests_total"));
    lines.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap() as u64).sum()
}

fn children(pid: u32) -> Vec<u32> {
    let file = format!("/proc/{pid}/task/{pid}/children");
    let text = std::fs::read_to_string(Path::new(&file)).unwrap_or_default();
    text.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
}

fn a_master_s_workers_serve_and_are_replaced() {
    let program = Program::start("master", "postgres://notes");
    serves(&program);
    for _ in 0..9 {
        program.ask("http", "/notes/1").unwrap();
    }
    program.until_logged(10);
    program.rotate("USR1");
    let asked = program.until("admin", "/metrics", |answer| requests(answer) >= 10);
    for count in ["wakeful_log_dropped_total", "wakeful_access_log_dropped_total"] {
        assert!(asked.contains(&format!("{count} 0\n")), "{asked}");
    }
    let before = requests(&asked);
    let workers = children(program.process.id());
    if workers.len() == 2 {
        for worker in &workers {
            program.signal("KILL", *worker);
            // Another one takes its place.
            let is_replaced = || {
                let now = children(program.process.id());
                now.len() == 2 && !now.contains(worker)
            };
            let start = Instant::now();
            while !is_replaced() {
                assert!(start.elapsed() < GUARD);
                thread::sleep(A_MOMENT);
            }
            serves(&program);
        }
        program.until("admin", "/metrics", |answer| requests(answer) >= before);
    } else {
        println!("skipped: the kernel does not list a process's children");
    }
    program.end();
}

fn a_pod_serves_and_drains() {
    let program = Program::start("pod", "postgres://notes");
    serves(&program);
    program.until_logged(1);
    let metrics = program.until("admin", "/metrics", |answer| requests(answer) >= 1);
    for count in ["wakeful_log_dropped_total", "wakeful_access_log_dropped_total"] {
        assert!(metrics.contains(&format!("{count} 0\n")), "{metrics}");
    }
    program.end();
}

fn has_no_pool(role: &str) {
    let mut program = Program::start(role, "mysql://notes");
    assert_eq!(program.process.wait().unwrap().code(), Some(1));
}
