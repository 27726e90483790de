//! Starts the peers that `catalog.json` names, for tests.

use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;
use std::{env, fs, thread};

use anyhow::{Context, Result, bail, ensure};

// The lab reads the same catalog. A dependency on the lab would bring everything that it measures
// with.
#[path = "../../../lab/src/peers/entry.rs"]
mod entry;

pub use entry::{Idle, Language, Peer as Entry, Service};

/// How long anything may take before a test gives up.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// The workspace's directory.
fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate is in a workspace")
}

/// Returns the whole catalog.
pub fn catalog() -> Result<Vec<Entry>> {
    let text = fs::read_to_string(workspace().join("catalog.json"))?;
    serde_json::from_str(&text).context("catalog.json")
}

/// Returns the entries whose programs exist. Programs in C may be missing. Programs in Rust may
/// not, or the tests would pass without testing anything.
pub fn built() -> Result<Vec<Entry>> {
    let mut found = Vec::new();
    for entry in catalog()? {
        let program = entry.program()?;
        if program.exists() {
            found.push(entry);
        } else if entry.language == Language::Rust {
            bail!("{} is not built: run cargo build with the same profile", program.display());
        } else {
            eprintln!("not built: {}", entry.name);
        }
    }
    Ok(found)
}

/// Returns the path of a program: next to the tests, or in `c/out`. `PEERS_DIR` and `PEERS_C_DIR`
/// override these.
pub fn program(language: Language, name: &str) -> Result<PathBuf> {
    let (variable, default) = match language {
        Language::Rust => {
            let test = env::current_exe()?;
            let profile = test.parent().and_then(Path::parent).context("no directory")?;
            ("PEERS_DIR", profile.to_path_buf())
        }
        Language::C => ("PEERS_C_DIR", workspace().join("c/out")),
    };
    Ok(env::var_os(variable).map_or(default, PathBuf::from).join(name))
}

impl Entry {
    /// Returns the path of the program.
    pub fn program(&self) -> Result<PathBuf> {
        program(self.language, &self.binary)
    }

    /// The command with the flags of this entry.
    pub fn command(&self, args: &[&str]) -> Result<Command> {
        let mut command = Command::new(self.program()?);
        command.args(&self.args).args(args).stdin(Stdio::null());
        Ok(command)
    }

    /// Returns what the program prints before it ends. It must end by itself.
    pub fn output(&self, args: &[&str]) -> Result<Output> {
        let mut child =
            Running(self.command(args)?.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?);
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        for _ in 0..PATIENCE.as_millis() / 10 {
            if let Some(status) = child.0.try_wait()? {
                child.0.stdout.take().context("a pipe")?.read_to_end(&mut stdout)?;
                child.0.stderr.take().context("a pipe")?.read_to_end(&mut stderr)?;
                return Ok(Output { status, stdout, stderr });
            }
            thread::sleep(Duration::from_millis(10));
        }
        bail!("{args:?} does not end")
    }

    /// Starts the peer and waits until it says that it listens.
    pub fn start(&self, listen: &str, service: Service, workers: usize) -> Result<Peer> {
        let workers = workers.to_string();
        let args = ["--listen", listen, "--service", service.flag(), "--workers", &workers];
        let mut child = Running(self.command(&args)?.stderr(Stdio::piped()).spawn()?);
        let stderr = child.0.stderr.take().context("a pipe")?;
        let (sender, lines) = mpsc::channel();
        // Reads to the end, so that the peer never waits for a full pipe.
        thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                sender.send(line).ok();
            }
        });
        let line = lines.recv_timeout(PATIENCE).context("it says nothing")?;
        let addr = line.strip_prefix("listening on ").with_context(|| line.clone())?.to_owned();
        ensure!(listen.ends_with(":0") || addr == listen, "listens on {addr}, not {listen}");
        Ok(Peer { child, addr })
    }

    /// Starts the peer on a TCP port that the kernel chooses.
    pub fn start_tcp(&self, service: Service, workers: usize) -> Result<Peer> {
        let peer = self.start("127.0.0.1:0", service, workers)?;
        ensure!(peer.tcp_addr()?.port() != 0, "it does not say which port it has");
        Ok(peer)
    }
}

/// A process that ends with its test.
#[derive(Debug)]
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// A peer that listens.
#[derive(Debug)]
pub struct Peer {
    child: Running,
    /// The address as the peer printed it.
    pub addr: String,
}

impl Peer {
    /// Returns the process.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child.0
    }

    /// Returns the address of a peer on TCP.
    pub fn tcp_addr(&self) -> Result<SocketAddr> {
        self.addr.parse().context("no IP address")
    }

    /// Opens a connection on which no operation takes for ever.
    pub fn connect(&self) -> Result<TcpStream> {
        let stream = TcpStream::connect_timeout(&self.tcp_addr()?, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    /// Returns the CPU time used so far, in ticks of a hundredth of a second.
    pub fn cpu_ticks(&self) -> Result<u64> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.0.id()))?;
        // The name is in parentheses, and may contain spaces.
        let after = stat.rsplit_once(')').context("no name")?.1;
        let mut fields = after.split_ascii_whitespace().skip(11);
        let mut next = || fields.next().context("too short")?.parse::<u64>().context("a number");
        Ok(next()? + next()?)
    }
}
