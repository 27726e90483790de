//! A server that runs, and how it ends.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use wakeful::LoopHandle;
use wakeful::accept::{Counts, Serving};
use wakeful::group::Loads;
use wakeful::net::ListenAddr;
use wakeful::process::ProcessMark;

use crate::counts::HttpCounts;
use crate::drain::DrainPlan;
use crate::drain::Readiness;
use crate::foreign_code;
use crate::loop_state::ServerState;

/// A running server. Dropping it aborts all connections.
#[derive(Debug)]
pub struct Running {
    serving: Serving,
    server: ServerState,
    ending: Ending,
}

impl Running {
    pub(super) fn new(serving: Serving, server: ServerState) -> Self {
        let ending = Ending(server.readiness(), ProcessMark::new());
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

    /// Completes with an error when the server can no longer accept connections. See
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
        self.ending.0.clone()
    }

    /// Stops accepting, lets requests finish for up to `grace`, and aborts the rest. It is
    /// [`drain`](Self::drain) with the default plan and this `grace`.
    ///
    /// # Errors
    /// The same as for `drain`.
    pub fn shutdown(self, grace: Duration) -> io::Result<usize> {
        self.drain(DrainPlan::new().grace(grace))
    }

    /// Ends the server by `plan`: reports that the server is not ready, stops accepting, lets
    /// requests finish, and aborts the rest. Returns how many connections were aborted. Blocks the
    /// calling thread, at most for `pre_drain` and `grace`, plus a second if a loop is blocked.
    ///
    /// # Errors
    /// A handler blocks a loop, and the call gave up waiting for that loop.
    pub fn drain(self, plan: DrainPlan) -> io::Result<usize> {
        self.ending.0.ends_soon();
        if !plan.pre_drain.is_zero() {
            foreign_code::log!(
                info,
                "/readyz now says not ready; the drain begins in {:?}",
                plan.pre_drain
            );
            thread::sleep(plan.pre_drain);
        }
        let addrs: Vec<_> = self.local_addrs().iter().map(ToString::to_string).collect();
        foreign_code::log!(info, "draining {}, for {:?} at most", addrs.join(", "), plan.grace);
        self.server.drain_by(&plan);
        self.ending.0.drains();
        Ok(self.serving.shutdown(plan.grace)?)
    }
}

impl Running {
    /// Drains like [`drain`](Self::drain), but returns a future. The drain runs on a separate
    /// thread.
    ///
    /// # Errors
    /// The same as for [`drain`](Self::drain).
    ///
    /// # Cancel safety
    /// The drain begins at the first poll. If the future is dropped after that, the drain
    /// continues.
    pub async fn drained(self, plan: DrainPlan) -> io::Result<usize> {
        let (tell, drained) = async_channel::bounded(1);
        let shared = Arc::new(Mutex::new(Some(self)));
        let taken = shared.clone();
        let take =
            |of: &Mutex<Option<Self>>| of.lock().unwrap_or_else(PoisonError::into_inner).take();
        let drain = move || {
            if let Some(running) = take(&taken) {
                // Nobody may listen any more.
                let _ = tell.try_send(running.drain(plan));
            }
        };
        if let Err(error) = thread::Builder::new().name("wakeful-drain".to_owned()).spawn(drain) {
            foreign_code::log!(warn, %error, "the drain blocks the loop that awaits it");
            return take(&shared).map_or(Ok(0), |running| running.drain(plan));
        }
        drained.recv().await.unwrap_or_else(|_| Err(io::Error::other("the drain has panicked")))
    }
}

/// Who waits for the end need not wait for ever.
#[derive(Debug)]
struct Ending(Readiness, ProcessMark);

impl Drop for Ending {
    fn drop(&mut self) {
        // In a forked child nobody waits, and the lock may be locked for ever.
        if !self.1.is_forked() {
            self.0.drains();
        }
    }
}
