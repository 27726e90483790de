use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command as StdCommand, ExitStatus, Output, Stdio};

use super::child::Child;
use super::orphan;
use super::running::Running;
use super::{ChildStdin, ChildStdout};
use crate::sys::fork_check::Process;
use crate::task::consume_budget;

/// Starts a child process. This type is like [`std::process::Command`], but each method that waits
/// returns a future.
///
/// For settings without a method here, use [`as_std_mut`](Self::as_std_mut), or convert a command
/// of the standard library (`From`). The [module](super) has an example.
///
/// # Threads
/// `Send` and `Sync`.
#[derive(Debug)]
pub struct Command {
    command: StdCommand,
    kill_on_drop: bool,
    /// Which of the standard streams were chosen: in, out, error.
    chosen: [bool; 3],
}

impl Command {
    /// Makes a command that starts `program`. A name without a slash is searched for in `PATH`.
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        StdCommand::new(program).into()
    }

    /// Adds an argument.
    pub fn arg(&mut self, arg: impl AsRef<OsStr>) -> &mut Self {
        self.command.arg(arg);
        self
    }

    /// Adds arguments.
    pub fn args<S: AsRef<OsStr>>(&mut self, args: impl IntoIterator<Item = S>) -> &mut Self {
        self.command.args(args);
        self
    }

    /// Sets the name that the child gets as `argv[0]`.
    pub fn arg0(&mut self, arg: impl AsRef<OsStr>) -> &mut Self {
        self.command.arg0(arg);
        self
    }

    /// Sets a variable of the child's environment.
    pub fn env(&mut self, key: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> &mut Self {
        self.command.env(key, value);
        self
    }

    /// Sets variables of the child's environment.
    pub fn envs<K: AsRef<OsStr>, V: AsRef<OsStr>>(
        &mut self,
        variables: impl IntoIterator<Item = (K, V)>,
    ) -> &mut Self {
        self.command.envs(variables);
        self
    }

    /// Removes a variable from the child's environment.
    pub fn env_remove(&mut self, key: impl AsRef<OsStr>) -> &mut Self {
        self.command.env_remove(key);
        self
    }

    /// Removes all variables from the child's environment.
    pub fn env_clear(&mut self) -> &mut Self {
        self.command.env_clear();
        self
    }

    /// Sets the child's working directory.
    pub fn current_dir(&mut self, directory: impl AsRef<Path>) -> &mut Self {
        self.command.current_dir(directory);
        self
    }

    /// Sets the child's standard input. By default it is inherited; for [`output`](Self::output) it
    /// is empty.
    pub fn stdin(&mut self, stdio: impl Into<Stdio>) -> &mut Self {
        self.command.stdin(stdio);
        self.chosen[0] = true;
        self
    }

    /// Sets the child's standard output. By default it is inherited; for [`output`](Self::output)
    /// it is a pipe.
    pub fn stdout(&mut self, stdio: impl Into<Stdio>) -> &mut Self {
        self.command.stdout(stdio);
        self.chosen[1] = true;
        self
    }

    /// Sets the child's standard error. By default it is inherited; for [`output`](Self::output) it
    /// is a pipe.
    pub fn stderr(&mut self, stdio: impl Into<Stdio>) -> &mut Self {
        self.command.stderr(stdio);
        self.chosen[2] = true;
        self
    }

    /// Sets the child's user id.
    pub fn uid(&mut self, id: u32) -> &mut Self {
        self.command.uid(id);
        self
    }

    /// Sets the child's group id.
    pub fn gid(&mut self, id: u32) -> &mut Self {
        self.command.gid(id);
        self
    }

    /// Puts the child into a process group. With 0 it gets its own new group.
    pub fn process_group(&mut self, group: i32) -> &mut Self {
        self.command.process_group(group);
        self
    }

    /// Sets whether the child is killed (SIGKILL) when its [`Child`] is dropped before its status
    /// is known, for example by a timeout, an aborted task, or the end of its loop. By default it
    /// is not killed. It is reaped in both cases.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wakeful::process::Command;
    /// use wakeful::time::timeout;
    ///
    /// # fn main() -> std::io::Result<()> {
    /// wakeful::block_on(async {
    ///     let mut slow = Command::new("sleep");
    ///     slow.arg("1000").kill_on_drop(true);
    ///     let status = timeout(Duration::from_millis(1), slow.status()).await;
    ///     assert!(status.is_err(), "and it is killed");
    ///     Ok(())
    /// })
    /// # }
    /// ```
    pub fn kill_on_drop(&mut self, kill: bool) -> &mut Self {
        self.kill_on_drop = kill;
        self
    }

    /// Returns the command of the standard library.
    #[must_use]
    pub fn as_std(&self) -> &StdCommand {
        &self.command
    }

    /// Returns the command of the standard library, for settings without a method here, such as
    /// `pre_exec`.
    ///
    /// Do not set standard streams there, but with the methods of this type.
    /// [`output`](Self::output) replaces streams that were set on the returned command, and leaves
    /// them set to inherited.
    pub fn as_std_mut(&mut self) -> &mut StdCommand {
        &mut self.command
    }

    /// Starts the child. This thread's loop watches its pipes and its end.
    ///
    /// The call blocks until the child has begun to run its program (`vfork` and `execve`, about a
    /// millisecond). With `uid`, `gid` or `pre_exec`, or if `PATH` is set for the child and the
    /// program's name has no slash, it uses a plain fork(2). That takes longer the more memory this
    /// process has mapped. The call starts the child on this thread, because a child may ask to die
    /// with the thread that started it (`PR_SET_PDEATHSIG`).
    ///
    /// At the limit of processes, it reaps dropped children that have ended. If there were any, it
    /// tries once more. Functions of `pre_exec` may then run again, in the other child.
    ///
    /// # Errors
    /// Errors of the standard library (no such program, no permission, a limit of processes); no
    /// loop runs on this thread; the loop cannot watch the pipes. After an error no child is left
    /// running.
    pub fn spawn(&mut self) -> io::Result<Child> {
        // Errors here must come before the child is started.
        crate::readiness::driver()?;
        let parent = Process::current()?;
        let started = match self.command.spawn() {
            // Zombies count in the limit of processes. Those that nobody else can reap must not
            // keep all other children from starting.
            Err(error) if error.kind() == ErrorKind::WouldBlock && orphan::reap_ended() => {
                self.command.spawn()?
            }
            started => started?,
        };
        let mut child = Child::new(Running::new(started.id(), parent));
        // After an error nobody could reach the child, so it is killed.
        child.set_kill_on_drop(true);
        child.stdin = started.stdin.map(|it| ChildStdin::from_owned_fd(it.into())).transpose()?;
        child.stdout =
            started.stdout.map(|it| ChildStdout::from_owned_fd(it.into())).transpose()?;
        child.stderr =
            started.stderr.map(|it| ChildStdout::from_owned_fd(it.into())).transpose()?;
        child.set_kill_on_drop(self.kill_on_drop);
        Ok(child)
    }

    /// Starts the child, closes its pipes if it has any, and waits for its end.
    ///
    /// # Cancel safety
    /// If cancelled, the child continues to run, unless [`kill_on_drop`](Self::kill_on_drop) is
    /// set. It is reaped in both cases.
    ///
    /// # Errors
    /// The same as for [`spawn`](Self::spawn) and [`Child::wait`].
    pub async fn status(&mut self) -> io::Result<ExitStatus> {
        consume_budget().await;
        let mut child = self.spawn()?;
        drop((child.stdin.take(), child.stdout.take(), child.stderr.take()));
        child.wait().await
    }

    /// Starts the child, and returns its status and its output. Its standard input is empty by
    /// default. If you set an output stream, it is read only if it is a pipe.
    ///
    /// # Cancel safety
    /// If cancelled, the child continues to run, unless [`kill_on_drop`](Self::kill_on_drop) is
    /// set. It is reaped in both cases.
    ///
    /// # Errors
    /// The same as for [`spawn`](Self::spawn) and [`Child::wait_with_output`].
    pub async fn output(&mut self) -> io::Result<Output> {
        consume_budget().await;
        let [stdin, stdout, stderr] = self.chosen;
        if !stdin {
            self.command.stdin(Stdio::null());
        }
        if !stdout {
            self.command.stdout(Stdio::piped());
        }
        if !stderr {
            self.command.stderr(Stdio::piped());
        }
        let child = self.spawn();
        // The default is restored, even if `as_std_mut` had set something else: inherited.
        if !stdin {
            self.command.stdin(Stdio::inherit());
        }
        if !stdout {
            self.command.stdout(Stdio::inherit());
        }
        if !stderr {
            self.command.stderr(Stdio::inherit());
        }
        child?.wait_with_output().await
    }
}

impl From<StdCommand> for Command {
    /// Converts a command of the standard library. [`output`](Command::output) overrides its
    /// standard streams: see [`as_std_mut`](Command::as_std_mut).
    fn from(command: StdCommand) -> Self {
        Self { command, kill_on_drop: false, chosen: [false; 3] }
    }
}
