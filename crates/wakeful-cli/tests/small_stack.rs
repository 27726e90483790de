//! The program where the stack is small (`ulimit -s`): it works, and does not abort.

mod common;

use std::process::{Command, Output};

use common::{PROGRAM, Service, get};

/// Small ones, what Linux gives by default, and no limit at all.
const KIBIBYTES: [&str; 5] = ["64", "128", "256", "8192", "unlimited"];

/// The program with a stack of so many KiB at most.
fn with_stack(kibibytes: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -s \"$1\" && shift && exec \"$@\"", "sh", kibibytes, PROGRAM]);
    command
}

fn run(kibibytes: &str, arguments: &[&str]) -> Output {
    with_stack(kibibytes).args(arguments).output().unwrap()
}

#[test]
fn services_serve_and_end() {
    let mut backend = Service::start(&["http", "--listen", "127.0.0.1:0"]);
    let to = backend.behind("listening on ");
    for kibibytes in KIBIBYTES {
        for arguments in [
            &["http", "--admin", "127.0.0.1:0"][..],
            &["rpc"],
            &["proxy", "--to", &to, "--admin", "127.0.0.1:0"],
            &["echo"],
            &["kv"],
        ] {
            let all = [arguments, &["--listen", "127.0.0.1:0"]].concat();
            let mut service = Service::start_by(with_stack(kibibytes), &all);
            let addr = service.behind("listening on ");
            if matches!(arguments[0], "http" | "proxy") {
                assert!(get(&addr, "/healthz").ends_with("ok\n"), "{kibibytes}: {arguments:?}");
            }
            service.signal("-TERM");
            let ended = service.child.wait().unwrap();
            assert!(ended.success(), "{kibibytes} KiB: {arguments:?}: {ended}");
        }
    }
}

#[test]
fn a_master_that_has_no_room_says_so() {
    let arguments = ["serve", "http", "--listen", "127.0.0.1:0", "--workers", "1"];
    let output = run("64", &arguments);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("--workers needs a stack of 1024 KiB"), "{said}");
    assert!(said.contains("the hard limit is 64 KiB"), "{said}");
}

#[test]
fn help_and_usage_errors_are_what_they_are() {
    let help = run("unlimited", &["serve", "http", "--help"]).stdout;
    for kibibytes in KIBIBYTES {
        let output = run(kibibytes, &["serve", "http", "--help"]);
        assert_eq!((output.status.code(), output.stdout), (Some(0), help.clone()), "{kibibytes}");
        for (usage, code) in [(&["--version"][..], 0), (&["serve", "--loops"], 2), (&[], 2)] {
            let output = run(kibibytes, usage);
            assert_eq!(output.status.code(), Some(code), "{kibibytes} KiB: {usage:?}: {output:?}");
        }
    }
}

#[test]
fn a_command_that_is_kept_awake_has_its_stack_and_its_exit_code() {
    for kibibytes in KIBIBYTES {
        let output = run(kibibytes, &["awake", "--", "sh", "-c", "ulimit -s; exit 7"]);
        let said = String::from_utf8(output.stdout).unwrap();
        assert_eq!((said.trim(), output.status.code()), (kibibytes, Some(7)));
    }
}
