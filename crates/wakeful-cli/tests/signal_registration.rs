//! A signal that arrives while its handler is registered. The test is alone in its process, because
//! it waits for all threads that it traces.
#![allow(unsafe_code)]

mod common;

use std::collections::HashSet;
use std::process::Command;
use std::time::{Duration, Instant};

use common::{GUARD, PROGRAM};
use nix::sys::ptrace::{self, Event, Options};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

/// Has this thread stopped at the entry of a call that installs a handler of TERM?
fn installs(thread: Pid) -> bool {
    let Ok(info) = ptrace::syscall_info(thread) else { return false };
    if info.op != libc::PTRACE_SYSCALL_INFO_ENTRY {
        return false;
    }
    // SAFETY: at the entry of a call, this variant of the union is valid.
    let call = unsafe { info.u.entry };
    let is_sigaction = call.nr == libc::SYS_rt_sigaction.unsigned_abs();
    is_sigaction && call.args[0] == Signal::SIGTERM as u64 && call.args[1] != 0
}

/// Runs the program, and sends it TERM when it has just installed a handler of TERM, before the
/// call returns. Returns how the program ended. `None`: nothing can be traced here.
#[allow(clippy::zombie_processes, reason = "`waitpid` waits for it")]
fn ended_by_an_early_term(arguments: &[&str]) -> Option<WaitStatus> {
    let mut command = Command::new("sh");
    command.args(["-c", "kill -STOP $$; exec \"$0\" \"$@\"", PROGRAM]).args(arguments);
    // A service that runs these tests may have set them.
    command.env_remove("NOTIFY_SOCKET").env_remove("LISTEN_FDS");
    let program = command.spawn().unwrap();
    let pid = Pid::from_raw(program.id().try_into().unwrap());
    assert!(matches!(waitpid(pid, Some(WaitPidFlag::WUNTRACED)), Ok(WaitStatus::Stopped(..))));
    let options = Options::PTRACE_O_TRACESYSGOOD
        | Options::PTRACE_O_TRACECLONE
        | Options::PTRACE_O_TRACEEXEC
        | Options::PTRACE_O_EXITKILL;
    let is_traced = ptrace::seize(pid, options);
    kill(pid, Signal::SIGCONT).unwrap();
    if let Err(error) = is_traced {
        kill(pid, Signal::SIGKILL).unwrap();
        waitpid(pid, None).unwrap();
        eprintln!("skipped: {error}");
        return None;
    }
    let (mut installing, mut is_program, mut has_come) = (HashSet::new(), false, false);
    let mut held = None;
    let start = Instant::now();
    loop {
        let status = waitpid(None, Some(WaitPidFlag::__WALL | WaitPidFlag::WNOHANG)).unwrap();
        let (thread, signal) = match status {
            WaitStatus::Exited(ended, _) | WaitStatus::Signaled(ended, ..) => {
                if ended == pid {
                    assert!(has_come, "it installs no handler of TERM");
                    return Some(status);
                }
                continue;
            }
            WaitStatus::StillAlive => {
                if let Some((thread, _)) = held.take_if(|(_, until)| *until < Instant::now()) {
                    let _ = ptrace::syscall(thread, None);
                }
                if start.elapsed() > GUARD {
                    kill(pid, Signal::SIGKILL).unwrap();
                }
                std::thread::sleep(Duration::from_millis(1));
                continue;
            }
            WaitStatus::PtraceSyscall(thread) => {
                if installing.remove(&thread) && !has_come {
                    has_come = true;
                    kill(pid, Signal::SIGTERM).unwrap();
                    // If another thread takes the signal, it calls the handler meanwhile.
                    held = Some((thread, Instant::now() + Duration::from_millis(100)));
                    continue;
                } else if is_program && installs(thread) {
                    installing.insert(thread);
                }
                (thread, None)
            }
            WaitStatus::Stopped(thread, signal) => (thread, Some(signal)),
            WaitStatus::PtraceEvent(thread, _, event) => {
                is_program |= event == Event::PTRACE_EVENT_EXEC as i32;
                (thread, None)
            }
            _ => continue,
        };
        // The thread may have been killed meanwhile.
        let _ = ptrace::syscall(thread, signal);
    }
}

#[test]
fn a_term_that_comes_while_its_handler_is_registered_ends_the_program() {
    let directory = tempfile::tempdir().unwrap();
    let [socket, state, lock] = ["socket", "state", "lock"]
        .map(|name| directory.path().join(name).into_os_string().into_string().unwrap());
    // The command ends by the TERM that is passed on to it.
    let awake = ["awake", "--", "sleep", "60"];
    let load = ["load", "null-server", "--listen", "127.0.0.1:0"];
    let keeper = ["keeper", "--socket", &socket, "--state", &state, "--lock", &lock];
    let serve = ["serve", "http", "--listen", "127.0.0.1:0", "--loops", "2"];
    // A keeper that may not hold CPUs here ends with 1.
    for (arguments, codes) in
        [(&awake[..], &[128 + 15][..]), (&load, &[0]), (&serve, &[0]), (&keeper, &[0, 1])]
    {
        let Some(ended) = ended_by_an_early_term(arguments) else { return };
        let is_expected = matches!(ended, WaitStatus::Exited(_, code) if codes.contains(&code));
        assert!(is_expected, "{arguments:?}: {ended:?}, killed if the signal was lost");
    }
}
