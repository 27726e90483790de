//! CPUs that are kept from halting: `wakeful awake --probe`, and `wakeful serve --idle hold`.

mod common;

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use common::{GUARD, PROGRAM, Service, get};
use wakeful_awake::latency_device;

const HTTP: [&str; 3] = ["http", "--listen", "127.0.0.1:0"];
/// May not use the device.
const USER: u32 = 54_323;

/// A hold is the machine's: one test at a time looks at it.
static MACHINE: Mutex<()> = Mutex::new(());

#[test]
fn the_probe_says_how_cpus_idle_here_and_whether_a_hold_is_worth_it() {
    let _machine = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    let output = Command::new(PROGRAM).args(["awake", "--probe"]).output().unwrap();
    let report = String::from_utf8(output.stdout).unwrap();
    for field in ["idle driver  ", "governor  ", "a wake  ", "permitted  "] {
        assert!(report.contains(field), "{field}: {report}");
    }
    let is_worth_it = report.contains("worth it         yes");
    assert_eq!(output.status.success(), is_worth_it, "{report}");
}

#[test]
fn a_server_holds_while_it_has_traffic_not_in_silence_and_not_when_it_is_killed() {
    let _machine = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    let Ok(device) = latency_device::open() else {
        eprintln!("skipped: {} may not be used here", latency_device::PATH);
        return;
    };
    let is_held = || latency_device::in_force(&device).unwrap() == Some(Duration::ZERO);
    if is_held() {
        eprintln!("skipped: somebody holds the machine's CPUs");
        return;
    }
    let mut service = Service::start_idle(Command::new(PROGRAM), &HTTP, "hold");
    let addr = service.behind("listening on ");
    for end_by_kill in [false, true] {
        let start = Instant::now();
        while !is_held() {
            if start.elapsed() > GUARD {
                eprintln!("skipped: a hold is not worth it here, or the machine is too large");
                return;
            }
            assert!(get(&addr, "/healthz").starts_with("HTTP/1.1 200"));
        }
        if end_by_kill {
            service.child.kill().unwrap();
            service.child.wait().unwrap();
        }
        let start = Instant::now();
        while is_held() {
            assert!(!end_by_kill && start.elapsed() < GUARD, "still held");
            std::thread::yield_now();
        }
    }
}

#[test]
fn a_server_that_may_not_hold_says_so_and_serves() {
    let command = || {
        let mut command = Command::new(PROGRAM);
        command.uid(USER).gid(USER).current_dir("/");
        command
    };
    if !command().arg("--version").status().is_ok_and(|status| status.success()) {
        eprintln!("skipped: the program cannot be run as another user");
        return;
    }
    let mut service = Service::start_idle(command(), &HTTP, "hold");
    let why = service.behind("CPUs cannot be held here: loops park instead");
    let addr = service.behind("listening on ");
    assert!(why.contains(latency_device::PATH), "{why}");
    assert!(get(&addr, "/healthz").starts_with("HTTP/1.1 200"));
}
