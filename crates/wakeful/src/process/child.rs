use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::process::{ExitStatus, Output};
use std::task::Poll;

use rustix::process::Signal;

use super::running::Running;
use super::{ChildStderr, ChildStdin, ChildStdout};

/// A child process. The [module](super) says what happens to it when this value is dropped.
///
/// ```
/// use std::process::Stdio;
/// use wakeful::process::Command;
///
/// # fn main() -> std::io::Result<()> {
/// wakeful::block_on(async {
///     let mut child = Command::new("sh")
///         .args(["-c", "echo ready; exit 3"])
///         .stdout(Stdio::piped())
///         .spawn()?;
///     let mut text = Vec::new();
///     let stdout = child.stdout.as_mut().expect("it is a pipe");
///     stdout.read_to_end(&mut text).await?;
///     assert_eq!(text, b"ready\n");
///     assert_eq!(child.wait().await?.code(), Some(3));
///     Ok(())
/// })
/// # }
/// ```
///
/// A forked child of this process neither signals nor reaps it.
///
/// # Threads
/// Neither `Send` nor `Sync`: it stays on its loop's thread.
#[derive(Debug)]
pub struct Child {
    /// The child's standard input, if it is a pipe. When this is dropped, the child sees the end of
    /// its input.
    pub stdin: Option<ChildStdin>,
    /// The child's standard output, if it is a pipe.
    pub stdout: Option<ChildStdout>,
    /// The child's standard error, if it is a pipe.
    pub stderr: Option<ChildStderr>,
    running: Running,
}

impl Child {
    /// Makes a child without pipes. The caller registers them.
    pub(super) fn new(running: Running) -> Self {
        Self { stdin: None, stdout: None, stderr: None, running }
    }

    pub(super) fn set_kill_on_drop(&mut self, kill: bool) {
        self.running.kill_on_drop = kill;
    }

    /// Returns the process id, or `None` once the status is known: by then the id may belong to
    /// another process.
    #[must_use]
    pub fn id(&self) -> Option<u32> {
        self.running.id()
    }

    /// Waits until the child has ended, and returns its status. A further call returns the same
    /// status.
    ///
    /// The call closes `stdin` first. Otherwise a child that reads to the end of its input would
    /// never end. The call does not close or read `stdout` and `stderr`. A child that writes more
    /// than a pipe holds (64 KiB) waits until you read. So read these pipes, or call
    /// [`wait_with_output`](Self::wait_with_output).
    ///
    /// # Cancel safety
    /// Cancel-safe: the child continues, and may be waited for again. The first poll closes its
    /// `stdin`.
    ///
    /// # Errors
    /// The status is lost, because SIGCHLD is ignored or other code has waited for the child; the
    /// loop ended before the child; a thread is needed to wait for the child, and cannot be
    /// started.
    pub async fn wait(&mut self) -> io::Result<ExitStatus> {
        drop(self.stdin.take());
        poll_fn(|cx| self.running.poll_wait(cx)).await
    }

    /// Returns the status if the child has ended, without waiting. It works even after the loop has
    /// ended.
    ///
    /// # Errors
    /// The status is lost, as for [`wait`](Self::wait).
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        self.running.try_wait()
    }

    /// Kills the child (SIGKILL), and waits until it has ended.
    ///
    /// ```
    /// use std::os::unix::process::ExitStatusExt;
    /// use wakeful::process::Command;
    ///
    /// # fn main() -> std::io::Result<()> {
    /// wakeful::block_on(async {
    ///     let mut child = Command::new("sleep").arg("1000").spawn()?;
    ///     child.kill().await?;
    ///     assert_eq!(child.wait().await?.signal(), Some(9));
    ///     Ok(())
    /// })
    /// # }
    /// ```
    ///
    /// # Cancel safety
    /// Cancel-safe: the first poll sends the signal, and closes `stdin`.
    ///
    /// # Errors
    /// The same as for [`start_kill`](Self::start_kill) and [`wait`](Self::wait).
    pub async fn kill(&mut self) -> io::Result<()> {
        self.start_kill()?;
        self.wait().await.map(drop)
    }

    /// Kills the child (SIGKILL), without waiting for its end. It is not an error if the child has
    /// already ended.
    ///
    /// # Errors
    /// Kernel errors: the child runs as another user. This process is a fork of the child's parent.
    pub fn start_kill(&mut self) -> io::Result<()> {
        self.running.signal(Signal::KILL)
    }

    /// Sends a signal, such as [`SIGTERM`](crate::signal::SIGTERM). It is not an error if the child
    /// has already ended.
    ///
    /// # Errors
    /// `InvalidInput`: the number is not a signal, or is a real-time signal. Kernel errors: the
    /// child runs as another user. This process is a fork of the child's parent.
    pub fn signal(&self, signal: i32) -> io::Result<()> {
        let Some(signal) = Signal::from_named_raw(signal) else {
            let text = format!("signal {signal} cannot be sent");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        };
        self.running.signal(signal)
    }

    /// Closes `stdin`, reads `stdout` and `stderr` to their ends if they are pipes, and waits for
    /// the child. The size of the output is not limited.
    ///
    /// If a grandchild has inherited the pipes, this call waits until the grandchild has closed
    /// them, too.
    ///
    /// # Cancel safety
    /// Not cancel-safe: if cancelled, the bytes that it has read are lost. The child continues,
    /// unless [`kill_on_drop`](super::Command::kill_on_drop) is set.
    ///
    /// # Errors
    /// The same as for [`wait`](Self::wait); a pipe cannot be read.
    pub async fn wait_with_output(mut self) -> io::Result<Output> {
        let (mut out, mut err) = (self.stdout.take(), self.stderr.take());
        let mut stdout = pin!(to_end(out.as_mut()));
        let mut stderr = pin!(to_end(err.as_mut()));
        let mut status = pin!(self.wait());
        let (mut output, mut errors, mut ended) = (None, None, None);
        poll_fn(|cx| {
            if output.is_none()
                && let Poll::Ready(read) = stdout.as_mut().poll(cx)
            {
                output = Some(read?);
            }
            if errors.is_none()
                && let Poll::Ready(read) = stderr.as_mut().poll(cx)
            {
                errors = Some(read?);
            }
            if ended.is_none()
                && let Poll::Ready(status) = status.as_mut().poll(cx)
            {
                ended = Some(status?);
            }
            match (ended, &mut output, &mut errors) {
                (Some(status), Some(stdout), Some(stderr)) => Poll::Ready(Ok(Output {
                    status,
                    stdout: std::mem::take(stdout),
                    stderr: std::mem::take(stderr),
                })),
                _ => Poll::Pending,
            }
        })
        .await
    }
}

async fn to_end(pipe: Option<&mut ChildStdout>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(pipe) = pipe {
        pipe.read_to_end(&mut bytes).await?;
    }
    Ok(bytes)
}
