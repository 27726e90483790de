//! Server processes for the comparison: started pinned, and never left behind.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::process::{Child, Command, Stdio};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result, bail, ensure};
use rustix::fs::{MemfdFlags, memfd_create};

use crate::affinity::pin_this_thread;

/// Where the listen address goes in a server's command.
const ADDR: &str = "{addr}";

/// How long a server may take until it accepts connections.
const START_LIMIT: Duration = Duration::from_secs(10);

/// How much of a failed server's standard error is shown.
const SHOWN_STDERR: usize = 1000;

/// A server to compare, given as `NAME=COMMAND`.
#[derive(Debug, Clone)]
pub struct ServerCommand {
    /// What the report calls it.
    pub name: String,
    program: String,
    args: Vec<String>,
}

impl FromStr for ServerCommand {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (name, command) = text.split_once('=').context("expected NAME=COMMAND")?;
        ensure!(!name.is_empty(), "the name is empty");
        ensure!(command.contains(ADDR), "the command lacks {ADDR}");
        let mut words =
            shlex::split(command).context("the command's quotes are not closed")?.into_iter();
        Ok(Self {
            name: name.to_owned(),
            program: words.next().context("the command is empty")?,
            args: words.collect(),
        })
    }
}

/// A server process that accepts connections. Dropping it kills the process.
#[derive(Debug)]
pub struct Server {
    child: Child,
    addr: SocketAddr,
}

impl Server {
    /// Starts a server on one CPU and waits until it accepts connections.
    ///
    /// Leaves the calling thread pinned to that CPU: the process inherits it, so
    /// that every thread of the server is pinned from its first instruction.
    pub fn start(command: &ServerCommand, cpu: usize, interrupted: &AtomicBool) -> Result<Self> {
        pin_this_thread(cpu)?;
        let addr = free_address()?;
        // In memory, since nobody drains a pipe and a file would be left behind.
        let stderr = File::from(memfd_create("stderr", MemfdFlags::CLOEXEC)?);
        let child = Command::new(&command.program)
            .args(command.args.iter().map(|arg| arg.replace(ADDR, &addr.to_string())))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(stderr.try_clone()?)
            .spawn()
            .with_context(|| format!("cannot start {}: {}", command.name, command.program))?;
        let mut server = Self { child, addr };
        server
            .wait_until_it_accepts(interrupted)
            .with_context(|| format!("{} did not start", command.name))
            .map_err(|error| match shown(&stderr) {
                Some(said) => error.context(said),
                None => error,
            })?;
        Ok(server)
    }

    /// Where the server listens.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Its process, for what the kernel counts.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    fn wait_until_it_accepts(&mut self, interrupted: &AtomicBool) -> Result<()> {
        let start = Instant::now();
        while TcpStream::connect(self.addr).is_err() {
            ensure!(!interrupted.load(Ordering::Relaxed), "interrupted");
            if let Some(status) = self.child.try_wait()? {
                bail!("it ended with {status}");
            }
            ensure!(start.elapsed() < START_LIMIT, "it accepts no connection on {}", self.addr);
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail only if the process has ended and has been waited for.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// An address nobody listens on at the moment. A new one for each server keeps
/// connections in `TIME_WAIT` from being met again.
fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}

/// The beginning of what a server wrote to its standard error, in one line.
fn shown(stderr: &File) -> Option<String> {
    let mut bytes = [0; SHOWN_STDERR];
    let count = stderr.read_at(&mut bytes, 0).ok()?;
    let text = String::from_utf8_lossy(&bytes[..count]);
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    (!line.is_empty()).then_some(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_split_like_a_shell_does() {
        let server: ServerCommand = "mine=./serve 'a b' --listen {addr}".parse().unwrap();
        assert_eq!(server.name, "mine");
        assert_eq!(server.program, "./serve");
        assert_eq!(server.args, ["a b", "--listen", "{addr}"]);
    }

    #[test]
    fn a_command_without_a_place_for_the_address_is_refused() {
        for text in ["serve", "=serve {addr}", "mine=serve", "mine=serve '{addr}", "mine="] {
            assert!(text.parse::<ServerCommand>().is_err(), "{text}");
        }
    }
}
