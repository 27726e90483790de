//! The arrivals of signals, as a stream.
//!
//! A handler sets a flag, and adds to an eventfd that the loop watches (`sys::signals`). Nothing
//! else runs in the handler, except the program's own one. Handlers are process-wide and are never
//! removed. If there are several [`Signals`] for one signal, each gets the signal. A signal of a
//! forked child is not reported to its parent.

use std::future::poll_fn;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Poll, ready};

use rustix::event::{EventfdFlags, eventfd};
use signal_hook::consts::signal::SIGINT;

use crate::driver::registered::Registered;
use crate::driver::source::Direction;
use crate::net;
use crate::sys::limits::explain_call;
use crate::sys::signals;
use crate::task::coop;

/// Unblocks `signals` on the calling thread, and on the threads that it starts later.
///
/// A process inherits the set of blocked signals from its parent, and a blocked signal never
/// arrives. If SIGTERM must work even though the supervisor may have blocked it, call this function
/// first in `main`, before you start a thread.
///
/// # Errors
/// A number is not a signal. The other signals are unblocked.
pub fn unblock(signals: &[i32]) -> io::Result<()> {
    signals::unblock(signals)
}

/// Receives signals.
///
/// Once a `Signals` is created, its signals have lost their default effect, even after it is
/// dropped. A forked child inherits this. The child's signals arrive only in `Signals` that the
/// child created, not in those of its parent.
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
/// # Threads
/// Neither `Send` nor `Sync`: it stays on its loop's thread. The signals may arrive on any thread.
#[derive(Debug)]
pub struct Signals {
    /// Readable when a signal has arrived. There is one eventfd for all signals, because
    /// descriptors may be scarce.
    eventfd: Registered<Arc<OwnedFd>>,
    /// The eventfd was read, so some flags may be set.
    look: bool,
    /// The flag that each signal's handler sets.
    arrived: Vec<(i32, Arc<AtomicBool>, signals::Watch)>,
    /// Where the search for a flag begins: after the signal that was received last. So a signal
    /// that keeps arriving hides no other one.
    first: usize,
}

impl Signals {
    /// Catches `signals` from now on.
    ///
    /// # Errors
    /// A signal cannot be caught (`SIGKILL`, `SIGSTOP`, or a fault signal such as `SIGSEGV`); no
    /// loop runs on this thread; or no descriptors are left.
    pub fn new(signals: &[i32]) -> io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let told = Arc::new(eventfd(0, flags).map_err(explain_call("eventfd2"))?);
        let eventfd = net::register(told.clone())?;
        let arrived = Vec::with_capacity(signals.len());
        let mut this = Self { eventfd, look: false, arrived, first: 0 };
        for &signal in signals {
            if signal_hook::consts::FORBIDDEN.contains(&signal) {
                let text = format!("signal {signal} cannot be caught");
                return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
            }
            let arrived = Arc::new(AtomicBool::new(false));
            let watch = signals::watch(signal, arrived.clone(), told.clone())?;
            this.arrived.push((signal, arrived, watch));
        }
        Ok(this)
    }

    /// Waits for the next signal, and returns its number. Several arrivals of one signal before a
    /// call of `recv` may count as one.
    ///
    /// # Cancel safety
    /// Cancel-safe.
    ///
    /// # Errors
    /// The loop has ended.
    pub async fn recv(&mut self) -> io::Result<i32> {
        poll_fn(|cx| {
            loop {
                // This uses up budget, because a signal may come again and again.
                ready!(coop::poll_proceed(cx));
                if self.look {
                    if let Some(signal) = self.take_arrived() {
                        coop::made_progress();
                        return Poll::Ready(Ok(signal));
                    }
                    self.look = false;
                }
                // Each write to the eventfd follows the flag of its signal, so a task that has read
                // it sees all flags that were set before.
                ready!(self.eventfd.poll_io(Direction::Read, cx, |eventfd| {
                    rustix::io::read(eventfd, &mut [0; 8])
                }))?;
                self.eventfd.ended(Direction::Read);
                coop::made_progress();
                self.look = true;
            }
        })
        .await
    }

    /// Takes the next signal that has arrived, in turn.
    fn take_arrived(&mut self) -> Option<i32> {
        let (earlier, later) = self.arrived.split_at(self.first);
        let place = later.iter().chain(earlier).position(|(_, arrived, _)| {
            arrived.load(Ordering::Relaxed) && arrived.swap(false, Ordering::Acquire)
        })?;
        let place = (self.first + place) % self.arrived.len();
        self.first = place + 1;
        Some(self.arrived[place].0)
    }

    /// The numbers of the signals, and the flags that say which have arrived and were not received.
    pub(super) fn arrivals(&self) -> Vec<(i32, Arc<AtomicBool>)> {
        self.arrived.iter().map(|(signal, arrived, _)| (*signal, arrived.clone())).collect()
    }
}

/// Waits for the next Ctrl-C (SIGINT).
///
/// From the future's first poll on, Ctrl-C no longer ends the program.
///
/// # Cancel safety
/// Cancel-safe.
///
/// # Errors
/// The same as for [`Signals::new`].
pub async fn ctrl_c() -> io::Result<()> {
    Signals::new(&[SIGINT])?.recv().await.map(|_| ())
}
