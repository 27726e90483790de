//! The servers that are compared. Each is a separate process.

use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout, Command, Stdio};

use wakeful::accept::{AcceptStrategy, Moves, Placement};

use crate::{on_tokio, on_wakeful};

pub const LOOPS: usize = 2;

pub struct Contender {
    pub name: &'static str,
    runtime: Runtime,
}

enum Runtime {
    Wakeful(AcceptStrategy, Connections),
    Tokio,
}

#[derive(PartialEq)]
enum Connections {
    Stay,
    Move,
}

const POWER_OF_TWO: AcceptStrategy = AcceptStrategy::Dispatch(Placement::PowerOfTwoChoices);

pub const CONTENDERS: &[Contender] = &[
    wakeful("exclusive", AcceptStrategy::Exclusive, Connections::Stay),
    wakeful("exclusive, moving", AcceptStrategy::Exclusive, Connections::Move),
    wakeful("reuse-port", AcceptStrategy::ReusePort, Connections::Stay),
    wakeful("reuse-port, moving", AcceptStrategy::ReusePort, Connections::Move),
    wakeful("dispatch by power-of-two", POWER_OF_TWO, Connections::Stay),
    wakeful("dispatch by power-of-two, moving", POWER_OF_TWO, Connections::Move),
    Contender { name: "Tokio, multi-thread", runtime: Runtime::Tokio },
];

const fn wakeful(name: &'static str, strategy: AcceptStrategy, are: Connections) -> Contender {
    Contender { name, runtime: Runtime::Wakeful(strategy, are) }
}

/// Serves until standard input ends.
pub fn serve(name: &str) -> io::Result<()> {
    let found = CONTENDERS.iter().find(|contender| contender.name == name);
    match &found.ok_or_else(|| io::Error::other(format!("no contender {name:?}")))?.runtime {
        Runtime::Wakeful(strategy, connections) => {
            let moves = (*connections == Connections::Move).then(Moves::default);
            on_wakeful::serve(*strategy, moves)
        }
        Runtime::Tokio => on_tokio::serve(),
    }
}

/// Prints the address where the server listens, and waits until it should end.
pub fn until_told(addr: SocketAddr) -> io::Result<()> {
    println!("{addr}");
    io::stdin().read_to_end(&mut Vec::new()).map(drop)
}

/// A contender's process.
pub struct Server {
    process: Child,
    said: BufReader<ChildStdout>,
    pub addr: SocketAddr,
}

impl Server {
    /// Starts the contender. `under` may have the words of a command that runs it.
    pub fn start(name: &str, under: &str) -> io::Result<Self> {
        let program = std::env::current_exe()?;
        let mut words = under.split_whitespace().map(OsStr::new).chain([program.as_os_str()]);
        let mut process = Command::new(words.next().expect("the program is one"))
            .args(words)
            .args(["serve", name])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut said = BufReader::new(process.stdout.take().expect("it is piped"));
        let mut line = String::new();
        said.read_line(&mut line)?;
        let addr = line.trim().parse().map_err(|_| io::Error::other("the server did not start"))?;
        Ok(Self { process, said, addr })
    }

    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Ends the process, and returns what it prints at its end.
    pub fn end(mut self) -> io::Result<String> {
        let mut last = String::new();
        drop(self.process.stdin.take());
        self.said.read_to_string(&mut last)?;
        self.process.wait()?;
        Ok(last.trim().to_owned())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The process has ended, or the measurement has failed.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
