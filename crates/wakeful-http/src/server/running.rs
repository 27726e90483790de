//! A server that runs, and how it ends.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use wakeful::LoopHandle;
use wakeful::accept::{Counts, Serving};
use wakeful::group::Loads;
use wakeful::net::ListenAddr;
use wakeful::process::start_thread;

use crate::counts::HttpCounts;
use crate::drain::{DrainPlan, Ending, Readiness};
use crate::foreign_code::{self, Locking, hold_back_wakers, shielded};
use crate::loop_state::ServerState;

/// A running server. Dropping it aborts all connections and stops the loops.
///
/// # Threads
/// `Send`, not `Sync`. [`shutdown`](Self::shutdown), [`drain`](Self::drain) and dropping it block
/// the thread, so do none of them on one of the server's loops. [`drained`](Self::drained) does not
/// block.
#[derive(Debug)]
pub struct Running {
    serving: Serving,
    server: ServerState,
    ending: Ending,
}

impl Running {
    pub(super) fn new(serving: Serving, server: ServerState, ending: Ending) -> Self {
        Self { serving, server, ending }
    }

    /// Returns the addresses on which the server listens.
    #[must_use]
    pub fn local_addrs(&self) -> &[ListenAddr] {
        self.serving.local_addrs()
    }

    /// Returns the handles of the loops, for example for their metrics.
    #[must_use]
    pub fn handles(&self) -> &[LoopHandle] {
        self.serving.handles()
    }

    /// Returns how busy the loops are, and how many of them are active.
    #[must_use]
    pub fn loads(&self) -> Loads {
        self.serving.loads()
    }

    /// Waits until the server can no longer accept connections, and returns the error. See
    /// [`Serving::failure`].
    pub fn failure(&self) -> impl Future<Output = io::Error> + Send + use<> {
        self.serving.failure()
    }

    /// Returns the counters of connections.
    #[must_use]
    pub fn counts(&self) -> Arc<Counts> {
        self.serving.counts()
    }

    /// Returns the counters of requests and refusals.
    #[must_use]
    pub fn http_counts(&self) -> Arc<HttpCounts> {
        self.server.counts()
    }

    /// Returns a value that shows whether the server is ready, and when it drains.
    #[must_use]
    pub fn readiness(&self) -> Readiness {
        self.ending.readiness().clone()
    }

    /// Stops accepting, lets requests finish for up to `grace`, and aborts the rest. This is
    /// [`drain`](Self::drain) with the default plan and this `grace`. Returns how many connections
    /// were aborted. Blocks the calling thread.
    ///
    /// # Errors
    /// The same as for `drain`.
    pub fn shutdown(self, grace: Duration) -> io::Result<usize> {
        self.drain(DrainPlan::new().grace(grace))
    }

    /// Ends the server as `plan` says: reports that the server is not ready, stops accepting, lets
    /// requests finish, and aborts the rest. Returns how many connections were aborted. Blocks the
    /// calling thread for at most `pre_drain` and `grace` together, plus a second if a loop is
    /// blocked.
    ///
    /// # Errors
    /// * A handler blocks a loop, and the call gave up waiting for that loop.
    /// * A loop had ended with an error before.
    /// * This process is a fork of the process that started the server.
    pub fn drain(self, plan: DrainPlan) -> io::Result<usize> {
        self.ending.readiness().ends_soon();
        if !plan.pre_drain.is_zero() {
            foreign_code::log!(
                info,
                "/readyz now says not ready; the drain begins in {:?}",
                plan.pre_drain
            );
            thread::sleep(plan.pre_drain);
        }
        let addrs: Vec<_> = self.local_addrs().iter().map(ToString::to_string).collect();
        let addrs = addrs.join(", ");
        if plan.grace.is_zero() {
            foreign_code::log!(info, "ending {addrs} at once: the drain's grace is 0");
        } else {
            foreign_code::log!(info, "draining {addrs}, for {:?} at most", plan.grace);
        }
        self.server.drain_by(&plan);
        self.ending.readiness().drains();
        Ok(self.serving.shutdown(plan.grace)?)
    }
}

impl Running {
    /// Ends the server like [`drain`](Self::drain), but does not block: the drain runs on a
    /// separate thread. (If no thread can be started, the first poll blocks for the whole drain.)
    ///
    /// # Errors
    /// The same as for [`drain`](Self::drain); or the drain has panicked.
    ///
    /// # Cancel safety
    /// The drain begins at the first poll. If the future is dropped after that, the drain
    /// continues. If it is dropped before, all connections are aborted.
    pub async fn drained(self, plan: DrainPlan) -> io::Result<usize> {
        let (tell, drained) = async_channel::bounded(1);
        // The channel wakes with its lock held, so a waker that polls at once must wait.
        let tell = Locking::new(tell);
        let shared = Arc::new(Mutex::new(Some(self)));
        let taken = shared.clone();
        let take =
            |of: &Mutex<Option<Self>>| of.lock().unwrap_or_else(PoisonError::into_inner).take();
        let drain = move || {
            if let Some(running) = take(&taken) {
                let result = running.drain(plan);
                // An error means that nobody waits for the result any more.
                let _ = hold_back_wakers(|| tell.try_send(result));
            }
        };
        if let Err(error) = start_thread("wakeful-drain", drain) {
            foreign_code::log!(warn, %error, "the drain blocks the loop that awaits it");
            return take(&shared).map_or(Ok(0), |running| running.drain(plan));
        }
        shielded(drained.recv())
            .await
            .unwrap_or_else(|_| Err(io::Error::other("the drain has panicked")))
    }
}
