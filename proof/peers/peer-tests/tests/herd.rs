//! The servers of `wakeful lab herd`: each variant answers every connection, counts it once, and
//! shares the socket among its workers.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;

use anyhow::{Context, Result, ensure};
use peer_tests::{Language, PATIENCE, program};
use serde_json::Value;

const VARIANTS: [&str; 5] = ["exclusive", "epoll", "select", "wakeful-park", "wakeful-adaptive"];
const WORKERS: usize = 3;
const CLIENTS: usize = 4;
/// How many connections each client makes on each path.
const CONNECTIONS: usize = 50;

/// A process that is killed when this is dropped.
struct Running {
    child: Child,
    socket: PathBuf,
}

impl Running {
    fn start(variant: &str) -> Result<Self> {
        let file = format!("peer-tests-herd-{}-{variant}", std::process::id());
        let socket = std::env::temp_dir().join(file);
        let mut child = Command::new(program(Language::Rust, "herd")?)
            .args(["--variant", variant, "--workers", &WORKERS.to_string()])
            .arg("--listen")
            .arg(format!("unix:{}", socket.display()))
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        let stderr = child.stderr.take().context("no stderr")?;
        let running = Self { child, socket };
        let mut line = String::new();
        BufReader::new(stderr).read_line(&mut line)?;
        ensure!(line.starts_with("listening on unix:"), "{variant}: {line}");
        Ok(running)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
        std::fs::remove_file(&self.socket).ok();
    }
}

fn get(socket: &Path, path: &str) -> Result<String> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    // The request comes in two parts, so a worker has to wait for the second one.
    write!(stream, "GET {path} HTTP/1.1\r\nHost:")?;
    write!(stream, " herd\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").context("no head")?;
    ensure!(head.starts_with("HTTP/1.1 200 "), "{answer}");
    ensure!(head.contains(&format!("Content-Length: {}", body.len())), "{answer}");
    Ok(body.to_owned())
}

#[test]
fn every_connection_is_answered_and_counted_once() -> Result<()> {
    for variant in VARIANTS {
        let herd = Running::start(variant)?;
        let client = || -> Result<()> {
            for _ in 0..CONNECTIONS {
                let body = get(&herd.socket, "/")?;
                ensure!(body == "hello world", "{variant}: {body}");
                let body = get(&herd.socket, "/cpu/10")?;
                ensure!(body == "used 10 µs of CPU time\n", "{variant}: {body}");
            }
            Ok(())
        };
        thread::scope(|scope| -> Result<()> {
            let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(client)).collect();
            clients.into_iter().try_for_each(|client| client.join().expect("it does not panic"))
        })?;
        let counts: Vec<Value> = serde_json::from_str(&get(&herd.socket, "/counts")?)?;
        let sum = |name: &str| counts.iter().map(|one| one[name].as_u64()).sum::<Option<u64>>();
        let accepts = sum("accepts").context("no accepts")?;
        ensure!(counts.len() == WORKERS, "{variant}: {counts:?}");
        ensure!(accepts == (CLIENTS * 2 * CONNECTIONS + 1) as u64, "{variant}: {counts:?}");
        let waits = sum("returns").zip(sum("in_vain"));
        if variant.starts_with("wakeful") {
            ensure!(waits.is_none(), "nobody counts these: {counts:?}");
        } else {
            let (returns, in_vain) = waits.context("no waits")?;
            // Each of the other workers may be between the two counts: the last connection may have
            // woken it.
            let apart = returns.abs_diff(accepts + in_vain);
            ensure!(apart < WORKERS as u64, "{variant}: {counts:?}");
        }
    }
    Ok(())
}

#[test]
fn a_tcp_address_is_refused_because_nothing_would_be_shared() -> Result<()> {
    let output = Command::new(program(Language::Rust, "herd")?)
        .args(["--listen", "127.0.0.1:0"])
        .stdin(Stdio::null())
        .output()?;
    let text = String::from_utf8(output.stderr)?;
    ensure!(output.status.code() == Some(1) && text.contains("unix:PATH"), "{text}");
    Ok(())
}
