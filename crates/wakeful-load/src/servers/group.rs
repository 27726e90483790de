//! A process group that this process starts, and that ends with it.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus, kill_process_group, waitid,
};

use crate::affinity::pin_current_thread;
use crate::threads;

/// The time between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(1);

const POLL: Duration = Duration::from_millis(5);

/// The group's number is that of its leader, and stays ours until the leader is reaped. So nobody
/// but [`stop`](Group::stop) reaps it, after the last signal.
#[derive(Debug)]
pub(crate) struct Group {
    leader: Child,
    guardian: Option<Child>,
    stopped: bool,
}

/// Whether the leader runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum State {
    Runs,
    /// The leader has ended, in this way, and is not reaped yet.
    Ended(String),
    /// The leader was reaped by other code, as when SIGCHLD is ignored. Its number is no longer
    /// ours.
    Gone,
}

impl Group {
    /// Starts a command as the leader of a new group, on `cpus` alone. Its stdin and stdout are
    /// `/dev/null`, and its stderr is a pipe.
    pub(crate) fn start(command: &mut Command, cpus: Option<&[usize]>) -> Result<Self, StartError> {
        Self::start_printing(command, cpus, Stdio::null())
    }

    /// Like [`start`](Self::start), but the command writes to `stdout`.
    pub(crate) fn start_printing(
        command: &mut Command,
        cpus: Option<&[usize]>,
        stdout: Stdio,
    ) -> Result<Self, StartError> {
        command.process_group(0);
        command.stdin(Stdio::null()).stdout(stdout).stderr(Stdio::piped());
        // A child gets the CPUs of the thread that starts it, so a thread is made only for that.
        let spawned = thread::scope(|scope| {
            let starter = threads::start_scoped(scope, "starter", || {
                cpus.map_or(Ok(()), pin_current_thread).map_err(StartError::Cpus)?;
                command.spawn().map_err(StartError::Spawn)
            });
            let started = starter.map_err(StartError::Spawn)?.join();
            started.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        let leader = spawned?;
        // Without a shell there is no guardian, and the server outlives this process if it is
        // killed.
        let guardian = guard(leader.id()).ok();
        Ok(Self { leader, guardian, stopped: false })
    }

    pub(crate) fn stderr(&mut self) -> Option<ChildStderr> {
        self.leader.stderr.take()
    }

    pub(crate) fn stdout(&mut self) -> Option<ChildStdout> {
        self.leader.stdout.take()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.leader.id()
    }

    pub(crate) fn state(&self) -> State {
        if self.stopped {
            return State::Gone;
        }
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        match waitid(WaitId::Pid(Pid::from_child(&self.leader)), look) {
            Ok(None) => State::Runs,
            Ok(Some(status)) => State::Ended(describe(&status)),
            Err(_) => State::Gone,
        }
    }

    /// Sends SIGTERM to the group. Once the leader has ended, or after a second, sends SIGKILL to
    /// what is left.
    pub(crate) fn stop(&mut self) {
        let group = Pid::from_child(&self.leader);
        if self.state() == State::Runs {
            kill_process_group(group, Signal::TERM).ok();
            let deadline = Instant::now() + GRACE;
            while self.state() == State::Runs && Instant::now() < deadline {
                thread::sleep(POLL);
            }
        }
        if self.state() != State::Gone {
            kill_process_group(group, Signal::KILL).ok();
        }
        // Not earlier, or nobody would end the group if this process ended meanwhile; and not
        // later: the guardian would signal a number that is no longer ours.
        if let Some(mut guardian) = self.guardian.take() {
            guardian.kill().ok();
            guardian.wait().ok();
        }
        if self.state() != State::Gone {
            self.leader.wait().ok();
        }
        self.stopped = true;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The reason why nothing was started.
#[derive(Debug)]
pub(crate) enum StartError {
    Cpus(io::Error),
    Spawn(io::Error),
}

/// Starts a shell that kills the group once this process has ended in any way. The shell notices
/// the end because only this process holds the other end of its stdin.
fn guard(group: u32) -> io::Result<Child> {
    let mut shell = Command::new("sh");
    shell.args(["-c", r#"read -r _; kill -9 "-$1""#, "sh", &group.to_string()]);
    // Ctrl-C in the terminal is meant for this process, not for the shell.
    shell.process_group(0);
    shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()
}

fn describe(status: &WaitIdStatus) -> String {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => format!("exited with status {code}"),
        (None, Some(signal)) => format!("was killed by signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};

    use super::*;
    use crate::affinity::allowed_cpus;
    use crate::procfs::process_tree;

    const LONG: Duration = Duration::from_secs(60);

    fn start(script: &str) -> Group {
        Group::start(Command::new("sh").args(["-c", script]), None).unwrap()
    }

    fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
        let deadline = Instant::now() + LONG;
        while !done() {
            assert!(Instant::now() < deadline, "{what}");
            thread::sleep(POLL);
        }
    }

    fn is_gone(pid: u32) -> bool {
        crate::procfs::ProcessCpu::read(pid).is_err()
    }

    #[test]
    fn how_it_ended_can_be_asked_again_and_again() {
        for (script, expected) in
            [("exit 3", "exited with status 3"), ("kill -s KILL $$", "was killed by signal 9")]
        {
            let group = start(script);
            wait_until(script, || group.state() != State::Runs);
            assert_eq!(group.state(), State::Ended(expected.to_owned()));
            assert_eq!(group.state(), State::Ended(expected.to_owned()));
        }
    }

    #[test]
    fn stopping_ends_the_whole_group_and_reaps_the_leader() {
        let mut group = start("sleep 600 & echo $! >&2; wait");
        let mut line = String::new();
        BufReader::new(group.stderr().unwrap()).read_line(&mut line).unwrap();
        let child: u32 = line.trim().parse().unwrap();
        group.stop();
        wait_until("the child ends", || is_gone(child));
        assert!(process_tree(group.pid()).is_err(), "not even a zombie");
        assert_eq!(group.state(), State::Gone);
        group.stop();
    }

    #[test]
    fn who_ignores_sigterm_is_killed() {
        let mut group = start("trap '' TERM; echo >&2; while :; do sleep 0.01; done");
        let mut line = String::new();
        BufReader::new(group.stderr().unwrap()).read_line(&mut line).unwrap();
        let start = Instant::now();
        group.stop();
        assert!(start.elapsed() >= GRACE);
        assert!(is_gone(group.pid()));
    }

    #[test]
    fn who_ends_at_sigterm_is_not_made_to_wait() {
        let mut group =
            start("trap 'echo bye >&2; exit 0' TERM; echo >&2; while :; do sleep 0.01; done");
        let mut stderr = BufReader::new(group.stderr().unwrap());
        stderr.read_line(&mut String::new()).unwrap();
        group.stop();
        // The shell may first print that its child was terminated.
        assert!(stderr.lines().any(|line| line.unwrap() == "bye"));
    }

    #[test]
    fn it_runs_on_its_cpus_and_the_caller_on_its_own() {
        let before = allowed_cpus().unwrap();
        let last = *before.last().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "grep Cpus_allowed_list /proc/self/status >&2"]);
        let mut group = Group::start(&mut command, Some(&[last])).unwrap();
        let mut line = String::new();
        BufReader::new(group.stderr().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, format!("Cpus_allowed_list:\t{last}\n"));
        assert_eq!(allowed_cpus().unwrap(), before);
        let error = Group::start(&mut command, Some(&[99_999])).unwrap_err();
        assert!(matches!(error, StartError::Cpus(_)), "{error:?}");
    }
}
