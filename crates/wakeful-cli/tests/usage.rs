//! What is said of a value that an option does not take, and of a limit that is reached: the
//! option, the value, the range; the limit. What may not be done is said, too.
#![allow(unsafe_code)] // `pre_exec`.

mod common;
#[path = "common/refused_call.rs"]
mod refused_call;

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use common::PROGRAM;
use refused_call::refuse;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat, open};

/// Says the option, the value, and what would be one.
fn is_refused(command: &[&str], option: &str, value: &str, range: &str) {
    let output = Command::new(PROGRAM).args(command).args([option, value]).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{option} {value}: {text}");
    let expected = [format!("'{value}' for '{option}"), range.to_owned()];
    for part in expected {
        assert!(text.contains(&part), "{option} {value}: {part} is not in: {text}");
    }
}

const SECONDS: &str = "seconds, 0 or more";
const POSITIVE: &str = "seconds, more than 0";
const BYTES: &str = "bytes, 0 or more";
const COUNT: &str = "0 or more";

#[test]
fn serve_names_the_range_of_each_option() {
    for (option, values, range) in [
        ("--loops", &["-1", "65536"][..], "from 0 to 65535"),
        ("--max-cpu", &["-1", "1.1", "nan", "x"], "from 0 to 1"),
        ("--hit-rate", &["-1", "0", "1"], "from 0.05 to 0.9999"),
        ("--max-window", &["-1s", "1h", "x"], "at most 16.7ms"),
        ("--hold-cost", &["-1", "1.1", "nan"], "from 0 to 1"),
        ("--target-utilisation", &["-1", "0.99"], "from 0.05 to 0.95"),
        ("--moves", &["-1", "1"], "from 1.05 to 1000"),
        ("--grace", &["-1", "nan", "x"], SECONDS),
        ("--pre-drain", &["-1"], SECONDS),
        ("--header-timeout", &["-1", "0"], POSITIVE),
        ("--idle-timeout", &["-1"], POSITIVE),
        ("--body-timeout", &["-1"], POSITIVE),
        ("--request-timeout", &["-1"], POSITIVE),
        ("--tls-reload-interval", &["-1"], POSITIVE),
        ("--max-header", &["-1", "1"], "at least 8KiB"),
        ("--max-body", &["-1", "1GB"], BYTES),
        ("--max-connections", &["-1"], COUNT),
        ("--max-connections-per-peer", &["-1"], COUNT),
        ("--max-requests", &["-1"], COUNT),
        ("--peer-rate", &["-1", "0"], "1 or more"),
    ] {
        values.iter().for_each(|value| is_refused(&["serve", "http"], option, value, range));
    }
    for option in ["--worker-timeout", "--worker-start-timeout"] {
        is_refused(&["serve", "http", "--workers", "2"], option, "0.5", "seconds, 1 or more");
    }
    for service in ["kv", "echo"] {
        for (option, value, range) in [
            ("--max-memory", "-1", BYTES),
            ("--max-connections", "-1", COUNT),
            ("--idle-timeout", "-1", SECONDS),
            ("--stall-timeout", "-1", SECONDS),
            ("--keepalive", "32768", "from 0 to 32767"),
        ] {
            is_refused(&["serve", service], option, value, range);
        }
    }
    is_refused(&["serve", "kv"], "--max-memory-clients", "-1", BYTES);
    is_refused(&["serve", "kv"], "--client-query-buffer-limit", "1", "at least 1MiB");
    for value in ["-1", "1", "1GiB"] {
        is_refused(&["serve", "kv"], "--max-value", value, "at least 64 and at most 512MiB");
    }
    for value in ["-1", "0", "5GiB"] {
        is_refused(&["serve", "rpc"], "--max-message", value, "from 1 to 4GiB");
    }
    for (option, value, range) in [
        ("--upstream-connections", "-1", "1 or more"),
        ("--upstream-connections", "0", "1 or more"),
        ("--connect-timeout", "-1", POSITIVE),
        ("--upstream-timeout", "-1", POSITIVE),
        ("--tunnel-timeout", "0", POSITIVE),
        ("--request-buffer", "-1", BYTES),
        ("--response-buffer", "-1", BYTES),
        ("--loop-buffer", "-1", BYTES),
        ("--max-tunnels", "-1", "1 or more"),
    ] {
        is_refused(&["serve", "proxy", "--to", "127.0.0.1:1"], option, value, range);
    }
}

#[test]
fn load_and_lab_name_the_range_of_each_option() {
    const TIME: &str = "10ms to 24h";
    const TIME_OR_NONE: &str = "0s to 24h";
    for (option, values, range) in [
        ("--pairs", &["-1", "0"][..], "from 1 to 1000"),
        ("--rate", &["-1", "0", "1e9"], "at most 10M"),
        ("--seed", &["-1"], COUNT),
        ("--duration", &["-1s", "1ms", "2d"], TIME),
        ("--warm-up", &["-1s", "2d"], TIME_OR_NONE),
        ("--timeout", &["-1s", "2d"], TIME_OR_NONE),
        ("--connections", &["-1", "0"], "from 1 to 1000000"),
        ("--in-flight", &["-1", "0"], "from 1 to 100000"),
        ("--slow", &["-1", "100001"], "from 0 to 100000"),
        ("--cpu", &["-1"], COUNT),
        ("--server-cpus", &["-1", "9999"], "CPU"),
        ("--pid", &["-1", "0", "x"], "1 or more"),
        ("--quiet-share", &["-1", "nan"], "0 to 1024"),
        ("--quiet-patience", &["-1s"], TIME_OR_NONE),
        ("--repeats", &["-1", "1001"], "from 0 to 1000"),
        ("--keys", &["-1", "0"], "from 1 to 1000000000000"),
        ("--size", &["-1", "x"], "from 0 to 16777216"),
        ("--mix", &["-1"], "from 0 to 1000000"),
    ] {
        values.iter().for_each(|value| is_refused(&["load", "127.0.0.1:1"], option, value, range));
    }
    for (option, value, range) in [
        ("--delay", "-1s", TIME_OR_NONE),
        ("--stall", "-1s", TIME_OR_NONE),
        ("--stall-every", "0s", TIME),
    ] {
        is_refused(&["load", "null-server"], option, value, range);
    }
    for (option, values, range) in [
        ("--seed", &["-1"][..], COUNT),
        ("--timer", &["-1s", "1ms"], "200ms to 10m"),
        ("--rounds", &["-1", "0"], "from 1 to 1000"),
        ("--block", &["-1s", "1ms"], "100ms to 1m"),
        ("--quiet-share", &["-1", "nan"], "0 to 1024"),
    ] {
        values.iter().for_each(|value| is_refused(&["lab", "list"], option, value, range));
    }
}

#[test]
fn a_start_without_descriptors_names_their_limit() {
    for service in ["http", "echo", "kv", "rpc", "proxy --to 127.0.0.1:1"] {
        // From 3, which do not suffice to load the program, to as many as it takes.
        let mut refusals = 0;
        let enough = (5..100).find(|limit| {
            let script = format!(
                "ulimit -n {limit}; exec {PROGRAM} serve {service} --listen 127.0.0.1:0 --loops 2"
            );
            let mut child =
                Command::new("sh").args(["-c", &script]).stderr(Stdio::piped()).spawn().unwrap();
            let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
            let last = lines.find_map(|line| {
                let line = line.unwrap();
                (line.contains("listening on") || line.starts_with("wakeful:")).then_some(line)
            });
            let _ = child.kill();
            child.wait().unwrap();
            let line = last.unwrap_or_else(|| panic!("{service}, {limit}: it says nothing"));
            if line.starts_with("wakeful:") {
                assert!(line.contains("RLIMIT_NOFILE"), "{service}, {limit}: {line}");
                refusals += 1;
            }
            line.contains("listening on")
        });
        assert!(enough.is_some() && refusals > 5, "{service}: {enough:?}, {refusals}");
    }
}

/// The exit code, and what was said.
fn checked(settings: &str, more: &[&str]) -> (Option<i32>, String) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("settings.toml");
    std::fs::write(&file, settings).unwrap();
    let command = ["config", "check", file.to_str().unwrap()];
    let output = Command::new(PROGRAM).args(command).args(more).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains(file.to_str().unwrap()), "{text}");
    (output.status.code(), text)
}

#[test]
fn a_settings_file_is_checked_as_the_command_line_is() {
    let good = "service = 'proxy'\nto = ['127.0.0.1:81', 'unix:/run/a']\ngrace = 1.5\npin = true\n";
    let (code, text) = checked(good, &[]);
    assert_eq!(
        (code, text.contains("a server would start with these settings")),
        (Some(0), true),
        "{text}"
    );
    assert_eq!(checked("", &["kv", "--loops", "2"]).0, Some(0));
    let directory = tempfile::tempdir().unwrap();
    let pid_file = directory.path().join("server.pid");
    let settings = format!("workers = 1\npid-file = '{}'\n", pid_file.display());
    assert_eq!(checked(&settings, &[]).0, Some(0));
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "nothing is left");
    for (settings, more, expected) in [
        ("grace = -1", &[][..], "'-1' for '--grace"),
        ("service = 'proxy'", &[], "--to"),
        ("placement = 'random'", &[], "--placement needs --accept dispatch"),
        ("tls-cert = '/nowhere/cert'\ntls-key = '/nowhere/key'", &[], "/nowhere/cert"),
        ("listen = 'nowhere'", &[], "nowhere"),
        ("max-value = '1MiB'", &["http"], "max-value is not a setting"),
        ("a = [", &[], "line 1"),
        (
            "workers = 1\npid-file = '/nowhere/a.pid'",
            &[],
            "cannot write the pid file /nowhere/a.pid",
        ),
        ("workers = 1\npid-file = '/dev/null'", &[], "/dev/null: it is not a regular file"),
        (
            "access-log = 'json'\naccess-log-file = '/nowhere/a.log'",
            &[],
            "cannot write the access log /nowhere/a.log",
        ),
        ("access-log = 'json'\naccess-log-file = '/'", &[], "cannot write the access log /: "),
        ("access-log = 'json'\naccess-log-file = '/tmp/no-such-log/'", &[], "name of a file"),
        ("", &["foo"], "the words after "),
        ("\ngrace = 'x'", &[], ", line 2: error: invalid value 'x' for '--grace"),
        ("access-log = 'json'\ngrace = 1", &["http", "--access-log-files", "f"], "the words after"),
        ("loops = 1\nspread = 'yes'", &[], "line 2: spread must be true or false"),
    ] {
        let (code, text) = checked(settings, more);
        assert!(code == Some(1) && text.contains(expected), "{settings}: {code:?} {text}");
    }
}

/// A check by root would otherwise make a log that the service's own user cannot write.
#[test]
fn a_check_makes_no_access_log_and_touches_none() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let names = || {
        let entries = std::fs::read_dir(directory.path()).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    std::fs::write(at("cut"), "a line without its e").unwrap();
    std::os::unix::fs::symlink("rotated", at("link")).unwrap();
    mknodat(CWD, at("pipe"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let reader = open(at("pipe"), OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty()).unwrap();
    let before = names();
    for name in ["new", "cut", "link", "pipe"] {
        let file = at(name);
        let settings = format!("access-log = 'json'\naccess-log-file = '{}'", file.display());
        let (code, text) = checked(&settings, &[]);
        assert_eq!((code, names()), (Some(0), before.clone()), "{text}");
    }
    assert_eq!(std::fs::read_to_string(at("cut")).unwrap(), "a line without its e");
    // A pipe hangs up when its last writer leaves, and not before the first one has come.
    let mut pipe = [PollFd::new(&reader, PollFlags::IN)];
    assert_eq!(poll(&mut pipe, Some(&Timespec::default())).unwrap(), 0, "{pipe:?}");
}

#[test]
fn a_settings_file_that_is_not_there_or_has_no_end_is_named() {
    for (path, expected) in [
        ("/nowhere/a.toml", "/nowhere/a.toml: cannot read the settings file: No such file"),
        ("/dev/zero", "the file is larger than 1 MiB"),
    ] {
        let output = Command::new(PROGRAM).args(["serve", "--config", path]).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains(expected), "{text}");
    }
}

#[test]
fn a_help_names_only_what_the_service_has() {
    for (service, absent) in [
        ("rpc", &["--access-log", "reopen", "--moves"][..]),
        ("proxy", &["--access-log", "reopen"]),
        ("echo", &["--tls-cert", "--admin", "Redis"]),
        (
            "kv",
            &[
                "--workers <",
                "--spread",
                "--pid-file",
                "--worker-timeout",
                "--orphan",
                "--exec",
                "Processes",
            ],
        ),
    ] {
        let help = Command::new(PROGRAM).args(["serve", service, "--help"]).output().unwrap();
        let text = String::from_utf8(help.stdout).unwrap();
        assert!(text.contains("--listen") && text.contains("Exit codes: 0 drained; 1"), "{text}");
        for name in absent {
            assert!(!text.contains(name), "{service}: {name}: {text}");
        }
    }
    let http = Command::new(PROGRAM).args(["serve", "http", "--help"]).output().unwrap();
    assert!(String::from_utf8(http.stdout).unwrap().contains("reopen the access log"));
    // A hidden option is still parsed, so that the error says why it cannot be used.
    let kv = Command::new(PROGRAM).args(["serve", "kv", "--workers", "2"]).output().unwrap();
    let text = String::from_utf8(kv.stderr).unwrap();
    assert!(kv.status.code() == Some(2) && text.contains("--workers cannot be used"), "{text}");
}

#[test]
fn an_address_that_is_none_says_what_is_one() {
    let long = format!("unix:/{}", "x".repeat(107));
    for (command, expected) in [
        (&["serve", "--listen", "nonsense"][..], "unix:PATH, or unix:@NAME, or systemd"),
        (
            &["serve", "--listen", "localhost:80"],
            "expected 127.0.0.1 or [::1] instead of localhost",
        ),
        (&["serve", "--listen", "https://unix:/a"], "an address has no scheme"),
        (&["serve", "--listen", &long], "at most 107 bytes"),
        (&["serve", "--admin", "nonsense"], "--admin: \"nonsense\" is not a valid address"),
        (&["serve", "echo", "--backend", &long], "at most 107 bytes"),
        (&["serve", "proxy", "--to", &long], "at most 107 bytes"),
        (&["serve", "proxy", "--to", "https://unix:/a"], "a Unix socket has no scheme"),
        (&["serve", "proxy", "--to", "nonsense"], "unix:PATH or unix:@NAME"),
        (&["load", &long], "at most 107 bytes"),
    ] {
        let output = Command::new(PROGRAM).args(command).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{command:?}: {text}");
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(text.contains(expected), "{command:?}: {text}");
    }
}

#[test]
fn a_time_s_example_is_one() {
    for (command, option, example) in [
        (&["awake", "--pid", "1"][..], "--latency", "0us to 1s in whole microseconds, as 2us"),
        (&["keeper"], "--longest", "1ms to 365d, as 30s or 10m"),
        (&["load", "127.0.0.1:1"], "--duration", "10ms to 24h, as 500ms or 2s"),
        (&["lab", "list"], "--block", "100ms to 1m, as 500ms or 2s"),
        (&["serve"], "--max-window", "at most 16.7ms, as 500us or 3ms"),
    ] {
        is_refused(command, option, "1", &format!("{example}: a number and its unit"));
    }
    let wrong = "expected 0us to 1s in whole microseconds";
    is_refused(&["awake", "--pid", "1"], "--latency", "1.5us", wrong);
}

/// As in a container whose filter refuses the call.
#[test]
fn a_start_that_may_not_pin_names_the_cpu_and_the_call() {
    let mut command = Command::new(PROGRAM);
    command.args(["serve", "http", "--listen", "127.0.0.1:0", "--loops", "1", "--pin"]);
    // SAFETY: between fork and exec it makes system calls only.
    unsafe { command.pre_exec(|| refuse(libc::SYS_sched_setaffinity)) };
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("cannot pin a loop's thread to CPU "), "{text}");
    assert!(text.contains("allow sched_setaffinity(2), or do not pin"), "{text}");
    assert!(!text.contains("panicked"), "{text}");
}
