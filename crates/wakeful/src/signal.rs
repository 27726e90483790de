//! Signals as futures.
//!
//! A handler writes a byte into a socket pair that the loop watches (the `signal-hook` crate): nothing else
//! runs in the handler. Handlers are process-wide and stay; several [`Signals`] for one signal each get it.

use std::future::poll_fn;
use std::io;
use std::os::unix::net::UnixStream as StdUnixStream;

use signal_hook::SigId;
use signal_hook::low_level::{pipe, unregister};

use crate::net::{ByteStream, UnixStream};

pub use signal_hook::consts::signal::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};

/// A stream of some signals' arrivals.
///
/// From its making on, these signals no longer do what they did by default; when it is dropped, that does not come back.
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
        let mut this = Self {
            pipes: Vec::with_capacity(signals.len()),
        };
        for &signal in signals {
            if signal_hook::consts::FORBIDDEN.contains(&signal) {
                let text = format!("signal {signal} cannot be caught");
                return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
            }
            let (write, read) = StdUnixStream::pair()?;
            let read = UnixStream::from_std(read)?;
            let id = pipe::register(signal, write)?;
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
                if let std::task::Poll::Ready(read) = pipe.io().poll_read(cx, &mut [0; 1][..]) {
                    return std::task::Poll::Ready(read.map(|_| *signal));
                }
            }
            std::task::Poll::Pending
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

/// Waits for the next Ctrl-C (SIGINT).
///
/// # Errors
/// As for [`Signals::new`].
pub async fn ctrl_c() -> io::Result<()> {
    Signals::new(&[SIGINT])?.recv().await.map(|_| ())
}
