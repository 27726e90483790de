//! `wakeful serve --workers`: a master and its workers, by their signals.
//!
//! `executed_workers.rs` runs all of it with `--exec`.

pub(crate) mod common;
#[path = "workers/operators.rs"]
mod operators;
#[path = "workers/reuse_port.rs"]
mod reuse_port;

use std::collections::BTreeSet;
use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, BufRead, BufReader, ErrorKind, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, symlink};
use std::os::unix::net::{self as unix, UnixDatagram, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::{GUARD, PROGRAM, Service, get, in_namespace};
use nix::sys::ptrace;
use nix::sys::wait::waitpid;
use nix::unistd::Pid;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::process::{Resource, Rlimit, getrlimit, prlimit};
use rustix::pty::{self, OpenptFlags};
use rustix::termios::{self, Winsize};
use tempfile::TempDir;
use wakeful::accept::SharedListener;

const AT_ANY_PORT: [&str; 2] = ["--listen", "127.0.0.1:0"];

/// All workers have one socket, or each its own.
const STRATEGIES: [[&str; 2]; 2] = [["--accept", "exclusive"], ["--accept", "reuse-port"]];

/// How a master starts its workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Method {
    Fork,
    Exec,
}

/// In this program of tests.
const METHOD: Method = match env!("CARGO_CRATE_NAME").as_bytes() {
    b"executed_workers" => Method::Exec,
    _ => Method::Fork,
};

/// A master that runs, and the ones that succeed it. All are killed when it is dropped.
pub(crate) struct Master {
    pub(crate) first: Child,
    directory: TempDir,
    /// To be killed too: they may outlive their master.
    orphans: BTreeSet<u32>,
}

impl Master {
    fn start(arguments: &[&str]) -> Self {
        Self::start_by(Command::new(PROGRAM), arguments)
    }

    fn start_by(command: Command, arguments: &[&str]) -> Self {
        Self::start_as(METHOD, command, arguments)
    }

    pub(crate) fn start_as(method: Method, command: Command, arguments: &[&str]) -> Self {
        let mut this = Self::launch_by(method, command, arguments, Stdio::null());
        this.waits_for("all workers accept", 1);
        this
    }

    /// It need not get anywhere.
    fn launch(command: Command, arguments: &[&str]) -> Self {
        Self::launch_with(command, arguments, Stdio::null())
    }

    fn launch_with(command: Command, arguments: &[&str], stdin: Stdio) -> Self {
        Self::launch_by(METHOD, command, arguments, stdin)
    }

    fn launch_by(method: Method, mut command: Command, arguments: &[&str], stdin: Stdio) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let log = OpenOptions::new().create(true).append(true).open(directory.path().join("log"));
        command.args(["serve", "http", "--idle", "park"]).args(arguments);
        if !arguments.contains(&"--loops") {
            command.args(["--loops", "1"]);
        }
        if method == Method::Exec {
            command.arg("--exec");
        }
        command
            .arg("--pid-file")
            .arg(directory.path().join("pid"))
            .stdin(stdin)
            .stdout(Stdio::null());
        command.env_remove("NOTIFY_SOCKET").env_remove("LISTEN_FDS").env("RUST_LOG", "info");
        command.stderr(log.unwrap());
        let first = loop {
            match command.spawn() {
                // Another test has forked while this one's copy of the program was being written.
                Err(error) if error.kind() == ErrorKind::ExecutableFileBusy => thread::yield_now(),
                spawned => break spawned.unwrap(),
            }
        };
        Self { first, directory, orphans: BTreeSet::new() }
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap()
    }

    fn pid_file(&self) -> PathBuf {
        self.directory.path().join("pid")
    }

    /// The master in charge.
    pub(crate) fn pid(&self) -> u32 {
        fs::read_to_string(self.pid_file()).unwrap().trim().parse().unwrap()
    }

    pub(crate) fn signal(&self, name: &str) {
        signal(self.pid(), name);
    }

    pub(crate) fn waits_for(&mut self, text: &str, times: usize) {
        self.waits_until(|this| this.log().matches(text).count() >= times, text);
    }

    pub(crate) fn waits_until(&mut self, is_so: impl Fn(&Self) -> bool, what: &str) {
        let start = Instant::now();
        while !is_so(self) {
            assert!(start.elapsed() < GUARD, "not {what}:\n{}", self.log());
            thread::sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn addr(&self) -> String {
        let log = self.log();
        let line = log.lines().find(|line| line.contains("master listening on ")).unwrap();
        let rest = line.split_once("master listening on ").unwrap().1;
        rest.split(' ').next().unwrap().to_owned()
    }

    /// Returns its children, except a successor that starts.
    pub(crate) fn workers(&self) -> BTreeSet<u32> {
        let pid = self.pid();
        let told = format!("WAKEFUL_SUCCEEDS=from {pid}\n");
        let is_successor = |child: &u32| {
            fs::read(format!("/proc/{child}/environ"))
                .is_ok_and(|all| all.windows(told.len()).any(|part| part == told.as_bytes()))
        };
        children(pid).into_iter().filter(|child| !is_successor(child)).collect()
    }

    /// Waits for the end of the process that was started. Returns its status and its output.
    fn ended(mut self) -> (ExitStatus, String) {
        let start = Instant::now();
        loop {
            if let Some(status) = self.first.try_wait().unwrap() {
                return (status, self.log());
            }
            assert!(start.elapsed() < GUARD, "it does not end:\n{}", self.log());
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Master {
    fn drop(&mut self) {
        let in_charge = fs::read_to_string(self.pid_file()).ok();
        let in_charge = in_charge.and_then(|text| text.trim().parse().ok());
        for pid in [Some(self.first.id()), in_charge].into_iter().flatten() {
            for pid in children(pid).into_iter().chain([pid]) {
                self.orphans.insert(pid);
            }
        }
        for pid in self.orphans.iter().filter(|pid| is_ours(**pid)) {
            signal(*pid, "KILL");
        }
        let _ = self.first.wait();
        if thread::panicking() {
            eprintln!("{}", self.log());
        }
    }
}

/// Is this process ours, and not another process that has the number now?
fn is_ours(pid: u32) -> bool {
    fs::read(format!("/proc/{pid}/cmdline"))
        .is_ok_and(|line| line.windows(10).any(|w| w == b"--pid-file"))
}

/// Has each of its threads ended? Until then it may have its descriptors, and be woken by them.
fn has_closed_all(pid: u32) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return true };
    threads.flatten().all(|thread| {
        let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        // The state comes after the name, which is in parentheses.
        stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['Z', 'X']))
    })
}

pub(crate) fn children(pid: u32) -> BTreeSet<u32> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_whitespace().map(|number| number.parse().unwrap()).collect()
}

pub(crate) fn signal(pid: u32, name: &str) {
    let _ = Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status().unwrap();
}

pub(crate) fn with(more: &[&'static str]) -> Vec<&'static str> {
    [&AT_ANY_PORT[..], more].concat()
}

/// Asks for `/healthz` on this connection. `Ok(false)`: the answer was the connection's last.
/// `Err`: no whole answer came.
fn asks(stream: &mut (impl Read + Write)) -> Result<bool, String> {
    let said = |error: std::io::Error| error.to_string();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n").map_err(said)?;
    let (mut answer, mut piece) = (Vec::new(), [0; 4096]);
    while !answer.ends_with(b"\r\n\r\nok\n") {
        match stream.read(&mut piece) {
            Ok(0) => return Err(format!("closed after {answer:?}")),
            Ok(read) => answer.extend_from_slice(&piece[..read]),
            // A machine that is suspended interrupts a read that has a limit of time.
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(said(error)),
        }
    }
    let answer = String::from_utf8(answer).unwrap().to_ascii_lowercase();
    assert!(answer.starts_with("http/1.1 200"), "{answer}");
    Ok(!answer.contains("connection: close"))
}

fn guarded(stream: TcpStream) -> io::Result<TcpStream> {
    stream.set_read_timeout(Some(GUARD))?;
    Ok(stream)
}

/// A Unix socket, in a directory that is removed at the end, or with an abstract name.
enum UnixSocket {
    File(TempDir),
    Abstract(String),
}

impl UnixSocket {
    fn kinds() -> [Arc<Self>; 2] {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("wakeful-test-{}-{number}", std::process::id());
        [Self::File(tempfile::tempdir().unwrap()), Self::Abstract(name)].map(Arc::new)
    }

    fn connect(&self) -> io::Result<UnixStream> {
        let stream = match self {
            Self::File(directory) => UnixStream::connect(directory.path().join("socket"))?,
            Self::Abstract(name) => {
                UnixStream::connect_addr(&unix::SocketAddr::from_abstract_name(name)?)?
            }
        };
        stream.set_read_timeout(Some(GUARD))?;
        Ok(stream)
    }
}

/// The argument of `--listen`.
impl fmt::Display for UnixSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(directory) => write!(f, "unix:{}/socket", directory.path().display()),
            Self::Abstract(name) => write!(f, "unix:@{name}"),
        }
    }
}

/// Clients, some on kept connections and some with a connection for each request, until they are
/// told to stop. Returns how many requests were answered.
struct Clients {
    stop: Arc<AtomicBool>,
    threads: Vec<thread::JoinHandle<usize>>,
}

impl Clients {
    fn start(addr: &str) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let client = |requests: usize| {
            let (stop, addr) = (stop.clone(), addr.to_owned());
            thread::spawn(move || {
                let mut answered = 0;
                while !stop.load(Ordering::Relaxed) {
                    let mut stream = TcpStream::connect(&addr).expect("a connect is refused");
                    stream.set_read_timeout(Some(GUARD)).unwrap();
                    for number in 0..requests {
                        match asks(&mut stream) {
                            Ok(true) => answered += 1,
                            Ok(false) => {
                                answered += 1;
                                break;
                            }
                            // The server may close a connection on which nothing happens in the
                            // moment in which the client begins, as HTTP/1.1 says; it must not be
                            // the first request on it.
                            Err(_) if number > 0 => break,
                            Err(error) => panic!("a request is lost: {error}"),
                        }
                    }
                }
                answered
            })
        };
        let threads = [1, 1, 200, 200].into_iter().map(client).collect();
        Self { stop, threads }
    }

    fn end(self) -> usize {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    }
}

#[test]
fn reloads_scalings_and_upgrades_lose_no_request() {
    STRATEGIES.iter().for_each(reload_scale_and_upgrade);
}

fn reload_scale_and_upgrade(accept: &[&'static str; 2]) {
    let mut master = Master::start(&with(&[&["--workers", "2"], &accept[..]].concat()));
    let addr = master.addr();
    let clients = Clients::start(&addr);
    let mut whole = 1;
    for _ in 0..5 {
        let before = master.workers();
        master.signal("HUP");
        whole += 1;
        master.waits_for("all workers accept", whole);
        master.waits_until(|this| this.workers().is_disjoint(&before), "replaced");
        assert_eq!(master.workers().len(), 2);
        master.signal("TTIN");
        master.waits_until(|this| this.workers().len() == 3, "more");
        master.signal("TTOU");
        master.waits_until(|this| this.workers().len() == 2, "fewer");
        let before = master.pid();
        master.signal("USR2");
        whole += 1;
        master.waits_for("all workers accept", whole);
        master.waits_until(|this| this.pid() != before, "in charge");
        master.waits_until(|_| children(before).is_empty(), "drained");
    }
    assert!(clients.end() > 0);
    let in_charge = master.pid();
    signal(in_charge, "TERM");
    master.waits_until(|this| !this.pid_file().exists(), "ended");
    let (status, log) = master.ended();
    assert!(status.success(), "{log}");
    assert!(!log.contains("ERROR"), "{log}");
}

#[test]
fn who_comes_while_all_end_is_answered_or_refused() {
    for program in [|| Command::new(PROGRAM), without_filters] {
        for accept in STRATEGIES {
            let arguments = with(&[&["--workers", "2"], &accept[..]].concat());
            let master = Master::start_by(program(), &arguments);
            let addr = master.addr();
            come_while_all_end(master, move || guarded(TcpStream::connect(&addr)?));
        }
    }
}

/// The program without CAP_NET_ADMIN: newer kernels then refuse filters of TCP sockets.
fn without_filters() -> Command {
    if !rustix::process::geteuid().is_root() {
        return Command::new(PROGRAM);
    }
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set", "-net_admin", PROGRAM]);
    command
}

#[test]
fn who_comes_at_a_unix_socket_while_all_end_is_answered_or_refused() {
    for socket in UnixSocket::kinds() {
        let master = Master::start(&["--listen", &socket.to_string(), "--workers", "2"]);
        come_while_all_end(master, move || socket.connect());
    }
}

fn come_while_all_end<S: Read + Write>(
    mut master: Master,
    connect: impl Fn() -> io::Result<S> + Clone + Send + 'static,
) {
    let clients: Vec<_> = (0..32)
        .map(|_| {
            let connect = connect.clone();
            thread::spawn(move || {
                let mut answered = 0;
                loop {
                    let Ok(mut stream) = connect() else { break answered };
                    asks(&mut stream).expect("who is let in is answered");
                    answered += 1;
                }
            })
        })
        .collect();
    thread::sleep(Duration::from_millis(100));
    let pid = master.pid();
    master.signal("TERM");
    master.waits_until(|_| !is_ours(pid), "ended");
    assert!(clients.into_iter().map(|client| client.join().unwrap()).sum::<usize>() > 0);
}

/// A manager that ends all processes of a service may signal the workers first.
#[test]
fn who_comes_when_no_worker_accepts_any_more_and_the_master_ends_is_answered() {
    // With 1 s the sockets would stay open after the workers' end.
    for (name, pre_drain) in [("TERM", "0"), ("KILL", "0"), ("TERM", "1"), ("KILL", "1")] {
        let more = ["--workers", "2", "--pre-drain", pre_drain];
        let master = Master::start(&with(&more));
        let addr = master.addr();
        come_when_no_worker_accepts(master, name, || guarded(TcpStream::connect(&addr)?));
        for socket in UnixSocket::kinds() {
            let at = socket.to_string();
            let master = Master::start(&[&["--listen", &at], &more[..]].concat());
            come_when_no_worker_accepts(master, name, || socket.connect());
        }
    }
}

fn come_when_no_worker_accepts<S: Read + Write>(
    mut master: Master,
    name: &str,
    connect: impl Fn() -> io::Result<S>,
) {
    let workers = master.workers();
    // It hears of all that at once.
    master.signal("STOP");
    workers.iter().for_each(|pid| signal(*pid, name));
    master.waits_until(|_| workers.iter().all(|pid| has_closed_all(*pid)), "over");
    let clients: Vec<_> = (0..8).map(|_| connect().unwrap()).collect();
    master.signal("TERM");
    master.signal("CONT");
    for mut client in clients {
        asks(&mut client).expect("who is let in is answered");
    }
    let (status, log) = master.ended();
    assert!(status.success(), "{log}");
}

/// A Unix socket that lets nobody in looks as if somebody waited.
#[test]
fn no_worker_is_started_at_the_end_for_a_unix_socket_where_nobody_waits() {
    for socket in UnixSocket::kinds() {
        let master = Master::start(&["--listen", &socket.to_string(), "--workers", "2"]);
        let mut client = socket.connect().unwrap();
        assert_eq!(asks(&mut client), Ok(true));
        master.signal("TERM");
        let (status, log) = master.ended();
        assert!(status.success(), "{log}");
        assert_eq!(log.matches("has ended").count(), 2, "{log}");
    }
}

/// There is nobody else for whom they could wait.
#[test]
fn who_waits_at_the_limit_of_connections_while_all_end_is_answered() {
    let limits = ["--workers", "2", "--max-connections", "1"];
    for accept in STRATEGIES {
        let mut master = Master::start(&with(&[&limits[..], &accept].concat()));
        let addr = master.addr();
        ends_while_they_wait(&mut master, || TcpStream::connect(&addr).unwrap());
    }
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("socket");
    let addr = format!("unix:{}", socket.display());
    let mut master = Master::start(&[&["--listen", &addr], &limits[..]].concat());
    ends_while_they_wait(&mut master, || UnixStream::connect(&socket).unwrap());
}

fn ends_while_they_wait<S: Read + Write>(master: &mut Master, connect: impl Fn() -> S) {
    let ask = |_| {
        let mut client = connect();
        client.write_all(b"GET /sleep/30 HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
        client
    };
    // Two of them are accepted.
    let clients: Vec<_> = (0..10).map(ask).collect();
    let pid = master.pid();
    master.signal("TERM");
    for mut client in clients {
        let mut answer = String::new();
        client.read_to_string(&mut answer).expect("who is let in is answered");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    master.waits_until(|_| !is_ours(pid), "ended");
}

#[test]
fn a_worker_that_dies_is_replaced_and_a_term_of_its_own_drains_it() {
    let mut master = Master::start(&with(&["--workers", "2"]));
    for name in ["KILL", "ABRT", "TERM"] {
        let before = master.workers();
        signal(*before.first().unwrap(), name);
        let is_replaced = |this: &Master| {
            let now = this.workers();
            now.len() == 2 && now.intersection(&before).count() == 1
        };
        master.waits_until(is_replaced, "replaced");
        assert!(get(&master.addr(), "/healthz").ends_with("ok\n"));
    }
    assert!(master.log().contains("was killed by signal 9; another one takes its place"));
}

#[test]
fn a_worker_that_cannot_serve_leaves_the_old_ones_and_says_why() {
    let files = tempfile::tempdir().unwrap();
    let (certificate, key) = (files.path().join("cert.pem"), files.path().join("key.pem"));
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    fs::write(&certificate, made.cert.pem()).unwrap();
    fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let paths = [certificate.to_str().unwrap(), key.to_str().unwrap()];
    let tls = ["--workers", "2", "--tls-cert", paths[0], "--tls-key", paths[1]];
    let mut master = Master::start(&[&AT_ANY_PORT[..], &tls].concat());
    let before = master.workers();
    fs::write(&certificate, "nothing").unwrap();
    master.signal("HUP");
    master.waits_for("before it accepted: the old workers continue", 1);
    assert_eq!(master.workers(), before);
    let log = master.log();
    assert!(
        log.lines().any(|line| line.contains("cert.pem") && line.starts_with("wakeful:")),
        "{log}"
    );
    fs::write(&certificate, made.cert.pem()).unwrap();
    master.signal("HUP");
    master.waits_until(|this| this.workers().is_disjoint(&before), "replaced");
}

#[test]
fn a_first_worker_that_cannot_serve_ends_the_master_with_its_exit_code() {
    let missing = ["--workers", "2", "--tls-cert", "/nowhere/cert", "--tls-key", "/nowhere/key"];
    let master = Master::launch(Command::new(PROGRAM), &[&AT_ANY_PORT[..], &missing].concat());
    let pid_file = master.pid_file();
    let (status, log) = master.ended();
    assert_eq!(status.code(), Some(1), "{log}");
    assert!(log.contains("/nowhere/cert"), "{log}");
    assert!(!pid_file.exists());
}

#[test]
fn a_reload_reads_the_settings_file_and_a_bad_one_leaves_the_old_workers() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("settings.toml");
    let settings = |text: &str| fs::write(&file, text).unwrap();
    let path = file.to_str().unwrap();
    settings("workers = 2\nmax-body = '10B'\n");
    let arguments = [&AT_ANY_PORT[..], &["--config", path]].concat();
    let mut master = Master::start_by(Command::new(PROGRAM), &arguments);
    let addr = master.addr();
    let posts = || {
        let mut stream = TcpStream::connect(&addr).unwrap();
        stream
            .write_all(
                b"POST /echo HTTP/1.1\r\nhost: a\r\ncontent-length: 11\r\nconnection: close\r\n\r\n0123456789\n",
            )
            .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    assert!(posts().starts_with("HTTP/1.1 413"), "{}", posts());
    // The command line says where it listens, and the master has made its workers.
    settings("workers = 3\nmax-body = '11B'\nlisten = '127.0.0.1:1'\n");
    let before = master.workers();
    master.signal("HUP");
    master.waits_until(|this| this.workers().is_disjoint(&before), "replaced");
    assert!(posts().starts_with("HTTP/1.1 200"), "{}", posts());
    assert_eq!(master.workers().len(), 2);
    assert!(master.log().contains("only an upgrade (USR2) changes: --workers"), "{}", master.log());
    let before = master.workers();
    for (bad, expected) in
        [("max-body = 'much'\n", "'much' for '--max-body"), ("x = 1\n", "x is no")]
    {
        settings(bad);
        let failed = master.log().matches("before it accepted: the old workers continue").count();
        master.signal("HUP");
        master.waits_for("before it accepted: the old workers continue", failed + 1);
        master.waits_for(expected, 1);
        assert!(master.log().contains(path));
    }
    assert_eq!(master.workers(), before);
    // An upgrade begins anew, and fails with these.
    master.signal("USR2");
    master.waits_for("no upgrade: the new master has ended (exit status: 2)", 1);
    settings("workers = 3\n");
    let pid = master.pid();
    master.signal("USR2");
    master.waits_until(|this| this.pid() != pid, "in charge");
    assert_eq!(master.workers().len(), 3);
}

#[test]
fn an_upgrade_that_fails_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("wakeful");
    fs::copy(PROGRAM, &program).unwrap();
    let mut master = Master::start_by(Command::new(&program), &with(&["--workers", "2"]));
    let (pid, workers) = (master.pid(), master.workers());
    // A program that ends, and a file that is none.
    let replace = |text: &str, mode| {
        fs::remove_file(&program).unwrap();
        fs::write(&program, text).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(mode)).unwrap();
    };
    replace("#!/bin/sh\nexit 3\n", 0o755);
    master.signal("USR2");
    master.waits_for("no upgrade: the new master has ended (exit status: 3)", 1);
    replace("", 0o600);
    master.signal("USR2");
    master.waits_for("no upgrade; this master continues", 1);
    assert_eq!((master.pid(), master.workers()), (pid, workers));
    assert!(get(&master.addr(), "/healthz").ends_with("ok\n"));
    // And the next one that is sound.
    fs::remove_file(&program).unwrap();
    fs::copy(PROGRAM, &program).unwrap();
    master.signal("USR2");
    master.waits_until(|this| this.pid() != pid, "in charge");
    assert!(get(&master.addr(), "/healthz").ends_with("ok\n"));
}

#[test]
fn an_upgrade_whose_workers_cannot_serve_leaves_the_sockets_as_they_were() {
    let files = tempfile::tempdir().unwrap();
    let (certificate, key) = (files.path().join("cert.pem"), files.path().join("key.pem"));
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    fs::write(&certificate, made.cert.pem()).unwrap();
    fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let socket = files.path().join("socket");
    let unix = format!("unix:{}", socket.display());
    let paths = [certificate.to_str().unwrap(), key.to_str().unwrap()];
    let more = ["--listen", &unix, "--workers", "1", "--tls-cert", paths[0], "--tls-key", paths[1]];
    let mut master = Master::start(&[&AT_ANY_PORT[..], &more].concat());
    let (pid, workers) = (master.pid(), master.workers());
    fs::write(&certificate, "nothing").unwrap();
    for attempt in 1..=2 {
        master.signal("USR2");
        master.waits_for("no upgrade: the new master has ended (exit status: 1)", attempt);
        // The old worker still accepts, and the kernel still lets clients in.
        let addr = master.addr().parse().unwrap();
        TcpStream::connect_timeout(&addr, GUARD).expect("SYNs are answered");
        UnixStream::connect(&socket).expect("its file is there");
    }
    assert_eq!((master.pid(), master.workers()), (pid, workers));
    assert!(fs::read_to_string(master.pid_file()).unwrap().trim() == pid.to_string());
}

#[test]
fn a_new_master_that_gives_up_and_lives_on_stops_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("wakeful");
    fs::copy(PROGRAM, &program).unwrap();
    let with_limit = with(&["--workers", "1", "--worker-start-timeout", "2"]);
    let mut master = Master::start_by(Command::new(&program), &with_limit);
    let replace = |text: &str| {
        fs::remove_file(&program).unwrap();
        fs::write(&program, text).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    };
    // It closes what it was given, and waits.
    replace("#!/bin/bash\nfor fd in {3..20}; do eval \"exec $fd>&-\"; done; exec sleep 60\n");
    master.signal("USR2");
    master.waits_for("upgrading: process ", 1);
    let before = master.workers();
    let is_replaced = |this: &Master| this.workers().is_disjoint(&before);
    master.signal("HUP");
    master.waits_for("all workers accept", 2);
    master.waits_until(
        |this| is_replaced(this) && this.log().contains("has not taken over in time"),
        "late",
    );
    master.waits_for("no upgrade: the new master has ended (signal: 9 (SIGKILL))", 1);
    // It ends, and what it has started holds what it was given.
    replace("#!/bin/sh\nsleep 60 &\necho \"helper $!\" >&2\nexit 3\n");
    master.signal("USR2");
    master.waits_for("no upgrade: the new master has ended (exit status: 3)", 1);
    let log = master.log();
    let helper = log.lines().find_map(|line| line.strip_prefix("helper ")).unwrap();
    signal(helper.parse().unwrap(), "KILL");
    assert!(get(&master.addr(), "/healthz").ends_with("ok\n"));
}

#[test]
fn the_end_during_an_upgrade_ends_the_new_master_too() {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("wakeful");
    fs::copy(PROGRAM, &program).unwrap();
    let arguments = with(&["--workers", "1", "--worker-start-timeout", "2", "--orphan", "go-on"]);
    let mut master = Master::start_by(Command::new(&program), &arguments);
    fs::remove_file(&program).unwrap();
    // It is told, and ends in its own time.
    let text = format!("#!/bin/sh\nsleep 0.3\nexec {PROGRAM} \"$@\"\n");
    fs::write(&program, text).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let pid = master.pid();
    master.signal("USR2");
    master.waits_for("upgrading: process ", 1);
    signal(pid, "TERM");
    let file = master.pid_file();
    let start = Instant::now();
    while master.first.try_wait().unwrap().is_none() {
        assert!(start.elapsed() < GUARD, "{}", master.log());
        thread::sleep(Duration::from_millis(5));
    }
    let (alive, zombies) = processes_of(&master);
    assert!(alive.is_empty() && zombies == 0 && !file.exists(), "{alive:?}:\n{}", master.log());
}

#[test]
fn a_new_master_whose_predecessor_is_killed_while_it_starts_takes_over() {
    for accept in STRATEGIES {
        let directory = tempfile::tempdir().unwrap();
        let path = |name| directory.path().join(name);
        fs::copy(PROGRAM, path("wakeful")).unwrap();
        let arguments = with(&[&["--workers", "2"], &accept[..]].concat());
        let mut master = Master::start_by(Command::new(path("wakeful")), &arguments);
        let (pid, addr, workers) = (master.pid(), master.addr(), master.workers());
        fs::remove_file(path("wakeful")).unwrap();
        let text = format!(
            "#!/bin/sh\nn=0\nwhile [ ! -e {} ] && [ $n -lt 3000 ]; do sleep 0.01; n=$((n + 1)); \
             done\nexec {PROGRAM} \"$@\"\n",
            path("go").display()
        );
        fs::write(path("wakeful"), text).unwrap();
        fs::set_permissions(path("wakeful"), fs::Permissions::from_mode(0o755)).unwrap();
        master.signal("USR2");
        master.waits_for("upgrading: process ", 1);
        master.orphans.extend(children(pid));
        signal(pid, "KILL");
        // Nobody has waited for it.
        master.waits_until(|_| has_closed_all(pid), "dead");
        master.waits_until(|_| workers.iter().all(|pid| !is_ours(*pid)), "drained");
        let mut waiting = guarded(TcpStream::connect(&addr).unwrap()).unwrap();
        fs::write(path("go"), "").unwrap();
        asks(&mut waiting).expect("who waits is answered");
        master.waits_until(|this| this.pid() != pid, "in charge");
        assert!(get(&addr, "/healthz").ends_with("ok\n"));
    }
}

/// Otherwise two masters would serve, the oldest program beside the newest.
#[test]
fn an_old_master_that_was_stopped_while_its_successor_was_succeeded_ends() {
    let mut master = Master::start(&with(&["--workers", "1"]));
    let (first, addr) = (master.pid(), master.addr());
    master.signal("USR2");
    master.waits_for("upgrading: process", 1);
    signal(first, "STOP");
    master.waits_until(|this| this.pid() != first, "the pid file of the second master");
    let second = master.pid();
    master.signal("USR2");
    master.waits_until(|this| this.pid() != second, "the pid file of the third master");
    master.waits_until(|_| !is_ours(second), "the end of the second master");
    signal(first, "CONT");
    assert!(master.first.wait().unwrap().success(), "{}", master.log());
    assert!(get(&addr, "/healthz").ends_with("ok\n"));
}

#[test]
fn a_program_that_is_called_by_a_symbolic_link_is_upgraded_by_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    for version in ["1", "2"] {
        fs::create_dir(path(version)).unwrap();
        fs::copy(PROGRAM, path(version).join("wakeful")).unwrap();
    }
    symlink("1", path("current")).unwrap();
    let called = path("current").join("wakeful");
    let mut master = Master::start_by(Command::new(called), &with(&["--workers", "1"]));
    let before = master.pid();
    fs::remove_file(path("current")).unwrap();
    symlink("2", path("current")).unwrap();
    master.signal("USR2");
    master.waits_until(|this| this.pid() != before, "in charge");
    let runs = fs::read_link(format!("/proc/{}/exe", master.pid())).unwrap();
    assert_eq!(runs, fs::canonicalize(path("2")).unwrap().join("wakeful"));
}

#[test]
fn what_is_no_master_is_not_signalled_for_an_upgrade() {
    let mut stranger = Command::new("sleep").arg("60").spawn().unwrap();
    let pid = stranger.id().to_string();
    let output = Command::new(PROGRAM).args(["upgrade", &pid]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("is not a running master"), "{said}");
    assert!(stranger.try_wait().unwrap().is_none());
    stranger.kill().unwrap();
    stranger.wait().unwrap();
}

#[test]
fn a_worker_that_cannot_end_is_killed_some_time_after_the_grace() {
    let mut master = Master::start(&with(&["--workers", "2", "--grace", "0"]));
    signal(*master.workers().first().unwrap(), "STOP");
    master.waits_for("is stopped", 1);
    master.signal("TERM");
    let (status, log) = master.ended();
    assert!(log.contains(": it has not ended after 5s"), "{log}");
    assert_eq!(status.code(), Some(1), "{log}");
}

#[test]
fn workers_run_with_a_small_stack() {
    let mut shell = Command::new("sh");
    shell.args(["-c", r#"ulimit -S -s 64; exec "$0" "$@""#, PROGRAM]);
    let master = Master::start_by(shell, &with(&["--workers", "1"]));
    assert!(get(&master.addr(), "/healthz").ends_with("ok\n"));
}

#[test]
fn process_1_buries_children_of_others() {
    let Some(mut command) = in_namespace() else { return };
    command.arg(PROGRAM);
    let mut master = Master::start_by(command, &with(&["--workers", "1"]));
    let outside = *children(master.first.id()).first().unwrap();
    let target = outside.to_string();
    for _ in 0..3 {
        // Its parent ends first.
        let script = ["sh", "-c", "sleep 0.1 & exit 0"];
        let mut enter = Command::new("nsenter");
        assert!(
            enter.args(["--target", &target, "--pid"]).args(script).status().unwrap().success()
        );
    }
    let only_the_worker = |_: &Master| children(outside).len() == 1;
    thread::sleep(Duration::from_millis(200));
    master.waits_until(only_the_worker, "buried");
    signal(outside, "TERM");
    master.ended();
}

#[test]
fn a_reload_for_which_no_process_can_be_had_is_tried_again() {
    let mut master = Master::start(&with(&["--workers", "2"]));
    let before = master.workers();
    let limit = |most: &str| limit_descriptors(master.pid(), most);
    limit("4:4096");
    master.signal("HUP");
    let again = "the master tries again";
    let start = Instant::now();
    while master.log().matches(again).count() < 2 {
        assert!(start.elapsed() < GUARD, "{}", master.log());
        thread::sleep(Duration::from_millis(5));
    }
    assert!(get(&master.addr(), "/healthz").ends_with("ok\n"));
    limit("4096:4096");
    master.waits_until(|this| this.workers().is_disjoint(&before), "replaced");
    master.waits_for("all workers accept", 2);
}

/// Sets the limit of descriptors, as `soft:hard`.
fn limit_descriptors(pid: u32, most: &str) {
    let (pid, nofile) = (pid.to_string(), format!("--nofile={most}"));
    let status = Command::new("prlimit").args(["--pid", &pid, &nofile]).status().unwrap();
    assert!(status.success());
}

#[test]
fn a_master_with_fewer_descriptors_than_it_has_open_goes_on() {
    let mut master = Master::start(&with(&["--workers", "2"]));
    let pid = master.pid();
    for (most, times) in [("0:4096", 1), ("3:4096", 2)] {
        limit_descriptors(pid, most);
        let before = master.workers();
        master.signal("USR1");
        master.waits_for("sending HUP to the workers", times);
        signal(*before.first().unwrap(), "KILL");
        master.waits_for("another one takes its place", times);
        master.waits_for("the master tries again", times);
        assert!(get(&master.addr(), "/healthz").ends_with("ok\n"));
        limit_descriptors(pid, "4096:4096");
        master.waits_for(" accepts", 2 + times);
        master.waits_until(|this| this.workers().len() == 2, "replaced");
    }
    master.signal("TERM");
    let (status, log) = master.ended();
    assert!(status.success(), "{log}");
}

/// Attaches a debugger to it, and kills it. `false`: that is not permitted here.
fn is_killed_in_a_debugger(pid: u32) -> bool {
    let is_attached =
        ptrace::seize(Pid::from_raw(pid.try_into().unwrap()), ptrace::Options::empty());
    if let Err(error) = is_attached {
        eprintln!("skipped: {error}");
        return false;
    }
    signal(pid, "KILL");
    true
}

/// The debugger lets go of it.
fn let_go(pid: u32) {
    waitpid(Pid::from_raw(pid.try_into().unwrap()), None).unwrap();
}

#[test]
fn a_dead_worker_that_a_debugger_holds_is_buried_when_it_lets_go() {
    let mut master = Master::start(&with(&["--workers", "2"]));
    let (pid, worker) = (master.pid(), *master.workers().first().unwrap());
    if !is_killed_in_a_debugger(worker) {
        return;
    }
    master.waits_for("another one takes its place", 1);
    master.waits_for(" accepts", 3);
    assert!(children(pid).contains(&worker));
    let_go(worker);
    master.waits_until(|_| !children(pid).contains(&worker), "buried");
}

/// A debugger stops all its threads, until the thread of this test ends. `false`: that is not
/// permitted here.
fn is_held_by_a_debugger(pid: u32) -> bool {
    for thread in fs::read_dir(format!("/proc/{pid}/task")).unwrap() {
        let thread = thread.unwrap().file_name().into_string().unwrap();
        let id = Pid::from_raw(thread.parse().unwrap());
        let is_held = ptrace::seize(id, ptrace::Options::empty());
        if let Err(error) = is_held.and_then(|()| ptrace::interrupt(id)) {
            eprintln!("skipped: {error}");
            return false;
        }
        let start = Instant::now();
        let stat = || fs::read_to_string(format!("/proc/{pid}/task/{thread}/stat")).unwrap();
        while !stat().contains(") t ") {
            assert!(start.elapsed() < GUARD, "it is not held");
        }
    }
    true
}

#[test]
fn workers_that_a_debugger_holds_are_replaced_by_a_reload() {
    let mut master = Master::start(&with(&["--workers", "2"]));
    if !master.workers().iter().all(|worker| is_held_by_a_debugger(*worker)) {
        return;
    }
    master.signal("HUP");
    master.waits_for("all workers accept", 2);
    for _ in 0..4 {
        assert!(get(&master.addr(), "/healthz").ends_with("ok\n"));
    }
}

#[test]
fn a_dead_successor_that_a_debugger_holds_holds_nobody_up() {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("wakeful");
    fs::copy(PROGRAM, &program).unwrap();
    let mut master = Master::start_by(Command::new(&program), &with(&["--workers", "1"]));
    fs::remove_file(&program).unwrap();
    fs::write(&program, "#!/bin/sh\nexec sleep 60\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    master.signal("USR2");
    let starts = "upgrading: process ";
    master.waits_for(starts, 1);
    let log = master.log();
    let successor = log.split_once(starts).unwrap().1.split(' ').next().unwrap();
    let successor = successor.parse().unwrap();
    if !is_killed_in_a_debugger(successor) {
        signal(successor, "KILL");
        return;
    }
    master.waits_for("no upgrade: the new master has ended", 1);
    master.signal("HUP");
    master.waits_for("all workers accept", 2);
    let_go(successor);
    let pid = master.pid();
    master.waits_until(|_| !children(pid).contains(&successor), "buried");
}

#[test]
fn signals_for_the_master_end_no_process_that_starts() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("settings");
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    let config = ["--workers", "1", "--config", path.to_str().unwrap()];
    let arguments = [&AT_ANY_PORT[..], &config].concat();
    let mut master = Master::launch(Command::new(PROGRAM), &arguments);
    let first = master.first.id();
    // The master reads it, and then the worker.
    for is_worker in [false, true] {
        let mut settings = OpenOptions::new().write(true).open(&path).unwrap();
        let reader = if is_worker { *children(first).first().unwrap() } else { first };
        signal(reader, "USR1");
        if is_worker {
            signal(reader, "HUP");
            signal(reader, "USR2");
        }
        settings.write_all(b"grace = 1\n").unwrap();
        drop(settings);
        master.waits_for("master listening on", 1);
    }
    master.waits_for("all workers accept", 1);
    assert!(master.log().contains("SIGUSR1: sending HUP to the workers"), "{}", master.log());
    assert_eq!(master.pid(), first);
    assert!(get(&master.addr(), "/healthz").ends_with("ok\n"));
}

#[test]
fn an_upgrade_by_a_command_says_how_it_ended() {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("wakeful");
    fs::copy(PROGRAM, &program).unwrap();
    let master = Master::start_by(Command::new(&program), &with(&["--workers", "1"]));
    let file = master.pid_file();
    let upgrade = |what: &str| {
        let output = Command::new(PROGRAM).args(["upgrade", what]).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let before = master.pid();
    let (code, said) = upgrade(file.to_str().unwrap());
    assert_eq!(code, Some(0), "{said}");
    assert_ne!(master.pid(), before);
    assert!(said.contains(&format!("process {} has taken over", master.pid())), "{said}");
    // With a process id, the command waits until that process has drained.
    let before = master.pid();
    let (code, said) = upgrade(&before.to_string());
    assert_eq!(code, Some(0), "{said}");
    assert!(!is_ours(before));
    fs::remove_file(&program).unwrap();
    // The second one ends before the command sees it, and the last one does not even start.
    for (text, mode) in [("sleep 1\nexit 3", 0o755), ("exit 3", 0o755), ("exit 3", 0o644)] {
        fs::write(&program, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(mode)).unwrap();
        let (code, said) = upgrade(file.to_str().unwrap());
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("the upgrade failed"), "{text} {mode:o}: {said}");
    }
    // Without descriptors there is no child that could die.
    let pid = rustix::process::Pid::from_raw(master.pid().cast_signed());
    let none = Rlimit { current: Some(0), ..getrlimit(Resource::Nofile) };
    prlimit(pid, Resource::Nofile, none).unwrap();
    let (code, said) = upgrade(file.to_str().unwrap());
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("the upgrade failed"), "{said}");
    let negative = directory.path().join("negative");
    fs::write(&negative, "-3\n").unwrap();
    for what in ["/nowhere/pid", "/dev/zero", negative.to_str().unwrap(), "0"] {
        let (code, said) = upgrade(what);
        assert_eq!(code, Some(1), "{said}");
    }
}

/// What a program does at the path of a master that is killed during an upgrade, and what the
/// command says of that.
fn upgrade_without_an_old_master(then: &str, expected: &str, code: i32) {
    for by_file in [true, false] {
        let directory = tempfile::tempdir().unwrap();
        let path = |name| directory.path().join(name);
        fs::copy(PROGRAM, path("wakeful")).unwrap();
        let mut master =
            Master::start_by(Command::new(path("wakeful")), &with(&["--workers", "1"]));
        let (before, addr) = (master.pid(), master.addr());
        master.orphans.extend(children(before));
        fs::remove_file(path("wakeful")).unwrap();
        let text = format!(
            "#!/bin/bash\nuntil [ -e {} ] || ! kill -0 {}; do sleep 0.01; done\n{then}\n",
            path("go").display(),
            std::process::id()
        );
        fs::write(path("wakeful"), text).unwrap();
        fs::set_permissions(path("wakeful"), fs::Permissions::from_mode(0o755)).unwrap();
        let mut command = Command::new(PROGRAM);
        command.arg("upgrade").stderr(Stdio::piped());
        match by_file {
            true => command.arg(master.pid_file()),
            false => command.arg(before.to_string()),
        };
        let mut command = command.spawn().unwrap();
        let said = BufReader::new(command.stderr.take().unwrap());
        let mut said = said.lines().map_while(Result::ok);
        let starts = said.next().unwrap();
        let successor: u32 = starts.split([' ', ',']).nth(1).unwrap().parse().unwrap();
        signal(before, "KILL");
        let next = said.next().unwrap();
        assert!(next.contains(&format!("process {before}, the old master, has died")), "{next}");
        // Only now can it serve.
        fs::write(path("go"), "").unwrap();
        let end = said.next().unwrap();
        assert!(end.contains(expected), "{end}");
        assert_eq!(command.wait().unwrap().code(), Some(code), "{end}");
        if code == 0 {
            assert_eq!(master.pid(), successor);
            assert!(get(&addr, "/healthz").ends_with("ok\n"));
        }
    }
}

#[test]
fn an_upgrade_by_a_command_whose_old_master_is_killed_is_complete_when_the_new_one_serves() {
    let then = format!("exec {PROGRAM} \"$@\"");
    upgrade_without_an_old_master(&then, "has taken over: the upgrade is complete", 0);
}

#[test]
fn an_upgrade_by_a_command_whose_old_master_is_killed_fails_with_the_new_one() {
    upgrade_without_an_old_master("exit 3", "the upgrade failed", 1);
    // It lives on without a report. (Its script is descriptor 255.)
    let closes = format!(
        "for fd in /proc/$$/fd/*; do fd=${{fd##*/}}; \
         if [ $fd -gt 2 ] && [ $fd != 255 ]; then eval \"exec $fd>&-\"; fi; done\n\
         exec tail --pid={} -f /dev/null",
        std::process::id()
    );
    upgrade_without_an_old_master(&closes, "It is not known whether process", 1);
}

#[test]
fn an_upgrade_by_what_is_no_file_is_refused_and_waits_for_nobody() {
    let directory = tempfile::tempdir().unwrap();
    let fifo = directory.path().join("pid");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    for what in [&*fifo, directory.path(), Path::new("/dev/zero")] {
        let mut command = Command::new("timeout");
        command.arg(GUARD.as_secs().to_string()).args([PROGRAM, "upgrade"]).arg(what);
        let output = command.output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{what:?}: {said}");
        let expected = format!(
            "{}: expected a pid file or a process id: this is not a regular file",
            what.display()
        );
        assert!(said.contains(&expected), "{what:?}: {said}");
    }
}

#[test]
fn a_second_upgrade_by_a_command_says_that_one_is_under_way() {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("wakeful");
    fs::copy(PROGRAM, &program).unwrap();
    let master = Master::start_by(Command::new(&program), &with(&["--workers", "1"]));
    let (file, before) = (master.pid_file(), master.pid().to_string());
    fs::remove_file(&program).unwrap();
    fs::write(&program, "#!/bin/sh\nexec tail -f /dev/null\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let mut first = Command::new(PROGRAM);
    let mut first = first.arg("upgrade").arg(&file).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(first.stderr.take().unwrap()).lines().map_while(Result::ok);
    let starts = said.next().unwrap();
    let successor: i32 = starts.split([' ', ',']).nth(1).unwrap().parse().unwrap();
    for what in [file.to_str().unwrap(), &before] {
        let output = Command::new(PROGRAM).args(["upgrade", what]).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        let expected = format!("is under way: process {successor} is its new master");
        assert!(said.contains(&expected), "{said}");
    }
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(successor).unwrap(),
        rustix::process::Signal::KILL,
    )
    .unwrap();
    assert!(said.next().unwrap().contains("the upgrade failed"));
    assert_eq!(first.wait().unwrap().code(), Some(1));
    assert!(get(&master.addr(), "/healthz").ends_with("ok\n"));
}

#[test]
fn an_upgrade_by_a_command_looks_at_no_process_that_a_failed_one_left_behind() {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("wakeful");
    fs::copy(PROGRAM, &program).unwrap();
    let master = Master::start_by(Command::new(&program), &with(&["--workers", "1"]));
    let upgrade = || {
        let output = Command::new(PROGRAM).arg("upgrade").arg(master.pid_file()).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    fs::remove_file(&program).unwrap();
    // What it leaves behind has no standard error of the test's, and ends with the test.
    let helper = format!("tail --pid={} -f /dev/null", std::process::id());
    let text = format!("#!/bin/sh\n{helper} >/dev/null 2>&1 &\nsleep 1\nexit 3\n");
    fs::write(&program, text).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let (code, said) = upgrade();
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("the upgrade failed"), "{said}");
    // It is still there, and is not taken for the next one.
    fs::remove_file(&program).unwrap();
    fs::copy(PROGRAM, &program).unwrap();
    let (code, said) = upgrade();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains(&format!("process {} has taken over", master.pid())), "{said}");
}

#[test]
fn an_upgrade_by_a_command_from_outside_of_a_container_says_how_it_ended() {
    let Some(mut command) = in_namespace() else { return };
    // Process 1 is another one, as `docker run --init` has it.
    command.args(["sh", "-c", r#""$0" "$@" & exec tail -f /dev/null"#, PROGRAM]);
    let master = Master::start_by(command, &with(&["--workers", "1"]));
    let init = *children(master.first.id()).first().unwrap();
    let before = *children(init).first().unwrap();
    let output = Command::new(PROGRAM).args(["upgrade", &before.to_string()]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("has taken over: the upgrade is complete"), "{said}");
    assert!(get(&master.addr(), "/healthz").ends_with("ok\n"));
}

#[test]
fn an_upgrade_by_a_file_that_no_master_writes_ends() {
    let mut master = Master::start(&with(&["--workers", "1", "--grace", "1"]));
    let (before, file) = (master.pid(), master.directory.path().join("another"));
    fs::write(&file, format!("{before}\n")).unwrap();
    let mut command = Command::new(PROGRAM).arg("upgrade").arg(&file).spawn().unwrap();
    let start = Instant::now();
    let status = loop {
        if let Some(status) = command.try_wait().unwrap() {
            break status;
        }
        if start.elapsed() > GUARD {
            command.kill().unwrap();
        }
        thread::sleep(Duration::from_millis(5));
    };
    assert!(status.success(), "{status}");
    assert!(master.pid() != before && !is_ours(before));
    master.waits_for("has taken over", 1);
}

/// Passes its standard input as systemd does it: descriptor 3, and a variable that names the
/// process.
fn passing_socket() -> Command {
    passing_socket_to(&[PROGRAM])
}

/// `command` executes the program.
fn passing_socket_to(command: &[&str]) -> Command {
    let script = r#"exec 3<&0 </dev/null; export LISTEN_FDS=1 LISTEN_PID=$$; exec "$0" "$@""#;
    let mut shell = Command::new("sh");
    shell.args(["-c", script]).args(command);
    shell
}

#[test]
fn sockets_of_a_service_manager_go_through_an_upgrade() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap().to_string();
    let arguments = ["--listen", "systemd", "--workers", "1"];
    let socket = Stdio::from(OwnedFd::from(listener));
    let mut master = Master::launch_with(passing_socket(), &arguments, socket);
    master.waits_for("all workers accept", 1);
    assert!(get(&addr, "/healthz").ends_with("ok\n"));
    for _ in 0..2 {
        let before = master.pid();
        master.signal("USR2");
        master.waits_until(|this| this.pid() != before, "in charge");
        master.waits_until(|_| !is_ours(before), "drained");
        assert!(get(&addr, "/healthz").ends_with("ok\n"));
    }
}

#[test]
fn a_socket_that_somebody_shuts_down_listens_again() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let somebody = listener.try_clone().unwrap();
    let addr = listener.local_addr().unwrap();
    let mut master = Master::launch_with(
        passing_socket(),
        &["--listen", "systemd", "--workers", "2"],
        Stdio::from(OwnedFd::from(listener)),
    );
    master.waits_for("all workers accept", 1);
    let shuts_down = || rustix::net::shutdown(&somebody, rustix::net::Shutdown::Both).unwrap();
    let destroys = || {
        let filter = format!("( sport = :{} )", addr.port());
        let ss = Command::new("ss").args(["--kill", "--listening", "--tcp", &filter]).output();
        if ss.is_err() || rustix::net::sockopt::socket_acceptconn(&somebody) == Ok(true) {
            println!("in part: no ss, or it may not end a socket here");
            shuts_down();
        }
    };
    let ways: [(&dyn Fn(), bool); 3] =
        [(&shuts_down, false), (&destroys, false), (&destroys, true)];
    for (times, (end, upgrades)) in (1..).zip(ways) {
        let before = master.workers();
        end();
        if upgrades {
            master.signal("USR2");
        }
        master.waits_for("was shut down: listening again", times);
        let are_new = |this: &Master| {
            let workers = this.workers();
            workers.len() == 2 && workers.is_disjoint(&before)
        };
        master.waits_until(are_new, "replaced");
        assert!(get(&addr.to_string(), "/healthz").ends_with("ok\n"));
    }
}

/// Another server listens there meanwhile.
#[test]
fn a_socket_that_cannot_listen_again_costs_the_other_addresses_nothing() {
    // The socket keeps a port that was asked for. No other test listens at this address.
    let free = std::net::TcpListener::bind("127.43.0.1:0").unwrap().local_addr().unwrap();
    let listener = std::net::TcpListener::bind(free).unwrap();
    let somebody = listener.try_clone().unwrap();
    let mut master = Master::launch_with(
        passing_socket(),
        &["--listen", "127.0.0.1:0", "--listen", "systemd", "--workers", "2"],
        Stdio::from(OwnedFd::from(listener)),
    );
    master.waits_for("all workers accept", 1);
    let own = master.addr();
    assert_ne!(own, free.to_string());
    rustix::net::shutdown(&somebody, rustix::net::Shutdown::Both).unwrap();
    let other = std::net::TcpListener::bind(free).unwrap();
    let replaces = |master: &mut Master, signal: &str| {
        let before = master.workers();
        master.signal(signal);
        let are_new = |this: &Master| {
            let workers = this.workers();
            workers.len() == 2 && workers.is_disjoint(&before)
        };
        master.waits_until(are_new, "replaced");
        assert!(get(&own, "/healthz").ends_with("ok\n"));
    };
    replaces(&mut master, "HUP");
    master.waits_for("cannot listen again", 1);
    replaces(&mut master, "USR2");
    drop(other);
    replaces(&mut master, "HUP");
    master.waits_for("was shut down: listening again", 1);
    assert!(get(&free.to_string(), "/healthz").ends_with("ok\n"));
}

#[test]
fn the_file_of_a_unix_socket_goes_with_the_last_master() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("socket");
    let addr = format!("unix:{}", socket.display());
    let mut master = Master::start(&["--listen", &addr, "--workers", "1"]);
    let before = master.pid();
    master.signal("USR2");
    master.waits_until(|this| this.pid() != before, "in charge");
    master.waits_until(|_| children(before).is_empty(), "drained");
    assert!(master.first.wait().unwrap().success());
    assert!(get(&addr, "/healthz").ends_with("ok\n"));
    UnixStream::connect(&socket).unwrap();
    master.signal("TERM");
    master.waits_until(|_| !socket.exists(), "removed");
}

#[test]
fn who_connects_while_an_upgrade_drops_a_unix_socket_is_answered_or_refused() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("socket");
    let settings = directory.path().join("settings.toml");
    let listen = |more: &str| fs::write(&settings, format!("listen = [\"127.0.0.1:0\"{more}]"));
    for _ in 0..5 {
        listen(&format!(", \"unix:{}\"", socket.display())).unwrap();
        let arguments = ["--config", settings.to_str().unwrap(), "--workers", "2"];
        let mut master = Master::start(&arguments);
        let before = master.pid();
        let asks_until_it_is_gone = || {
            while let Ok(mut stream) = UnixStream::connect(&socket) {
                stream.set_read_timeout(Some(GUARD)).unwrap();
                asks(&mut stream).expect("who is let in is answered");
            }
        };
        thread::scope(|scope| {
            (0..2).for_each(|_| drop(scope.spawn(asks_until_it_is_gone)));
            master.waits_until(|_| socket.exists(), "listening");
            listen("").unwrap();
            master.signal("USR2");
            master.waits_until(|this| this.pid() != before, "in charge");
        });
        assert!(!socket.exists());
        assert!(master.first.wait().unwrap().success(), "{}", master.log());
    }
}

/// The only worker is full, and leaves nobody to others: there are none.
#[test]
fn who_waits_for_a_full_worker_is_served_when_its_address_goes_or_its_master_is_killed() {
    for is_killed in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("socket");
        let settings = directory.path().join("settings.toml");
        let listen = |more: &str| fs::write(&settings, format!("listen = [\"127.0.0.1:0\"{more}]"));
        listen(&format!(", \"unix:{}\"", socket.display())).unwrap();
        let arguments = ["--config", settings.to_str().unwrap(), "--workers", "1"];
        let mut master = Master::start(&[&arguments[..], &["--max-connections", "1"]].concat());
        let (before, workers) = (master.pid(), master.workers());
        let connect = || {
            let stream = UnixStream::connect(&socket).unwrap();
            stream.set_read_timeout(Some(GUARD)).unwrap();
            stream
        };
        let mut slow = connect();
        slow.write_all(b"GET /sleep/1000 HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
        let waiting = [(); 3].map(|()| connect());
        // So that the slow request has been read.
        thread::sleep(Duration::from_millis(100));
        if is_killed {
            master.orphans.clone_from(&workers);
            signal(before, "KILL");
            master.first.wait().unwrap();
        } else {
            listen("").unwrap();
            master.signal("USR2");
        }
        for mut waiting in waiting {
            asks(&mut waiting).expect("who waits is answered");
        }
        if !is_killed {
            assert!(master.first.wait().unwrap().success(), "{}", master.log());
        }
    }
}

#[test]
fn a_unix_socket_s_file_that_is_another_server_s_is_told_and_stays() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("socket");
    let addr = format!("unix:{}", socket.display());
    let mut master = Master::start(&["--listen", &addr, "--workers", "1"]);
    fs::remove_file(&socket).unwrap();
    master.signal("HUP");
    master.waits_for(&format!("{} is gone, so new clients do not reach", socket.display()), 1);
    master.waits_for("all workers accept", 2);
    let other = Master::start(&["--listen", &addr, "--workers", "1"]);
    let before = master.pid();
    master.signal("USR2");
    master.waits_until(|this| this.pid() != before, "in charge");
    master.waits_for(&format!("{} is not this server's any more", socket.display()), 1);
    master.waits_until(|_| children(before).is_empty(), "drained");
    assert!(master.first.wait().unwrap().success());
    let pid = master.pid();
    master.signal("TERM");
    master.waits_until(|_| !is_ours(pid), "ended");
    assert!(get(&addr, "/healthz").ends_with("ok\n"), "the other server still has its file");
    drop(other);
}

#[test]
fn a_second_signal_ends_all_at_once() {
    let mut master = Master::start(&with(&["--workers", "2", "--grace", "3600"]));
    let mut slow = TcpStream::connect(master.addr()).unwrap();
    slow.write_all(b"GET /sleep/59000 HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
    // Whoever has it has begun with it.
    assert!(get(&master.addr(), "/healthz").ends_with("ok\n"));
    master.signal("TERM");
    master.waits_for("draining 127.0.0.1:", 2);
    assert!(master.pid_file().exists());
    let pid = master.pid();
    // What comes within a tenth of a second is the same signal.
    thread::sleep(Duration::from_millis(200));
    signal(pid, "INT");
    let (status, log) = master.ended();
    assert_eq!(status.code(), Some(1), "{log}");
    assert!(children(pid).is_empty());
    slow.set_read_timeout(Some(GUARD)).unwrap();
    let end = slow.read(&mut [0; 1]);
    assert!(
        matches!(end, Ok(0)) || end.is_err_and(|error| error.kind() == ErrorKind::ConnectionReset)
    );
}

/// The master waits for nothing then, even if its sockets were to stay open.
#[test]
fn a_second_signal_ends_all_at_once_while_the_workers_still_accept() {
    for name in ["TERM", "QUIT"] {
        let drain = ["--workers", "2", "--grace", "3600", "--pre-drain", "3000"];
        let mut master = Master::start(&with(&drain));
        let pid = master.pid();
        signal(pid, name);
        master.waits_for("a second signal stops them at once", 1);
        // What comes within a tenth of a second is the same signal.
        thread::sleep(Duration::from_millis(200));
        signal(pid, name);
        let (status, log) = master.ended();
        assert_eq!(status.code(), Some(1), "{log}");
    }
}

/// A request that takes a second, of which the worker has read the head.
fn slow_request(master: &Master) -> TcpStream {
    let mut slow = TcpStream::connect(master.addr()).unwrap();
    slow.set_read_timeout(Some(GUARD)).unwrap();
    slow.write_all(b"GET /sleep/1000 HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").unwrap();
    assert!(get(&master.addr(), "/healthz").ends_with("ok\n"));
    slow
}

fn is_answered(mut slow: TcpStream) -> bool {
    let mut answer = String::new();
    slow.read_to_string(&mut answer).is_ok() && answer.starts_with("HTTP/1.1 200")
}

/// A terminal and timeout(1) do this.
#[test]
fn a_signal_to_the_whole_process_group_is_one_signal() {
    for name in ["TERM", "INT", "QUIT", "PWR"] {
        let mut command = Command::new(PROGRAM);
        command.process_group(0);
        // An address that is not local to this host: the server waits for handshakes that are under
        // way.
        let master = Master::start_by(command, &["--listen", "0.0.0.0:0", "--workers", "1"]);
        let slow = slow_request(&master);
        let group = format!("-{}", master.pid());
        for _ in 0..2 {
            let told = Command::new("kill").args([&format!("-{name}"), "--", &group]).status();
            assert!(told.unwrap().success());
        }
        assert!(is_answered(slow), "{}", master.log());
        let (status, log) = master.ended();
        assert!(status.success(), "{status}: {log}");
    }
}

/// An interactive shell sends `kill -TTIN %1` to the whole process group. The parent is in the same
/// session: the kernel stops no process of an orphaned group.
#[test]
fn a_signal_to_the_whole_process_group_stops_no_worker() {
    let mut command = Command::new(PROGRAM);
    command.process_group(0);
    let mut master = Master::start_by(command, &with(&["--workers", "1"]));
    let (addr, group) = (master.addr(), format!("-{}", master.pid()));
    for (name, workers) in [("TTIN", 2), ("TTOU", 1)] {
        let told = Command::new("kill").args([&format!("-{name}"), "--", &group]).status();
        assert!(told.unwrap().success());
        assert!(get(&addr, "/healthz").ends_with("ok\n"), "{name}");
        master.waits_until(|this| this.workers().len() == workers, "as many as wanted");
    }
    assert!(!master.log().contains("is stopped"), "{}", master.log());
}

/// They had been told by the master.
#[test]
fn a_signal_to_the_whole_process_group_cuts_no_worker_that_drains_already() {
    let mut command = Command::new(PROGRAM);
    command.process_group(0);
    let mut master = Master::start_by(command, &with(&["--workers", "1"]));
    let (slow, old) = (slow_request(&master), master.workers());
    master.signal("HUP");
    master.waits_for("all workers accept", 2);
    let group = format!("-{}", master.pid());
    thread::sleep(Duration::from_millis(200));
    assert!(Command::new("kill").args(["-INT", "--", &group]).status().unwrap().success());
    assert!(is_answered(slow), "{}", master.log());
    let (status, log) = master.ended();
    assert!(status.success(), "{status}, {old:?}: {log}");
}

#[test]
fn one_signal_to_a_master_that_is_succeeded_cuts_nothing() {
    let mut master = Master::start(&with(&["--workers", "1"]));
    let slow = slow_request(&master);
    let before = master.pid();
    master.signal("USR2");
    master.waits_until(|this| this.pid() != before, "in charge");
    master.waits_for("has taken over: this master ends", 1);
    // A service manager does this when it ends all processes of a service.
    signal(before, "TERM");
    assert!(is_answered(slow), "{}", master.log());
}

#[test]
fn workers_whose_master_is_killed_drain_or_go_on() {
    for (what, ends) in [("drain", true), ("go-on", false)] {
        let mut master = Master::start(&with(&["--workers", "2", "--orphan", what]));
        let (pid, addr, workers) = (master.pid(), master.addr(), master.workers());
        master.orphans.clone_from(&workers);
        signal(pid, "KILL");
        master.first.wait().unwrap();
        if ends {
            master.waits_until(|_| workers.iter().all(|pid| !is_ours(*pid)), "drained");
        } else {
            assert!(get(&addr, "/healthz").ends_with("ok\n"));
            signal(*workers.first().unwrap(), "KILL");
            assert!(get(&addr, "/healthz").ends_with("ok\n"));
            for pid in &workers {
                signal(*pid, "TERM");
            }
            master.waits_until(|_| workers.iter().all(|pid| !is_ours(*pid)), "drained");
        }
    }
}

/// At an address that is not local to this host, the master keeps clients out a moment before it
/// tells its workers.
#[test]
fn workers_that_are_to_go_on_drain_if_their_master_is_killed_while_it_ends() {
    let arguments = ["--listen", "0.0.0.0:0", "--workers", "2", "--orphan", "go-on"];
    let mut master = Master::start(&arguments);
    let (pid, addr, workers) = (master.pid(), master.addr(), master.workers());
    master.orphans.clone_from(&workers);
    signal(pid, "TERM");
    master.waits_for("the workers drain", 1);
    signal(pid, "KILL");
    master.first.wait().unwrap();
    // If it was killed sooner, they go on.
    let addr = addr.parse().unwrap();
    let is_open = || TcpStream::connect_timeout(&addr, Duration::from_millis(500)).is_ok();
    master.waits_until(|_| workers.iter().all(|pid| !is_ours(*pid)) || is_open(), "drained");
}

#[test]
fn what_comes_while_a_worker_is_stopped_goes_to_another_one() {
    let mut master = Master::start(&with(&["--workers", "3"]));
    let (addr, workers) = (master.addr(), master.workers());
    assert!(get(&addr, "/healthz").ends_with("ok\n"));
    for (number, stopped) in workers.iter().enumerate() {
        signal(*stopped, "STOP");
        master.waits_for(&format!("worker {stopped} is stopped"), 1);
        for _ in 0..5 {
            assert!(get(&addr, "/healthz").ends_with("ok\n"), "{number}");
        }
        signal(*stopped, "CONT");
        master.waits_for(&format!("worker {stopped} continues"), 1);
    }
    assert_eq!(master.workers(), workers);
}

#[test]
fn a_terminal_that_is_resized_asks_for_nothing() {
    let terminal = pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    pty::unlockpt(&terminal).unwrap();
    let name = pty::ptsname(&terminal, Vec::new()).unwrap().into_string().unwrap();
    let theirs = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(OpenptFlags::NOCTTY.bits().cast_signed())
        .open(name);
    let mut command = Command::new("setsid");
    command.arg("--ctty").arg(PROGRAM);
    let mut master =
        Master::launch_with(command, &with(&["--workers", "2"]), theirs.unwrap().into());
    master.waits_for("all workers accept", 1);
    let size = termios::tcgetwinsize(&terminal).unwrap();
    termios::tcsetwinsize(&terminal, Winsize { ws_col: size.ws_col + 1, ..size }).unwrap();
    // It is pending by now, and all that is pending is read before the end.
    master.signal("TERM");
    let (status, log) = master.ended();
    assert!(status.success() && !log.contains("SIGWINCH"), "{status}: {log}");
}

/// The kernel does not say which one came first.
#[test]
fn hup_that_comes_with_winch_brings_workers_back() {
    let mut master = Master::start(&with(&["--workers", "2"]));
    let (addr, before) = (master.addr(), master.workers());
    for name in ["STOP", "WINCH", "HUP", "CONT"] {
        master.signal(name);
    }
    let is_replaced = |workers: &BTreeSet<u32>| workers.len() == 2 && workers.is_disjoint(&before);
    master.waits_until(|this| is_replaced(&this.workers()), "replaced");
    assert!(get(&addr, "/healthz").ends_with("ok\n"));
}

#[test]
fn winch_drains_the_workers_and_keeps_the_master() {
    for accept in STRATEGIES {
        let mut master = Master::start(&with(&[&["--workers", "2"], &accept[..]].concat()));
        master.signal("WINCH");
        master.waits_until(|this| this.workers().is_empty(), "drained");
        // A client that connects meanwhile waits.
        let early = [(); 8].map(|()| TcpStream::connect(master.addr()).unwrap());
        master.signal("HUP");
        master.waits_until(|this| this.workers().len() == 2, "back");
        for mut early in early {
            early.set_read_timeout(Some(GUARD)).unwrap();
            assert_eq!(asks(&mut early), Ok(true));
        }
        // Who waits when the master ends is served, too.
        master.signal("WINCH");
        master.waits_until(|this| this.workers().is_empty(), "drained");
        let waiting = [(); 8].map(|()| guarded(TcpStream::connect(master.addr()).unwrap()));
        master.signal("TERM");
        for waiting in waiting {
            asks(&mut waiting.unwrap()).expect("an answer");
        }
        assert!(master.first.wait().unwrap().success());
    }
}

/// A sequence of numbers that looks random, and is the same for the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as usize
    }
}

/// All processes of this test's server, whoever their parents are, and those of them that are dead
/// and nobody has waited for.
fn processes_of(master: &Master) -> (BTreeSet<u32>, usize) {
    let name = master.pid_file();
    let name = name.as_os_str().as_encoded_bytes();
    let (mut alive, mut zombies) = (BTreeSet::new(), 0);
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        if line.windows(name.len()).any(|part| part == name) {
            alive.insert(pid);
        }
    }
    let in_charge = fs::read_to_string(master.pid_file()).ok();
    let in_charge = in_charge.and_then(|text| text.trim().parse().ok());
    for pid in in_charge.map(children).unwrap_or_default() {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        zombies += usize::from(stat.contains(") Z "));
    }
    (alive, zombies)
}

/// For 3 seconds, or as many as `WAKEFUL_SIGNAL_SECONDS` says. The seed is printed;
/// `WAKEFUL_SIGNAL_SEED` repeats its choices.
#[test]
fn random_signals_leave_no_worker_unowned_no_listener_lost_and_no_zombie() {
    let variable = |name| std::env::var(name).ok().and_then(|text: String| text.parse().ok());
    let seconds = variable("WAKEFUL_SIGNAL_SECONDS").unwrap_or(3);
    let clock = || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let seed = variable("WAKEFUL_SIGNAL_SEED").unwrap_or_else(|| clock().as_nanos() as u64 | 1);
    eprintln!("WAKEFUL_SIGNAL_SEED={seed}");
    STRATEGIES.iter().for_each(|accept| signal_at_random(accept, seconds, Random(seed)));
}

fn signal_at_random(accept: &[&'static str; 2], seconds: u64, mut random: Random) {
    let two = ["--workers", "2", "--grace", "1"];
    let mut master = Master::start(&with(&[&two[..], accept].concat()));
    let addr = master.addr();
    // What a killed worker had in flight is lost, so these only see that nobody is ever refused.
    let stop = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..2)
        .map(|_| {
            let (stop, addr) = (stop.clone(), addr.clone());
            thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let mut stream = TcpStream::connect(&addr).expect("a connect is refused");
                    stream.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
                    let _ = asks(&mut stream);
                }
            })
        })
        .collect();
    let of_master = ["HUP", "HUP", "USR1", "USR2", "TTIN", "TTOU", "WINCH", "TTIN"];
    let of_worker = ["KILL", "TERM", "STOP", "CONT", "HUP", "INT"];
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(seconds) {
        thread::sleep(Duration::from_millis(random.below(40) as u64));
        if random.below(2) == 0 {
            master.signal(of_master[random.below(of_master.len())]);
        } else if let Some(worker) = master.workers().into_iter().nth(random.below(3)) {
            signal(worker, of_worker[random.below(of_worker.len())]);
        }
    }
    // Stopped processes continue, an upgrade that is under way ends, and then all is in order.
    for pid in processes_of(&master).0 {
        signal(pid, "CONT");
    }
    let is_settled = |this: &Master| {
        let settled = || {
            let (alive, zombies) = processes_of(this);
            let owned = this.workers().into_iter().chain([this.pid()]).collect();
            zombies == 0 && alive == owned && alive.len() > 1
        };
        // Twice: a reload starts one worker after the other.
        settled() && {
            thread::sleep(Duration::from_millis(500));
            settled()
        }
    };
    master.signal("HUP");
    master.waits_until(is_settled, "in order");
    stop.store(true, Ordering::Relaxed);
    for client in clients {
        client.join().unwrap();
    }
    assert!(get(&addr, "/healthz").ends_with("ok\n"));
    let pid = master.pid();
    master.signal("TERM");
    master.waits_until(|_| !is_ours(pid), "ended");
    let (alive, _) = processes_of(&master);
    assert!(alive.is_empty(), "{alive:?}\n{}", master.log());
}

/// How often the threads of a process were given a CPU.
fn switches(pid: u32) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    let status = tasks.map(|task| fs::read_to_string(task.path().join("status")).unwrap());
    let counts = status.map(|text| {
        let lines = text.lines().filter(|line| line.contains("ctxt_switches"));
        lines
            .map(|line| line.rsplit('\t').next().unwrap().trim().parse::<u64>().unwrap())
            .sum::<u64>()
    });
    counts.sum()
}

#[test]
fn a_master_has_one_thread_and_nobody_wakes_in_silence() {
    let mut master = Master::start(&with(&["--workers", "3", "--admin", "127.0.0.1:0"]));
    let pid = master.pid();
    assert!(get(&master.addr(), "/healthz").ends_with("ok\n"));
    let all = |this: &Master| this.workers().into_iter().chain([pid]).map(switches).sum::<u64>();
    // The kernel never switches to a process that sleeps. What is left of the start ends after a
    // while.
    let quiet = |this: &Master| {
        let before = all(this);
        thread::sleep(Duration::from_secs(2));
        all(this) == before
    };
    master.waits_until(quiet, "silent");
    assert_eq!(fs::read_dir(format!("/proc/{pid}/task")).unwrap().count(), 1);
}

#[test]
fn a_service_manager_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(GUARD)).unwrap();
    let mut launched = Command::new("env");
    launched.arg(format!("NOTIFY_SOCKET={}", path.display())).arg(PROGRAM);
    let mut master = Master::start_by(launched, &with(&["--workers", "1"]));
    let told = || {
        let mut text = [0; 512];
        let read = socket.recv(&mut text).unwrap();
        String::from_utf8(text[..read].to_vec()).unwrap()
    };
    let first = master.pid();
    assert_eq!(told().trim_end(), format!("MAINPID={first}\nREADY=1"));
    master.signal("HUP");
    let reloading = told();
    assert!(reloading.starts_with("RELOADING=1\nMONOTONIC_USEC="), "{reloading}");
    assert_eq!(told().trim_end(), format!("MAINPID={first}\nREADY=1"));
    master.signal("USR2");
    master.waits_until(|this| this.pid() != first, "in charge");
    let second = master.pid();
    assert_eq!(told().trim_end(), format!("MAINPID={second}\nREADY=1"));
    // The old one says the same, in case it has said something of itself meanwhile. It does not say
    // that the service stops.
    assert_eq!(told().trim_end(), format!("MAINPID={second}\nREADY=1"));
    master.signal("TERM");
    assert_eq!(told().trim_end(), "STOPPING=1");
}

#[test]
fn a_service_manager_that_does_not_read_keeps_nobody_waiting() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(GUARD)).unwrap();
    let fills = UnixDatagram::unbound().unwrap();
    fills.set_nonblocking(true).unwrap();
    while fills.send_to(b"full", &path).is_ok() {}
    let mut launched = Command::new("env");
    launched.arg(format!("NOTIFY_SOCKET={}", path.display())).arg(PROGRAM);
    let mut master = Master::start_by(launched, &with(&["--workers", "1"]));
    let before = master.workers();
    signal(*before.first().unwrap(), "KILL");
    master.waits_until(|this| this.workers().is_disjoint(&before), "replaced");
    // The messages that wait are sent as soon as the manager reads.
    let expected = format!("MAINPID={}\nREADY=1", master.pid());
    let mut text = [0; 512];
    loop {
        let read = manager.recv(&mut text).unwrap();
        if &text[..read] != b"full" {
            assert_eq!(String::from_utf8_lossy(&text[..read]), expected);
            break;
        }
    }
    master.signal("TERM");
    assert!(master.ended().0.success());
}

/// What was said, and the socket that came with it.
fn told_with_socket(manager: &UnixDatagram) -> (String, Option<OwnedFd>) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut text = [0; 512];
    let mut pieces = [IoSliceMut::new(&mut text)];
    let read = recvmsg(manager, &mut pieces, &mut control, RecvFlags::empty()).unwrap().bytes;
    let rights = |message| match message {
        RecvAncillaryMessage::ScmRights(mut sockets) => sockets.next(),
        _ => None,
    };
    let socket = control.drain().find_map(rights);
    (String::from_utf8(text[..read].to_vec()).unwrap().trim_end().to_owned(), socket)
}

#[test]
fn a_service_manager_keeps_the_sockets_of_a_killed_master() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(GUARD)).unwrap();
    let mut launched = Command::new("env");
    let notify = format!("NOTIFY_SOCKET={}", path.display());
    launched.args([&*notify, "FDSTORE=4", PROGRAM]);
    let mut master = Master::start_by(launched, &with(&["--workers", "1"]));
    let (told, socket) = told_with_socket(&manager);
    assert_eq!(told, "FDSTORE=1\nFDPOLL=0\nFDNAME=wakeful,127.0.0.1,0");
    assert!(told_with_socket(&manager).0.ends_with("READY=1"));
    let (addr, workers) = (master.addr(), master.workers());
    master.first.kill().unwrap();
    master.waits_until(|_| !workers.iter().any(|worker| is_ours(*worker)), "drained");
    // Nobody serves now, and it waits.
    let mut waiting = TcpStream::connect(&addr).unwrap();
    waiting.set_read_timeout(Some(GUARD)).unwrap();
    let next = started_with_kept(socket.unwrap());
    assert_eq!(next.addr(), addr);
    assert_eq!(asks(&mut waiting), Ok(true));
}

/// Starts a master as systemd does after a failure: with a socket that systemd has kept.
fn started_with_kept(socket: OwnedFd) -> Master {
    let mut passing = passing_socket();
    passing.env("LISTEN_FDNAMES", "wakeful,127.0.0.1,0");
    let mut master = Master::launch_with(passing, &with(&["--workers", "1"]), Stdio::from(socket));
    master.waits_for("all workers accept", 1);
    master
}

/// `--workers`, or the address, is no longer in the settings when the service is restarted.
#[test]
fn a_kept_socket_that_is_of_no_use_leaves_its_address_to_the_next_server() {
    for is_master in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        manager.set_read_timeout(Some(GUARD)).unwrap();
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = socket.local_addr().unwrap().to_string();
        let notify = format!("NOTIFY_SOCKET={}", path.display());
        let mut launched = passing_socket_to(&["env", &notify, PROGRAM]);
        let name = format!("wakeful,{}", addr.replace(':', ","));
        launched.env("LISTEN_FDNAMES", &name);
        let passed = Stdio::from(OwnedFd::from(socket.try_clone().unwrap()));
        // As systemd does: it closes the descriptor of a barrier when it has done all before.
        let told = thread::spawn(move || {
            let told = told_with_socket(&manager).0;
            let (barrier, closes) = told_with_socket(&manager);
            assert_eq!((&*barrier, closes.is_some()), ("BARRIER=1", true));
            drop(closes);
            // A process that it has just forked has a copy for a moment longer.
            thread::sleep(Duration::from_millis(200));
            drop(socket);
            told
        });
        if is_master {
            // Nobody can listen here beside the kept socket.
            let everywhere = addr.replace("127.0.0.1", "0.0.0.0");
            let arguments = ["--listen", &everywhere, "--workers", "1"];
            let mut master = Master::launch_with(launched, &arguments, passed);
            master.waits_for("all workers accept", 1);
            assert!(get(&addr, "/healthz").ends_with("ok\n"));
        } else {
            launched.stdin(passed);
            let mut service = Service::start_by(launched, &["http", "--listen", &addr]);
            assert_eq!(service.behind("listening on "), addr);
            assert!(get(&addr, "/healthz").ends_with("ok\n"));
        }
        assert_eq!(told.join().unwrap(), format!("FDSTOREREMOVE=1\nFDNAME={name}"));
    }
}

#[test]
fn a_kept_socket_that_was_shut_down_listens_again() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    rustix::net::shutdown(&listener, rustix::net::Shutdown::Both).unwrap();
    let master = started_with_kept(listener.into());
    assert!(get(&master.addr(), "/healthz").ends_with("ok\n"));
}

/// The drain of the earlier master has stopped new clients.
#[test]
fn a_kept_socket_of_a_master_that_failed_at_its_start_lets_clients_in_again() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap().to_string();
    let kept = || OwnedFd::from(listener.try_clone().unwrap());
    let mut fails = passing_socket();
    fails.env("LISTEN_FDNAMES", "wakeful,127.0.0.1,0");
    let arguments = with(&["--workers", "1", "--tls-cert", "/nowhere", "--tls-key", "/nowhere"]);
    let failed = Master::launch_with(fails, &arguments, Stdio::from(kept()));
    assert_eq!(failed.ended().0.code(), Some(1));
    // A client that connects meanwhile waits.
    let mut waiting = TcpStream::connect(&addr).unwrap();
    waiting.set_read_timeout(Some(GUARD)).unwrap();
    // A master of an earlier version has left this.
    let filtered = SharedListener::from_socket(kept()).unwrap();
    filtered.let_nobody_in().unwrap();
    let next = started_with_kept(kept());
    assert_eq!(next.addr(), addr);
    assert_eq!(asks(&mut waiting), Ok(true));
    assert!(get(&addr, "/healthz").ends_with("ok\n"));
}

#[test]
fn a_service_manager_that_has_no_room_at_first_keeps_the_socket_later() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(GUARD)).unwrap();
    let fills = UnixDatagram::unbound().unwrap();
    fills.set_nonblocking(true).unwrap();
    while fills.send_to(b"full", &path).is_ok() {}
    let mut launched = Command::new("env");
    launched.args([&*format!("NOTIFY_SOCKET={}", path.display()), "FDSTORE=4", PROGRAM]);
    let master = Master::start_by(launched, &with(&["--workers", "1"]));
    let (told, socket) = loop {
        let (told, socket) = told_with_socket(&manager);
        if told.starts_with("FDSTORE=1\n") {
            break (told, socket);
        }
    };
    assert_eq!(told, "FDSTORE=1\nFDPOLL=0\nFDNAME=wakeful,127.0.0.1,0");
    let socket = std::net::TcpListener::from(socket.unwrap());
    assert_eq!(socket.local_addr().unwrap().to_string(), master.addr());
}

/// A manager drops more without a word. A master that takes them for kept would not answer who
/// waits there at its end.
#[test]
fn a_service_manager_gets_as_many_sockets_as_it_has_room_for() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(GUARD)).unwrap();
    let mut launched = Command::new("env");
    launched.args([&*format!("NOTIFY_SOCKET={}", path.display()), "FDSTORE=1", PROGRAM]);
    let own = directory.path().join("own");
    let own = format!("unix:{}", own.display());
    let arguments = ["--listen", "127.0.0.1:0", "--listen", &own, "--workers", "1"];
    let mut master = Master::start_by(launched, &arguments);
    let told = || told_with_socket(&manager).0;
    assert_eq!(told(), format!("FDSTOREREMOVE=1\nFDNAME=wakeful,{}", own.replace(':', ",")));
    assert_eq!(told(), "FDSTORE=1\nFDPOLL=0\nFDNAME=wakeful,127.0.0.1,0");
    assert!(told().ends_with("READY=1"));
    master.waits_until(|this| this.log().contains("has no room for 1 more"), "no room");
    master.signal("TERM");
    assert!(master.ended().0.success());
    assert!(UnixStream::connect(own.strip_prefix("unix:").unwrap()).is_err());
}

#[test]
fn a_service_manager_keeps_the_unix_sockets_of_a_master_that_has_ended() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(GUARD)).unwrap();
    let mut launched = Command::new("env");
    launched.args([&*format!("NOTIFY_SOCKET={}", path.display()), "FDSTORE=4", PROGRAM]);
    let own = directory.path().join("own");
    let listen = format!("unix:{}", own.display());
    let admin = format!("unix:{}", directory.path().join("admin").display());
    let arguments = ["--listen", &listen, "--admin", &admin, "--workers", "1"];
    let mut master = Master::start_by(launched, &arguments);
    let kept = [told_with_socket(&manager), told_with_socket(&manager)];
    assert!(kept.iter().all(|(told, _)| told.starts_with("FDSTORE=1\n")), "{kept:?}");
    master.signal("TERM");
    let start = Instant::now();
    while master.first.try_wait().unwrap().is_none() {
        assert!(start.elapsed() < GUARD, "{}", master.log());
        thread::sleep(Duration::from_millis(5));
    }
    // The manager has the sockets, so who connects now waits for the next master.
    for path in [&listen, &admin] {
        UnixStream::connect(path.strip_prefix("unix:").unwrap()).unwrap();
    }
    drop(kept);
}

#[test]
fn a_service_manager_forgets_a_socket_that_an_upgrade_drops() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(GUARD)).unwrap();
    let file = directory.path().join("settings.toml");
    let dropped = format!("unix:{}", directory.path().join("socket").display());
    fs::write(&file, format!("workers = 1\nlisten = ['127.0.0.1:0', '{dropped}']\n")).unwrap();
    let mut launched = Command::new("env");
    let notify = format!("NOTIFY_SOCKET={}", path.display());
    launched.args([&*notify, "FDSTORE=4", PROGRAM]);
    let mut master = Master::start_by(launched, &["--config", file.to_str().unwrap()]);
    let told = || told_with_socket(&manager).0;
    let name = |addr: &str| format!("FDNAME=wakeful,{}", addr.replace(':', ","));
    assert_eq!(told(), format!("FDSTORE=1\nFDPOLL=0\n{}", name("127.0.0.1:0")));
    assert_eq!(told(), format!("FDSTORE=1\nFDPOLL=0\n{}", name(&dropped)));
    assert!(told().ends_with("READY=1"));
    fs::write(&file, "workers = 1\nlisten = '127.0.0.1:0'\n").unwrap();
    let before = master.pid();
    master.signal("USR2");
    master.waits_until(|this| this.pid() != before, "in charge");
    assert_eq!(told(), format!("FDSTOREREMOVE=1\n{}", name(&dropped)));
    assert_eq!(told(), format!("FDSTORE=1\nFDPOLL=0\n{}", name("127.0.0.1:0")));
    assert!(told().ends_with("READY=1"));
}

#[test]
fn what_cannot_be_divided_is_refused() {
    let refused = |arguments: &[&str], expected: &str| {
        let output = Command::new(PROGRAM).arg("serve").args(arguments).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(expected), "{said}");
    };
    refused(&["kv", "--workers", "2"], "--workers cannot be used with kv");
    refused(&["echo", "--workers", "0"], "from 1 to 4096");
    refused(&["echo", "--pid-file", "/tmp/x"], "--workers");
}

#[test]
fn a_pid_file_that_cannot_be_written_ends_it() {
    let mut command = Command::new(PROGRAM);
    command.args(["serve", "http", "--listen", "127.0.0.1:0", "--workers", "1"]);
    let output = command.args(["--pid-file", "/proc/none/pid"]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("the pid file /proc/none/pid"), "{said}");
}

/// What this server says of a start that fails.
fn refused(mut command: Command, pid_file: &Path) -> String {
    let arguments = with(&["--workers", "1", "--grace", "0"]);
    command.args(["serve", "http", "--loops", "1"]).args(arguments);
    command.arg("--pid-file").arg(pid_file).env("RUST_LOG", "info");
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let start = Instant::now();
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break status,
            None if start.elapsed() > GUARD => {
                signal(child.id(), "TERM");
                break child.wait().unwrap();
            }
            None => thread::sleep(Duration::from_millis(5)),
        }
    };
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(status.code(), Some(1), "{said}");
    said
}

#[test]
fn a_pid_file_of_a_master_that_runs_is_not_taken() {
    let mut master = Master::start(&with(&["--workers", "1"]));
    let first = master.pid();
    let file = master.pid_file();
    let refused = || refused(Command::new(PROGRAM), &file);
    let expected = |pid: u32| format!("a running master, process {pid}, has the pid file");
    let said = refused();
    assert!(said.contains(&expected(first)), "{said}");
    assert!(!said.contains("accepts"), "{said}");
    assert_eq!(master.pid(), first);
    // This also holds after an upgrade, in which the two masters do not conflict.
    master.signal("USR2");
    master.waits_until(|this| this.pid() != first, "in charge");
    let second = master.pid();
    let said = refused();
    assert!(said.contains(&expected(second)), "{said}");
    // A master that drains no longer needs the file, although it has not ended.
    let slow = slow_request(&master);
    master.signal("TERM");
    master.waits_for("SIGTERM: the workers drain", 1);
    let arguments = ["http", "--listen", "127.0.0.1:0", "--workers", "1"];
    let arguments = [&arguments[..], &["--pid-file", file.to_str().unwrap()]].concat();
    let next = Service::start(&arguments);
    master.waits_until(|this| this.pid() == next.child.id(), "in charge");
    assert!(is_answered(slow));
    master.waits_until(|_| !is_ours(second), "ended");
    assert_eq!(master.pid(), next.child.id());
    // A dead one has nothing, although its file is there.
    next.signal("-KILL");
    drop(next);
    let last = Service::start(&arguments);
    master.waits_until(|this| this.pid() == last.child.id(), "in charge");
    last.signal("-TERM");
}

#[test]
fn a_new_master_with_another_pid_file_does_not_take_that_of_a_master_that_runs() {
    let other = Master::start(&with(&["--workers", "1"]));
    let directory = tempfile::tempdir().unwrap();
    let (own, settings) = (directory.path().join("pid"), directory.path().join("settings.toml"));
    let set = |pid_file: &Path| {
        fs::write(&settings, format!("pid-file = '{}'\n", pid_file.display())).unwrap();
    };
    set(&own);
    let arguments = ["http", "--listen", "127.0.0.1:0", "--workers", "1", "--config"];
    let mut first = Service::start(&[&arguments[..], &[settings.to_str().unwrap()]].concat());
    first.behind("all workers accept");
    set(&other.pid_file());
    first.signal("-USR2");
    let why = first.behind(&format!("a running master, process {}, has the pid file", other.pid()));
    assert!(why.contains("end it first"), "{why}");
    assert_eq!(
        first.behind("no upgrade: the new master "),
        "has ended (exit status: 1); this one continues"
    );
    assert_eq!(fs::read_to_string(&own).unwrap().trim(), first.child.id().to_string());
    assert_eq!(other.pid(), other.first.id());
    first.signal("-TERM");
}

#[test]
fn a_settings_file_that_is_a_pipe_without_a_writer_holds_up_no_reload() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("settings.toml");
    fs::write(&file, "max-body = '10B'\n").unwrap();
    let arguments = [&AT_ANY_PORT[..], &["--workers", "1", "--config"]].concat();
    let arguments = [&arguments[..], &[file.to_str().unwrap()]].concat();
    let mut master = Master::start_by(Command::new(PROGRAM), &arguments);
    let before = master.workers();
    fs::remove_file(&file).unwrap();
    assert!(Command::new("mkfifo").arg(&file).status().unwrap().success());
    master.signal("HUP");
    master.waits_for("before it accepted: the old workers continue", 1);
    master.waits_for("settings.toml: cannot read the settings file: nothing has been written", 1);
    assert_eq!(master.workers(), before);
    // A pipe into which somebody writes is read to its end.
    master.signal("HUP");
    let mut writer = OpenOptions::new().write(true).open(&file).unwrap();
    writer.write_all(b"max-body =").unwrap();
    writer.write_all(b" '11B'\n").unwrap();
    drop(writer);
    master.waits_until(|this| this.workers().is_disjoint(&before), "replaced");
}

/// The master has read it to its end.
#[test]
fn a_pipe_that_only_the_master_can_read_is_no_settings_file_for_workers() {
    let script = r#"exec "$0" serve http "$@" --config <(echo 'max-body = "10B"')"#;
    let mut command = Command::new("bash");
    command.args(["-c", script, PROGRAM]).args(with(&["--workers", "1"]));
    let output = command.stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("nothing was in this pipe"), "{said}");
    assert_eq!(output.status.code(), Some(1), "{said}");
}

#[test]
fn a_service_manager_that_wants_to_hear_all_the_time_keeps_no_master_busy() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    let mut launched = Command::new("env");
    launched.arg(format!("NOTIFY_SOCKET={}", path.display()));
    launched.arg("WATCHDOG_USEC=1").arg(PROGRAM);
    let _master = Master::start_by(launched, &with(&["--workers", "1"]));
    let told = || {
        let mut text = [0; 512];
        let read = manager.recv(&mut text).unwrap();
        text[..read] == *b"WATCHDOG=1"
    };
    while !told() {}
    let start = Instant::now();
    // The manager's queue has room for about ten.
    (0..40).for_each(|_| while !told() {});
    assert!(start.elapsed() > Duration::from_millis(200), "{:?}", start.elapsed());
}

#[test]
fn a_service_manager_hears_that_a_master_without_descriptors_is_alive() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(GUARD)).unwrap();
    let mut launched = Command::new("env");
    launched.arg(format!("NOTIFY_SOCKET={}", path.display()));
    launched.arg("WATCHDOG_USEC=20000").arg(PROGRAM);
    let mut master = Master::start_by(launched, &with(&["--workers", "1"]));
    let pid = rustix::process::Pid::from_raw(master.pid().cast_signed());
    let told = || {
        let mut text = [0; 512];
        let read = manager.recv(&mut text).unwrap();
        String::from_utf8_lossy(&text[..read]).into_owned()
    };
    while !told().contains("READY=1") {}
    let none = Rlimit { current: Some(0), ..getrlimit(Resource::Nofile) };
    prlimit(pid, Resource::Nofile, none).unwrap();
    master.waits_for("the master cannot wait for events", 1);
    // What was sent before is in the queue.
    manager.set_nonblocking(true).unwrap();
    while manager.recv(&mut [0; 512]).is_ok() {}
    manager.set_nonblocking(false).unwrap();
    (0..3).for_each(|_| while told() != "WATCHDOG=1" {});
}

#[test]
fn a_master_that_lacks_descriptors_at_its_start_names_their_limit() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pid");
    // What is not there for each of the things that it opens.
    for limit in 8..=24 {
        let mut command = Command::new("prlimit");
        command.arg(format!("--nofile={limit}")).arg(PROGRAM);
        let said = refused(command, &path);
        let last = said.lines().rfind(|line| line.starts_with("wakeful: ")).unwrap();
        assert!(last.contains("RLIMIT_NOFILE"), "{limit}: {said}");
    }
}
