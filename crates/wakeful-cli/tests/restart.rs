//! A service that is restarted, and what its clients see of it.
#![allow(unsafe_code)] // `pre_exec`.

mod common;
#[path = "common/refused_call.rs"]
mod refused_call;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

use common::{GUARD, PROGRAM, Service, get};
use refused_call::refuse;

/// The program, with sockets passed as systemd does it: from descriptor 3 on, while somebody else
/// keeps them.
fn with_sockets(socket: impl Into<OwnedFd>) -> Command {
    let mut command = Command::new("sh");
    let script = "export LISTEN_PID=$$ LISTEN_FDS=1; exec \"$@\" 3<&0 </dev/null";
    command.args(["-c", script, "sh", PROGRAM]).stdin(Stdio::from(socket.into()));
    command
}

/// Has clients, each with one request after another on a new connection, until `restarts` are over.
/// All have their answers.
fn while_clients_ask(addr: &str, restarts: impl FnOnce(&AtomicU32)) {
    let (is_over, answered) = (AtomicBool::new(false), AtomicU32::new(0));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let answer = get(addr, "/healthz");
                    if !answer.ends_with("\r\n\r\nok\n") {
                        is_over.store(true, Ordering::Relaxed);
                        panic!("{answer:?}");
                    }
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        // Also where this fails.
        let _over = Over(&is_over);
        restarts(&answered);
    });
}

struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Waits until `more` further requests are answered.
fn until_more(answered: &AtomicU32, more: u32) {
    let before = answered.load(Ordering::Relaxed);
    let start = std::time::Instant::now();
    while answered.load(Ordering::Relaxed) < before + more {
        assert!(start.elapsed() < GUARD, "nobody is answered");
        thread::yield_now();
    }
}

fn ends(service: &mut Service) {
    service.signal("-TERM");
    assert!(service.child.wait().unwrap().success());
}

#[test]
fn a_service_on_a_socket_of_systemd_is_restarted_and_nobody_is_refused() {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = socket.local_addr().unwrap().to_string();
    for accept in ["exclusive", "dispatch"] {
        let start = || {
            let command = with_sockets(socket.try_clone().unwrap());
            let arguments = ["http", "--listen", "systemd", "--accept", accept];
            let mut service = Service::start_by(command, &arguments);
            assert_eq!(service.behind("listening on "), addr);
            service
        };
        let mut service = start();
        while_clients_ask(&addr, |answered| {
            for _ in 0..5 {
                until_more(answered, 20);
                ends(&mut service);
                // Clients wait in the socket's backlog meanwhile.
                service = start();
            }
            until_more(answered, 20);
            ends(&mut service);
            service = start();
        });
        ends(&mut service);
    }
}

#[test]
fn a_unix_socket_that_is_passed_is_served_and_keeps_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let socket = UnixListener::bind(&path).unwrap();
    for _ in 0..2 {
        let mut waits = UnixStream::connect(&path).unwrap();
        waits.set_read_timeout(Some(GUARD)).unwrap();
        waits.write_all(b"\0\0\0\x01x").unwrap();
        let command = with_sockets(socket.try_clone().unwrap());
        let mut service = Service::start_by(command, &["echo", "--listen", "systemd"]);
        assert_eq!(service.behind("listening on "), format!("unix:{}", path.display()));
        let mut answer = [0; 5];
        waits.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"\0\0\0\x01x");
        ends(&mut service);
        assert!(path.exists());
    }
}

/// The number in `LISTEN_PID` is that of `wakeful awake`.
#[test]
fn a_command_that_is_kept_awake_has_the_sockets_that_systemd_passes() {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = socket.local_addr().unwrap().to_string();
    let mut command = with_sockets(socket);
    command.args(["awake", "--quiet", "--", PROGRAM]);
    let mut service = Service::start_by(command, &["http", "--listen", "systemd"]);
    assert_eq!(service.behind("listening on "), addr);
    assert!(get(&addr, "/healthz").ends_with("ok\n"));
    ends(&mut service);
}

/// As in a service with `SystemCallFilter=@system-service`, and in most containers.
#[test]
fn sockets_that_are_passed_are_served_where_pidfd_getfd_is_refused() {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = socket.local_addr().unwrap().to_string();
    let mut command = with_sockets(socket);
    // SAFETY: between fork and exec it makes system calls only.
    unsafe { command.pre_exec(|| refuse(libc::SYS_pidfd_getfd)) };
    let mut service = Service::start_by(command, &["http", "--listen", "systemd"]);
    assert_eq!(service.behind("listening on "), addr);
    assert!(get(&addr, "/healthz").ends_with("ok\n"));
    ends(&mut service);
}

/// The master may run all the same: its own process may have another filter.
#[test]
fn an_upgrade_by_a_command_that_may_not_watch_processes_names_the_call() {
    let mut command = Command::new(PROGRAM);
    command.args(["upgrade", &std::process::id().to_string()]);
    // SAFETY: between fork and exec it makes system calls only.
    unsafe { command.pre_exec(|| refuse(libc::SYS_pidfd_open)) };
    let output = command.output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("(pidfd_open): Operation not permitted"), "{said}");
    assert!(!said.contains("no running master"), "{said}");
}

/// As a parent does that starts a second server on its socket (Go's `os.File.Fd`).
#[test]
fn a_socket_that_somebody_else_makes_block_holds_up_neither_a_request_nor_the_end() {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = socket.local_addr().unwrap().to_string();
    for accept in ["exclusive", "dispatch"] {
        let command = with_sockets(socket.try_clone().unwrap());
        let arguments = ["http", "--listen", "systemd", "--accept", accept];
        let mut service = Service::start_by(command, &arguments);
        assert_eq!(service.behind("listening on "), addr);
        for _ in 0..5 {
            socket.set_nonblocking(false).unwrap();
            assert!(get(&addr, "/healthz").ends_with("ok\n"));
        }
        socket.set_nonblocking(false).unwrap();
        ends(&mut service);
    }
}

#[test]
fn sockets_that_cannot_be_served_are_told() {
    let run = |mut command: Command, more: &[&str]| {
        let all = [&["serve", "http", "--listen", "systemd"][..], more].concat();
        let output = command.args(all).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, said) = run(Command::new(PROGRAM), &[]);
    assert_eq!(code, Some(1));
    assert!(said.contains("--listen systemd: systemd has passed no socket"), "{said}");
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let (code, said) = run(with_sockets(socket), &["--accept", "reuse-port"]);
    assert_eq!(code, Some(2));
    assert!(said.contains("use exclusive or dispatch"), "{said}");
    let (one, _other) = UnixStream::pair().unwrap();
    let (code, said) = run(with_sockets(one), &[]);
    assert_eq!(code, Some(1));
    assert!(
        said.contains(
            "--listen systemd: LISTEN_FDS is 1, but descriptor 3 is not a listening socket"
        ),
        "{said}"
    );
    let file = tempfile::tempfile().unwrap();
    let (code, said) = run(with_sockets(file), &[]);
    assert_eq!(code, Some(1));
    assert!(said.contains("--listen systemd: "), "{said}");
}

/// What docs/serve.md says of two servers behind a proxy.
#[test]
fn servers_behind_a_proxy_are_restarted_one_after_the_other_and_no_request_fails() {
    let listen = |addr: &str| {
        let mut service = Service::start(&["http", "--listen", addr]);
        let addr = service.behind("listening on ");
        (service, addr)
    };
    let (mut one, first) = listen("127.0.0.1:0");
    let (mut other, second) = listen("127.0.0.1:0");
    let to = ["proxy", "--to", &first, "--to", &second, "--listen", "127.0.0.1:0"];
    let mut proxy = Service::start(&to);
    let addr = proxy.behind("listening on ");
    while_clients_ask(&addr, |answered| {
        for _ in 0..3 {
            for (service, at) in [(&mut one, &first), (&mut other, &second)] {
                until_more(answered, 20);
                service.signal("-TERM");
                assert!(service.child.wait().unwrap().success());
                until_more(answered, 20);
                *service = listen(at).0;
            }
        }
    });
}

/// What docs/serve.md says of a port that is in use.
#[test]
fn a_second_server_on_a_tcp_port_does_not_start() {
    for accept in ["exclusive", "reuse-port"] {
        let mut service = Service::start(&["http", "--listen", "127.0.0.1:0", "--accept", accept]);
        let addr = service.behind("listening on ");
        let second = ["serve", "http", "--listen", &addr, "--accept", accept];
        let output = Command::new(PROGRAM).args(second).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(String::from_utf8_lossy(&output.stderr).contains("the address is in use"));
        drop(service);
        assert!(TcpStream::connect(addr).is_err());
    }
}
