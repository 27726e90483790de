//! `wakeful awake` and its command at a terminal: Ctrl-Z stops the watcher only if the command
//! stops. A command that goes on needs its watcher, which passes signals on and ends with it.

mod common;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use common::{GUARD, PROGRAM};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{self, OpenptFlags};

/// A command that says its parent's process id, the watcher's, and its own. (It starts nothing
/// later: a shell whose child is stopped between vfork and exec does not stop itself.)
const COMMAND: &str = "trap 'kill $!; exit 9' TERM; trap 'echo winch' WINCH; sleep 1000 & \
                       echo up $PPID $$; while :; do wait; done";
/// A shell that starts the watcher as a job, in a process group of its own, and ends with its code.
const JOB: &str = r#""$0" awake -q -- sh -c "$1"; exit $?"#;
/// A shell that continues the job after it has stopped, and after a line.
const JOB_THAT_STOPS: &str =
    r#""$0" awake -q -- sh -c "$1"; echo stopped; read -r _; fg >/dev/null; exit $?"#;

/// The watcher at a terminal of its own.
struct Session {
    /// The end of the terminal that has the keyboard.
    terminal: File,
    /// The leader of the session: the watcher, or the shell that started it.
    leader: Child,
    said: Receiver<String>,
    watcher: Pid,
    command: Pid,
}

impl Session {
    /// The watcher leads the session. So its process group is orphaned, and SIGTSTP with the
    /// default action stops none of its processes, as after `ssh -t HOST wakeful awake -- COMMAND`.
    fn orphaned(script: &str) -> Self {
        Self::start(&[PROGRAM, "awake", "-q", "--", "sh", "-c", script])
    }

    fn of_shell(shell: &str, script: &str) -> Self {
        Self::start(&["sh", "-mc", shell, PROGRAM, script])
    }

    fn start(arguments: &[&str]) -> Self {
        let terminal = pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        pty::unlockpt(&terminal).unwrap();
        let name = pty::ptsname(&terminal, Vec::new()).unwrap().into_string().unwrap();
        let flags = OpenptFlags::NOCTTY.bits().cast_signed();
        let theirs = File::options().read(true).write(true).custom_flags(flags).open(name);
        let mut command = Command::new("setsid");
        command.arg("--ctty").args(arguments).stdin(theirs.unwrap());
        let mut leader = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let lines = BufReader::new(leader.stdout.take().unwrap()).lines();
        let (sender, said) = mpsc::channel();
        // Ends with the processes that have the other end of the pipe.
        thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| sender.send(line)));
        let up = said.recv_timeout(GUARD).unwrap();
        let mut ids = up.strip_prefix("up ").unwrap().split(' ');
        let mut id = || Pid::from_raw(ids.next().unwrap().parse().unwrap()).unwrap();
        let (watcher, command) = (id(), id());
        Self { terminal: terminal.into(), leader, said, watcher, command }
    }

    /// Returns when the watcher has taken the signal.
    fn presses_ctrl_z(&mut self) {
        self.terminal.write_all(b"\x1a").unwrap();
        let mut echo = Vec::new();
        while !echo.ends_with(b"^Z") {
            let mut byte = [0];
            self.terminal.read_exact(&mut byte).unwrap();
            echo.push(byte[0]);
        }
        // The terminal echoes the key after it has sent the signal.
        self.waits_until(|it| !it.has_pending(it.watcher, Signal::TSTP), "not taken");
    }

    fn has_pending(&self, process: Pid, signal: Signal) -> bool {
        let path = format!("/proc/{}/status", process.as_raw_nonzero());
        let status = fs::read_to_string(path).unwrap();
        let set = status.lines().find_map(|line| line.strip_prefix("ShdPnd:")).unwrap();
        u64::from_str_radix(set.trim(), 16).unwrap() & (1 << (signal.as_raw() - 1)) != 0
    }

    fn is_stopped(&self, process: Pid) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero()));
        stat.unwrap().rsplit(") ").next().unwrap().starts_with('T')
    }

    /// Sends the watcher a signal, and waits until the command has it. The watcher takes signals in
    /// the order in which they come.
    fn passes_signals_on(&mut self) {
        kill_process(self.watcher, Signal::WINCH).unwrap();
        let start = Instant::now();
        while self.said.recv_timeout(Duration::from_millis(10)).is_err() {
            assert!(!self.is_stopped(self.watcher), "the watcher is stopped");
            assert!(start.elapsed() < GUARD, "the signal is not passed on");
        }
    }

    fn waits_until(&self, is_so: impl Fn(&Self) -> bool, what: &str) {
        let start = Instant::now();
        while !is_so(self) {
            assert!(start.elapsed() < GUARD, "{what}");
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn ends_by_term(mut self) {
        kill_process(self.watcher, Signal::TERM).unwrap();
        let start = Instant::now();
        let status = loop {
            if let Some(status) = self.leader.try_wait().unwrap() {
                break status;
            }
            assert!(start.elapsed() < GUARD, "it does not end");
            thread::sleep(Duration::from_millis(5));
        };
        assert_eq!(status.code(), Some(9));
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.leader.try_wait().is_ok_and(|status| status.is_none()) {
            for process in [self.command, self.watcher] {
                let _ = kill_process(process, Signal::KILL);
            }
            let _ = self.leader.kill();
            let _ = self.leader.wait();
        }
    }
}

#[test]
fn ctrl_z_in_an_orphaned_process_group_stops_neither_the_command_nor_the_watcher() {
    let mut session = Session::orphaned(COMMAND);
    session.presses_ctrl_z();
    session.passes_signals_on();
    assert!(!session.is_stopped(session.command));
    session.ends_by_term();
}

#[test]
fn ctrl_z_does_not_stop_the_watcher_of_a_command_that_ignores_it() {
    let script = format!("trap '' TSTP; {COMMAND}");
    for session in [Session::orphaned(&script), Session::of_shell(JOB, &script)] {
        let mut session = session;
        session.presses_ctrl_z();
        session.passes_signals_on();
        session.ends_by_term();
    }
}

#[test]
fn ctrl_z_stops_the_command_and_the_watcher_and_both_continue() {
    let mut session = Session::of_shell(JOB_THAT_STOPS, COMMAND);
    session.presses_ctrl_z();
    assert_eq!(session.said.recv_timeout(GUARD).as_deref(), Ok("stopped"));
    let both = [session.watcher, session.command];
    assert!(both.iter().all(|process| session.is_stopped(*process)));
    session.terminal.write_all(b"continue\n").unwrap();
    session.waits_until(|it| !both.iter().any(|process| it.is_stopped(*process)), "stopped");
    session.ends_by_term();
}

#[test]
fn a_command_that_continues_before_its_watcher_stops_keeps_its_watcher() {
    // The watcher stops not before 600 ms have passed. On a busy machine the test may be late.
    let mut session = loop {
        let mut session = Session::of_shell(JOB, COMMAND);
        let start = Instant::now();
        session.presses_ctrl_z();
        session.waits_until(|it| it.is_stopped(it.command), "not stopped");
        kill_process(session.command, Signal::CONT).unwrap();
        if start.elapsed() < Duration::from_millis(500) {
            break session;
        }
    };
    session.passes_signals_on();
    session.ends_by_term();
}
