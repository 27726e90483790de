//! The program as a user has it: started, driven, told to end.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

const PROGRAM: &str = env!("CARGO_BIN_EXE_wakeful");
const GUARD: Duration = Duration::from_secs(20);

/// A running server; killed when it is dropped.
struct Server {
    child: Child,
    stderr: BufReader<std::process::ChildStderr>,
    addrs: Vec<String>,
}

impl Server {
    fn start(arguments: &[&str], addrs: usize) -> Self {
        Self::of(Command::new(PROGRAM).arg("serve").args(arguments), addrs)
    }

    /// Waits until it says where it listens.
    fn of(command: &mut Command, addrs: usize) -> Self {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let mut this = Self { child, stderr, addrs: Vec::new() };
        while this.addrs.len() < addrs {
            let line = this.line();
            if let Some(rest) = line.split("listening on ").nth(1) {
                this.addrs.push(rest.split(',').next().unwrap().to_owned());
            }
        }
        this
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        assert!(self.stderr.read_line(&mut line).unwrap() > 0, "it ended early");
        line
    }

    fn until_line_with(&mut self, text: &str) -> String {
        loop {
            let line = self.line();
            if line.contains(text) {
                return line;
            }
        }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.addrs[0]).unwrap();
        stream.set_read_timeout(Some(GUARD)).unwrap();
        stream.set_nodelay(true).unwrap();
        stream
    }

    fn get(&self, path: &str) -> String {
        let mut stream = self.connect();
        write!(stream, "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
        let mut text = Vec::new();
        stream.read_to_end(&mut text).unwrap();
        String::from_utf8(text).unwrap()
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    }

    /// Of all its threads.
    fn cpu_time(&self) -> Duration {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
        let of_task = |task: std::io::Result<std::fs::DirEntry>| {
            let text = std::fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
            text.split(' ').next()?.parse::<u64>().ok()
        };
        Duration::from_nanos(tasks.filter_map(of_task).sum())
    }

    fn wait(&mut self) -> ExitStatus {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(start.elapsed() < GUARD, "it did not end");
            std::thread::yield_now();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The sum of a metric over the loops.
fn of_all_loops(metrics: &str, name: &str) -> u64 {
    let of_loop = |line: &str| {
        let value = line.strip_prefix(name)?.strip_prefix("{loop=")?.rsplit(' ').next()?;
        value.parse::<u64>().ok()
    };
    metrics.lines().filter_map(of_loop).sum()
}

fn frame(payload: &[u8]) -> Vec<u8> {
    [&u32::try_from(payload.len()).unwrap().to_be_bytes(), payload].concat()
}

#[test]
fn work_uses_the_cpu_time_that_it_is_asked_for() {
    let server = Server::start(&["--listen", "127.0.0.1:0", "--idle", "park"], 1);
    assert!(server.get("/healthz").ends_with("ok\n"));
    let before = server.cpu_time();
    for _ in 0..3 {
        assert!(server.get("/cpu/100000").ends_with("used 100000 µs of CPU time\n"));
    }
    let used = server.cpu_time() - before;
    // The kernel may count the last few milliseconds of a thread that still runs later.
    assert!(used >= Duration::from_millis(270), "{used:?}");
}

#[test]
fn http_answers_on_every_path() {
    let server = Server::start(&["--listen", "127.0.0.1:0"], 1);
    assert!(server.get("/").contains("wakeful serve http"));
    assert!(server.get("/healthz").ends_with("ok\n"));
    assert!(server.get("/readyz").ends_with("ready\n"));
    assert!(server.get("/sleep/5").ends_with("slept 5 ms\n"));
    assert!(server.get("/sleep/9999999").starts_with("HTTP/1.1 400"));
    assert!(server.get("/cpu/5").ends_with("used 5 µs of CPU time\n"));
    assert!(server.get("/cpu/100001").starts_with("HTTP/1.1 400"));
    let bytes = server.get("/bytes/100000");
    assert!(bytes.contains("content-length: 100000\r\n"));
    assert_eq!(bytes.split("\r\n\r\n").nth(1).unwrap().len(), 100_000);
    assert!(server.get("/bytes/1073741825").starts_with("HTTP/1.1 400"));
    assert!(server.get("/bytes/x").starts_with("HTTP/1.1 400"));
    assert!(server.get("/missing").starts_with("HTTP/1.1 404"));
    let metrics = server.get("/metrics");
    let turns =
        metrics.lines().find(|line| line.starts_with("wakeful_loop_turns_total{loop=\"0\"}"));
    assert!(turns.unwrap().rsplit(' ').next().unwrap().parse::<u64>().unwrap() > 0);
    assert!(metrics.contains("# TYPE wakeful_loop_poll_duration_seconds histogram\n"), "{metrics}");
    assert!(
        metrics.contains("wakeful_loop_longest_poll_seconds{loop=\"0\",spawned_at=\""),
        "{metrics}"
    );
    assert_eq!(of_all_loops(&metrics, "wakeful_accepts_total"), 12, "{metrics}");
    let mut stream = server.connect();
    stream
        .write_all(b"POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\nconnection: close\r\n\r\nhello")
        .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.ends_with("\r\n\r\nhello"));
}

#[test]
fn a_connection_of_its_age_gets_no_more_requests() {
    let arguments = ["--listen", "127.0.0.1:0", "--max-connection-age", "0.2"];
    let server = Server::start(&arguments, 1);
    let mut stream = server.connect();
    let mut text = String::new();
    while !text.contains("connection: close\r\n") {
        stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
        text.clear();
        while !text.ends_with("ok\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            text.push(byte[0].into());
        }
    }
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
}

#[test]
fn echo_answers_frames_however_they_come() {
    let server = Server::start(&["echo", "--listen", "127.0.0.1:0", "--loops", "1"], 1);
    answers_frames(&server);
}

#[test]
fn a_frontend_has_its_backend_answer() {
    let backend = Server::start(&["echo", "--listen", "127.0.0.1:0", "--loops", "1"], 1);
    let arguments =
        ["echo", "--listen", "127.0.0.1:0", "--loops", "1", "--backend", &backend.addrs[0]];
    let frontend = Server::start(&arguments, 1);
    answers_frames(&frontend);
    // A connection that is open when its backend ends is closed, and so are those that come later.
    let mut open = frontend.connect();
    open.write_all(&frame(b"x")).unwrap();
    open.read_exact(&mut [0; 5]).unwrap();
    drop(backend);
    assert_eq!(open.read(&mut [0; 1]).unwrap_or(0), 0);
    assert_eq!(frontend.connect().read(&mut [0; 1]).unwrap_or(0), 0);
}

#[test]
fn a_frontend_drains_with_an_idle_connection() {
    let backend = Server::start(&["echo", "--listen", "127.0.0.1:0", "--loops", "1"], 1);
    let arguments =
        ["echo", "--listen", "127.0.0.1:0", "--loops", "1", "--backend", &backend.addrs[0]];
    let mut frontend = Server::start(&arguments, 1);
    let mut stream = frontend.connect();
    stream.write_all(&frame(b"x")).unwrap();
    stream.read_exact(&mut [0; 5]).unwrap();
    frontend.signal("-TERM");
    assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0);
    frontend.until_line_with("drained");
    assert!(frontend.wait().success());
}

fn answers_frames(server: &Server) {
    let mut stream = server.connect();
    let expect = |stream: &mut TcpStream, bytes: &[u8]| {
        let mut answer = vec![0; bytes.len()];
        stream.read_exact(&mut answer).unwrap();
        assert!(answer == bytes);
    };
    let one = frame(b"byte by byte");
    one.iter().for_each(|byte| stream.write_all(&[*byte]).unwrap());
    expect(&mut stream, &one);
    let many: Vec<_> =
        (0..1_000_u32).flat_map(|n| frame(&vec![n as u8; n as usize % 50])).collect();
    stream.write_all(&many).unwrap();
    expect(&mut stream, &many);
    // The largest, written whole before anything is read.
    let large = frame(&vec![7; 16 << 20]);
    stream.write_all(&large).unwrap();
    expect(&mut stream, &large);
    stream.write_all(&one).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    expect(&mut stream, &one);
    assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0);
}

#[test]
fn a_frame_that_is_too_long_closes_its_connection_with_a_logged_reason() {
    let mut server = Server::start(&["echo", "--listen", "127.0.0.1:0"], 1);
    let (mut bad, mut good) = (server.connect(), server.connect());
    bad.write_all(&[1, 0, 0, 1]).unwrap();
    assert_eq!(bad.read(&mut [0; 1]).unwrap(), 0);
    let line = server.until_line_with("closing the connection");
    assert!(line.contains("16777217") && line.contains("127.0.0.1:"), "{line}");
    good.write_all(&frame(b"unharmed")).unwrap();
    let mut answer = [0; 12];
    good.read_exact(&mut answer).unwrap();
}

#[test]
fn kv_answers_redis_commands_within_its_limits() {
    let limits = ["--max-memory", "64KiB", "--max-value", "10KiB"];
    let arguments = [&["kv", "--listen", "127.0.0.1:0", "--loops", "2"], &limits[..]].concat();
    let mut server = Server::start(&arguments, 1);
    let mut stream = BufReader::new(server.connect());
    let mut ask = |question: &str| {
        stream.get_mut().write_all(question.as_bytes()).unwrap();
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        line
    };
    assert_eq!(ask("MSET a 1 b 2 c 3\r\n"), "+OK\r\n");
    assert_eq!(ask("EXISTS a b c d\r\n"), ":3\r\n");
    let value = "x".repeat(10_240);
    let refused = (0..100).map(|n| ask(&format!("SET k{n} {value}\r\n"))).find(|a| a != "+OK\r\n");
    assert!(refused.unwrap().starts_with("-OOM command not allowed"));
    assert!(ask("*1\r\n$10241\r\n").starts_with("-ERR Protocol error: invalid bulk length"));
    server.until_line_with("closing the connection");
    server.signal("-TERM");
    server.until_line_with("drained");
    assert!(server.wait().success());
}

#[test]
fn rpc_answers_grpc() {
    let arguments = ["rpc", "--listen", "127.0.0.1:0", "--loops", "2", "--max-message", "1KiB"];
    let mut server = Server::start(&arguments, 1);
    // It is a service of HTTP: that the call is answered shows who answers. (.ci/grpc-clients has
    // real clients.)
    for (path, says) in [("Unary", "\r\n\0\0\0\0\0\r\n"), ("Missing", "grpc-status: 12\r\n")] {
        let mut stream = server.connect();
        let header = format!(
            "POST /wakeful.echo.v1.Echo/{path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/grpc\r\n\
             connection: close\r\ncontent-length: 5\r\n\r\n\0\0\0\0\0"
        );
        stream.write_all(header.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.contains(says), "{answer:?}");
    }
    server.signal("-TERM");
    server.until_line_with("drained");
    assert!(server.wait().success());
}

#[test]
fn several_addresses_and_the_socket_file_goes_at_the_end() {
    let path = std::env::temp_dir().join(format!("wakeful-cli-{}.sock", std::process::id()));
    let unix = format!("unix:{}", path.display());
    let spin = ["echo", "--listen", "127.0.0.1:0", "--listen", &unix, "--loops", "2", "--pin"];
    let mut server = Server::start(&spin, 2);
    assert_eq!(server.addrs[1], unix);
    let mut stream = UnixStream::connect(&path).unwrap();
    stream.write_all(&frame(b"unix")).unwrap();
    let mut answer = [0; 8];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer[..], frame(b"unix"));
    // Somebody listens there: a second server does not take it over.
    let second = Command::new(PROGRAM).args(["serve", "--listen", &unix]).output().unwrap();
    assert_eq!(second.status.code(), Some(1));
    drop(stream);
    server.signal("-INT");
    assert!(server.wait().success());
    assert!(!path.exists());
}

#[test]
fn spinning_serves_too() {
    let server = Server::start(&["--listen", "127.0.0.1:0", "--loops", "1", "--idle", "spin"], 1);
    assert!(server.get("/sleep/1").ends_with("slept 1 ms\n"));
}

#[test]
fn every_way_to_accept_serves_on_all_loops() {
    let placed = |placement| ["--accept", "dispatch", "--placement", placement];
    for (accept, even) in [
        (&["--accept", "exclusive"][..], false),
        (&["--accept", "reuse-port"], false),
        (&["--accept", "dispatch"], false),
        (&placed("round-robin"), true),
        (&placed("random"), false),
        (&placed("least-loaded"), false),
        (&placed("power-of-two"), false),
    ] {
        let arguments = [&["--listen", "127.0.0.1:0", "--loops", "2", "--spread"], accept].concat();
        let mut server = Server::start(&arguments, 1);
        (0..19).for_each(|_| assert!(server.get("/healthz").ends_with("ok\n"), "{accept:?}"));
        let metrics = server.get("/metrics");
        assert_eq!(of_all_loops(&metrics, "wakeful_accepts_total"), 20, "{accept:?}");
        assert_eq!(of_all_loops(&metrics, "wakeful_accept_turned_away_total"), 0, "{accept:?}");
        if even {
            for number in 0..2 {
                let half = format!("wakeful_accepts_total{{loop=\"{number}\"}} 10\n");
                assert!(metrics.contains(&half), "{metrics}");
            }
        }
        server.signal("-TERM");
        assert!(server.wait().success(), "{accept:?}");
    }
}

#[test]
fn term_drains_and_a_second_signal_stops_at_once() {
    let mut server = Server::start(&["--listen", "127.0.0.1:0"], 1);
    let mut busy = server.connect();
    busy.write_all(b"GET /sleep/300 HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    // After the request on its way: the connection is known once this one is answered.
    while of_all_loops(&server.get("/metrics"), "wakeful_connections") != 2 {}
    server.signal("-TERM");
    server.until_line_with("draining");
    let mut text = String::new();
    busy.read_to_string(&mut text).unwrap();
    assert!(text.ends_with("slept 300 ms\n"), "{text}");
    assert!(server.wait().success());

    let mut server = Server::start(&["--listen", "127.0.0.1:0", "--grace", "1000"], 1);
    let mut busy = server.connect();
    busy.write_all(b"GET /sleep/60000 HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    while of_all_loops(&server.get("/metrics"), "wakeful_connections") != 2 {}
    server.signal("-TERM");
    server.until_line_with("draining");
    // At once it is the same one again, as timeout(1) sends it.
    server.signal("-TERM");
    std::thread::sleep(Duration::from_millis(200));
    server.signal("-TERM");
    server.until_line_with("stopped at once by a second signal");
    assert_eq!(server.wait().code(), Some(1));

    let mut server = Server::start(&["--listen", "127.0.0.1:0", "--grace", "0.05"], 1);
    let mut busy = server.connect();
    busy.write_all(b"GET /sleep/60000 HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    while of_all_loops(&server.get("/metrics"), "wakeful_connections") != 2 {}
    server.signal("-TERM");
    server.until_line_with("aborted=1");
    assert!(server.wait().success());
}

#[test]
fn before_it_drains_it_says_that_it_is_not_ready_and_goes_on() {
    let mut server = Server::start(&["--listen", "127.0.0.1:0", "--pre-drain", "1000"], 1);
    assert!(server.get("/readyz").starts_with("HTTP/1.1 200"));
    server.signal("-TERM");
    let start = Instant::now();
    while server.get("/readyz").starts_with("HTTP/1.1 200") {
        assert!(start.elapsed() < GUARD, "it stays ready");
    }
    let text = server.get("/readyz");
    assert!(text.starts_with("HTTP/1.1 503") && text.ends_with("draining\n"), "{text}");
    assert!(server.get("/healthz").ends_with("ok\n"));
    // At once it would be the same one again.
    std::thread::sleep(Duration::from_millis(200));
    server.signal("-TERM");
    server.until_line_with("stopped at once by a second signal");
    assert_eq!(server.wait().code(), Some(1));

    let mut server = Server::start(&["--listen", "127.0.0.1:0", "--pre-drain", "0.1"], 1);
    server.signal("-TERM");
    assert!(server.wait().success());
}

#[test]
fn limits_are_answered_and_counted() {
    let limits = ["--max-body", "8KiB", "--header-timeout", "0.05", "--max-header", "8KiB"];
    let server = Server::start(&[&["--listen", "127.0.0.1:0"][..], &limits].concat(), 1);
    for (request, status) in [
        ("POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 8193\r\n\r\n".to_owned(), "413"),
        ("GET / HTTP/1.1\r\nhost:".to_owned(), "408"),
        (format!("GET / HTTP/1.1\r\nhost: x\r\nx: {}\r\n\r\n", "y".repeat(20_000)), "431"),
    ] {
        let mut stream = server.connect();
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        assert!(text.starts_with(&format!("HTTP/1.1 {status}")), "{text}");
    }
    let start = Instant::now();
    for reason in ["body_too_large", "header_timeout", "header_too_large"] {
        let line = format!("wakeful_http_refused_total{{reason=\"{reason}\"}} 1\n");
        while !server.get("/metrics").contains(&line) {
            assert!(start.elapsed() < GUARD, "never: {line}");
        }
    }
}

#[test]
fn what_cannot_be_served_is_one_line_and_exit_code_1_bad_usage_2() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    for (addr, says) in [
        (taken.as_str(), "in use"),
        ("203.0.113.1:80", "not one of this machine's"),
        ("unix:/no/such/directory/socket", "does not exist"),
        ("unix:/dev/null", "exists"),
    ] {
        let texts = [&[][..], &["--workers", "1"]].map(|workers| {
            let words = [&["serve", "--listen", addr], workers].concat();
            let output = Command::new(PROGRAM).args(words).output().unwrap();
            let text = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(1), "{text}");
            assert_eq!(text.lines().count(), 1, "{text}");
            assert!(text.contains(says) && text.contains(addr), "{text}");
            text
        });
        assert_eq!(texts[0], texts[1], "a master says it as a single process does");
    }
    for usage in [
        &["serve", "--loops", "many"][..],
        &["serve", "--idle", "burn"],
        &["serve", "--accept", "round-robin"],
        &["serve", "--accept", "dispatch", "--placement", "best"],
        &["serve", "--max-cpu", "1.1"],
        &["serve", "--hit-rate", "nan"],
        &["serve", "--max-window", "1s"],
        &["serve", "kv", "--max-memory", "1GB"],
        &["serve", "--target-utilisation", "1"],
        &["serve", "--target-utilisation", "0.5", "--spread"],
        &["serve", "--moves", "1"],
        &["serve", "--moves", "never"],
        &["lab", "sleepy-median", "--parts", "rates,nothing"],
        &["lab", "herd", "--parts", "threads"],
        &["lab", "herd", "--block", "1s"],
        &["lab", "sleepy-median", "--rounds", "0"],
        &["lab", "sleepy-median", "--block", "1ms"],
        &["lab", "echo", "--rounds", "2"],
        &["dance"],
        &[],
    ] {
        let output = Command::new(PROGRAM).args(usage).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{usage:?}");
    }
    let path = format!("unix:/tmp/wakeful-own-{}.sock", std::process::id());
    let own = ["serve", "--accept", "reuse-port", "--listen", &path];
    let output = Command::new(PROGRAM).args(own).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("SO_REUSEPORT") && text.contains(&path), "{text}");
    for (arguments, says) in [
        (&["http", "--idle", "park", "--max-cpu", "0.3"][..], "--max-cpu is for --idle adaptive"),
        (&["http", "--hold-cost", "0.3"], "--hold-cost is for --idle hold, not adaptive"),
        (&["http", "--idle", "hold", "--never-hold"], "--never-hold is for --idle adaptive"),
        (&["http", "--placement", "random"], "needs --accept dispatch"),
        (&["http", "--backend", "127.0.0.1:1"], "unexpected argument '--backend'"),
        (&["http", "--max-memory", "1GiB"], "unexpected argument '--max-memory'"),
        (&["--loops", "1", "echo"], "cannot be used with"),
        (&["kv", "--max-value", "1GiB"], "at most 512MiB"),
        (&["kv", "--max-value", "0"], "at least 64"),
        (&["kv", "--max-memory", "-1"], "--max-memory"),
        (&["kv", "--client-query-buffer-limit", "1KiB"], "at least 1MiB and at most 1GiB"),
        (&["kv", "--client-query-buffer-limit", "8MiB"], "less than --max-value"),
        (&["kv", "--client-query-buffer-limit", "16MiB"], "less than --max-value"),
        (
            &["kv", "--max-value", "2MiB", "--client-query-buffer-limit", "2098175"],
            "less than --max-value",
        ),
        (&["kv", "--stall-timeout", "-1"], "a number of seconds"),
        (
            &["echo", "--backend", "127.0.0.1:1", "--idle-timeout", "1"],
            "cannot be used with --backend",
        ),
        (&["kv", "--spread"], "unexpected argument '--spread'"),
        (&["kv", "--moves", "off"], "unexpected argument '--moves'"),
        (&["echo", "--backend", "127.0.0.1:1", "--moves", "2"], "never move"),
        (&["rpc", "--moves", "2"], "unexpected argument '--moves'"),
        (&["http", "--moves", "0.3"], "1.05 to 1000"),
        (&["http", "--loops", "-1"], "--loops"),
        (&["http", "--grace", "-1"], "a number of seconds"),
    ] {
        let output = Command::new(PROGRAM).arg("serve").args(arguments).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {text}");
        assert!(text.contains(says), "{arguments:?}: {text}");
    }
    let common = [
        "--listen",
        "--loops",
        "--pin",
        "--accept",
        "--placement",
        "--idle",
        "--max-cpu",
        "--grace",
    ];
    for (service, own) in [
        ("http", &["--moves", "--spread", "--target-utilisation", "--admin"][..]),
        ("echo", &["--moves", "--spread", "--target-utilisation", "--backend"]),
        (
            "kv",
            &[
                "--max-memory",
                "--max-value",
                "--client-query-buffer-limit",
                "--max-memory-clients",
                "--max-connections",
                "--idle-timeout",
                "--stall-timeout",
            ],
        ),
        ("rpc", &["--spread", "--target-utilisation", "--max-message", "--admin"]),
    ] {
        let help = Command::new(PROGRAM).args(["serve", service, "--help"]).output().unwrap();
        assert!(help.status.success());
        let text = String::from_utf8(help.stdout).unwrap();
        for flag in common.iter().chain(own) {
            assert!(text.contains(flag), "{service}: {flag}");
        }
    }
    let version = Command::new(PROGRAM).arg("--version").output().unwrap();
    assert!(String::from_utf8(version.stdout).unwrap().starts_with("wakeful "));
}

#[test]
fn rust_log_is_honoured() {
    let path = std::env::temp_dir().join(format!("wakeful-log-{}.sock", std::process::id()));
    let mut command = Command::new(PROGRAM);
    command.env("RUST_LOG", "error").args(["serve", "--listen"]);
    let mut server = Server::of(command.arg(format!("unix:{}", path.display())), 0);
    // It says nothing at this level: an answer tells that it runs, and has its signals caught.
    let start = Instant::now();
    let mut stream = loop {
        match UnixStream::connect(&path) {
            Ok(stream) => break stream,
            Err(error) => assert!(start.elapsed() < GUARD, "{error}"),
        }
    };
    stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
    assert!(stream.read_to_end(&mut Vec::new()).unwrap() > 0);
    server.signal("-TERM");
    assert!(server.wait().success());
    let mut text = String::new();
    server.stderr.read_to_string(&mut text).unwrap();
    assert_eq!(text, "");
}

/// User and system time of a process, in ticks.
fn cpu_ticks(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<_> = stat.rsplit(") ").next().unwrap().split(' ').collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

#[test]
fn out_of_descriptors_it_neither_dies_nor_spins_and_recovers() {
    let mut command = Command::new("sh");
    let start = format!("ulimit -n 40; exec {PROGRAM} serve --listen 127.0.0.1:0 --loops 1");
    command.args(["-c", &start]);
    let mut server = Server::of(&mut command, 1);
    let mut clients: Vec<_> = (0..60).map(|_| server.connect()).collect();
    let line = server.until_line_with("out of descriptors for connections");
    assert!(line.contains("RLIMIT_NOFILE"), "{line}");
    let (before, start) = (cpu_ticks(server.child.id()), Instant::now());
    while start.elapsed() < Duration::from_millis(500) {
        std::thread::sleep(Duration::from_millis(50));
    }
    let used = cpu_ticks(server.child.id()) - before;
    // A spinning loop would use all of them: a tick is 10 ms.
    assert!(used < 15, "{used} ticks in half a second");
    // The first client is served although nobody else gets in.
    clients[0].write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    assert!(clients[0].read(&mut [0; 1024]).unwrap() > 0);
    drop(clients);
    assert!(server.get("/healthz").ends_with("ok\n"));
    server.signal("-TERM");
    let mut rest = String::new();
    server.stderr.read_to_string(&mut rest).unwrap();
    assert!(!rest.contains("out of descriptors"), "said once: {rest}");
    assert!(!rest.contains("accept failed"), "it keeps enough back: {rest}");
}

#[test]
fn curl_speaks_both_versions() {
    let server = Server::start(&["--listen", "127.0.0.1:0"], 1);
    let url = format!("http://{}/healthz", server.addrs[0]);
    for (version, flag) in [("1.1", "--http1.1"), ("2", "--http2-prior-knowledge")] {
        let arguments = ["-sS", "-m", "20", flag, "-w", "%{http_version}", &url];
        match Command::new("curl").args(arguments).output() {
            Ok(output) => {
                let text = String::from_utf8(output.stdout).unwrap();
                assert_eq!(text, format!("ok\n{version}"));
            }
            Err(error) => println!("skipped: curl cannot be run: {error}"),
        }
    }
}

/// Each thread's state, as in `ps`, and how often it has gone to sleep.
fn threads(pid: u32) -> Vec<(char, u64)> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let thread = |task: std::io::Result<std::fs::DirEntry>| {
        // A thread may end meanwhile.
        let status = std::fs::read_to_string(task.unwrap().path().join("status")).ok()?;
        let field = |name| Some(status.lines().find_map(|line| line.strip_prefix(name))?.trim());
        let state = field("State:")?.chars().next()?;
        Some((state, field("voluntary_ctxt_switches:")?.parse().ok()?))
    };
    tasks.filter_map(thread).collect()
}

/// Waits until all threads sleep at one moment: all did at two looks, and none has gone to sleep
/// once more in between. What wakes them then comes from outside.
fn until_all_sleep(pid: u32) {
    let start = Instant::now();
    loop {
        let first = threads(pid);
        if first.iter().all(|(state, _)| *state == 'S') && threads(pid) == first {
            return;
        }
        assert!(start.elapsed() < GUARD, "it does not come to rest: {first:?}");
        std::thread::yield_now();
    }
}

/// The system calls of an echo server, by name, from after its second answer on a connection to
/// its last of so many. What happens once is not among them: at the start and at the end threads
/// talk to each other, in an order that is not the same each time; and a new socket is announced as
/// writable, alone or together with the second request.
fn traced(requests: usize) -> Option<BTreeMap<String, usize>> {
    let log = std::env::temp_dir().join(format!("wakeful-strace-{}", std::process::id()));
    let mut command = Command::new("strace");
    command.args(["-f", "-o"]).arg(&log).arg(PROGRAM);
    command.args(["serve", "echo", "--listen", "127.0.0.1:0", "--loops", "1", "--idle", "park"]);
    // Traced on a busy machine a turn may be slow, and that is reported, by a write.
    command.env("RUST_LOG", "info,wakeful::metrics=off");
    if Command::new("strace")
        .args(["-o", "/dev/null", "true"])
        .status()
        .map_or(true, |s| !s.success())
    {
        return None;
    }
    let mut server = Server::of(&mut command, 1);
    // strace hands a TERM on to nobody: the child is what has to end.
    let children =
        Command::new("pgrep").args(["-P", &server.child.id().to_string()]).output().unwrap();
    let child = String::from_utf8(children.stdout).unwrap();
    // What is left of its start does not fall among the requests.
    until_all_sleep(child.trim().parse().unwrap());
    let mut stream = server.connect();
    let request = frame(&[7; 1024]);
    let mut answer = vec![0; request.len()];
    for _ in 0..requests {
        stream.write_all(&request).unwrap();
        stream.read_exact(&mut answer).unwrap();
    }
    drop(stream);
    assert!(Command::new("kill").args(["-TERM", child.trim()]).status().unwrap().success());
    server.wait();
    let text = std::fs::read_to_string(&log).unwrap();
    std::fs::remove_file(&log).unwrap();
    // `PID NAME(ARGUMENTS) = RESULT`. If another thread's line interrupts a call, the rest of the
    // call is `PID <... NAME resumed>`.
    let lines = text.lines().filter_map(|line| Some(line.split_once(' ')?.1.trim()));
    let calls = lines.filter(|line| !line.starts_with("<...")).filter_map(|l| l.split_once('('));
    let calls: Vec<(&str, &str)> = calls.collect();
    let is_answer = |(name, rest): &(&str, &str)| *name == "sendto" && rest.contains(", 1028, ");
    let answers: Vec<_> = (0..calls.len()).filter(|at| is_answer(&calls[*at])).collect();
    assert_eq!(answers.len(), requests);
    let mut counts = BTreeMap::new();
    for (name, _) in &calls[answers[1] + 1..=answers[requests - 1]] {
        *counts.entry((*name).to_owned()).or_insert(0) += 1;
    }
    Some(counts)
}

#[test]
fn a_request_costs_three_system_calls() {
    let Some(calls) = traced(1_002) else {
        println!("skipped: strace is not installed, or may not trace");
        return;
    };
    let three = ["epoll_pwait", "recvfrom", "sendto"].map(|name| (name.to_owned(), 1_000));
    assert_eq!(calls, BTreeMap::from(three), "for 1,000 requests, all threads together");
}
