//! Loops that have Tokio as their guest, with idle connections, make no system call: `strace` shows
//! it. The server is a process of its own, this program once more.

#[allow(dead_code, reason = "not all of it is needed here")]
#[path = "contract/background.rs"]
mod background;

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use wakeful::LoopGroup;
use wakeful::accept::{Connection, ConnectionServer, SharedListener};

use self::background::LONG;

const IS_SERVER: &str = "WAKEFUL_TEST_SILENT_SERVER";
const QUIET: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

/// Says where it listens, and ends with its standard input.
#[test]
fn server() {
    if std::env::var_os(IS_SERVER).is_none() {
        return;
    }
    let listener = SharedListener::bind(&"127.0.0.1:0".parse().unwrap()).unwrap();
    let addr = listener.socket_addr().unwrap();
    let serving = ConnectionServer::new(vec![listener])
        .group(LoopGroup::builder().loops(2).tokio())
        .on_each_loop(|| async {
            // Timers that wait in both.
            wakeful::spawn(wakeful::time::sleep(HOUR)).detach();
            tokio::spawn(tokio::time::sleep(HOUR));
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
            tokio::spawn(async move { listener.accept().await.map(drop) });
            Ok(())
        })
        .start(|| {
            async |mut connection: Connection| {
                let mut buf = [0];
                while let Ok(1) = connection.stream.read(&mut buf).await {
                    // A task of Tokio answers for each.
                    let byte = tokio::spawn(async move { buf[0] }).await.unwrap();
                    connection.stream.write_all(&[byte]).await.unwrap();
                }
            }
        })
        .unwrap();
    // The harness has begun this line.
    println!("\nlistens on {addr}");
    io::stdin().read_to_end(&mut Vec::new()).unwrap();
    serving.shutdown(LONG).unwrap();
}

fn ask(stream: &mut TcpStream) {
    stream.write_all(b"?").unwrap();
    stream.read_exact(&mut [0]).expect("it is answered");
}

/// Returns the time in the form that `strace -ttt` prints.
fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64()
}

/// `PID TIME call(…`; a call that was resumed began on a line before, and a signal is none.
fn calls_between(trace: &str, from: f64, to: f64) -> Vec<&str> {
    let began = |line: &&str| {
        let mut words = line.split_whitespace();
        let at = words.nth(1).and_then(|time| time.parse::<f64>().ok());
        let is_call = words.next().is_some_and(|what| !what.starts_with(['<', '-', '+']));
        is_call && at.is_some_and(|at| (from..to).contains(&at))
    };
    trace.lines().filter(began).collect()
}

/// Kills the server where the test fails.
struct Ends(Child);

impl Drop for Ends {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

#[test]
fn loops_with_guests_and_idle_connections_make_no_system_call() {
    let works = Command::new("strace").args(["-o", "/dev/null", "true"]).status();
    if !works.is_ok_and(|status| status.success()) {
        println!("skipped: strace is not installed, or may not trace");
        return;
    }
    let log = std::env::temp_dir().join(format!("wakeful-silence-{}", std::process::id()));
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-ttt", "-o"]).arg(&log).arg(std::env::current_exe().unwrap());
    command.args(["--exact", "server", "--nocapture"]).env(IS_SERVER, "1");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut server = Ends(command.spawn().unwrap());
    let mut lines = BufReader::new(server.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    let addr = lines.find_map(|line| Some(line.strip_prefix("listens on ")?.to_owned()));
    let addr: SocketAddr = addr.expect("it says where it listens").parse().unwrap();
    let mut idle: Vec<_> = (0..8).map(|_| TcpStream::connect(addr).unwrap()).collect();
    idle.iter_mut().for_each(|stream| stream.set_read_timeout(Some(LONG)).unwrap());
    // On a busy machine, what the last answers left to do may come late.
    let mut seconds = Vec::new();
    for _ in 0..5 {
        idle.iter_mut().for_each(ask);
        thread::sleep(QUIET / 2);
        let from = now();
        thread::sleep(QUIET);
        seconds.push((from, now()));
    }
    let begun = now();
    ask(&mut idle[0]);
    let ended = now();
    drop(idle);
    drop(server);
    let trace = fs::read_to_string(&log).unwrap();
    fs::remove_file(&log).unwrap();
    assert!(!calls_between(&trace, begun, ended).is_empty(), "strace sees what it does");
    let calls: Vec<_> = seconds.iter().map(|&(from, to)| calls_between(&trace, from, to)).collect();
    let quiet = calls.iter().filter(|calls| calls.is_empty()).count();
    assert!(quiet >= 3, "{calls:#?}");
}
