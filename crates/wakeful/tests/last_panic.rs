//! The panic that aborts a process is reported, whatever was reported just before, and so is a
//! handler's panic before it returns its future. A program of its own, because the panic hook is
//! the process's.

use std::io::Read;
use std::panic::catch_unwind;
use std::process::{Command, Output, Stdio};
use std::time::Duration;
use std::{env, io};

use wakeful::accept::{Connection, ConnectionServer, SharedListener};
use wakeful::log::{LossyWriter, report_panics};
use wakeful::net::ListenAddr;

const ROLE: &str = "WAKEFUL_TEST_ROLE";

struct PanicsInItsDrop;

impl Drop for PanicsInItsDrop {
    fn drop(&mut self) {
        panic!("while another panic unwinds");
    }
}

/// The hook chooses one of its 16 limits by the number of the line. So panics on 16 lines in a row
/// use up all of them.
#[rustfmt::skip]
fn panic_at_many_places() {
    let places: [fn(); 16] = [
        || panic!("1"),
        || panic!("2"),
        || panic!("3"),
        || panic!("4"),
        || panic!("5"),
        || panic!("6"),
        || panic!("7"),
        || panic!("8"),
        || panic!("9"),
        || panic!("10"),
        || panic!("11"),
        || panic!("12"),
        || panic!("13"),
        || panic!("14"),
        || panic!("15"),
        || panic!("16"),
    ];
    for place in places {
        assert!(catch_unwind(place).is_err());
    }
}

/// Runs one of these tests in a process of its own.
fn in_a_process(test: &str) -> Output {
    Command::new(env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(ROLE, "1")
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

#[test]
fn the_panic_that_aborts_the_process_is_reported_behind_any_others() {
    if env::var_os(ROLE).is_some() {
        report_panics(&LossyWriter::new(io::stderr()));
        panic_at_many_places();
        let _panics_too = PanicsInItsDrop;
        panic!("the first");
    }
    let output = in_a_process("the_panic_that_aborts_the_process_is_reported_behind_any_others");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    let is_it =
        |line: &str| line.contains(" panicked at ") && line.contains("core/src/panicking.rs:");
    assert!(said.lines().any(is_it), "{said}");
}

#[test]
fn a_handler_that_panics_before_it_returns_its_future_is_reported() {
    const GUARD: Duration = Duration::from_secs(20);
    if env::var_os(ROLE).is_some() {
        let log = LossyWriter::new(io::stderr());
        report_panics(&log);
        let listener = SharedListener::bind(&"127.0.0.1:0".parse().unwrap()).unwrap();
        let server = ConnectionServer::new(vec![listener]).start(|| {
            |connection: Connection| {
                assert!(connection.listener > 0, "of a handler, on purpose");
                async {}
            }
        });
        let serving = server.unwrap();
        let ListenAddr::Tcp(addr) = serving.local_addrs()[0] else { panic!("it is TCP") };
        let mut client = std::net::TcpStream::connect(addr).unwrap();
        client.set_read_timeout(Some(GUARD)).unwrap();
        assert!(!matches!(client.read(&mut [0]), Ok(1)), "it is closed");
        serving.shutdown(GUARD).unwrap();
        assert!(log.flush_within(GUARD));
        return;
    }
    let output = in_a_process("a_handler_that_panics_before_it_returns_its_future_is_reported");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let place = concat!(" panicked at ", file!(), ":");
    let mut lines = said.lines();
    assert!(lines.any(|line| line.starts_with("thread '") && line.contains(place)), "{said}");
    assert_eq!(lines.next(), Some("of a handler, on purpose"), "{said}");
}
