//! Listeners as a user has them: one that fails under its service, names without a file, and what
//! is said of addresses.

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::process::Command;

use common::{GUARD, PROGRAM, Service};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

/// The listening TCP socket of a child, as a descriptor of this process. `None`: that is not
/// allowed here.
fn listener_of(service: &Service) -> Option<OwnedFd> {
    let pid = Pid::from_child(&service.child);
    let process = pidfd_open(pid, PidfdFlags::empty()).unwrap();
    for entry in std::fs::read_dir(format!("/proc/{}/fd", service.child.id())).unwrap() {
        let number = entry.unwrap().file_name().into_string().unwrap().parse().unwrap();
        match pidfd_getfd(&process, number, PidfdGetfdFlags::empty()) {
            Ok(fd) if rustix::net::sockopt::socket_acceptconn(&fd) == Ok(true) => return Some(fd),
            Err(Errno::PERM | Errno::NOSYS) => return None,
            _ => {}
        }
    }
    panic!("it does not listen");
}

#[test]
fn a_service_whose_last_listener_failed_drains_and_ends_with_an_error() {
    for service in ["http", "echo"] {
        let mut server = Service::start(&[service, "--listen", "127.0.0.1:0"]);
        let addr = server.behind("listening on ");
        let Some(listener) = listener_of(&server) else {
            println!("skipped: this process may not take descriptors of its children");
            return;
        };
        let mut open = TcpStream::connect(&addr).unwrap();
        open.set_read_timeout(Some(GUARD)).unwrap();
        let (request, answer): (&[u8], &str) = match service {
            "http" => (b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n", "HTTP/1.1 200"),
            _ => (b"\0\0\0\x01x", "\0\0\0\x01x"),
        };
        open.write_all(request).unwrap();
        let mut begin = vec![0; answer.len()];
        open.read_exact(&mut begin).unwrap();
        assert_eq!(begin, answer.as_bytes());
        rustix::net::shutdown(&listener, rustix::net::Shutdown::Both).unwrap();
        server.behind("the last listener failed");
        // The drain closes what is idle.
        open.read_to_end(&mut Vec::new()).unwrap();
        server.behind("wakeful: cannot serve: the last listener failed");
        assert_eq!(server.child.wait().unwrap().code(), Some(1), "{service}");
    }
}

#[test]
fn services_listen_on_abstract_names_and_reach_them() {
    let name = |number| format!("unix:@wakeful-cli-{}-{number}", std::process::id());
    let mut backend = Service::start(&["http", "--listen", &name(1)]);
    assert_eq!(backend.behind("listening on "), name(1));
    let mut proxy = Service::start(&[
        "proxy",
        "--to",
        &name(1),
        "--listen",
        "127.0.0.1:0",
        "--listen",
        &name(2),
    ]);
    let addr = proxy.behind("listening on ");
    assert_eq!(proxy.behind("listening on "), name(2));
    assert!(common::get(&addr, "/healthz").ends_with("ok\n"));
    let mut echo = Service::start(&["echo", "--listen", &name(3)]);
    echo.behind("listening on ");
    let mut frontend = Service::start(&["echo", "--backend", &name(3), "--listen", "127.0.0.1:0"]);
    let mut stream = TcpStream::connect(frontend.behind("listening on ")).unwrap();
    stream.set_read_timeout(Some(GUARD)).unwrap();
    stream.write_all(b"\0\0\0\x01x").unwrap();
    stream.read_exact(&mut [0; 5]).unwrap();
    let again = Command::new(PROGRAM).args(["serve", "--listen", &name(1)]).output().unwrap();
    let text = String::from_utf8(again.stderr).unwrap();
    assert!(text.contains(&name(1)) && text.contains("in use"), "{text}");
}

#[test]
fn an_address_that_is_given_twice_is_said_to_be() {
    let path = format!("unix:/tmp/wakeful-twice-{}", std::process::id());
    for (options, says, code) in [
        (
            ["--listen", "127.0.0.1:47113", "--listen", "127.0.0.1:47113"],
            "--listen 127.0.0.1:47113 is given twice",
            2,
        ),
        (["--listen", &path, "--listen", &path], "is given twice", 2),
        (["--listen", "unix:@x", "--admin", "unix:@x"], "--listen and --admin are both unix:@x", 2),
        (
            ["--listen", "0.0.0.0:47113", "--listen", "127.0.0.1:47113"],
            "this server already listens on 0.0.0.0:47113",
            1,
        ),
    ] {
        let output = Command::new(PROGRAM).arg("serve").args(options).output().unwrap();
        if code == 1 {
            let words = [&["serve", "--workers", "1"][..], &options].concat();
            let workers = Command::new(PROGRAM).args(words).output().unwrap();
            assert_eq!(workers, output, "{options:?}");
        }
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(text.contains(says), "{options:?}: {text}");
        assert_eq!(output.status.code(), Some(code), "{options:?}: {text}");
    }
    // Two of the kernel's choice are two.
    let mut server = Service::start(&["--listen", "127.0.0.1:0", "--listen", "127.0.0.1:0"]);
    assert_ne!(server.behind("listening on "), server.behind("listening on "));
}

#[test]
fn a_wrong_number_of_passed_sockets_is_named() {
    // A descriptor that this program does not open by itself, and one that is no socket.
    for (given, passed, says) in [
        ("200", "", "LISTEN_FDS is 200, but descriptor "),
        ("1", "3</dev/null", "LISTEN_FDS is 1, but descriptor 3 is not a listening socket: "),
    ] {
        let script = format!("export LISTEN_PID=$$ LISTEN_FDS={given}; exec \"$@\" {passed}");
        for more in [&[][..], &["--workers", "1"]] {
            let words = [&["-c", &script, "sh", PROGRAM, "serve", "--listen", "systemd"], more];
            let output = Command::new("sh").args(words.concat()).output().unwrap();
            let text = String::from_utf8(output.stderr).unwrap();
            assert!(text.contains(says) && text.contains(".socket unit"), "{text}");
            assert_eq!(output.status.code(), Some(1), "{text}");
        }
    }
}
