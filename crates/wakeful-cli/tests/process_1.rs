//! TERM to a server that starts as process 1, as in a container. The kernel discards a signal of
//! this process whose action is the default one.

mod common;

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Command, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use common::{GUARD, PROGRAM, Service, in_namespace};
use tempfile::TempDir;

/// Settings that a server waits for.
struct Settings {
    directory: TempDir,
    path: PathBuf,
}

impl Settings {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("settings");
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        Self { directory, path }
    }

    /// Waits until a process waits for the settings.
    fn wanted(&self) -> File {
        OpenOptions::new().write(true).open(&self.path).unwrap()
    }

    /// Who reads them from now on does not wait.
    fn are_there(&self, text: &str) {
        let file = self.directory.path().join("file");
        fs::write(&file, text).unwrap();
        fs::rename(file, &self.path).unwrap();
    }
}

/// A server that is process 1. `None`: no namespace can be had.
fn start(settings: &Settings, options: &[&str]) -> Option<Service> {
    let mut command = in_namespace()?;
    command.arg(PROGRAM).env_remove("NOTIFY_SOCKET").env_remove("LISTEN_FDS");
    let file = settings.path.to_str().unwrap();
    let arguments = ["http", "--listen", "127.0.0.1:0", "--config", file];
    Some(Service::start_by(command, &[&arguments[..], options].concat()))
}

/// The only child of a process.
fn child(pid: u32) -> u32 {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    children.trim().parse().unwrap()
}

fn signal(pid: u32, name: &str) {
    assert!(Command::new("kill").args([name, &pid.to_string()]).status().unwrap().success());
}

/// Waits until the server has ended. Returns how, and what it has said since.
fn ended(mut server: Service) -> (ExitStatus, String) {
    let start = Instant::now();
    let status = loop {
        if let Some(status) = server.child.try_wait().unwrap() {
            break status;
        }
        assert!(start.elapsed() < GUARD, "it does not end");
        thread::sleep(Duration::from_millis(5));
    };
    let mut said = String::new();
    server.stderr.read_to_string(&mut said).unwrap();
    (status, said)
}

/// Sends a signal to a server that waits for its settings, and awaits its end.
fn ended_early(name: &str, options: &[&str]) -> Option<(ExitStatus, String)> {
    let settings = Settings::new();
    let server = start(&settings, options)?;
    let mut wanted = settings.wanted();
    // Workers read them again.
    settings.are_there("grace = 1\n");
    signal(child(server.child.id()), name);
    wanted.write_all(b"grace = 1\n").unwrap();
    drop(wanted);
    Some(ended(server))
}

const SIGNALS: [&str; 2] = ["-TERM", "-INT"];
const MASTERS: [&[&str]; 2] = [&["--workers", "1"], &["--workers", "1", "--exec"]];

#[test]
fn a_term_before_the_settings_are_read_ends_a_server() {
    for name in SIGNALS {
        let Some((status, said)) = ended_early(name, &[]) else { return };
        assert!(status.success() && said.contains("draining"), "{name}: {said}");
    }
}

#[test]
fn a_term_before_the_settings_are_read_ends_a_master() {
    for (name, how) in SIGNALS.iter().flat_map(|name| MASTERS.map(|how| (name, how))) {
        // It may end a worker that has not caught it yet, which makes the master's status a
        // failure.
        let Some((_, said)) = ended_early(name, how) else { return };
        assert!(said.contains("the workers drain"), "{name} {how:?}: {said}");
    }
}

/// TERM and INT, each as its bit.
const TO_END: u64 = 1 << (15 - 1) | 1 << (2 - 1);

fn blocked(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap();
    u64::from_str_radix(mask.trim(), 16).unwrap()
}

#[test]
fn a_term_ends_a_worker_that_starts() {
    for how in MASTERS {
        let settings = Settings::new();
        let Some(mut server) = start(&settings, how) else { return };
        settings.wanted().write_all(b"grace = 1\n").unwrap();
        server.behind("master listening on ");
        let mut wanted = settings.wanted();
        let master = child(server.child.id());
        assert_eq!(blocked(child(master)) & TO_END, 0, "{how:?}");
        wanted.write_all(b"grace = 1\n").unwrap();
        drop(wanted);
        server.behind("all workers accept");
        signal(master, "-TERM");
        let (status, said) = ended(server);
        assert!(status.success(), "{how:?}: {said}");
    }
}

/// A shell that is called like Docker's init. It passes WINCH on.
const INIT: &str = r#"trap 'kill -WINCH $!' WINCH; "$@" & while :; do wait; done"#;

#[test]
fn a_container_does_not_end_by_an_upgrade_of_its_program() {
    let directory = tempfile::tempdir().unwrap();
    let init = directory.path().join("docker-init");
    fs::copy("/bin/sh", &init).unwrap();
    for is_first in [true, false] {
        let Some(mut command) = in_namespace() else { return };
        if !is_first {
            command.arg(&init).args(["-c", INIT, "sh"]);
        }
        command.arg(PROGRAM).env_remove("NOTIFY_SOCKET").env_remove("LISTEN_FDS");
        let arguments = ["http", "--listen", "127.0.0.1:0", "--workers", "1"];
        let mut server = Service::start_by(command, &arguments);
        server.behind("all workers accept");
        let first = child(server.child.id());
        let (master, what) = match is_first {
            true => (first, "is process 1"),
            false => (child(first), "is the program of its container's init"),
        };
        signal(master, "-USR2");
        server.behind(&format!("SIGUSR2: no upgrade: this master {what}"));
        // As `docker run` passes it on.
        signal(first, "-WINCH");
        server.behind("SIGWINCH from outside of the container: no effect");
    }
}
