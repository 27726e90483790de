//! The program as a user has it, for tests that need several of it.

#![allow(dead_code, unreachable_pub)] // Each test program uses a part.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::Duration;

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_wakeful");
pub const GUARD: Duration = Duration::from_secs(20);

/// `wakeful serve`. Killed when it is dropped.
pub struct Service {
    pub child: Child,
    pub stderr: BufReader<ChildStderr>,
}

impl Service {
    pub fn start(arguments: &[&str]) -> Self {
        Self::start_by(Command::new(PROGRAM), arguments)
    }

    /// `command` ends with the program.
    pub fn start_by(command: Command, arguments: &[&str]) -> Self {
        Self::start_idle(command, arguments, "park")
    }

    /// With an idle policy.
    pub fn start_idle(command: Command, arguments: &[&str], policy: &str) -> Self {
        Self::spawn(command, arguments, ["--loops", "1", "--idle", policy])
    }

    /// With this number of loops.
    pub fn start_with_loops(command: Command, arguments: &[&str], loops: &str) -> Self {
        Self::spawn(command, arguments, ["--loops", loops, "--idle", "park"])
    }

    fn spawn(mut command: Command, arguments: &[&str], more: [&str; 4]) -> Self {
        command.arg("serve").args(arguments).args(more);
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        Self { child, stderr }
    }

    pub fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    }

    /// What is after `text` in the next line that has it, up to a comma.
    pub fn behind(&mut self, text: &str) -> String {
        loop {
            let mut line = String::new();
            assert!(self.stderr.read_line(&mut line).unwrap() > 0, "it ended early");
            if let Some((_, rest)) = line.split_once(text) {
                return rest.trim().split(',').next().unwrap().to_owned();
            }
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a program, which the caller adds, as process 1 of its own PID namespace, as in a container.
/// `None`: no namespace can be had.
pub fn in_namespace() -> Option<Command> {
    let command = || {
        let mut command = Command::new("unshare");
        command.args(["--pid", "--fork", "--kill-child", "--mount-proc"]);
        command
    };
    let can_be_had = command().arg("true").status().unwrap().success();
    if !can_be_had {
        eprintln!("skipped: no namespace of processes can be had");
    }
    can_be_had.then(command)
}

/// Asks, and reads the answer.
pub fn ask(mut stream: &TcpStream, question: &[u8], answer: &[u8]) {
    stream.set_read_timeout(Some(GUARD)).unwrap();
    stream.write_all(question).unwrap();
    let mut have = vec![0; answer.len()];
    stream.read_exact(&mut have).unwrap();
    assert_eq!(have, answer);
}

/// Asks for `path` at `addr`, which may be `unix:PATH`. Returns the head and the body.
pub fn get(addr: &str, path: &str) -> String {
    match addr.strip_prefix("unix:") {
        Some(socket) => {
            let stream = UnixStream::connect(socket).unwrap();
            stream.set_read_timeout(Some(GUARD)).unwrap();
            get_by(stream, path)
        }
        None => {
            let stream = TcpStream::connect(addr).unwrap();
            stream.set_read_timeout(Some(GUARD)).unwrap();
            get_by(stream, path)
        }
    }
}

fn get_by(mut stream: impl Read + Write, path: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}
