//! A service as a process.

use std::ffi::OsStr;
use std::fs;
use std::net::SocketAddr;
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::NamedTempFile;
use tokio::net::TcpStream;

use crate::{free_addr, until};

/// A program of a service, with its environment.
pub struct Program {
    command: Command,
    on_wakeful: bool,
}

impl Program {
    pub fn on_tokio(path: &str) -> Self {
        Self { command: of_this_thread(path), on_wakeful: false }
    }

    pub fn on_wakeful(path: &str) -> Self {
        Self { command: of_this_thread(path), on_wakeful: true }
    }

    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Starts it, and waits until it accepts connections.
    pub async fn start(mut self) -> Service {
        let addr = free_addr();
        let stderr = NamedTempFile::new().expect("a temporary file");
        self.command.env("ADDR", addr.to_string()).env("RUST_BACKTRACE", "1");
        self.command.stdout(Stdio::null()).stderr(stderr.reopen().expect("the same file"));
        let child = self.command.spawn().expect("setpriv of util-linux, and the program");
        let mut service =
            Service { addr, child: Ended(child), stderr, on_wakeful: self.on_wakeful };
        until("the service listens", async || {
            let ended = service.child.0.try_wait().expect("the state of a child");
            assert!(ended.is_none(), "{ended:?} at the start\n{}", service.stderr());
            TcpStream::connect(addr).await.ok()
        })
        .await;
        service
    }
}

/// A service that runs. It is killed if a test fails.
pub struct Service {
    addr: SocketAddr,
    child: Ended,
    stderr: NamedTempFile,
    on_wakeful: bool,
}

impl Service {
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The address of `path` for a client.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.addr)
    }

    /// What it has written to stderr so far.
    pub fn stderr(&self) -> String {
        fs::read_to_string(self.stderr.path()).expect("a log in UTF-8")
    }

    pub fn on_wakeful(&self) -> bool {
        self.on_wakeful
    }

    /// Sends SIGTERM.
    pub fn terminate(&self) {
        signal(&self.child.0, Signal::TERM);
    }

    /// Waits for its end.
    pub async fn ended(&mut self) -> ExitStatus {
        until("the service ends", async || self.child.0.try_wait().expect("the state of a child"))
            .await
    }

    /// Sends SIGTERM and checks the end: on wakeful it drains, and returns 0. Nothing may have
    /// panicked. (`axum::serve` alone does not drain: the signal ends that process.)
    pub async fn end(mut self) {
        self.terminate();
        let status = self.ended().await;
        let stderr = self.stderr();
        assert!(!stderr.contains("panicked"), "{stderr}");
        assert!(status.success() || !self.on_wakeful, "{status}\n{stderr}");
    }
}

/// A command that the kernel kills when the thread that starts it ends, so that nothing stays of
/// tests that are killed. `setpriv` of util-linux becomes the program.
pub(crate) fn of_this_thread(program: impl AsRef<OsStr>) -> Command {
    set_up(&["--pdeathsig", "KILL"], program)
}

/// Starts a program with options of `setpriv`.
pub(crate) fn set_up(options: &[&str], program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("setpriv");
    command.args(options).arg("--").arg(program);
    command
}

pub(crate) fn signal(child: &Child, signal: Signal) {
    // It is not reaped before its handle is, so the number is still its own.
    let _ = kill_process(Pid::from_child(child), signal);
}

/// A child that ends with its handle.
pub(crate) struct Ended(pub(crate) Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
