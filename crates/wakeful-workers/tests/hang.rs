//! A worker that hangs is killed, and one that sleeps or works is not.
//!
//! This program starts itself again as a master. So it has no harness: see `Cargo.toml`.

use std::env;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{ChildStderr, Command, ExitCode, Stdio};
use std::time::Duration;

use wakeful::LoopGroup;
use wakeful::accept::{AcceptStrategy, Connection, ConnectionServer, Serving};
use wakeful::log::LossyWriter;
use wakeful::signal::run_until_terminated_or_failed;
use wakeful_workers::{Master, Reports, Role, StartMethod};

/// How the master that is started starts its workers, and how connections reach them.
const ROLE: &str = "WAKEFUL_TEST_MASTER";
const EXEC: &str = "exec";
const REUSE_PORT: &str = "reuse-port";
/// Is answered with the same, and then has its loop run for ever.
const HANG: u8 = b'h';
/// Is answered with the same, if the master says that this loop is in a turn.
const LOOK: u8 = b'l';

fn main() -> io::Result<ExitCode> {
    if let Ok(role) = env::var(ROLE) {
        let method = if role.contains(EXEC) { StartMethod::Exec } else { StartMethod::Fork };
        let strategy = match role.contains(REUSE_PORT) {
            true => AcceptStrategy::ReusePort,
            false => AcceptStrategy::Exclusive,
        };
        return serve(method, strategy);
    }
    // As a harness answers it: `.ci/contract` asks all programs of tests.
    let is_asked = |option| env::args().any(|argument| argument == option);
    if is_asked("--list") {
        if !is_asked("--ignored") {
            println!("a_worker_that_hangs_is_killed_and_one_that_sleeps_is_not: test");
        }
        return Ok(ExitCode::SUCCESS);
    }
    // Two at a time, because they mostly wait.
    std::thread::scope(|scope| {
        for roles in [["fork", EXEC], [REUSE_PORT, "exec, reuse-port"]] {
            let both = move || roles.map(a_worker_that_hangs_is_killed_and_one_that_sleeps_is_not);
            scope.spawn(both);
        }
    });
    println!("test a_worker_that_hangs_is_killed_and_one_that_sleeps_is_not ... ok");
    Ok(ExitCode::SUCCESS)
}

fn serve(method: StartMethod, strategy: AcceptStrategy) -> io::Result<ExitCode> {
    tracing_subscriber::fmt().with_writer(|| LossyWriter::without_thread(io::stderr())).init();
    let group = LoopGroup::builder().loops(1);
    let master = Master::new(group.clone())
        .listen(["127.0.0.1:0".parse().expect("an address")])
        .strategy(strategy)
        .workers(1)
        .start_method(method)
        .timeout(Duration::from_secs(1));
    let mut worker = match master.run()? {
        Role::Worker(worker) => worker,
        Role::Ended(code) => return Ok(code),
    };
    let listeners = worker.listeners()?;
    let server = ConnectionServer::new(listeners)
        .group(group.heartbeats(worker.heartbeats()).sibling(worker.sibling()));
    run_until_terminated_or_failed(
        || {
            let reports = worker.reports();
            let serving = server.start(move || {
                let reports = reports.clone();
                move |connection| echo(connection, reports.clone())
            })?;
            worker.ready();
            Ok(serving)
        },
        Serving::failure,
        |serving| serving.shutdown(Duration::from_secs(10)),
    )?;
    Ok(ExitCode::SUCCESS)
}

async fn echo(connection: Connection, reports: Reports) {
    let mut stream = connection.stream;
    let mut byte = [0];
    while matches!(stream.read(&mut byte).await, Ok(1)) {
        if byte[0] == HANG && stream.write_all(&byte).await.is_ok() {
            loop {
                std::hint::spin_loop();
            }
        }
        if byte[0] == LOOK && !is_seen_in_turn(reports.clone()) {
            break;
        }
        if stream.write_all(&byte).await.is_err() {
            break;
        }
    }
}

/// Asks on another thread, and blocks this one.
fn is_seen_in_turn(reports: Reports) -> bool {
    let ask = move || wakeful::block_on(reports.loops(Duration::from_secs(60)));
    let all = std::thread::spawn(ask).join().unwrap().unwrap();
    let [worker] = &all[..] else { panic!("one worker: {all:?}") };
    assert_eq!(worker.pid, std::process::id());
    let [this] = &worker.loops[..] else { panic!("one loop: {worker:?}") };
    this.is_awake && this.running.is_some()
}

fn asks(addr: &str, byte: u8) -> io::Result<u8> {
    let mut stream = TcpStream::connect(addr)?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    stream.write_all(&[byte])?;
    let mut answer = [0];
    stream.read_exact(&mut answer)?;
    Ok(answer[0])
}

/// What is after `text` in the next line that has it.
fn behind(log: &mut BufReader<ChildStderr>, text: &str) -> String {
    loop {
        let mut line = String::new();
        assert!(log.read_line(&mut line).unwrap() > 0, "it ended early");
        if let Some((_, rest)) = line.split_once(text) {
            return rest.trim().to_owned();
        }
    }
}

fn a_worker_that_hangs_is_killed_and_one_that_sleeps_is_not(role: &str) {
    let mut command = Command::new(env::current_exe().unwrap());
    command.env(ROLE, role).env("NO_COLOR", "1").stderr(Stdio::piped()).stdin(Stdio::null());
    let mut master = command.spawn().unwrap();
    let mut log = BufReader::new(master.stderr.take().unwrap());
    let addr = behind(&mut log, "master listening on ");
    let addr = addr.split(' ').next().unwrap();
    behind(&mut log, "all workers accept");
    assert_eq!(asks(addr, b'a').unwrap(), b'a');
    // For longer than the time-out, with a connection open and without.
    let idle = TcpStream::connect(addr).unwrap();
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(asks(addr, b'b').unwrap(), b'b');
    drop(idle);
    assert_eq!(asks(addr, LOOK).unwrap(), LOOK);
    // The client of the killed worker sees its end.
    let mut hangs = TcpStream::connect(addr).unwrap();
    hangs.write_all(&[HANG]).unwrap();
    hangs.read_exact(&mut [0]).unwrap();
    // One that comes meanwhile waits for the next worker.
    let mut waits = TcpStream::connect(addr).unwrap();
    waits.write_all(b"w").unwrap();
    hangs.read_exact(&mut [0]).unwrap_err();
    let said = behind(&mut log, ": its loop 0 has been in one turn for ");
    assert!(said.contains("in the task of "), "{said}");
    behind(&mut log, "was killed by signal 9; another one takes its place");
    waits.read_exact(&mut [0]).unwrap();
    assert_eq!(asks(addr, b'c').unwrap(), b'c');
    let term = Command::new("kill").arg(master.id().to_string()).status().unwrap();
    assert!(term.success());
    assert!(master.wait().unwrap().success());
}
