//! The panic that aborts a process is reported, whatever was reported just before. A program of its
//! own, because the panic hook is the process's.

use std::panic::catch_unwind;
use std::process::{Command, Stdio};
use std::{env, io};

use wakeful::log::{LossyWriter, report_panics};

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

#[test]
fn the_panic_that_aborts_the_process_is_reported_behind_any_others() {
    if env::var_os(ROLE).is_some() {
        report_panics(&LossyWriter::new(io::stderr()));
        panic_at_many_places();
        let _panics_too = PanicsInItsDrop;
        panic!("the first");
    }
    let test = "the_panic_that_aborts_the_process_is_reported_behind_any_others";
    let output = Command::new(env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(ROLE, "1")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    let is_it =
        |line: &str| line.contains(" panicked at ") && line.contains("core/src/panicking.rs:");
    assert!(said.lines().any(is_it), "{said}");
}
