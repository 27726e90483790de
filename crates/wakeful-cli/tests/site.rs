//! `wakeful serve http --root DIR --access-log FORMAT`, as a user has it.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const PROGRAM: &str = env!("CARGO_BIN_EXE_wakeful");
const GUARD: Duration = Duration::from_secs(20);

/// Killed when it is dropped.
struct Server {
    child: Option<Child>,
    addr: String,
}

impl Server {
    fn start(arguments: &[&str]) -> Self {
        let mut command = Command::new(PROGRAM);
        command.args(["serve", "http", "--listen", "127.0.0.1:0", "--loops", "2"]).args(arguments);
        let mut child = command.stderr(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let said = lines.by_ref().find_map(|line| {
            Some(line.unwrap().split("listening on ").nth(1)?.split(',').next()?.to_owned())
        });
        let addr = said.expect("it says where it listens");
        // What it says later must find a reader.
        std::thread::spawn(move || lines.for_each(drop));
        Self { child: Some(child), addr }
    }

    fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(&self.addr).unwrap();
        stream.set_read_timeout(Some(GUARD)).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    fn signal(&self, name: &str) {
        let pid = self.child.as_ref().unwrap().id().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    }

    /// Tells it to end, and returns what it wrote.
    fn end(mut self) -> Output {
        self.signal("-TERM");
        let output = self.child.take().unwrap().wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
        output
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < GUARD, "never: {what}");
        std::thread::yield_now();
    }
}

fn count_lines(path: &Path) -> usize {
    fs::read_to_string(path).unwrap_or_default().lines().count()
}

#[test]
fn files_are_served_beside_the_services_own_paths() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("index.html"), "<p>mine").unwrap();
    fs::write(dir.path().join("healthz"), "a file").unwrap();
    std::os::unix::fs::symlink("/etc/passwd", dir.path().join("out")).unwrap();
    let server = Server::start(&["--root", dir.path().to_str().unwrap()]);
    assert!(server.get("/").ends_with("<p>mine"));
    assert!(server.get("/healthz").ends_with("ok\n"));
    assert!(server.get("/out").starts_with("HTTP/1.1 404 "));
    assert!(server.get("/missing").starts_with("HTTP/1.1 404 "));
    server.end();
}

#[test]
fn the_access_log_goes_to_stdout_and_is_complete_at_the_end() {
    let server = Server::start(&["--access-log", "common"]);
    assert!(server.get("/healthz").contains("x-request-id: "));
    server.get("/missing?token=secret");
    let text = String::from_utf8(server.end().stdout).unwrap();
    assert!(text.contains("\"GET /healthz HTTP/1.1\" 200 3\n"), "{text}");
    assert!(text.contains("\"GET /missing HTTP/1.1\" 404 0\n"), "{text}");
}

#[test]
fn hup_goes_on_in_a_new_file_and_metrics_count_the_lines() {
    let dir = tempfile::tempdir().unwrap();
    let (log, rotated) = (dir.path().join("log"), dir.path().join("log.1"));
    let file = log.to_str().unwrap();
    let server = Server::start(&["--access-log", "json", "--access-log-file", file]);
    server.get("/healthz");
    until("the line is written", || count_lines(&log) == 1);
    fs::rename(&log, &rotated).unwrap();
    server.signal("-HUP");
    until("the file is there anew", || log.exists());
    server.get("/healthz");
    until("it goes on there", || count_lines(&log) == 1);
    let metrics = server.get("/metrics");
    assert!(metrics.contains("wakeful_access_log_written_total 2\n"), "{metrics}");
    assert!(metrics.contains("wakeful_access_log_dropped_total 0\n"), "{metrics}");
    server.end();
    assert_eq!((count_lines(&rotated), count_lines(&log)), (1, 2));
}

#[test]
fn what_cannot_be_served_or_logged_is_one_line() {
    let fails = |arguments: &[&str], code: i32, text: &str| {
        let output =
            Command::new(PROGRAM).args(["serve", "http"]).args(arguments).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(said.contains(text), "{said}");
    };
    fails(&["--root", "/nowhere"], 1, "cannot serve /nowhere: ");
    fails(&["--access-log", "json", "--access-log-file", "/nowhere/log"], 1, "/nowhere/log");
    fails(&["--access-log-file", "/tmp/log"], 2, "--access-log");
    fails(&["--access-log", "xml"], 2, "xml");
}
