//! Servers to measure: those that are started here and stopped at the end, and those that already
//! run.

pub(crate) mod group;
mod owner;
mod spec;
mod successor;
pub(crate) mod tail;

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use thiserror::Error;

pub use spec::{ServerSpec, SpecError};

use self::group::{Group, StartError, State};
use self::successor::Successor;
use self::tail::Tail;
use crate::procfs::{has_ended, process_tree};
use crate::target::Target;

/// The pause between two attempts to connect.
const RETRY: Duration = Duration::from_millis(10);

/// The longest that one attempt to connect may take.
const ATTEMPT: Duration = Duration::from_secs(1);

/// How long to wait for the end of stderr after the process has ended.
pub(crate) const LAST_WORDS: Duration = Duration::from_millis(100);

/// A server that accepts connections, or did so.
///
/// A server may pass its listening socket on to another process and end, as in an upgrade. It then
/// counts as alive as long as a process listens at its address.
///
/// A server that was started here leads its own process group. It is stopped by
/// [`stop`](Server::stop) or when this value is dropped. Only that group is ever signalled. If this
/// process ends without dropping the value, for example because it is killed, a small shell that
/// waits for that kills the group. On a machine without `sh`, the server is left running. Processes
/// that leave the group, as daemons do, are left running, too.
///
/// A `Server` can be shared between threads.
#[derive(Debug)]
pub struct Server {
    name: String,
    addr: String,
    process: Process,
    /// Set once the server accepts connections.
    successor: Option<Successor>,
}

#[derive(Debug)]
enum Process {
    Started {
        group: Group,
        stderr: Option<Tail>,
    },
    /// A server that already ran, with its process number if that is known.
    Foreign(Option<u32>),
}

/// The name of a server and the address where it listens, which may also be its name.
fn named(name: &str, addr: &str) -> String {
    if name == addr { addr.to_owned() } else { format!("{name} on {addr}") }
}

/// The reason why there is no server.
#[derive(Debug, Error)]
pub enum ServerError {
    /// There is no free port.
    #[error("there is no free port on loopback for {name}: {error}")]
    Port {
        /// The server's name.
        name: String,
        /// The kernel's error.
        error: io::Error,
    },
    /// The server may not run on its CPUs.
    #[error("{name} cannot have its CPUs: {error}")]
    Cpus {
        /// The server's name.
        name: String,
        /// The error, which names the CPU and the reason.
        error: io::Error,
    },
    /// The program could not be started.
    #[error("{name} cannot be started: {program:?}: {error}")]
    Spawn {
        /// The server's name.
        name: String,
        /// The program.
        program: String,
        /// The kernel's error.
        error: io::Error,
    },
    /// The server ended before it accepted a connection.
    #[error("{name} accepted no connection on {addr}: it {how}")]
    Ended {
        /// The server's name.
        name: String,
        /// The address where the server should have listened.
        addr: String,
        /// The status of the server and the last lines of its stderr.
        how: String,
    },
    /// The server did not accept a connection in time.
    #[error("{} does not accept connections after {} ms: {error}", named(.name, .addr), after.as_millis())]
    NotReady {
        /// The server's name.
        name: String,
        /// The address where the server should listen.
        addr: String,
        /// How long this program has waited.
        after: Duration,
        /// How the last attempt failed, and the last lines of the server's stderr.
        error: String,
    },
}

impl Server {
    /// Starts a server, or takes one that runs already, and waits until it accepts a connection.
    /// The attempts open connections on which nothing is ever sent. Blocks the calling thread for
    /// at most a little more than `ready_within`.
    ///
    /// A command is started on a port of 127.0.0.1 that was free a moment ago, and on `cpus` alone.
    /// The caller's own CPUs stay as they are. The command's stdin and stdout are `/dev/null`. For
    /// a server that runs already, `cpus` has no effect. Its process is looked up by its listening
    /// socket, if the server is on this machine and its process is visible.
    ///
    /// # Errors
    ///
    /// Each error says which server it is about, and what that server last wrote to stderr. What
    /// was started is stopped.
    pub fn start(
        spec: &ServerSpec,
        cpus: Option<&[usize]>,
        ready_within: Duration,
    ) -> Result<Self, ServerError> {
        let mut server = match spec {
            ServerSpec::Command { name, argv } => Self::spawn(name, argv, cpus)?,
            ServerSpec::Running { name, target } => {
                let process = Process::Foreign(owner::owner(target));
                Self { name: name.clone(), addr: target.clone(), process, successor: None }
            }
        };
        server.wait_until_ready(ready_within)?;
        Ok(server)
    }

    /// Starts a server without ever connecting to it, so that its first connection is the caller's.
    /// The server is told to listen on `ip` and port 0, and has to write `listening on ADDRESS` to
    /// stderr. Blocks the calling thread until it does so, for `ready_within` at most.
    ///
    /// # Errors
    /// The errors of [`start`](Self::start), or `spec` describes a server that runs already.
    pub fn start_untouched(
        spec: &ServerSpec,
        ip: IpAddr,
        cpus: Option<&[usize]>,
        ready_within: Duration,
    ) -> Result<Self, ServerError> {
        let addr = SocketAddr::new(ip, 0);
        let ServerSpec::Command { name, argv } = spec else {
            let (name, addr) = (spec.name().to_owned(), addr.to_string());
            let how = "was started by somebody else, who may have touched it".to_owned();
            return Err(ServerError::Ended { name, addr, how });
        };
        let mut server = Self::spawn_at(name, argv, addr, cpus)?;
        let start = Instant::now();
        loop {
            if let Some(says) = listening_on(&server.stderr(Duration::ZERO)) {
                server.addr = says;
                return Ok(server);
            }
            let (name, addr) = (server.name.clone(), server.addr.clone());
            if let Some(how) = server.died() {
                return Err(ServerError::Ended { name, addr, how });
            }
            if start.elapsed() >= ready_within {
                let error = "it does not say `listening on ADDRESS`".to_owned();
                let error = with_last_words(error, &server.stderr(Duration::ZERO));
                return Err(ServerError::NotReady { name, addr, after: ready_within, error });
            }
            thread::sleep(RETRY);
        }
    }

    /// Starts a server that listens on the Unix socket `path`, and waits until it accepts a
    /// connection, as [`start`](Self::start) does. In the server's arguments, `{addr}` stands for
    /// `unix:PATH`.
    ///
    /// # Errors
    /// The errors of [`start`](Self::start).
    pub fn start_on_path(
        name: &str,
        argv: &[String],
        path: &Path,
        cpus: Option<&[usize]>,
        ready_within: Duration,
    ) -> Result<Self, ServerError> {
        let addr = format!("unix:{}", path.display());
        let argv = argv.iter().map(|word| word.replace("{addr}", &addr)).collect();
        let mut server = Self::spawn_filled_in(name, argv, addr, cpus)?;
        server.wait_until_ready(ready_within)?;
        Ok(server)
    }

    fn spawn(name: &str, argv: &[String], cpus: Option<&[usize]>) -> Result<Self, ServerError> {
        match free_port() {
            Ok(addr) => Self::spawn_at(name, argv, addr, cpus),
            Err(error) => Err(ServerError::Port { name: name.to_owned(), error }),
        }
    }

    fn spawn_at(
        name: &str,
        argv: &[String],
        addr: SocketAddr,
        cpus: Option<&[usize]>,
    ) -> Result<Self, ServerError> {
        let argv = argv.iter().map(|word| fill_in(word, addr)).collect();
        Self::spawn_filled_in(name, argv, addr.to_string(), cpus)
    }

    fn spawn_filled_in(
        name: &str,
        argv: Vec<String>,
        addr: String,
        cpus: Option<&[usize]>,
    ) -> Result<Self, ServerError> {
        let name = name.to_owned();
        let mut argv = argv.into_iter();
        let program = argv.next().unwrap_or_default();
        let mut command = Command::new(&program);
        command.args(argv);
        match Group::start(&mut command, cpus) {
            Ok(mut group) => {
                let stderr = match group.stderr().map(Tail::follow).transpose() {
                    Ok(stderr) => stderr,
                    Err(error) => return Err(ServerError::Spawn { name, program, error }),
                };
                let process = Process::Started { group, stderr };
                Ok(Self { name, addr, process, successor: None })
            }
            Err(StartError::Cpus(error)) => Err(ServerError::Cpus { name, error }),
            Err(StartError::Spawn(error)) => Err(ServerError::Spawn { name, program, error }),
        }
    }

    fn wait_until_ready(&mut self, ready_within: Duration) -> Result<(), ServerError> {
        let start = Instant::now();
        loop {
            let (name, addr) = (self.name.clone(), self.addr.clone());
            if let Some(how) = self.died() {
                return Err(ServerError::Ended { name, addr, how });
            }
            let left = ready_within.saturating_sub(start.elapsed());
            let Err(error) = connect(&addr, left.clamp(RETRY, ATTEMPT)) else {
                self.successor = Some(Successor::of(&addr));
                return Ok(());
            };
            if start.elapsed() >= ready_within {
                let error = with_last_words(error.to_string(), &self.stderr(Duration::ZERO));
                return Err(ServerError::NotReady { name, addr, after: ready_within, error });
            }
            thread::sleep(RETRY);
        }
    }

    /// Sets the process of a server that ran already, so that its CPU time can be measured. The
    /// process is never signalled. Has no effect on a server that was started here, whose process
    /// is known.
    pub fn attach(&mut self, pid: u32) {
        if let Process::Foreign(known) = &mut self.process {
            *known = Some(pid);
        }
    }

    /// Returns the name that reports have for the server.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the address of the server: `HOST:PORT` or `unix:/PATH`.
    #[must_use]
    pub fn addr(&self) -> &str {
        &self.addr
    }

    /// Returns the process as which the server began, if it is known.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        match &self.process {
            Process::Started { group, .. } => Some(group.pid()),
            Process::Foreign(pid) => *pid,
        }
    }

    /// Returns the process of the server, or its successor, and then all their descendants. The
    /// list is empty if the process is unknown or has ended.
    #[must_use]
    pub fn pids(&self) -> Vec<u32> {
        let in_charge = match self.first_ended() {
            Some(_) => self.successor.as_ref().and_then(Successor::process),
            None => self.pid(),
        };
        in_charge.and_then(|pid| process_tree(pid).ok()).unwrap_or_default()
    }

    /// Returns how the server's process ended, with the last lines of its stderr. Returns `None`
    /// while it or a successor runs, and if it is unknown. It takes some milliseconds after the end
    /// until it is known that there is no successor. Does not wait for the end, but waits up to 100
    /// ms for the last lines of a process that has ended.
    #[must_use]
    pub fn died(&self) -> Option<String> {
        let how = self.first_ended()?;
        let is_succeeded = self.successor.as_ref().is_some_and(|one| !one.is_missing());
        (!is_succeeded).then(|| with_last_words(how, &self.stderr(LAST_WORDS)))
    }

    /// Returns how the process as which the server began has ended.
    fn first_ended(&self) -> Option<String> {
        match &self.process {
            Process::Started { group, .. } => match group.state() {
                State::Runs => None,
                State::Ended(how) => Some(how),
                State::Gone => Some("ended".to_owned()),
            },
            Process::Foreign(pid) => {
                // Only the state, and not the counters of each thread: the generator asks this
                // every 50 ms.
                let pid = (*pid)?;
                has_ended(pid).then(|| format!("process {pid} is gone"))
            }
        }
    }

    /// Returns the last lines of the server's stderr, or nothing for a server that ran already.
    #[must_use]
    pub fn last_words(&self) -> String {
        self.stderr(Duration::ZERO)
    }

    /// Stops a server that was started here: sends SIGTERM to its group, and SIGKILL once its
    /// leader has ended or after a second. Blocks until the leader has ended. A server that ran
    /// already is left running. A second call does nothing.
    pub fn stop(&mut self) {
        if let Process::Started { group, .. } = &mut self.process {
            group.stop();
            self.successor = None;
        }
    }

    fn stderr(&self, patience: Duration) -> String {
        match &self.process {
            Process::Started { stderr: Some(stderr), .. } => stderr.text(patience),
            _ => String::new(),
        }
    }
}

/// Returns the address in the last line with `listening on`.
fn listening_on(stderr: &str) -> Option<String> {
    let (_, rest) = stderr.rsplit_once("listening on ")?;
    let end = rest.find([',', ' ', '\n']).unwrap_or(rest.len());
    let addr = &rest[..end];
    addr.parse::<SocketAddr>().is_ok_and(|addr| addr.port() != 0).then(|| addr.to_owned())
}

/// Returns a port on which no program listens, and which the kernel will not give to another
/// program soon.
fn free_port() -> io::Result<SocketAddr> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()
}

fn fill_in(word: &str, addr: SocketAddr) -> String {
    let (host, port) = (addr.ip().to_string(), addr.port().to_string());
    let word = word.replace("{addr}", &addr.to_string());
    word.replace("{host}", &host).replace("{port}", &port)
}

/// Connects to the server, and closes the connection.
fn connect(addr: &str, timeout: Duration) -> io::Result<()> {
    if addr.starts_with("unix:") {
        let target: Target = addr.parse().map_err(io::Error::other)?;
        return target.connect(timeout, &mut || true).map(drop);
    }
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for addr in addr.to_socket_addrs()? {
        match TcpStream::connect_timeout(&addr, timeout) {
            // If nobody listens, the kernel may give our socket this very port, and connect it to
            // itself.
            Ok(stream) if stream.local_addr()? == addr => {
                failed = io::ErrorKind::ConnectionRefused.into();
            }
            Ok(_) => return Ok(()),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

pub(crate) fn with_last_words(how: String, stderr: &str) -> String {
    if stderr.is_empty() { how } else { format!("{how}: {stderr}") }
}

#[cfg(test)]
mod tests;
