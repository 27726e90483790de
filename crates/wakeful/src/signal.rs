//! Signals as futures.
//!
//! A handler writes a byte into a socket pair that the loop watches (`driver::signals`, by the `signal-hook` crate): nothing else
//! runs in the handler. Handlers are process-wide and stay; several [`Signals`] for one signal each get it. What arrives in a
//! forked child is not told to its parent.

use std::future::{Future, poll_fn};
use std::io;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::{Duration, Instant};

use signal_hook::SigId;
use signal_hook::low_level::unregister;

use crate::driver::signals;
use crate::event_loop::EventLoop;
use crate::net::{ByteStream, UnixStream};
use crate::task::spawn_blocking;

pub use signal_hook::consts::signal::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};

/// What comes within so much time of a signal is no second one.
const ONE_SIGNAL: Duration = Duration::from_millis(100);

/// A stream of some signals' arrivals.
///
/// From its making on, these signals no longer do what they did by default; when it is dropped, that does not come back.
/// A forked child inherits that, and is told of its signals by streams of its own only: its parent's hear nothing of them.
///
/// ```no_run
/// use wakeful::signal::{SIGTERM, Signals};
///
/// # async fn example() -> std::io::Result<()> {
/// let mut terminate = Signals::new(&[SIGTERM])?;
/// terminate.recv().await?;
/// println!("told to end");
/// # Ok(())
/// # }
/// ```
///
/// *Threads*: Neither `Send` nor `Sync`: it stays on its loop's thread. Signals themselves may arrive on any thread.
#[derive(Debug)]
pub struct Signals {
    /// One for each signal, with the number to tell.
    pipes: Vec<(i32, UnixStream, SigId)>,
}

impl Signals {
    /// Catches `signals` from now on.
    ///
    /// # Errors
    /// A signal that cannot be caught (`SIGKILL`, `SIGSTOP`, those of the program's own faults); no loop runs here; no
    /// descriptors left.
    pub fn new(signals: &[i32]) -> io::Result<Self> {
        let mut this = Self { pipes: Vec::with_capacity(signals.len()) };
        for &signal in signals {
            if signal_hook::consts::FORBIDDEN.contains(&signal) {
                let text = format!("signal {signal} cannot be caught");
                return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
            }
            let (write, read) = StdUnixStream::pair()?;
            let read = UnixStream::from_std(read)?;
            let id = signals::watch(signal, write)?;
            this.pipes.push((signal, read, id));
        }
        Ok(this)
    }

    /// Waits for the next of the signals and returns its number. Arrivals of one signal that nobody took in time may count as one.
    ///
    /// *Cancel-safe*.
    ///
    /// # Errors
    /// The loop has ended.
    pub async fn recv(&mut self) -> io::Result<i32> {
        poll_fn(|cx| {
            for (signal, pipe, _) in &self.pipes {
                if let Poll::Ready(read) = pipe.io().poll_read(cx, &mut [0; 1][..]) {
                    return Poll::Ready(read.map(|_| *signal));
                }
            }
            Poll::Pending
        })
        .await
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        for (_, _, id) in &self.pipes {
            unregister(*id);
        }
    }
}

/// Runs a server until it is told to end: calls `start`, waits for Ctrl-C (SIGINT) or SIGTERM, and calls `drain` with what `start` returned.
///
/// A second signal does not wait for `drain`: the result is `None`, and the program should exit. (Within a tenth of a second it is taken for the same one: `timeout(1)`
/// and terminals signal a process and its group.) Blocks the
/// calling thread, on a small loop of its own. `start` is called on that thread, in front of the loop's first turn: it may block, and what it spawns runs as soon as it returns. `drain` runs on the blocking
/// pool.
///
/// # Errors
/// What `start` returned; the signals cannot be caught; a loop already runs on this thread.
///
/// # Panics
/// When `start` or `drain` does.
pub fn run_until_terminated<S, R>(
    start: impl FnOnce() -> io::Result<S>,
    drain: impl FnOnce(S) -> R + Send + 'static,
) -> io::Result<Option<R>>
where
    S: Send + 'static,
    R: Send + 'static,
{
    let mut event_loop = EventLoop::new()?;
    let (mut signals, server) = event_loop.prepare(|| {
        // Caught before the server starts: who sees it listen may tell it to end.
        let signals = Signals::new(&[SIGINT, SIGTERM])?;
        Ok::<_, io::Error>((signals, start()?))
    })??;
    event_loop.block_on(async move {
        let signal = signals.recv().await?;
        tracing::info!(signal, "ending; a second signal stops at once");
        let mut drained = spawn_blocking(move || drain(server));
        let mut second = pin!(async {
            let first = Instant::now();
            loop {
                let signal = signals.recv().await?;
                if first.elapsed() >= ONE_SIGNAL {
                    return Ok::<_, io::Error>(signal);
                }
            }
        });
        poll_fn(|cx| match Pin::new(&mut drained).poll(cx) {
            Poll::Ready(Ok(result)) => Poll::Ready(Ok(Some(result))),
            Poll::Ready(Err(error)) => match error.try_into_panic() {
                Ok(payload) => std::panic::resume_unwind(payload),
                Err(error) => Poll::Ready(Err(io::Error::other(error))),
            },
            Poll::Pending => second.as_mut().poll(cx).map_ok(|_| None),
        })
        .await
    })?
}

/// Waits for the next Ctrl-C (SIGINT).
///
/// *Cancel-safe*. From its first poll on, Ctrl-C no longer ends the program.
///
/// # Errors
/// As for [`Signals::new`].
pub async fn ctrl_c() -> io::Result<()> {
    Signals::new(&[SIGINT])?.recv().await.map(|_| ())
}
