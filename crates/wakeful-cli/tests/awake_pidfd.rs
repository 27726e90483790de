//! A command under `wakeful awake` where its process gets no descriptor (pidfd), or no signal by
//! it: signals reach the command all the same.
#![allow(unsafe_code)] // `pre_exec`.

mod common;
#[path = "common/refused_call.rs"]
mod refused_call;

use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use common::{GUARD, PROGRAM};
use refused_call::refuse;
use rustix::process::{Resource, Rlimit, setrlimit};

/// Sends TERM to `wakeful awake` when its command runs. Returns how it ended, and what it said.
fn ended_by_term(
    prepare: impl FnMut() -> io::Result<()> + Send + Sync + 'static,
) -> (ExitStatus, String) {
    let mut command = Command::new(PROGRAM);
    command.args(["awake", "--", "sh", "-c", "echo up; exec sleep 60"]);
    // SAFETY: between fork and exec it makes system calls only.
    unsafe { command.pre_exec(prepare) };
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    if line != "up\n" {
        let output = child.wait_with_output().unwrap();
        panic!("{line:?}, {}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    let (pid, start) = (child.id().to_string(), Instant::now());
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if start.elapsed() >= GUARD {
            child.kill().unwrap();
            panic!("it does not end");
        }
        thread::sleep(Duration::from_millis(5));
    };
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    (status, said)
}

fn is_ended(status: ExitStatus) -> bool {
    // The command has replaced `wakeful awake`, or the exit code tells how it ended.
    status.signal() == Some(libc::SIGTERM) || status.code() == Some(128 + libc::SIGTERM)
}

#[test]
fn a_term_ends_a_command_for_which_no_descriptor_is_left() {
    const LIMITS: [fn() -> io::Result<()>; 4] = [limit::<4>, limit::<5>, limit::<6>, limit::<7>];
    for prepare in LIMITS {
        let (status, said) = ended_by_term(prepare);
        assert!(is_ended(status) && said.contains("Too many open files"), "{status}: {said}");
    }
}

fn limit<const MOST: u64>() -> io::Result<()> {
    let few = Rlimit { current: Some(MOST), maximum: Some(MOST) };
    Ok(setrlimit(Resource::Nofile, few)?)
}

/// As in a container whose filter knows none of the calls, or only one, and before Linux 5.3.
#[test]
fn a_term_ends_a_command_where_a_call_for_descriptors_is_refused() {
    for (call, number) in
        [("pidfd_open", libc::SYS_pidfd_open), ("pidfd_send_signal", libc::SYS_pidfd_send_signal)]
    {
        let (status, said) = ended_by_term(move || refuse(number));
        assert!(is_ended(status) && said.contains(call), "{call}: {status}: {said}");
        assert!(said.contains("no CPU is held for this command"), "{said}");
    }
}
