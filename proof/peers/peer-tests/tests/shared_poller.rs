//! The shared poller, and the same service on loops: it answers in order, however requests arrive
//! and whichever thread has them, and it refuses anything that is not a command.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::thread;

use anyhow::{Context, Result, ensure};
use peer_tests::{Language, PATIENCE, program};

const PROGRAMS: [&str; 2] = ["shared-poller", "owned-sockets"];

struct Server {
    child: Child,
    addr: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

impl Server {
    fn start(name: &str) -> Result<Self> {
        let mut command = Command::new(program(Language::Rust, name)?);
        command.args(["--listen", "127.0.0.1:0", "--workers", "3"]);
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn()?;
        let mut line = String::new();
        BufReader::new(child.stderr.take().context("a pipe")?).read_line(&mut line)?;
        let addr = line.trim_end().strip_prefix("listening on ").context(line.clone())?.to_owned();
        Ok(Self { child, addr })
    }

    fn connect(&self) -> Result<TcpStream> {
        let stream = TcpStream::connect(&self.addr)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(stream)
    }
}

fn set_and_get(client: usize, number: usize) -> (String, String) {
    let (key, value) = (format!("{client}-{}", number % 7), format!("{number:1000}"));
    let length = key.len();
    let set = format!("*3\r\n$3\r\nSET\r\n${length}\r\n{key}\r\n$1000\r\n{value}\r\n");
    let get = format!("*2\r\n$3\r\nGET\r\n${length}\r\n{key}\r\n");
    (set + &get, format!("+OK\r\n$1000\r\n{value}\r\n"))
}

#[test]
fn pipelines_of_several_clients_are_answered_in_order() -> Result<()> {
    PROGRAMS.into_iter().try_for_each(pipelines)
}

fn pipelines(program: &str) -> Result<()> {
    let server = Server::start(program)?;
    thread::scope(|scope| {
        let clients: Vec<_> = (0..8)
            .map(|client| {
                let server = &server;
                scope.spawn(move || -> Result<()> {
                    let mut stream = server.connect()?;
                    for first in (0..400).step_by(20) {
                        let batch: Vec<_> =
                            (first..first + 20).map(|number| set_and_get(client, number)).collect();
                        let asked: String = batch.iter().map(|(asked, _)| asked.as_str()).collect();
                        let expected: String = batch.iter().map(|(_, it)| it.as_str()).collect();
                        // The pieces end anywhere.
                        for piece in asked.as_bytes().chunks(777 + client) {
                            stream.write_all(piece)?;
                        }
                        let mut came = vec![0; expected.len()];
                        stream.read_exact(&mut came)?;
                        ensure!(came == expected.as_bytes(), "client {client}, from {first}");
                    }
                    Ok(())
                })
            })
            .collect();
        clients.into_iter().try_for_each(|client| client.join().expect("no panic"))
    })
}

#[test]
fn a_client_that_reads_late_gets_everything() -> Result<()> {
    PROGRAMS.into_iter().try_for_each(reads_late)
}

fn reads_late(program: &str) -> Result<()> {
    let server = Server::start(program)?;
    let mut stream = server.connect()?;
    let (set, _) = set_and_get(0, 0);
    stream.write_all(set.as_bytes())?;
    let mut answer = vec![0; "+OK\r\n$1000\r\n\r\n".len() + 1000];
    stream.read_exact(&mut answer)?;
    let gets = "*2\r\n$3\r\nGET\r\n$3\r\n0-0\r\n".repeat(20_000);
    let mut writer = stream.try_clone()?;
    let writing = thread::spawn(move || writer.write_all(gets.as_bytes()));
    let one = &answer[5..];
    let mut came = vec![0; one.len()];
    for number in 0..20_000 {
        stream.read_exact(&mut came)?;
        ensure!(came == one, "answer {number}");
    }
    writing.join().expect("no panic")?;
    Ok(())
}

#[test]
fn what_is_no_command_ends_the_connection_with_an_error() -> Result<()> {
    PROGRAMS.into_iter().try_for_each(no_command)
}

fn no_command(program: &str) -> Result<()> {
    let server = Server::start(program)?;
    let mut stream = server.connect()?;
    stream.write_all(b"hello\r\n")?;
    let mut said = String::new();
    stream.read_to_string(&mut said)?;
    ensure!(said.starts_with("-ERR Protocol error"), "{said}");
    Ok(())
}
