//! `wakeful awake --spin`: a command that spins before it sleeps.
#![allow(unsafe_code)]

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::PROGRAM;
use rustix::process::{Pid, Signal, kill_process};

const LIBRARY: &str = "libwakeful_spin.so";
/// The socket of the server, in the process that is one.
const SERVE: &str = "WAKEFUL_TEST_SERVE";
/// For what may take long on a machine with much else to do.
const GUARD: Duration = Duration::from_secs(5);
/// Until a server spins, on a machine with much else to do.
const PATIENCE: Duration = Duration::from_secs(2);
const GAP: Duration = Duration::from_micros(150);
const REQUESTS: u32 = 300;

/// As the tests' dependency it is built beside them.
fn library() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let library = tests.with_file_name(LIBRARY);
    assert!(library.is_file(), "{}", library.display());
    library
}

fn spin(arguments: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(["awake", "--spin"]).args(arguments).env("WAKEFUL_SPIN_LIBRARY", library());
    command.env_remove("LD_PRELOAD");
    command
}

fn run(command: &mut Command) -> (Option<i32>, String, String) {
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn a_command_and_its_children_have_the_library_and_the_settings() {
    let script = "sh -c 'echo $LD_PRELOAD $WAKEFUL_SPIN $WAKEFUL_SPIN_MAX_CPU'; exit 7";
    let library = library().canonicalize().unwrap();
    let library = library.display();
    let mut command = spin(&["--max-cpu", "0.5", "--", "sh", "-c", script]);
    let (code, out, said) = run(&mut command);
    assert_eq!((code, out), (Some(7), format!("{library} 1 0.5\n")));
    assert!(said.starts_with("wakeful awake: in 0.") && said.lines().count() == 1, "{said}");
    // A library of others stays in front. (The loader says that there is none.)
    let mut command = spin(&["--", "sh", "-c", script]);
    let (code, said, _) = run(command.env("LD_PRELOAD", "/nonexistent.so"));
    assert_eq!((code, said), (Some(7), format!("/nonexistent.so:{library} 1\n")));
}

#[test]
fn at_its_end_it_says_how_much_cpu_time_the_command_used() {
    // As much as it takes to have a tenth of a second of CPU time, however long that is.
    let script = "while :; do read -r _ _ _ _ _ _ _ _ _ _ _ _ _ used _ < /proc/$$/stat; [ \"$used\" -lt 10 ] || exit 0; done";
    let (code, _, said) = run(&mut spin(&["--", "sh", "-c", script]));
    let used = said.split("the command used ").nth(1).and_then(|rest| rest.split(' ').next());
    let used: f64 = used.unwrap_or_else(|| panic!("{said}")).parse().unwrap();
    assert_eq!(code, Some(0));
    assert!(used >= 0.1 && said.ends_with(" of a CPU\n"), "{said}");
    for quiet in [&["--quiet", "--", "true"][..], &["--", "/nonexistent/command"]] {
        let (_, _, said) = run(&mut spin(quiet));
        assert!(!said.contains("CPU time"), "{said}");
    }
}

#[test]
fn signals_are_passed_on_and_the_exit_code_is_the_command_s() {
    let script = "trap 'exit 9' TERM; echo up; while :; do sleep 0.05; done";
    let mut child = spin(&["--", "sh", "-c", script]).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "up\n");
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(9));
    assert_eq!(run(&mut spin(&["--", "sh", "-c", "kill -9 $$"])).0, Some(128 + 9));
    assert_eq!(run(&mut spin(&["--", "/nonexistent/command"])).0, Some(127));
}

#[test]
fn where_the_library_was_looked_for_is_said() {
    let mut command = spin(&["--", "echo", "ran"]);
    let (code, out, said) = run(command.env("WAKEFUL_SPIN_LIBRARY", "/nonexistent.so"));
    assert_eq!((code, &out[..]), (Some(1), ""));
    assert!(said.contains("/nonexistent.so") && said.contains("-p wakeful-spin"), "{said}");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a library.so");
    fs::write(&file, "").unwrap();
    let (code, _, said) = run(spin(&["--", "true"]).env("WAKEFUL_SPIN_LIBRARY", &file));
    assert_eq!(code, Some(1));
    assert!(said.contains("has a blank"), "{said}");
}

#[test]
fn the_library_beside_the_program_is_found_without_proc() {
    let folder = tempfile::tempdir_in(Path::new(PROGRAM).parent().unwrap()).unwrap();
    let (program, beside) = (folder.path().join("wakeful"), folder.path().join(LIBRARY));
    fs::hard_link(PROGRAM, &program).unwrap();
    fs::copy(library(), &beside).unwrap();
    let script =
        "mount -t tmpfs none /proc && exec \"$0\" awake --spin -- sh -c 'echo $LD_PRELOAD'";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script]).arg(program).env_remove("LD_PRELOAD");
    let (code, out, said) = run(&mut command);
    if ["unshare:", "mount:"].iter().any(|tool| said.starts_with(tool)) {
        return eprintln!("skipped: /proc cannot be hidden: {said}");
    }
    assert_eq!((code, out), (Some(0), format!("{}\n", beside.display())), "{said}");
}

#[test]
fn options_that_do_not_belong_together_are_refused() {
    for usage in [
        &["--spin"][..],
        &["--spin", "--pid", "1"],
        &["--spin", "--probe"],
        &["--spin", "--hold", "machine", "--", "true"],
        &["--spin", "--max-cpu", "2", "--", "true"],
        &["--max-cpu", "0.5", "--", "true"],
    ] {
        let output = Command::new(PROGRAM).arg("awake").args(usage).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{usage:?}");
    }
}

/// A program without a loader, which exits with 5.
#[cfg(target_arch = "x86_64")]
fn static_program() -> Vec<u8> {
    const BASE: u64 = 0x40_0000;
    const START: u64 = 64 + 56;
    // mov edi, 5; mov eax, 60 (exit); syscall
    let code = [0xbf, 5, 0, 0, 0, 0xb8, 60, 0, 0, 0, 0x0f, 0x05];
    let size = START + code.len() as u64;
    let mut file = b"\x7fELF\x02\x01\x01".to_vec();
    file.resize(16, 0);
    for half in [2_u16, 62] {
        file.extend(half.to_le_bytes());
    }
    file.extend(1_u32.to_le_bytes());
    for long in [BASE + START, 64, 0] {
        file.extend(long.to_le_bytes());
    }
    file.extend(0_u32.to_le_bytes());
    for half in [64_u16, 56, 1, 0, 0, 0] {
        file.extend(half.to_le_bytes());
    }
    for word in [1_u32, 5] {
        file.extend(word.to_le_bytes());
    }
    for long in [0, BASE, BASE, size, size, 4096] {
        file.extend(long.to_le_bytes());
    }
    file.extend(code);
    file
}

#[test]
#[cfg(target_arch = "x86_64")]
fn a_static_program_runs_and_a_line_says_that_it_does_not_spin() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("static");
    fs::write(&file, static_program()).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    let (code, _, said) = run(&mut spin(&["--", file.to_str().unwrap()]));
    assert_eq!(code, Some(5), "{said}");
    assert!(said.contains("does not spin: it is linked statically"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}

/// Answers one client, and ends with it. Waits in libc's `poll`.
#[test]
fn serve() {
    let Some(path) = std::env::var_os(SERVE) else { return };
    let (mut stream, _) = UnixListener::bind(path).unwrap().accept().unwrap();
    let mut fds = [libc::pollfd { fd: stream.as_raw_fd(), events: libc::POLLIN, revents: 0 }];
    loop {
        // SAFETY: one descriptor, which is open.
        assert_eq!(unsafe { libc::poll(fds.as_mut_ptr(), 1, -1) }, 1);
        let mut bytes = [0; 16];
        match stream.read(&mut bytes).unwrap() {
            0 => return,
            read => stream.write_all(&bytes[..read]).unwrap(),
        }
    }
}

/// A server, which ends with the value.
struct Server {
    child: Child,
    client: UnixStream,
    _folder: tempfile::TempDir,
}

impl Server {
    /// `command` starts what is appended to it.
    fn start(mut command: Command) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        command.args(["--exact", "serve", "--nocapture", "--test-threads=1"]);
        command.env(SERVE, &socket).stdout(Stdio::null());
        let child = command.spawn().unwrap();
        let client = connect(&socket);
        Self { child, client, _folder: folder }
    }

    /// Asks with gaps between the answers, and returns how long that took.
    fn ask(&mut self) -> Duration {
        let start = Instant::now();
        for _ in 0..REQUESTS {
            self.client.write_all(b"ping").unwrap();
            self.client.read_exact(&mut [0; 4]).unwrap();
            let answered = Instant::now();
            while answered.elapsed() < GAP {
                std::thread::yield_now();
            }
        }
        start.elapsed()
    }

    /// The CPU time of the server: the child, or a child of it.
    fn cpu_time(&self) -> Duration {
        let pid = self.child.id();
        let children = format!("/proc/{pid}/task/{pid}/children");
        let served_by = fs::read_to_string(children).unwrap_or_default();
        let pid = served_by.split_whitespace().next().map_or(pid.to_string(), str::to_owned);
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
        let of_task = |task: std::io::Result<fs::DirEntry>| {
            let text = fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
            text.split_whitespace().next()?.parse::<u64>().ok()
        };
        Duration::from_nanos(tasks.filter_map(of_task).sum())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.client.shutdown(std::net::Shutdown::Both);
        let _ = self.child.wait();
    }
}

fn connect(socket: &Path) -> UnixStream {
    let start = Instant::now();
    loop {
        match UnixStream::connect(socket) {
            Ok(client) => {
                client.set_read_timeout(Some(GUARD)).unwrap();
                return client;
            }
            Err(error) => assert!(start.elapsed() < GUARD, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_server_spins_while_it_has_traffic_and_not_in_silence() {
    let this = std::env::current_exe().unwrap();
    let mut plain = Server::start(Command::new(&this));
    let mut spinning = Server::start(spin(&["--", this.to_str().unwrap()]));
    let pid = spinning.child.id();
    let served_by = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    let maps = fs::read_to_string(format!("/proc/{}/maps", served_by.trim())).unwrap();
    assert!(maps.contains(LIBRARY), "{maps}");
    let used_by = |server: &mut Server| {
        let before = server.cpu_time();
        let took = server.ask();
        // Less than before, if the thread of the survey has ended meanwhile: it is in no sum then.
        (server.cpu_time().saturating_sub(before), took)
    };
    let start = Instant::now();
    let (used, took) = loop {
        let without = used_by(&mut plain).0;
        let (with, took) = used_by(&mut spinning);
        if with > without * 3 {
            break (with, took);
        }
        if start.elapsed() > PATIENCE {
            eprintln!("skipped: other programs leave no CPU to spin on");
            return;
        }
    };
    // Its last spin, after which it sleeps.
    std::thread::sleep(Duration::from_millis(20));
    let before = spinning.cpu_time();
    std::thread::sleep(took);
    let in_silence = spinning.cpu_time().saturating_sub(before);
    assert!(in_silence * 10 < used, "{in_silence:?} in silence, {used:?} with traffic");
}

#[test]
fn redis_answers_and_ends_as_it_would() {
    if Command::new("redis-server").arg("--version").output().is_err() {
        eprintln!("skipped: redis-server is not installed");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let mut command = spin(&["--", "redis-server", "--port", "0", "--save", "", "--unixsocket"]);
    command.arg(&socket).current_dir(folder.path()).stdout(Stdio::null());
    let mut child = command.spawn().unwrap();
    let mut client = connect(&socket);
    for _ in 0..200 {
        client.write_all(b"PING\r\n").unwrap();
        let mut answer = [0; 7];
        client.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"+PONG\r\n");
    }
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
}
