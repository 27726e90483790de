//! A PostgreSQL and a Redis of a test's own, in a directory that goes with them.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use rustix::process::Signal;

use crate::process::{Ended, of_this_thread, set_up, signal};
use crate::{free_addr, until};

/// A PostgreSQL server.
pub struct Postgres {
    addr: SocketAddr,
    server: Ended,
    _directory: TempDir,
}

impl Postgres {
    /// Starts one, with an empty database.
    pub async fn start() -> Self {
        let (directory, addr) = (TempDir::new().expect("a temporary directory"), free_addr());
        let data = directory.path().join("data");
        // If this thread ends, so does it, at once and with its shared memory.
        let mut options = vec!["--pdeathsig", "QUIT"];
        // PostgreSQL refuses to run as root: `nobody` has it then.
        if rustix::process::geteuid().is_root() {
            options.extend(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
            chown(directory.path(), Some(65534), Some(65534)).expect("to be root");
        }
        let programs = postgres_programs();
        let init = set_up(&options, programs.join("initdb"))
            .args(["--no-sync", "--auth", "trust", "--username", "postgres", "--pgdata"])
            .arg(&data)
            .current_dir(directory.path())
            .output()
            .expect("initdb");
        assert!(init.status.success(), "initdb: {}", String::from_utf8_lossy(&init.stderr));
        let log = fs::File::create(directory.path().join("log")).expect("a file");
        let server = set_up(&options, programs.join("postgres"))
            .arg("-D")
            .arg(&data)
            .args(["-h", "127.0.0.1", "-p", &addr.port().to_string()])
            .args(["-c", "unix_socket_directories=", "-c", "fsync=off"])
            .current_dir(directory.path())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("postgres");
        let this = Self { addr, server: Ended(server), _directory: directory };
        until("PostgreSQL is ready", async || {
            let port = addr.port().to_string();
            let mut ready = Command::new(programs.join("pg_isready"));
            let ready = ready.args(["-q", "-h", "127.0.0.1", "-p", &port]).status();
            ready.expect("pg_isready").success().then_some(())
        })
        .await;
        this
    }

    /// Asks it by `psql`; the rows are lines.
    pub fn query(&self, query: &str) -> String {
        let psql = Command::new("psql").args(["-X", "-A", "-t", &self.url(), "-c", query]).output();
        let psql = psql.expect("psql of PostgreSQL's client");
        assert!(psql.status.success(), "{query}: {}", String::from_utf8_lossy(&psql.stderr));
        String::from_utf8(psql.stdout).expect("rows in UTF-8")
    }

    /// For `DATABASE_URL`.
    pub fn url(&self) -> String {
        format!("postgres://postgres@{}/postgres", self.addr)
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // At once, and its own children with it.
        signal(&self.server.0, Signal::QUIT);
        let _ = self.server.0.wait();
    }
}

/// Where `initdb` and `postgres` are: Debian does not have them in the path.
fn postgres_programs() -> PathBuf {
    let in_path = std::env::var_os("PATH").into_iter().flat_map(|path| {
        std::env::split_paths(&path).map(|dir| dir.join("postgres")).collect::<Vec<_>>()
    });
    let of_debian = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let of_debian = of_debian.map(|version| version.path().join("bin/postgres"));
    let found = in_path.chain(of_debian).filter_map(|program| program.canonicalize().ok()).next();
    let found = found.expect("PostgreSQL: `apt-get install postgresql`");
    found.parent().map(Path::to_path_buf).expect("a file in a directory")
}

/// A Redis server.
pub struct Redis {
    addr: SocketAddr,
    _server: Ended,
    _directory: TempDir,
}

impl Redis {
    /// Starts one that keeps nothing on disk.
    pub async fn start() -> Self {
        let (directory, addr) = (TempDir::new().expect("a temporary directory"), free_addr());
        let server = of_this_thread("redis-server")
            .args(["--bind", "127.0.0.1", "--port", &addr.port().to_string()])
            .args(["--save", "", "--appendonly", "no", "--dir"])
            .arg(directory.path())
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server: `apt-get install redis-server`");
        let this = Self { addr, _server: Ended(server), _directory: directory };
        until("Redis is ready", async || {
            let mut stream = TcpStream::connect(addr).await.ok()?;
            stream.write_all(b"PING\r\n").await.ok()?;
            let mut answer = [0; 7];
            stream.read_exact(&mut answer).await.ok()?;
            (&answer == b"+PONG\r\n").then_some(())
        })
        .await;
        this
    }

    /// Gives it a command by `redis-cli`.
    pub fn command(&self, command: &[&str]) -> String {
        let port = self.addr.port().to_string();
        let answer = Command::new("redis-cli").args(["-p", &port]).args(command).output();
        let answer = answer.expect("redis-cli of Redis");
        assert!(answer.status.success(), "{command:?}: {answer:?}");
        String::from_utf8(answer.stdout).expect("an answer in UTF-8")
    }

    /// For `REDIS_URL`.
    pub fn url(&self) -> String {
        format!("redis://{}", self.addr)
    }
}
