//! `wakeful serve` under a limit of address space (`ulimit -v`, RLIMIT_AS).

mod common;

use std::process::Command;
use std::thread;

use common::{PROGRAM, Service, get};

const MIB: u32 = 1 << 20;

/// What an arena of glibc's allocator reserves, in MiB: where the limit lies within such a step
/// must not matter.
const STEP: u32 = 64;

/// The address space that the program has without a thread beside its first one, in MiB.
fn least() -> u32 {
    let enough = |mib: &u32| {
        let script = format!("ulimit -v {} && exec \"$0\" --version", mib * (MIB / 1024));
        Command::new("sh").args(["-c", &script, PROGRAM]).output().unwrap().status.success()
    };
    (1..).map(|step| step * 8).find(enough).unwrap()
}

#[test]
fn with_any_limit_that_has_room_for_its_work_a_server_starts_and_serves() {
    let least = least() + 2 * STEP;
    for mib in (least..least + STEP).step_by(4) {
        let mut limited = Command::new("sh");
        let script = format!("ulimit -v {} && exec \"$0\" \"$@\"", mib * (MIB / 1024));
        limited.args(["-c", &script, PROGRAM]);
        let mut service = Service::start_by(limited, &["http", "--listen", "127.0.0.1:0"]);
        let addr = service.behind("listening on ");
        let ask = || {
            for _ in 0..5 {
                let answer = get(&addr, "/bytes/1000000");
                assert!(answer.len() > 1_000_000, "{mib} MiB: {answer:.100}");
            }
        };
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(ask);
            }
        });
        assert!(service.child.try_wait().unwrap().is_none(), "with {mib} MiB");
    }
}
