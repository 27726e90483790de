//! Signals that are not TERM or INT: what they do to a service, from its start to its end.

mod common;

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

use common::{GUARD, PROGRAM, Service};

const SERVICES: [&[&str]; 5] =
    [&["http"], &["echo"], &["kv"], &["rpc"], &["proxy", "--to", "127.0.0.1:1"]];

#[test]
fn hup_usr1_and_usr2_end_no_service() {
    for service in SERVICES {
        let mut server = Service::start(&[service, &["--listen", "127.0.0.1:0"]].concat());
        server.behind("listening on ");
        for (signal, says) in [
            ("-HUP", "HUP: nothing to reload"),
            ("-USR1", "USR1: no effect"),
            ("-HUP", "HUP: nothing to reload"),
            ("-USR2", "USR2: no effect"),
        ] {
            server.signal(signal);
            server.behind(says);
        }
        server.signal("-TERM");
        server.behind("drained");
        assert!(server.child.wait().unwrap().success(), "{service:?}");
    }
}

#[test]
fn pwr_and_xcpu_drain_as_term_does() {
    for (signal, says) in [("-PWR", "PWR: ending"), ("-XCPU", "XCPU: ending")] {
        let mut server = Service::start(&["http", "--listen", "127.0.0.1:0"]);
        let addr = server.behind("listening on ");
        let mut busy = TcpStream::connect(&addr).unwrap();
        busy.set_read_timeout(Some(GUARD)).unwrap();
        busy.write_all(b"GET /sleep/2000 HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
        until_in_flight(&addr);
        server.signal(signal);
        server.behind(says);
        server.behind("draining");
        // XCPU comes each second: it is no second TERM.
        std::thread::sleep(Duration::from_millis(300));
        server.signal(signal);
        let mut text = String::new();
        busy.read_to_string(&mut text).unwrap();
        assert!(text.ends_with("slept 2000 ms\n"), "{text}");
        server.behind("drained");
        assert!(server.child.wait().unwrap().success(), "{signal}");
    }
}

/// All threads of a server inherit its policy and its CPU.
#[test]
fn a_server_that_spins_under_sched_fifo_on_one_cpu_answers_and_drains() {
    let allowed = rustix::thread::sched_getaffinity(None).unwrap();
    let is_allowed = |cpu: &usize| allowed.is_set(*cpu);
    let last = (0..rustix::thread::CpuSet::MAX_CPU).rfind(is_allowed).unwrap().to_string();
    let real_time = |program: &str| {
        let mut command = Command::new("chrt");
        command.args(["--fifo", "1", "taskset", "--cpu-list", &last, program]);
        command
    };
    if !real_time("true").status().is_ok_and(|status| status.success()) {
        println!("skipped: no SCHED_FIFO here (chrt(1), as root)");
        return;
    }
    let arguments = ["echo", "--listen", "127.0.0.1:0"];
    let mut server = Service::start_idle(real_time(PROGRAM), &arguments, "spin");
    let (pid, (ended, end)) = (server.child.id().to_string(), std::sync::mpsc::channel::<()>());
    // One that starves does not end by itself, nor does its log.
    let guard = std::thread::spawn(move || {
        if end.recv_timeout(GUARD) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            Command::new("kill").args(["-KILL", &pid]).status().unwrap();
        }
    });
    let addr = server.behind("listening on ");
    let frame = b"\x00\x00\x00\x02hi";
    common::ask(&TcpStream::connect(&addr).unwrap(), frame, frame);
    server.signal("-TERM");
    server.behind("drained");
    assert!(server.child.wait().unwrap().success());
    drop(ended);
    guard.join().unwrap();
}

/// By the kernel itself.
#[test]
fn a_service_that_has_used_its_cpu_time_drains() {
    let mut limited = Command::new("prlimit");
    limited.args(["--cpu=1:20", PROGRAM]);
    let mut server = Service::start_by(limited, &["http", "--listen", "127.0.0.1:0"]);
    let addr = server.behind("listening on ");
    let load = std::thread::spawn(move || {
        let mut stream = TcpStream::connect(&addr).unwrap();
        stream.set_read_timeout(Some(GUARD)).unwrap();
        const REQUEST: &[u8] = b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n";
        stream.write_all(REQUEST).unwrap();
        let (mut answer, mut byte) = (Vec::new(), [0]);
        while !answer.ends_with(b"\r\n\r\nok\n") {
            stream.read_exact(&mut byte).unwrap();
            answer.push(byte[0]);
        }
        // All are of one length, and each is read: else both would wait for room in the end.
        let (requests, mut answers) = (REQUEST.repeat(50), answer.repeat(50));
        let mut number = 0;
        while stream.write_all(&requests).is_ok() && stream.read_exact(&mut answers).is_ok() {
            number += 50;
        }
        number
    });
    server.behind("XCPU: ending");
    server.behind("drained");
    assert!(server.child.wait().unwrap().success());
    assert!(load.join().unwrap() > 0);
}

#[test]
fn signals_that_the_parent_has_blocked_arrive() {
    let mut blocking = Command::new("env");
    blocking.args(["--block-signal=TERM,INT,HUP", PROGRAM]);
    let mut server = Service::start_by(blocking, &["http", "--listen", "127.0.0.1:0"]);
    server.behind("listening on ");
    server.signal("-HUP");
    server.behind("HUP: nothing to reload");
    server.signal("-TERM");
    server.behind("drained");
    assert!(server.child.wait().unwrap().success());
}

/// Waits until a request is, beside that for the metrics.
fn until_in_flight(addr: &str) {
    let (start, two) = (Instant::now(), "wakeful_http_requests_in_flight{loop=\"0\"} 2\n");
    while !common::get(addr, "/metrics").contains(two) {
        assert!(start.elapsed() < GUARD, "the request is not in flight");
    }
}

#[test]
fn hup_during_the_drain_ends_nothing() {
    let mut server = Service::start(&["http", "--listen", "127.0.0.1:0"]);
    let addr = server.behind("listening on ");
    let mut busy = TcpStream::connect(&addr).unwrap();
    busy.set_read_timeout(Some(GUARD)).unwrap();
    busy.write_all(b"GET /sleep/3000 HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    until_in_flight(&addr);
    server.signal("-TERM");
    server.behind("draining");
    server.signal("-HUP");
    server.behind("HUP: nothing to reload");
    let mut text = String::new();
    busy.read_to_string(&mut text).unwrap();
    assert!(text.ends_with("slept 3000 ms\n"), "{text}");
    server.behind("drained");
    assert!(server.child.wait().unwrap().success());
}

/// Does the process catch this signal?
fn catches(pid: u32, signal: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
    u64::from_str_radix(mask.trim(), 16).unwrap() >> (signal - 1) & 1 == 1
}

#[test]
fn hup_during_the_start_ends_nothing() {
    // The start waits for somebody who reads the log.
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("log");
    assert!(Command::new("mkfifo").arg(&log).status().unwrap().success());
    let options = ["--access-log", "json", "--access-log-file", log.to_str().unwrap()];
    let mut server = Service::start(&[&["http", "--listen", "127.0.0.1:0"][..], &options].concat());
    let (pid, start) = (server.child.id(), Instant::now());
    while !catches(pid, 1) {
        assert!(start.elapsed() < GUARD, "HUP would end it");
        std::thread::sleep(Duration::from_millis(1));
    }
    server.signal("-HUP");
    let _reader = File::open(&log).unwrap();
    // A signal that arrives before the service can reload is not lost.
    let lines = [server.behind("listening on "), server.behind("HUP: ")];
    assert!(lines[1].contains("reopening the access log"), "{lines:?}");
    server.signal("-TERM");
    server.behind("drained");
    assert!(server.child.wait().unwrap().success());
}

#[test]
fn signals_before_the_command_line_is_read_end_nothing() {
    // Which takes as long as the settings file.
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("settings");
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    let options = ["http", "--listen", "127.0.0.1:0", "--config", path.to_str().unwrap()];
    let mut server = Service::start(&options);
    let mut settings = OpenOptions::new().write(true).open(&path).unwrap();
    for name in ["-HUP", "-USR1", "-USR2"] {
        server.signal(name);
    }
    settings.write_all(b"grace = 1\n").unwrap();
    drop(settings);
    server.behind("listening on ");
    let mut lines = ["HUP: ", "USR1: ", "USR2: "].map(|text| (text, false));
    while lines.iter().any(|(_, is_there)| !is_there) {
        let line = server.behind("other_signals: ");
        lines.iter_mut().for_each(|(text, is_there)| *is_there |= line.starts_with(*text));
    }
    server.signal("-TERM");
    server.behind("drained");
    assert!(server.child.wait().unwrap().success());
}

#[test]
fn the_help_names_them() {
    for service in SERVICES {
        let output =
            Command::new(common::PROGRAM).args(["serve", service[0], "--help"]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        for name in ["TERM, INT ", "PWR, XCPU ", "HUP ", "USR1, USR2 ", "QUIT ", "ALRM, "] {
            assert!(text.contains(name), "{service:?}: {text}");
        }
    }
}
