//! A standard error that fails, or that nobody reads, changes nothing for clients and nothing for
//! the end of the program.

mod common;

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, PipeReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use common::{GUARD, PROGRAM};
use rustix::process::{Resource, Rlimit};
use tempfile::TempDir;

/// A service on a Unix socket, because nobody may be able to read on which port it listens.
struct Service {
    child: Child,
    dir: TempDir,
}

impl Service {
    /// `arguments` are the shell's: what stands before the program, the service, and its options.
    fn start(before: &str, service: &str, stderr: Stdio) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let script = format!(
            "{before} exec {PROGRAM} serve {service} --listen unix:{} --loops 1 --idle park",
            dir.path().join("socket").display()
        );
        // A group of its own, so that a test that fails leaves nothing.
        let mut command = Command::new("bash");
        command.args(["-c", &script]).env("RUST_LOG", "trace").process_group(0);
        let child = command.stderr(stderr).spawn().unwrap();
        let this = Self { child, dir };
        let start = Instant::now();
        while UnixStream::connect(this.dir.path().join("socket")).is_err() {
            assert!(start.elapsed() < GUARD, "it does not listen");
            thread::yield_now();
        }
        this
    }

    fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(self.dir.path().join("socket")).unwrap();
        stream.set_read_timeout(Some(GUARD)).unwrap();
        stream
    }

    fn get(&self, path: &str) -> String {
        get(self.connect(), path)
    }

    fn count(&self, name: &str) -> u64 {
        count(|| self.connect(), name)
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    }

    fn end(mut self) -> ExitStatus {
        self.signal("-TERM");
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(start.elapsed() < GUARD, "it does not end");
            thread::yield_now();
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn get(mut stream: UnixStream, path: &str) -> String {
    write!(stream, "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

/// A counter of `/metrics`, once the service has begun to count.
fn count(connect: impl Fn() -> UnixStream, name: &str) -> u64 {
    let start = Instant::now();
    loop {
        let metrics = get(connect(), "/metrics");
        let count = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        if let Some(count) = count {
            return count.parse().unwrap();
        }
        assert!(start.elapsed() < GUARD, "{metrics}");
    }
}

/// A pipe without room for another byte.
fn full_pipe() -> (PipeReader, OwnedFd) {
    let (reader, mut writer) = io::pipe().unwrap();
    rustix::io::ioctl_fionbio(&writer, true).unwrap();
    while writer.write(&[b'\n'; 4096]).is_ok() {}
    rustix::io::ioctl_fionbio(&writer, false).unwrap();
    (reader, writer.into())
}

/// The line that says where it listens comes when clients are served already.
fn until_some_are_dropped(service: &Service) {
    let start = Instant::now();
    while service.count("wakeful_log_dropped_total") == 0 {
        assert!(start.elapsed() < GUARD, "nothing is dropped");
    }
}

fn serves_and_drains(what: &str, service: Service) {
    for _ in 0..20 {
        assert!(service.get("/healthz").ends_with("ok\n"), "{what}");
    }
    assert_eq!(service.end().code(), Some(0), "{what}");
}

#[test]
fn a_closed_stderr_is_harmless() {
    serves_and_drains("closed", Service::start("exec 2>&-;", "http", Stdio::null()));
}

#[test]
fn a_stderr_on_a_full_disk_costs_lines_that_metrics_count() {
    let full = File::options().write(true).open("/dev/full").unwrap();
    let service = Service::start("", "http", full.into());
    until_some_are_dropped(&service);
    assert_eq!(service.count("wakeful_log_written_total"), 0);
    serves_and_drains("/dev/full", service);
}

#[test]
fn a_stderr_whose_reader_is_gone_costs_lines_that_metrics_count() {
    let (reader, writer) = io::pipe().unwrap();
    drop(reader);
    let service = Service::start("", "http", writer.into());
    until_some_are_dropped(&service);
    serves_and_drains("no reader", service);
}

#[test]
fn a_stderr_that_nobody_reads_holds_up_no_request_and_no_drain() {
    for is_nonblocking in [false, true] {
        let (_reader, writer) = full_pipe();
        rustix::io::ioctl_fionbio(&writer, is_nonblocking).unwrap();
        let service = Service::start("", "http", writer.into());
        serves_and_drains("full", service);
    }
}

#[test]
fn lines_that_were_dropped_are_reported_when_the_reader_reads_again() {
    let (reader, writer) = full_pipe();
    let service = Service::start("", "http", writer.into());
    let start = Instant::now();
    while service.count("wakeful_log_dropped_total") == 0 {
        assert!(start.elapsed() < GUARD, "nothing is dropped");
        for _ in 0..20 {
            http2_frames(&service);
        }
    }
    let dropped = service.count("wakeful_log_dropped_total");
    let (tell, reported) = mpsc::channel();
    let reading = thread::spawn(move || {
        let mut last = String::new();
        for line in BufReader::new(reader).lines() {
            last = line.unwrap();
            note(&last).into_iter().for_each(|lines| tell.send(lines).unwrap());
        }
        last
    });
    // Then there is room for the lines of the end.
    let mut sum = 0;
    while sum < dropped {
        sum += reported.recv_timeout(GUARD).expect("all that were dropped are reported");
    }
    assert_eq!(service.end().code(), Some(0));
    let last = reading.join().unwrap();
    assert!(last.ends_with("drained"), "{last}");
}

/// How many lines were dropped, if this line says so.
fn note(line: &str) -> Option<u64> {
    let count = line.strip_prefix("wakeful: ")?.split_once(" log lines were dropped")?.0;
    count.parse().ok()
}

/// h2 logs each of these frames at the level `trace`.
fn http2_frames(service: &Service) {
    const PING: [u8; 17] = [0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
    let mut stream = service.connect();
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").unwrap();
    for _ in 0..20 {
        stream.write_all(&PING).unwrap();
    }
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let _ = stream.read_to_end(&mut Vec::new());
}

#[test]
fn without_descriptors_and_without_a_stderr_later_connections_are_served() {
    let (reader, writer) = io::pipe().unwrap();
    drop(reader);
    let service = Service::start("ulimit -n 40;", "http", writer.into());
    let open: Vec<_> = (0..60).map(|_| service.connect()).collect();
    let start = Instant::now();
    // Of those that it has accepted; the others wait.
    let mut first = &open[0];
    first.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    assert!(first.read(&mut [0; 1024]).unwrap() > 0);
    drop(open);
    assert!(service.get("/healthz").ends_with("ok\n"), "after {:?}", start.elapsed());
    serves_and_drains("ulimit", service);
}

#[test]
fn errors_at_the_start_reach_stderr_also_where_no_thread_can_be_started() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = taken.local_addr().unwrap();
    let serve = format!("exec {PROGRAM} serve --listen {addr}");
    // Any user but root is bound by the number of processes, and a thread counts.
    let no_threads = format!("ulimit -u 1; exec setpriv --reuid 54321 --clear-groups {serve}");
    for script in [serve.replace("exec ", ""), no_threads.replace("exec /", "/")] {
        let output = Command::new("bash").args(["-c", &script]).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        if text.contains("setpriv: ") {
            eprintln!("skipped without threads: it needs root: {text}");
            continue;
        }
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(text.contains("the address is in use"), "{text}");
    }
}

#[test]
fn an_error_of_load_on_a_full_disk_is_no_panic() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = taken.local_addr().unwrap().to_string();
    let full = File::options().write(true).open("/dev/full").unwrap();
    let mut command = Command::new(PROGRAM);
    command.args(["load", "null-server", "--listen", &addr]).stderr(full);
    assert_eq!(command.status().unwrap().code(), Some(1));
}

#[test]
fn what_strangers_send_is_logged_once_a_second_with_a_count() {
    let (reader, writer) = io::pipe().unwrap();
    let service = Service::start("unset RUST_LOG;", "kv", writer.into());
    let start = Instant::now();
    for _ in 0..200 {
        let mut stream = service.connect();
        stream.write_all(b"*1\r\n!bad\r\n").unwrap();
        let _ = stream.read_to_end(&mut Vec::new());
    }
    let seconds = start.elapsed().as_secs() as usize;
    assert!(service.end().success());
    let text = io::read_to_string(reader).unwrap();
    let lines: Vec<_> =
        text.lines().filter(|line| line.contains("closing the connection")).collect();
    assert!((1..=seconds + 1).contains(&lines.len()), "{text}");
    assert!(lines[0].contains("count=1"), "{text}");
}

#[test]
fn a_file_at_its_size_limit_costs_lines_and_the_counts_say_what_is_in_it() {
    let dir = tempfile::tempdir().unwrap();
    let (log, admin) = (dir.path().join("log"), dir.path().join("admin"));
    let options = format!(
        "http --access-log common --access-log-file {} --admin unix:{}",
        log.display(),
        admin.display()
    );
    let service = Service::start("ulimit -S -f 8;", &options, Stdio::null());
    // The operators' requests are not logged.
    let counts = || {
        ["written", "dropped"].map(|what| {
            let name = format!("wakeful_access_log_{what}_total");
            count(|| UnixStream::connect(&admin).unwrap(), &name)
        })
    };
    let ask = |requests: u64, all: u64| {
        for _ in 0..requests {
            assert!(service.get("/healthz").ends_with("ok\n"));
        }
        let start = Instant::now();
        while counts().iter().sum::<u64>() < all {
            assert!(start.elapsed() < GUARD, "{:?}", counts());
        }
        let [written, dropped] = counts();
        assert_eq!(written + dropped, all);
        (written, dropped)
    };
    let (written, dropped) = ask(300, 300);
    let text = fs::read_to_string(&log).unwrap();
    assert_eq!(text.len(), 8192);
    assert!(!text.ends_with('\n'), "the test is for a line that is cut");
    assert_eq!(written, text.matches('\n').count() as u64);
    assert!(dropped > 0);
    // There is room again.
    let pid = rustix::process::Pid::from_child(&service.child);
    let unlimited = Rlimit { current: None, maximum: None };
    rustix::process::prlimit(Some(pid), Resource::Fsize, unlimited).unwrap();
    let (written, dropped) = ask(100, 400);
    assert_eq!(service.end().code(), Some(0));
    let text = fs::read_to_string(&log).unwrap();
    let is_whole = |line: &&str| line.starts_with("unix - - [") && line.ends_with(" 200 3");
    assert_eq!(text.lines().filter(is_whole).count() as u64, written);
    let note = |line: &str| line.strip_prefix("# ")?.split(' ').next()?.parse::<u64>().ok();
    assert_eq!(text.lines().filter_map(note).sum::<u64>(), dropped);
    // And the cut line.
    let others = text.lines().filter(|line| !is_whole(line) && note(line).is_none());
    assert_eq!(others.count(), 1);
}

#[test]
fn an_access_log_that_nobody_reads_holds_up_neither_the_start_nor_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let options = format!("http --access-log json --access-log-file {}", fifo.display());
    let service = Service::start("", &options, Stdio::null());
    let start = Instant::now();
    // From then on it reopens the log by HUP.
    while !service.get("/readyz").ends_with("\nready\n") {
        assert!(start.elapsed() < GUARD, "it is not ready");
    }
    service.signal("-HUP");
    serves_and_drains("fifo", service);
}

/// A worker ends its access log, then its log, and its master ends its own after it.
#[test]
fn logs_that_nobody_reads_hold_up_the_end_of_workers_for_less_than_a_second_each() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    let mut fifo = File::options().read(true).write(true).open(&path).unwrap();
    rustix::io::ioctl_fionbio(&fifo, true).unwrap();
    while fifo.write(&[b'\n'; 4096]).is_ok() {}
    let (_reader, stderr) = full_pipe();
    let options =
        format!("http --workers 1 --access-log json --access-log-file {}", path.display());
    let service = Service::start("", &options, stderr.into());
    // Its line comes at the end of the drain, and waits in the loop's buffer then.
    let last = service.connect();
    (&last).write_all(b"GET /sleep/500 HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    let start = Instant::now();
    while service.count("wakeful_http_requests_in_flight{loop=\"0\"}") < 2 {
        assert!(start.elapsed() < GUARD, "it is not in flight");
    }
    let start = Instant::now();
    assert_eq!(service.end().code(), Some(0));
    assert!(start.elapsed().as_secs() < 3, "{:?}", start.elapsed());
}
